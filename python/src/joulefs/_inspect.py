"""What state is a volume in?"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from joulefs._binary import answer
from joulefs._html import energy, table

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

    def _repr_html_(self) -> str:
        """For notebooks: the files whose fragments cost most, and whether it pays to treat them."""
        verdict = self.report["verdict"]
        pays = verdict["pays_after_reads"]
        after = "never pays" if pays is None else f"pays after {pays} reads of them"
        caption = f"{self.report['source']}: treating the {verdict['worst_files']} worst files {after}"
        heads = ("path", "extents", "fewest", "a read costs", "at best")
        rows = [
            (
                str(file["path"]),
                str(file["extents"]),
                str(file["min_extents"]),
                energy(file["read_pj"]),
                energy(file["ideal_read_pj"]),
            )
            for file in self.report["worst"][:5]
        ]
        return table(caption, heads, rows)


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
