"""What state is a volume in?"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from joulefs._binary import answer

__all__ = ["Inspection", "inspect"]


@dataclass(frozen=True)
class Inspection:
    """What `joulefs inspect` found."""

    #: A row for each file and directory.
    files: pd.DataFrame
    #: A row for each segment.
    segments: pd.DataFrame
    #: A row for each extent of each file; empty if they were not asked for.
    extents: pd.DataFrame
    #: Everything else, as `joulefs inspect --json` says it.
    report: dict[str, Any]


def inspect(image: str | os.PathLike[str], *, profile: str | None = None, extents: bool = False) -> Inspection:
    """Looks at an image, or at a mounted directory; prices are those of `profile`."""
    words = ["inspect", os.fspath(image)]
    if profile is not None:
        words += ["--profile", profile]
    if extents:
        words.append("--extents")
    with tempfile.TemporaryDirectory(prefix="joulefs-") as made:
        report = answer([*words, "--parquet", made])
        tables = [
            pd.read_parquet(file) if (file := Path(made) / f"{name}.parquet").exists() else pd.DataFrame()
            for name in ("files", "segments", "extents")
        ]
    return Inspection(tables[0], tables[1], tables[2], report)
