"""Help and completion."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import typer
from rich.cells import cell_len

from fsbench.backbones.families import BACKBONES
from fsbench.cli import complete
from fsbench.cli.app import COMMANDS as SUMMARIES
from fsbench.cli.app import app, load_command
from tests.cli import run

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUP: Any = typer.main.get_command(app)


def all_commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in SUMMARIES:
        command = load_command(name)
        yield (name,), command
        yield from (((name, inner), deeper) for inner, deeper in getattr(command, "commands", {}).items())


COMMANDS = {" ".join(path): command for path, command in all_commands()}


def help_text(*arguments: str, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    done = run(*arguments, "--help")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_summaries_of_commands_that_are_not_loaded_are_those_of_their_docstrings() -> None:
    for name, (_, summary) in SUMMARIES.items():
        assert COMMANDS[name].help.partition("\n")[0] == summary


def test_every_command_has_a_panel_and_a_summary_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ((), ("plot",)):
        text = help_text(*path, width=80, monkeypatch=monkeypatch)
        assert "─ Commands ─" not in text
        for name, command in COMMANDS.items():
            if tuple(name.split()[:-1]) == path and not command.hidden:
                summary = command.help.partition("\n")[0]
                assert re.search(rf"│ {name.split()[-1]} +{re.escape(summary)} +│", text), name


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("width", [80, 100])
def test_help_keeps_to_the_width_and_shows_all_of_its_text(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_text(*name.split(), width=width, monkeypatch=monkeypatch)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    shown = "".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())
    for parameter in COMMANDS[name].params:
        for word in (parameter.help or "").split():  # in brackets it would be taken for markup, and vanish
            assert word in shown, (parameter.name, word)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "plot" and not COMMANDS[name].hidden])
def test_every_command_has_an_example_with_options_that_exist(name: str) -> None:
    (example,) = re.findall(r"Example: \[bold\]fsbench (.*)\[/bold\]", COMMANDS[name].help)
    assert example.startswith(name)
    words = shlex.split(example.removeprefix(name))
    COMMANDS[name].make_context(name, words)


def completions(monkeypatch: pytest.MonkeyPatch, line: str) -> set[str]:
    words = line.split(" ")
    monkeypatch.setenv("_FSBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        GROUP.main(args=[], prog_name="fsbench")
    return set(printed.getvalue().split())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fsbench sol", {"solve"}),
        ("fsbench solve --method soft", {"soft-kmeans"}),
        ("fsbench solve --method bavardage:", {"bavardage:article", "bavardage:released", "bavardage:transport"}),
        ("fsbench compare --methods ncm,soft", {"ncm,soft-kmeans"}),
        ("fsbench compare --methods ncm,nc", set()),
        ("fsbench compare --protocol v", {"veilleux"}),
        ("fsbench compare --split n", {"novel"}),
        ("fsbench compare --settings u", {"unbalanced"}),
        ("fsbench compare --format l", {"latex"}),
        ("fsbench extract --dataset cub", {"cub", "cub-feat", "cub-metadataset"}),
        ("fsbench extract --backbone rn", {"rn12", "rn18"}),
        ("fsbench import --backbone w", {"wrn"}),
        ("fsbench sweep --split val,n", {"val,novel"}),
        ("fsbench plot spec", {"spectrum"}),
    ],
)
def test_the_shell_completes_names(line: str, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert completions(monkeypatch, line) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("fsbench solve --method bavardage : rel", ["released"]),
        ("fsbench solve --method bavardage :", ["article", "released", "transport"]),
        ("fsbench compare --methods ncm,bavardage : r", ["released"]),
        ("fsbench compare --methods ncm,bavardage:r", ["ncm,bavardage:released"]),  # where a colon ends no word
        ("fsbench solve --method bavardage : released --split n", ["novel"]),
    ],
)
def test_bash_completes_across_a_colon(words: str, expected: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FSBENCH_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words.replace(" ", "\n"))
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    assert run().stdout.split() == expected


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_has_words_in_place_of_types(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = help_text(*name.split(), width=100, monkeypatch=monkeypatch)
    assert not re.search(r"<(str|bool|int|float|path|list)", text, re.IGNORECASE)
    assert not re.search(r"─╮\n│ --help +-h [^╰]*─╯", text.replace("\n│  ", "")), "a panel with nothing but --help"


def test_an_old_word_still_works_and_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ablate" not in help_text(width=80, monkeypatch=monkeypatch)
    assert "Table 2" in help_text("ablate", width=80, monkeypatch=monkeypatch)


def test_completed_backbones_are_those_that_load() -> None:
    assert complete.BACKBONES[:-1] == BACKBONES


HEAVY = "torch", "numpy", "scipy", "matplotlib", "pydantic", "rich", "filelock", "timm", "h5py", "PIL"
IMPORTED = f"""
import sys
from importlib.machinery import PathFinder
found = set()
class Watching:
    def find_spec(name, path=None, target=None):
        found.add(name)
        return PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Watching
from fsbench.cli.app import main
try:
    main()
finally:
    print(sorted(found.intersection({HEAVY})), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fsbench sol", "solve"),
        ("fsbench solve --me", "--method"),
        ("fsbench solve --method soft", "soft-kmeans"),
        ("fsbench solve --method bavardage:rel", "bavardage:released"),
        ("fsbench compare --tasks 8 --data", "--data-dir"),
        ("fsbench extract --dataset cub-f", "cub-feat"),
        ("fsbench extract --backbone rn12", "rn12"),
        ("fsbench train --recipe prot", "protonet"),
        ("fsbench report --base", "--baseline"),
        ("fsbench plot dots --wid", "--width"),
    ],
)
def test_completing_imports_nothing_heavy(line: str, expected: str) -> None:
    words = line.split(" ")
    asked = {"_FSBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [expected]
    assert done.stderr.strip() == "[]"


def test_zsh_gets_the_help_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_FSBENCH_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "fsbench solve --see")
    assert '"--seed":"Random seed' in run().stdout
