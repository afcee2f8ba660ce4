"""Where is the program, and what does it say?"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Error", "answer", "binary", "version"]


class Error(Exception):
    """The program refused, or failed: its own words, in one line."""

    def __init__(self, message: str, code: int = 1, command: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        #: The exit code: 1 failed, 2 wrong usage.
        self.code = code
        #: What was run.
        self.command = tuple(command)

    def __reduce__(self) -> tuple[Any, ...]:
        # It travels from workers to who asked.
        return (type(self), (self.message, self.code, self.command))


def binary() -> Path:
    """The program: what JOULEFS names, or the one that came with this package, or the first on the PATH."""
    named = os.environ.get("JOULEFS")
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise Error(f"JOULEFS={named}: no program there: name the binary joulefs, or leave JOULEFS out")
        return Path(named)
    for scheme in (None, *_schemes()):
        scripts = sysconfig.get_path("scripts") if scheme is None else sysconfig.get_path("scripts", scheme)
        own = Path(scripts) / "joulefs"
        if os.access(own, os.X_OK):
            return own
    found = shutil.which("joulefs")
    if found is None:
        raise Error("no program joulefs: install the package's wheel, or name the binary in JOULEFS")
    return Path(found)


def _schemes() -> list[str]:
    """Where pip puts programs of a package that is installed for one user."""
    user = sysconfig.get_preferred_scheme("user")
    return [user] if user in sysconfig.get_scheme_names() else []


def version() -> str:
    """The program's version."""
    said = _run(["--version"], None)
    return said.stdout.split()[-1]


def _run(args: Sequence[str], cwd: str | None) -> subprocess.CompletedProcess[str]:
    command = [str(binary()), *args]
    try:
        # File names need not be UTF-8.
        ran = subprocess.run(
            command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", check=False
        )
    except OSError as e:
        raise Error(f"{command[0]}: {e.strerror}", 1, command) from e
    if ran.returncode != 0:
        raise Error(_why(ran), ran.returncode, command)
    return ran


def _why(ran: subprocess.CompletedProcess[str]) -> str:
    try:
        said = json.loads(ran.stdout)
    except ValueError:
        said = None
    if isinstance(said, dict):
        for name in ("error", "damage"):
            if isinstance(said.get(name), str):
                return str(said[name])
    lines = ran.stderr.strip().splitlines()
    if ran.returncode < 0:
        lines.append(f"ended by signal {-ran.returncode}")
    return lines[-1].removeprefix("joulefs: ") if lines else f"exit code {ran.returncode}"


def answer(args: Sequence[str], cwd: str | None = None) -> Any:
    """What a command answers."""
    return json.loads(_run(["--json", *args], cwd).stdout)
