"""Many runs, on one machine or many, which go on where they were.

The program says which runs there are, and gives each a key: a hash of what it depends on, of the recording and of the
program's sources. A run's result is a directory of that name in the cache. It is made under another name and renamed, so that it is whole or not
there, however many processes use the cache, and whichever of them are killed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import pandas as pd

from joulefs._binary import Children, Error, answer, ended_by_signals
from joulefs._describe import described
from joulefs._html import table
from joulefs._options import Options, commands
from joulefs._result import TABLES, Part, Place, Result
from joulefs._trace import Trace, path_of

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Point", "Sweep", "plan", "sweep"]

Engine: TypeAlias = "Literal['joblib', 'serial'] | Client"


@dataclass(frozen=True)
class Point:
    """A run of a sweep."""

    key: str
    number: int
    name: str
    #: The key of the run that it is to be compared with.
    control: str | None
    #: What it depends on.
    parameters: dict[str, Any]
    #: The command line that it is one run of, and where relative paths in it begin.
    command: tuple[str, ...]
    directory: str

    def make(self, cache: str, children: Children | None = None) -> bool:
        """Makes it, unless the cache has it; says whether it did."""
        children = children or Children()
        with children.busy():
            return self._make(cache, children)

    def _make(self, cache: str, children: Children) -> bool:
        place = Path(cache) / self.key
        if _is_done(place):
            return False
        half = Path(cache) / f".half-{self.key}-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            half.mkdir()
            answer([*self.command, "--only", self.key, "--parquet", str(half)], self.directory, children)
            half.rename(place)
        except OSError as e:
            if not _is_done(place):
                raise Error(f"{place}: {e.strerror}: remove it, or use another cache") from e
            # Somebody else was faster; the results are the same.
        finally:
            shutil.rmtree(half, ignore_errors=True)
        return True


def _cache(cache: str | os.PathLike[str] | None) -> Path:
    """Where results are kept."""
    return Path(cache if cache is not None else os.environ.get("JOULEFS_CACHE", "runs")).absolute()


def _is_done(place: Path) -> bool:
    return all((place / f"{name}.parquet").exists() for name in TABLES)


def _tidy(cache: Path) -> None:
    """Removes what processes of this machine left that are gone."""
    for half in cache.glob(".half-*"):
        parts = half.name.removeprefix(".half-").split("-", 1)[-1].rsplit("-", 2)
        if len(parts) == 3 and parts[0] == socket.gethostname() and parts[1].isdigit() and not _lives(int(parts[1])):
            shutil.rmtree(half, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _listed(
    recording: Trace | str | os.PathLike[str], options: Options, part: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], str, list[Point]]]:
    """Command lines, what tells the runs of each from those of others, and these."""
    number = 0
    for command in commands(options):
        words = ("trace", "replay", path_of(recording), *command.words)
        listed = answer([*words, *part, "--list"])
        points = []
        for run in listed["runs"]:
            name = " ".join(word for word in (run["name"], command.name) if word)
            points.append(
                Point(run["key"], number + run["run"], name, run["control"], run["parameters"], words, os.getcwd())
            )
        number += 1 + max((run["run"] for run in listed["runs"]), default=-1)
        yield words, command.name, points


def plan(
    recording: Trace | str | os.PathLike[str], options: Options
) -> Iterator[tuple[tuple[str, ...], str, dict[str, Place]]]:
    """Command lines that make every combination, what tells their runs from those of others, and what they are among all."""
    for words, name, points in _listed(recording, options, ()):
        yield words, name, {p.key: Place(p.number, p.name, p.control) for p in points}


@dataclass(frozen=True)
class Sweep:
    """Runs that are made when :meth:`run` is called, and kept."""

    points: tuple[Point, ...]

    def shard(self, number: int, of: int) -> Sweep:
        """Every `of`-th run from the `number`-th, 1 to `of`, with the controls that these are compared with.

        For machines that know nothing of each other: their caches, or one that they share, hold the whole together.
        """
        if not 1 <= number <= of:
            raise Error(f"shard {number} of {of}: write I and N, with I from 1 to N", 2)
        controls = {point.control for point in self.points}
        by_key = {point.key: point for point in self.points}
        wanted: set[str] = set()
        for point in [point for point in self.points if point.key not in controls][number - 1 :: of]:
            key: str | None = point.key
            while key is not None and key not in wanted:
                wanted.add(key)
                key = by_key[key].control
        return replace(self, points=tuple(point for point in self.points if point.key in wanted))

    def status(self, cache: str | os.PathLike[str] | None = None) -> pd.DataFrame:
        """A row for each run: its name, key and parameters, and whether the cache has it."""
        place = _cache(cache)
        done = [_is_done(place / point.key) for point in self.points]
        head = pd.DataFrame({"run": [p.name for p in self.points], "done": done, "key": [p.key for p in self.points]})
        return pd.concat([head, pd.DataFrame([point.parameters for point in self.points])], axis=1)

    def run(
        self,
        engine: Engine = "joblib",
        cache: str | os.PathLike[str] | None = None,
        *,
        jobs: int | None = None,
        told: Callable[[int, int], None] | None = None,
    ) -> Result:
        """Makes the runs that the cache has not, and gives the results of all.

        `cache` is a directory, which is made if it is not there: what JOULEFS_CACHE names, or `runs`, without.
        `engine` is "joblib", which makes `jobs` at once (as many as there are processors without), "serial", or a Dask client,
        whose workers must see recording and cache under the same paths. `told` hears how many of how many are done. A run that
        fails stops no other: they are in the cache when the error is raised.

        An interruption (KeyboardInterrupt, SIGTERM) ends the runs that are being made and removes their files; what is
        done stays in the cache. Workers of Dask finish the run that they are making.
        """
        place = _cache(cache)
        place.mkdir(parents=True, exist_ok=True)
        _tidy(place)
        missing = [point for point in self.points if not _is_done(place / point.key)]
        failed: list[tuple[Point, Error]] = []
        done = len(self.points) - len(missing)
        children = Children()
        runs = _made(engine, missing, str(place), jobs, children)
        with ended_by_signals():
            try:
                for point, error in runs:
                    if error is not None:
                        failed.append((point, error))
                    elif not _is_done(place / point.key):
                        raise Error(f"{place}: a worker says that it put {point.key} there: a cache must be seen by all of them")
                    done += 1
                    if told is not None:
                        told(done, len(self.points))
            except BaseException:
                children.stop()
                runs.close()
                raise
        if failed:
            point, first = min(failed, key=lambda f: f[0].number)
            others = f"{len(failed)} of {len(self.points)} runs failed, the first: " if len(failed) > 1 else ""
            raise Error(f"{others}{point.name}: {first.message}", first.code, first.command) from first
        return self.result(place)

    def result(self, cache: str | os.PathLike[str] | None = None) -> Result:
        """The results that the cache has; nothing is made."""
        place = _cache(cache)
        parts = [
            Part(place / p.key, {p.key: Place(p.number, p.name, p.control)})
            for p in self.points
            if _is_done(place / p.key)
        ]
        if not parts:
            raise Error(f"{place}: none of the {len(self.points)} runs is there")
        return Result(parts)

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"<joulefs.Sweep of {len(self.points)} runs>"

    def _repr_html_(self) -> str:
        """For notebooks: the runs, and whether the cache that :meth:`run` uses by default has them."""
        done = [_is_done(_cache(None) / point.key) for point in self.points]
        rows = [(point.name, "made" if made else "") for point, made in zip(self.points, done, strict=True)]
        return table(f"{len(rows)} runs, {sum(done)} of them in the cache", ("run", ""), rows)


def _tried(point: Point, cache: str, children: Children | None = None) -> Error | None:
    try:
        point.make(cache, children)
    except Error as e:
        return e
    return None


def _made(
    engine: Engine, points: Sequence[Point], cache: str, jobs: int | None, children: Children
) -> Generator[tuple[Point, Error | None], None, None]:
    """Makes runs, and says of each when it is done whether it failed."""
    if engine == "serial":
        for point in points:
            yield point, _tried(point, cache, children)
    elif engine == "joblib":
        from joblib import Parallel, delayed

        # A run is a process of its own: threads that wait for it are enough.
        work = Parallel(n_jobs=jobs or -1, prefer="threads", return_as="generator_unordered")
        yield from work(delayed(_with)(point, cache, children) for point in points)
    elif hasattr(engine, "submit"):
        from distributed import as_completed

        # Each has a name of its own: two sweeps of one client do not share what failed.
        futures = {
            engine.submit(_tried, point, cache, key=f"joulefs-{point.key}-{os.urandom(4).hex()}"): point for point in points
        }
        try:
            for future in as_completed(futures):
                lost = future.exception() if future.status == "error" else None
                yield futures[future], Error(f"{type(lost).__name__}: {lost}") if lost is not None else future.result()
        except BaseException:
            engine.cancel(list(futures))
            raise
    else:
        raise Error(f'engine {engine!r}: write "joblib", "serial" or give a Dask client', 2)


def _with(point: Point, cache: str, children: Children) -> tuple[Point, Error | None]:
    return point, _tried(point, cache, children)


@described
def sweep(recording: Trace | str | os.PathLike[str], **options: Unpack[Options]) -> Sweep:
    """The runs for each combination of the values given, with the controls of a comparison; none is made yet."""
    unique: dict[str, Point] = {}
    for _, _, points in _listed(recording, options, ()):
        for point in points:
            unique.setdefault(point.key, point)
    return Sweep(tuple(unique.values()))
