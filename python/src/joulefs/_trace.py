"""What is in a recording?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import pandas as pd

from joulefs._binary import answer
from joulefs._describe import described
from joulefs._options import Options

if TYPE_CHECKING:
    from joulefs._result import Result
    from joulefs._sweep import Sweep

__all__ = ["Stat", "Trace", "trace"]


@dataclass(frozen=True)
class Stat:
    """What `joulefs trace stat` counts."""

    #: Everything, as `joulefs trace stat --json` says it.
    report: dict[str, Any]

    @property
    def operations(self) -> pd.DataFrame:
        """A row for each kind of request or call."""
        counted = self.report["operations"]
        if isinstance(counted, dict):
            return pd.DataFrame({"op": list(counted.keys()), "count": list(counted.values())})
        frame = pd.DataFrame([{k: v for k, v in row.items() if not isinstance(v, (dict, list))} for row in counted])
        return frame[["op", *[column for column in frame.columns if column != "op"]]] if len(frame) else frame

    @property
    def devices(self) -> pd.DataFrame:
        """A row for each device; none of a recording of calls."""
        return pd.DataFrame(self.report.get("devices", []))

    @property
    def processes(self) -> pd.DataFrame:
        """A row for each process; none of a recording of calls."""
        return pd.DataFrame(self.report.get("processes", []))

    @property
    def files(self) -> pd.DataFrame:
        """The files that were used most; none of a recording of a block device."""
        return pd.DataFrame(self.report.get("busiest", []))

    @property
    def format(self) -> str:
        """The format, as it was recognised."""
        return str(self.report["format"])

    def _repr_html_(self) -> str:
        """For notebooks: the operations."""
        return str(self.operations.to_html(index=False))

    @property
    def seconds(self) -> float:
        """From the first request or call to the last."""
        return float(self.report["span_ns"]) / 1e9


@dataclass(frozen=True)
class Trace:
    """A recording."""

    path: Path

    def stat(self) -> Stat:
        """Counts what is in it."""
        return Stat(answer(["trace", "stat", str(self.path)]))

    @described
    def replay(self, **options: Unpack[Options]) -> Result:
        """As :func:`joulefs.replay`."""
        from joulefs._replay import replay

        return replay(self, **options)

    @described
    def sweep(self, **options: Unpack[Options]) -> Sweep:
        """As :func:`joulefs.sweep`."""
        from joulefs._sweep import sweep

        return sweep(self, **options)


def trace(path: str | os.PathLike[str]) -> Trace:
    """A recording of any format that `joulefs trace` knows: it is recognised by its content."""
    return Trace(Path(path))


def path_of(recording: Trace | str | os.PathLike[str]) -> str:
    """Where a recording lies."""
    return str(recording.path) if isinstance(recording, Trace) else os.fspath(recording)
