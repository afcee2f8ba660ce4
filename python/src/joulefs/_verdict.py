"""What does a comparison say, and how sure is it?

The program judges the runs of one command. Runs that were made one by one, for a sweep, are judged here by the same rules
(docs/comparing.md): each is compared with its control of the same seed, and a verdict needs an interval of 95 % without 0,
and the same sign in nine of ten draws of the profile's numbers. Left out: pairs on different devices, of which only the
program knows what both count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import pandas as pd

__all__ = ["Row", "of_program", "of_rows", "of_runs"]

#: Of one configuration: run, against, seeds, mean_pj, difference_percent, low_percent, high_percent, verdict.
Row: TypeAlias = dict[str, Any]


def of_program(comparison: Sequence[Mapping[str, Any]], suffix: str) -> list[Row]:
    """The verdicts of a command, whose runs are called by `suffix`, too."""

    def named(name: str | None) -> str | None:
        return " ".join(word for word in (name, suffix) if word) if name is not None else None

    def row(judged: Mapping[str, Any]) -> Row:
        low, high = judged["interval_percent"] or (None, None)
        return {
            "run": named(judged["name"]),
            "against": named(judged["against"]),
            "seeds": len(judged["seeds"]),
            "mean_pj": judged["mean_pj"],
            "difference_percent": judged["difference_percent"],
            "low_percent": low,
            "high_percent": high,
            "verdict": judged["verdict"],
        }

    return [row(judged) for judged in comparison]


def of_rows(comparison: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The same from the rows of comparison.parquet."""

    def row(judged: Mapping[str, Any]) -> Row:
        return {
            "run": judged["name"],
            "against": judged.get("against"),
            "seeds": len(judged["seeds"].split(",")),
            "mean_pj": judged["mean_pj"],
            "difference_percent": judged.get("difference_percent"),
            "low_percent": judged.get("interval_low_percent"),
            "high_percent": judged.get("interval_high_percent"),
            "verdict": judged["verdict"],
        }

    return [row(judged) for judged in comparison]


#: What a run costs in each draw of the profile's numbers, by its key.
Prices: TypeAlias = Mapping[str, "pd.Series[int]"]


def of_runs(runs: pd.DataFrame, prices: Prices) -> list[Row]:
    """The same from the rows of runs, as :meth:`joulefs.Result.runs` has them.

    Of runs whose prices are not there, as earlier versions made them, other prices are left out.
    """
    rows: dict[str, dict[str, Any]] = {row["key"]: row for row in cast("list[Any]", runs.to_dict("records"))}
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows.values():
        groups.setdefault(_but_seed(row), []).append(row)
    has_controls = any(_text(row.get("control")) for row in rows.values())
    first = next(iter(groups.values()), [])
    return [_judged(name, group, rows, [] if has_controls or group is first else first, prices) for name, group in groups.items()]


def _but_seed(row: Mapping[str, Any]) -> str:
    words = [word for word in str(row["run"]).split(" ") if not word.startswith("seed=")]
    return " ".join(words) or str(row.get("profile"))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _judged(
    name: str, group: list[dict[str, Any]], rows: dict[str, dict[str, Any]], first: list[dict[str, Any]], prices: Prices
) -> Row:
    def control(row: dict[str, Any]) -> dict[str, Any] | None:
        if first:
            return next((other for other in first if other.get("seed") == row.get("seed")), first[0])
        return rows.get(_text(row.get("control")) or "")

    pairs = [(row, other) for row in group if (other := control(row)) is not None]
    judged: Row = {
        "run": name,
        "against": _but_seed(pairs[0][1]) if pairs else None,
        "seeds": len(group),
        "mean_pj": sum(int(row["total_pj"]) for row in group) // len(group),
        **dict.fromkeys(("difference_percent", "low_percent", "high_percent")),
        "verdict": "control",
    }
    if not pairs:
        return judged
    same = ("total_pj", "cpu_pj", "dram_pj", "storage_pj", "board_pj", "time_ns")
    if all(row[column] == other[column] for row, other in pairs for column in same):
        return judged | {"difference_percent": 0.0, "low_percent": 0.0, "high_percent": 0.0, "verdict": "did nothing"}
    if any(row.get("profile") != other.get("profile") for row, other in pairs):
        return judged | {"verdict": "not judged: different devices"}
    changes = [(int(row["total_pj"]) / int(other["total_pj"]) - 1.0) * 100.0 for row, other in pairs]
    mean = sum(changes) / len(changes)
    random = len(changes) > 1 or any(_text(group[0].get(column)) for column in ("age", "fill"))
    half = _half(changes, mean) if random else 0.0
    if half is None:
        return judged | {"difference_percent": mean, "verdict": "not judged: one seed"}
    low, high = mean - half, mean + half
    verdict = "better" if high < 0.0 else "worse"
    if low <= 0.0 <= high:
        verdict = "no difference seen"
    elif _depends(pairs, prices):
        verdict = "depends on the profile's numbers"
    return judged | {"difference_percent": mean, "low_percent": low, "high_percent": high, "verdict": verdict}


def _depends(pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]], prices: Prices) -> bool:
    """Whether nine of ten draws of the profile's numbers include a difference of 0."""
    if any(row["key"] not in prices for pair in pairs for row in pair):
        return False

    def total(side: int) -> pd.Series[float]:
        each = [prices[pair[side]["key"]].reset_index(drop=True).astype("float64") for pair in pairs]
        return pd.concat(each, axis=1).sum(axis=1)

    changes = (total(0) / total(1) - 1.0).sort_values().tolist()
    twentieth = len(changes) // 20
    return bool(changes[twentieth] <= 0.0 <= changes[-1 - twentieth])


def _half(changes: Sequence[float], mean: float) -> float | None:
    """Half of the interval of 95 % by Student's t; none of a single change."""
    n = len(changes)
    if n < 2:
        return None
    variance = sum((change - mean) ** 2 for change in changes) / (n - 1)
    return _quantile(n - 1) * math.sqrt(variance / n)


def _quantile(degrees: int) -> float:
    """The number within which, on both sides of 0, 95 % of Student's t lie."""
    low, high = 0.0, 13.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if _within(middle, degrees) < 0.95 else (low, middle)
    return high


def _within(t: float, degrees: int) -> float:
    """How much of Student's t with whole degrees of freedom lies between -t and t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cos2, term, total = math.cos(angle) ** 2, 1.0, 0.0
    if degrees % 2 == 0:
        for n in range(0, degrees, 2):
            total += term
            term *= cos2 * (n + 1) / (n + 2)
        return math.sin(angle) * total
    term = math.cos(angle)
    for n in range(1, degrees - 1, 2):
        total += term
        term *= cos2 * (n + 1) / (n + 2)
    return 2 / math.pi * (angle + math.sin(angle) * total)
