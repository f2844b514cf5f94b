"""The command line, run in this process as `main` would be."""

import contextlib
import io
import sys
from dataclasses import dataclass
from typing import Any
from unittest import mock

from fsbench.cli.app import COMMANDS, load_command, main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def run(*arguments: str) -> Done:
    """Run `fsbench ARGUMENTS` from `main` on; an exception that is not an FsbenchError goes through."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    typed = mock.patch.object(sys, "argv", ["fsbench", *arguments])
    with typed, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


def succeed(*arguments: str) -> Done:
    """Run a command that must end well."""
    done = run(*arguments)
    assert done.returncode == 0, done.output
    return done


def all_commands() -> dict[str, Any]:
    """Commands by the words that lead to them; without `plot`, which is a group of them."""
    loaded = {name: load_command(name) for name in COMMANDS}
    figures = loaded.pop("plot").commands
    return loaded | {f"plot {name}": command for name, command in figures.items()}
