"""How does a notebook show a result? As a small table."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

__all__ = ["energy", "table"]

#: Rows that are shown; the others are counted.
MOST = 20


def energy(pj: float) -> str:
    """Picojoules for people."""
    for by, unit in ((1e12, "J"), (1e9, "mJ"), (1e6, "uJ"), (1e3, "nJ")):
        if abs(pj) >= by:
            return f"{pj / by:.2f} {unit}"
    return f"{pj:.0f} pJ"


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; columns after the first are numbers and words on the right."""
    left, right = "text-align:left", "text-align:right"
    head = "".join(f'<th style="{right if n else left}">{escape(text)}</th>' for n, text in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f'<td style="{right if n else left}">{escape(cell)}</td>' for n, cell in enumerate(row)) + "</tr>"
        for row in rows[:MOST]
    )
    more = f"<p>{len(rows) - MOST} more rows</p>" if len(rows) > MOST else ""
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"
