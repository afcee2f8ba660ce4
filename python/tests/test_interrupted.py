"""An interrupted sweep leaves no process and nothing half-made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import CALLS, USED

LONG = {**USED, "repeat": 200, "gc": ["atgc", "fagc"], "seed": [1, 2, 3]}


def below(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def until(is_so: Callable[[], object], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("engine", ["serial", "joblib", "replay"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_ends_its_programs_and_leaves_nothing_half(
    engine: str, number: signal.Signals, cache: Path, tmp_path: Path
) -> None:
    cache.mkdir()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    work = (
        f"jf.replay({str(CALLS)!r}, **{LONG!r})"
        if engine == "replay"
        else f"s.run({engine!r}, {str(cache)!r}, jobs=2)"
    )
    script = f"import joulefs as jf\ns = jf.sweep({str(CALLS)!r}, **{LONG!r})\nprint(flush=True)\n{work}\n"
    # The signal goes to Python alone, as from a notebook or a batch system.
    python = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    assert python.stdout is not None
    python.stdout.readline()
    half = (lambda: list(cache.glob(".half-*"))) if engine != "replay" else (lambda: list(temporary.glob("joulefs-*")))
    programs: list[int] = []

    def at_work() -> bool:
        programs[:] = below(python.pid)
        return len(programs) >= (2 if engine == "joblib" else 1) and len(half()) > 0

    assert until(at_work, 60), "it makes no run"
    os.kill(python.pid, number)
    _, err = python.communicate(timeout=60)
    assert python.returncode == -number, err
    assert ("KeyboardInterrupt" in err) == (number == signal.SIGINT), err
    assert [pid for pid in programs if Path(f"/proc/{pid}").exists()] == []
    assert half() == []
