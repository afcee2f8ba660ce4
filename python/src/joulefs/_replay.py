"""What does a recording cost, now?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Unpack

from joulefs._binary import answer
from joulefs._options import Options
from joulefs._result import Part, Result
from joulefs._sweep import plan
from joulefs._trace import Trace

__all__ = ["replay"]


def replay(recording: Trace | str | os.PathLike[str], **options: Unpack[Options]) -> Result:
    """Replays a recording, once for each combination of the values given; as many at once as there are processors.

    Nothing is kept but the result. For many runs, or long ones, see :func:`joulefs.sweep`.
    """
    with tempfile.TemporaryDirectory(prefix="joulefs-") as made:
        parts = []
        for number, (command, places) in enumerate(plan(recording, options)):
            directory = Path(made) / str(number)
            answer([*command, "--parquet", str(directory)])
            parts.append(Part(directory, places))
        return Result(parts, now=True)
