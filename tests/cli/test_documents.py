"""What the README and the pages in `docs` show is run: every line after a `$`, every Python block."""

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fsbench.cli.app import load_command
from tests.benchmarks import END, START, shown_of
from tests.cli import run, succeed
from tests.workspace import write_clip, write_feature_files, write_labelling, write_mini, write_photos, write_pickles

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
DOCUMENTS = {path.name: path.read_text(encoding="utf-8") for path in PAGES}
# What does not run here, and why; its options are checked all the same.
NOT_RUN = {
    "make": "installs fsbench or runs this test",
    "torchrun": "one process stands for all: tests/cli/test_ranks.py runs several",
    "fsbench train": "takes hours: tests/cli/test_train.py trains for moments",
}
DOWNLOADS = "--pretrained"  # weights
NEED_IMAGES = "benchmarks.md", "cifarfs"  # a page and a name of commands on images of a benchmark, which are not here
# What the user has before the commands of a section.
BEFORE: dict[str, list[Callable[[Path], None]]] = {
    "README.md, Start": [write_mini],
    "README.md, Compare methods": [write_photos, write_pickles],
    "data.md, Benchmarks": [write_mini],
    "data.md, Your own images": [write_photos],
    "data.md, Features of other programs": [write_pickles],
    "text.md, Import and run": [write_clip],
    "label.md, The loop": [write_labelling],
}


@dataclass(frozen=True)
class Block:
    section: str
    language: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """The lines after a `$`, without comments, as words."""
        lines = [line for line in self.text.replace("\\\n", "").splitlines() if line]
        assert all(line.startswith("$ ") for line in lines), "a console block shows commands only"
        return [shlex.split(line[2:], comments=True) for line in lines]


def blocks(language: str) -> list[Block]:
    found = []
    for document, content in DOCUMENTS.items():
        for part in re.split(r"^## ", content, flags=re.MULTILINE):
            section = f"{document}, {part.partition(chr(10))[0]}"
            fences = re.findall(r"^```(\w*)\n(.*?)^```", part, flags=re.MULTILINE | re.DOTALL)
            found += [Block(section, kind, text) for kind, text in fences if kind == language]
    return found


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and what is left of them."""
    command, words = load_command(words[0]), words[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def runs_here(block: Block, words: list[str]) -> bool:
    page, dataset = NEED_IMAGES
    listed = any(words[: len(start.split())] == start.split() for start in NOT_RUN)
    listed |= DOWNLOADS in words
    return not listed and not block.section.startswith(page) and not any(dataset in word for word in words)


SECTIONS = dict.fromkeys(
    block.section for block in blocks("console") if any(runs_here(block, words) for words in block.commands)
)


def write_own_files(folder: Path) -> None:
    """The Python files that the documents show, under the names in their first lines."""
    for block in blocks("python"):
        if name := re.match(r"# (\w+\.py)\n", block.text):
            (folder / name[1]).write_text(block.text, encoding="utf-8")


@pytest.mark.parametrize("section", SECTIONS)
def test_the_commands_of_a_section_run_in_their_order(section: str, here: Path) -> None:
    for prepare in BEFORE.get(section, [write_feature_files, write_own_files]):
        prepare(here)
    for block in blocks("console"):
        for words in block.commands if block.section == section else ():
            if words[0] == "python":
                exec(next(one.text for one in blocks("python") if one.text.startswith(f"# {words[1]}\n")), {})
            elif runs_here(block, words):
                has_tasks = any("--tasks" in option.opts for option in command_of(words[1:])[0].params)
                few = "--settings unbalanced --shots 1 --tasks 2" if "all" in words else "--tasks 4"
                done = run(*words[1:], *(few.split() if has_tasks else ()))  # the last value of an option counts
                assert done.returncode == 0, f"{shlex.join(words)}\n{done.stdout}\n{done.stderr}"


def test_what_is_not_run_has_options_that_exist() -> None:
    lines = [words for block in blocks("console") for words in block.commands]
    for script in blocks("bash"):
        joined = script.text.replace("\\\n", "").replace("${", "").replace("}", "")
        lines += [shlex.split(line) for line in joined.splitlines() if "fsbench " in line]
    checked = 0
    for words in lines:
        if "fsbench" in words:
            command, rest = command_of(words[words.index("fsbench") + 1 :])
            command.make_context(command.name, list(rest))  # raises on an option that does not exist
            checked += 1
    assert checked > 20
    with pytest.raises(Exception, match="No such option"):
        command_of(["train"])[0].make_context("train", ["--epoch", "3"])


def test_the_python_of_the_readme_and_of_its_page_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_feature_files(here)
    write_own_files(here)
    monkeypatch.syspath_prepend(here)
    names: dict[str, Any] = {}
    for block in blocks("python"):
        if block.section.startswith(("README.md, From Python", "python.md")):
            exec(block.text.replace("tasks=1000", "tasks=20"), names)
    assert 0.2 < names["accuracy"] <= 1


def test_every_place_in_the_code_exists() -> None:
    places = re.findall(r"`(\w+/\w+\.py): ([\w, ]+)`", DOCUMENTS["article.md"])
    assert len(places) > 5
    for path, names in places:
        for name in names.split(", "):
            source = (ROOT / "fsbench" / path).read_text(encoding="utf-8")
            assert re.search(rf"^\s*def {name}\(", source, re.MULTILINE), name


def test_links_and_images_are_there_and_every_page_is_linked() -> None:
    for document, content in DOCUMENTS.items():
        folder = ROOT if document == "README.md" else ROOT / "docs"
        for target in re.findall(r"\]\(([^)#]+)\)", content):
            assert "://" in target or 0 < (folder / target).stat().st_size < 140_000, target
        assert document in {"README.md", "index.md"} or f"({document})" in DOCUMENTS["index.md"], document
    assert len(DOCUMENTS["README.md"].split()) <= 1200


def test_make_benchmarks_takes_what_it_shows_from_the_output_of_compare(here: Path) -> None:
    write_feature_files(here)
    methods = "ncm,soft-kmeans,bavardage,bavardage:released"
    ask = ("features/glyphs-rn12.h5", "--methods", methods, "--tasks", "40", "--no-published")
    lines = shown_of(succeed("compare", *ask, "--format", "markdown").stdout).splitlines()
    rows = [line.split(" | ")[0] for line in lines if line.startswith("| ")]
    names = [f"| {name}" for name in methods.split(",")]
    assert rows == ["| method", *names, "| method", *names[2:]]
    assert lines[-1].startswith("`fsbench:")
    tables = [part.partition(END)[0] for part in DOCUMENTS["benchmarks.md"].split(START)[1:]]
    assert ["\n| ncm" in table for table in tables] == [True] * 5
