"""What came of runs, as DataFrames.

Every frame names its run in the column `run`. The columns of the files are there as they are (`pj`, `power_uw`, `time_ns`: whole
numbers, whose sums are exact), and next to them `joules`, `watts`, `seconds` and `time_s` as numbers with a fraction, for pictures.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from joulefs._binary import Error
from joulefs._html import energy, table
from joulefs._verdict import Row, of_rows, of_runs

__all__ = ["Part", "Result", "TABLES", "read"]

#: The files of a directory with results, by table. `runs` is written last: where it is, the others are whole.
TABLES = ("energy", "timeline", "latency", "runs")


@dataclass(frozen=True)
class Place:
    """What a run is among others: a cached one may have been made for another comparison, and be called otherwise there."""

    number: int
    name: str
    control: str | None


@dataclass(frozen=True)
class Part:
    """A directory with results, and what its runs are here, by key; those that are not named are as it says."""

    directory: Path
    places: Mapping[str, Place] | None = None

    def table(self, name: str) -> pa.Table:
        file = self.directory / f"{name}.parquet"
        try:
            table = pq.read_table(file)
        except FileNotFoundError as e:
            raise Error(f"{file}: no results there; `joulefs trace replay --parquet` writes them") from e
        except (OSError, pa.ArrowInvalid) as e:
            raise Error(f"{file}: {e}") from e
        if "watts" in table.column_names:
            # Files of version 1.
            watts = table.column("watts").to_pylist()
            uw = pa.array([None if w is None else round(w * 1e6) for w in watts], pa.uint64())
            table = table.set_column(table.column_names.index("watts"), "power_uw", uw)
        return self._placed(table) if self.places is not None else table

    def _placed(self, table: pa.Table) -> pa.Table:
        places = self.places or {}
        keys = table.column("key").to_pylist()
        table = table.filter(pa.array([key in places for key in keys], pa.bool_()))
        at = [places[key] for key in keys if key in places]
        values: dict[str, pa.Array] = {
            "run": pa.array([place.number for place in at], pa.uint32()),
            "name": pa.array([place.name for place in at], pa.string()),
            "control": pa.array([place.control for place in at], pa.string()),
        }
        if "version" in table.column_names and "control" not in table.column_names:
            table = table.append_column("control", values["control"])
        for column, array in values.items():
            if column in table.column_names:
                place = table.column_names.index(column)
                wanted = table.schema.field(column).type
                table = table.set_column(place, column, array if pa.types.is_null(wanted) else array.cast(wanted))
        return table


def _joined(name: str, parts: Sequence[Part]) -> pa.Table:
    """The rows of all parts, those of each run once: a control may have been made by several."""
    seen: set[str] = set()
    tables = []
    for part in parts:
        table = part.table(name)
        keys = table.column("key").to_pylist()
        fresh = [key not in seen for key in keys]
        tables.append(table if all(fresh) else table.filter(pa.array(fresh, pa.bool_())))
        seen.update(keys)
    # Runs on different devices count different things.
    table = pa.concat_tables(tables, promote_options="permissive")
    return table.select(sorted(table.column_names, key=_rank)) if name == "runs" else table


#: With what a row of `runs` begins, and what follows what the run depends on; what the device's model counted comes last.
_HEAD = (
    *("run", "key", "name", "control", "version", "build", "recording", "recording_digest", "kind", "owners"),
    *("experiment", "variant", "seed", "phase", "stage", "quick"),
)
_MEASURED = (
    *("total_pj", "cpu_pj", "dram_pj", "storage_pj", "board_pj", "idle_pj", "time_ns", "recorded_ns", "device_bytes"),
    *("recorded_device", "requests", "calls", "read_bytes", "written_bytes", "generated_bytes", "of_others", "left_out"),
    *("failed", "assumed_flushes", "most_at_once", "queued_at_most", "blocks_read", "blocks_written", "flushes", "deltas"),
    *("sections_cleaned", "sections_cleaned_while_waited_for", "blocks_moved", "free_segments_held", "began_full"),
    *("began_free_segments", "began_waits_for_age", "write_amplification_of_file_system"),
    *("write_amplification_of_device", "said", "damage"),
)


def _rank(column: str) -> tuple[int, int, str]:
    """Where a column of `runs` stands, whichever runs there are."""
    if column in _HEAD:
        return (0, _HEAD.index(column), "")
    if column in _MEASURED:
        return (2, _MEASURED.index(column), "")
    return (4 if column.startswith("model_") else 3 if column.startswith("measured_") else 1, 0, column)


class Result:
    """Runs, and what they cost."""

    def __init__(self, parts: Sequence[Part], *, now: bool = False, verdicts: Sequence[Row] = ()) -> None:
        self._parts = list(parts)
        self._verdicts = list(verdicts)
        self._tables: dict[str, pa.Table] = {}
        if now:
            for name in (*TABLES, "prices"):
                self._table(name)

    def _table(self, name: str) -> pa.Table:
        if name not in self._tables:
            self._tables[name] = _joined(name, self._parts)
        return self._tables[name]

    def table(self, name: Literal["runs", "energy", "timeline", "latency"]) -> pa.Table:
        """A table as it was written, for pyarrow, DuckDB or Polars."""
        return self._table(name).sort_by("run") if name == "runs" else self._table(name)

    def _frame(self, name: str) -> pd.DataFrame:
        frame: pd.DataFrame = self._table(name).to_pandas()
        frame = frame.sort_values("run", kind="stable", ignore_index=True)
        return frame.rename(columns={"run": "number", "name": "run"})

    def _first(self, frame: pd.DataFrame, first: Sequence[str]) -> pd.DataFrame:
        return frame[[*first, *[column for column in frame.columns if column not in first]]]

    def runs(self) -> pd.DataFrame:
        """A row for each run: everything it depends on, what it cost, what happened.

        `against_control` is what it cost beyond the run that it is to be compared with, as a part of that.
        """
        frame = self._frame("runs")
        frame["joules"] = frame["total_pj"] / 1e12
        frame["seconds"] = frame["time_ns"] / 1e9
        if "control" not in frame.columns:
            frame["control"] = None
        total = frame.set_index("key")["total_pj"].astype("float64")
        control = frame["control"].map(total).astype("float64")
        frame["against_control"] = frame["total_pj"] / control - 1.0
        return self._first(frame, ["run", "joules", "seconds", "against_control"])

    def verdicts(self) -> pd.DataFrame:
        """A row for each configuration: its mean energy, the difference to its control, and what that means.

        The difference is the mean over the pairs with equal seeds, in percent of the control; from `low_percent` to
        `high_percent` is its interval of 95 %. The page docs/comparing.md explains the words.
        """
        return pd.DataFrame(self._judged())

    def _judged(self) -> list[Row]:
        if self._verdicts:
            return self._verdicts
        said = [part.directory / "comparison.parquet" for part in self._parts if part.places is None]
        if len(said) == len(self._parts) and all(file.exists() for file in said):
            # The program has compared them.
            return [row for file in said for row in of_rows(pq.read_table(file).to_pylist())]
        return of_runs(self.runs(), self._prices())

    def _prices(self) -> dict[str, pd.Series[int]]:
        """What each run costs in each draw of the profile's numbers, by its key."""
        if "prices" not in self._tables and not all((part.directory / "prices.parquet").exists() for part in self._parts):
            return {}
        frame = self._table("prices").to_pandas().sort_values("draw", kind="stable")
        return {str(key): draws["pj"] for key, draws in frame.groupby("key", sort=False)}

    def energy(self) -> pd.DataFrame:
        """A row for each run, owner, cause and component: what it cost.

        An owner is a process where requests to a block device were recorded, and a file where calls were.
        """
        frame = self._frame("energy").rename(columns={"owner": "owner_number", "owner_name": "owner"})
        frame["joules"] = frame["pj"] / 1e12
        return self._first(frame, ["run", "owner", "cause", "component", "joules", "pj"])

    def timeline(self, by: Literal["component"] | None = None) -> pd.DataFrame:
        """What was spent when: watts since the row before, joules up to then; of all components, or `by` each."""
        frame = self._frame("timeline")
        if by is None:
            of_moment = frame.groupby(["number", "run", "key", "time_ns"], sort=False)[["pj", "power_uw"]]
            # The power of the first row is not known, and neither is the sum.
            frame = of_moment.sum(min_count=1).reset_index()
        frame["time_s"] = frame["time_ns"] / 1e9
        frame["joules"] = frame["pj"] / 1e12
        frame["watts"] = frame["power_uw"] / 1e6
        first = ["run", "time_s", "watts", "joules"] if by is None else ["run", "time_s", "component", "watts", "joules"]
        return self._first(frame, first)

    def latency(self) -> pd.DataFrame:
        """How long requests or calls took: a row for each run and kind."""
        return self._first(self._frame("latency"), ["run", "kind"])

    def __len__(self) -> int:
        return int(self._table("runs").num_rows)

    def __repr__(self) -> str:
        return f"<joulefs.Result of {len(self)} runs>"

    def _repr_html_(self) -> str:
        """For notebooks: the verdicts."""

        def percent(value: float | None) -> str:
            return "" if value is None or value != value else f"{value:+.1f} %"

        def interval(row: Row) -> str:
            low, high = percent(row["low_percent"]), percent(row["high_percent"])
            return "exact" if low and row["low_percent"] == row["high_percent"] else f"{low} to {high}" if low else ""

        heads = ("run", "seeds", "energy", "against", "difference", "95 % interval", "verdict")
        rows = [
            (
                str(row["run"]),
                str(row["seeds"]),
                energy(row["mean_pj"]),
                row["against"] or "",
                percent(row["difference_percent"]),
                interval(row),
                str(row["verdict"]),
            )
            for row in self._judged()
        ]
        return table(f"{len(self)} runs", heads, rows)


def _directories(place: Path) -> list[Path]:
    if (place / "runs.parquet").exists():
        return [place]
    # What is half made begins with a dot.
    inside = sorted(place.iterdir()) if place.is_dir() else []
    return [below for below in inside if not below.name.startswith(".") and (below / "runs.parquet").exists()]


def read(places: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> Result:
    """Results that `joulefs trace replay` or `joulefs lab run` wrote: of a directory, of several, or of all below one.

    Parts of a sweep (`--shard`) become the whole: what several made is there once.
    """
    every = [places] if isinstance(places, (str, os.PathLike)) else list(places)
    parts: list[Part] = []
    for place in every:
        found = _directories(Path(place))
        if not found:
            raise Error(f"{os.fspath(place)}: no results there: no runs.parquet, nor a directory with one")
        parts += [Part(directory) for directory in found]
    if not parts:
        raise Error("no directories to read")
    return Result(parts)
