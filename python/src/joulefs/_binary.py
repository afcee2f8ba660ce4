"""Where is the program, and what does it say?"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Children", "Error", "answer", "binary", "ended_by_signals", "version"]


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


class Children:
    """The programs that several threads have started, so that one of them can end all."""

    #: Seconds from SIGTERM to SIGKILL.
    PATIENCE = 5.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._busy = 0
        self._stopped = False

    def run(self, command: Sequence[str], cwd: str | None) -> subprocess.CompletedProcess[str]:
        """Starts a program and waits for it; ends it if the wait is interrupted."""
        if threading.current_thread() is not threading.main_thread():
            return self._run(command, cwd, [], threading.Event())
        # Python handles signals in the main thread. Another one starts the program, so that none is started and not known.
        own: list[subprocess.Popen[str]] = []
        given_up = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            try:
                return pool.submit(self._run, command, cwd, own, given_up).result()
            except BaseException:
                given_up.set()
                with self._lock:
                    running = list(own)
                _end(running, self.PATIENCE)
                raise

    def _run(
        self, command: Sequence[str], cwd: str | None, own: list[subprocess.Popen[str]], given_up: threading.Event
    ) -> subprocess.CompletedProcess[str]:
        with self._lock:
            if self._stopped or given_up.is_set():
                raise Error("interrupted", 1, command)
            # File names need not be UTF-8.
            child = subprocess.Popen(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
            self._running.add(child)
            own.append(child)
        try:
            out, err = child.communicate()
        finally:
            with self._lock:
                self._running.discard(child)
        return subprocess.CompletedProcess(command, child.returncode, out, err)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While a thread has something to clear away."""
        with self._lock:
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1

    def stop(self) -> None:
        """Ends all, starts no more, and waits until every thread has cleared away what it was making."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        _end(running, self.PATIENCE)
        until = time.monotonic() + self.PATIENCE
        while self._busy and time.monotonic() < until:
            time.sleep(0.01)


def _end(children: Sequence[subprocess.Popen[str]], patience: float) -> None:
    for child in children:
        child.terminate()
    until = time.monotonic() + patience
    for child in children:
        try:
            child.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class _Terminated(BaseException):
    """SIGTERM came."""


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM is an exception, so that what is half made is cleared away; then it ends the process as ever.

    Only in the main thread, and only if the process has no handler of its own.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminated(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise _Terminated

    signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    except _Terminated:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(args: Sequence[str], cwd: str | None, children: Children | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(binary()), *args]
    try:
        ran = (children or Children()).run(command, cwd)
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


def answer(args: Sequence[str], cwd: str | None = None, children: Children | None = None) -> Any:
    """What a command answers."""
    return json.loads(_run(["--json", *args], cwd, children).stdout)
