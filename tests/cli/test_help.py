"""Help, completion, the reference page, and how little is imported for them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len

from fsbench.cli.app import COMMANDS as SUMMARIES
from fsbench.cli.app import load_command
from tests.cli import run
from tests.reference import PAGE, reference

if TYPE_CHECKING:
    from collections.abc import Iterator


def all_commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in SUMMARIES:
        command = load_command(name)
        yield (name,), command
        yield from (((name, inner), deeper) for inner, deeper in getattr(command, "commands", {}).items())


COMMANDS = {" ".join(path): command for path, command in all_commands()}


def help_text(*arguments: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    done = run(*arguments, "--help")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_command_has_a_panel_and_a_summary_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (_, summary) in SUMMARIES.items():
        assert COMMANDS[name].help.partition("\n")[0] == summary
    for path in ((), ("plot",)):
        text = help_text(*path, monkeypatch=monkeypatch)
        assert "─ Commands ─" not in text
        for name, command in COMMANDS.items():
            if tuple(name.split()[:-1]) == path:
                summary = command.help.partition("\n")[0]
                assert re.search(rf"│ {name.split()[-1]} +{re.escape(summary)} +│", text), name


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_shows_all_of_its_text_and_has_words_for_types(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = help_text(*name.split(), monkeypatch=monkeypatch)
    assert max(cell_len(line) for line in text.splitlines()) <= 80
    shown = "".join(re.sub(r"[│╭╮╰╯─]", " ", text).split())
    for parameter in COMMANDS[name].params:
        for word in (parameter.help or "").split():  # in brackets it would be taken for markup, and vanish
            assert word in shown, (parameter.name, word)
    assert not re.search(r"<(str|bool|int|float|path|list)", text, re.IGNORECASE)
    assert not re.search(r"─╮\n│ --help +-h [^╰]*─╯", text.replace("\n│  ", "")), "a panel with nothing but --help"


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "plot"])
def test_every_command_has_an_example_with_options_that_exist(name: str) -> None:
    (example,) = re.findall(r"Example: \[bold\]fsbench (.*)\[/bold\]", COMMANDS[name].help)
    assert example.startswith(name)
    COMMANDS[name].make_context(name, shlex.split(example.removeprefix(name)))


def test_the_reference_page_is_that_of_the_options() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "make reference writes it again"


def completed(line: str, monkeypatch: pytest.MonkeyPatch, shell: str = "bash") -> str:
    """What the shell is told for a line whose last word is being typed."""
    words = line.split(" ")
    asked = {"_FSBENCH_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    asked |= {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    return run().stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fsbench sol", {"solve"}),
        ("fsbench solve --method soft", {"soft-kmeans"}),
        ("fsbench solve --method bavardage:", {"bavardage:article", "bavardage:released", "bavardage:transport"}),
        ("fsbench compare --methods ncm,soft", {"ncm,soft-kmeans"}),
        ("fsbench compare --methods ncm,nc", set()),
        ("fsbench compare --protocol v", {"veilleux"}),
        ("fsbench extract --dataset cub", {"cub", "cub-feat", "cub-metadataset"}),
        ("fsbench import --backbone w", {"wrn"}),
        ("fsbench sweep --split val,n", {"val,novel"}),
        ("fsbench reproduce fig", {"figure3", "figure4", "figure5"}),
        ("fsbench plot spec", {"spectrum"}),
    ],
)
def test_the_shell_completes_names(line: str, expected: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(completed(line, monkeypatch).split()) == expected


def test_zsh_gets_the_help_of_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert '"--seed":"Random seed' in completed("fsbench solve --se", monkeypatch, "zsh")


HEAVY = "torch", "numpy", "scipy", "matplotlib", "rich", "timm", "h5py", "PIL"
IMPORTED = f"""
import sys
from fsbench.cli.app import main
try:
    main()
finally:
    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [("fsbench solve --method bavardage:rel", "bavardage:released"), ("fsbench plot dots --wid", "--width")],
)
def test_completing_imports_nothing_heavy(line: str, expected: str) -> None:
    words = line.split(" ")
    asked = {"_FSBENCH_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [expected]
    assert done.stderr.strip() == "[]"
