"""Help, completion, the reference page, lists of methods, and how little is imported for them."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable

import pytest
from rich.cells import cell_len

from fsbench.cli.app import COMMANDS as SUMMARIES
from fsbench.methods.base import Learnable
from fsbench.methods.registry import METHODS, method_class
from fsbench.tasks.protocol import PRESETS
from tests.cli import all_commands, run
from tests.reference import PAGE, reference

COMMANDS = all_commands()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_shows_all_of_its_text_and_has_words_for_types(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = run(*name.split(), "--help").stdout
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    shown = "".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())
    for parameter in COMMANDS[name].params:
        for word in (parameter.help or "").split():  # in brackets it would be taken for markup, and vanish
            assert word in shown, (parameter.name, word)
    assert not re.search(r"<(str|bool|int|float|path|list)", text, re.IGNORECASE)
    assert name not in SUMMARIES or COMMANDS[name].help.partition("\n")[0] == SUMMARIES[name][1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_with_options_that_exist(name: str) -> None:
    (example,) = re.findall(r"Example: \[bold\]fsbench (.*)\[/bold\]", COMMANDS[name].help)
    assert example.startswith(name)
    COMMANDS[name].make_context(name, shlex.split(example.removeprefix(name)))


def test_the_reference_page_is_that_of_the_options() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "make reference writes it again"


def asked(line: str) -> dict[str, str]:
    """How the shell asks for a line whose last word is being typed."""
    words = line.split(" ")
    return {"_FSBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fsbench sol", {"solve"}),
        ("fsbench solve --method lda:", {"lda:base", "lda:ridge"}),
        ("fsbench compare --methods ncm,soft", {"ncm,soft-kmeans"}),
        ("fsbench compare --methods ncm,nc", set()),
        ("fsbench extract --dataset cub", {"cub", "cub-feat", "cub-metadataset"}),
        ("fsbench plot spec", {"spectrum"}),
    ],
)
def test_the_shell_completes_names(line: str, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in asked(line).items():
        monkeypatch.setenv(name, value)
    assert set(run().stdout.split()) == expected


HEAVY = "torch", "numpy", "scipy", "matplotlib", "rich", "timm", "h5py", "PIL"
SECONDS = "torch", "torch._dynamo", "sympy", "scipy.stats", "scipy.cluster", "matplotlib", "torchvision", "timm"
IMPORTED = """
import json, sys
from fsbench.cli.app import main
named = json.loads(sys.argv.pop(1))
try:
    main()
finally:
    print([name for name in named if name in sys.modules], file=sys.stderr)
"""


def imported(names: tuple[str, ...], *words: str, **environment: str) -> tuple[list[str], str]:
    """The words that a command prints, and the modules that it imports."""
    line, env = [sys.executable, "-c", IMPORTED, json.dumps(names), *words], os.environ | environment
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=True)
    return done.stdout.split(), done.stderr.strip()


def test_completing_imports_nothing_heavy() -> None:
    for line, expected in (("solve --method bavardage:rel", "bavardage:released"), ("plot dots --wid", "--width")):
        assert imported(HEAVY, **asked(f"fsbench {line}")) == ([expected], "[]")


@pytest.mark.heavy
@pytest.mark.usefixtures("folder")
def test_ordinary_commands_import_nothing_that_takes_seconds() -> None:
    """A report needs matplotlib, and no torch."""
    assert imported(SECONDS, "solve", "--shots", "1", "--tasks", "4", "--quiet")[1] == "['torch']"
    assert imported(SECONDS, "report", "--quiet")[1] == "['matplotlib']"


@pytest.mark.parametrize(("words", "names"), [("all", METHODS), ("--protocols", tuple(PRESETS))])
def test_lists_are_complete(words: str, names: Iterable[str]) -> None:
    listed = json.loads(run("methods", words, "--json").stdout)
    assert [next(iter(row.values())) for row in listed] == [*names]
    shown = run("methods", words).stdout
    assert max(map(len, shown.splitlines())) <= 100
    assert all(f" {name} " in shown for name in names)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_described(name: str) -> None:
    described = json.loads(run("methods", name, "--json").stdout)
    assert described["source"]
    assert described["assumes"]
    grid = {one["name"]: one["tuning grid"] for one in described["parameters"] if one["tuning grid"]}
    known = {parameter: [*values] for parameter, values in method_class(name).info.grid.items()}
    assert grid == (dict.fromkeys(grid, "learned") if issubclass(method_class(name), Learnable) else known)
    assert described["title"] in run("methods", name).stdout


def test_variants_are_described_as_they_run() -> None:
    described = json.loads(run("methods", "bavardage:transport", "--json").stdout)
    assert described["assumes"] == "uniform prior"
    assert json.loads(run("methods", "simpleshot:L2N", "--json").stdout)["needs base classes"] == "no"
