"""Which options does `help()` show? Those of the program, a line each.

The lines are the program's own (`_help.py`, which `tests/test_help.py` makes from its help).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from joulefs._help import LINES

__all__ = ["described"]

_Called = TypeVar("_Called", bound=Callable[..., Any])


def described(called: _Called) -> _Called:
    """Adds the options to what `help()` says of a function."""
    width = max(map(len, LINES))
    lines = "\n".join(f"    {name:<{width}}  {line}" for name, line in LINES.items())
    called.__doc__ = f"{textwrap.dedent(called.__doc__ or '').rstrip()}\n\nOptions:\n{lines}\n"
    return called
