"""The command line, run in this process as `main` would be."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

from fsbench.cli.app import main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def exit_code(self) -> int:
        return self.returncode

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
