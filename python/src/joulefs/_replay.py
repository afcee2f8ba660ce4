"""What does a recording cost, now?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Unpack

from joulefs._binary import answer, ended_by_signals
from joulefs._describe import described
from joulefs._options import Options
from joulefs._result import Part, Result
from joulefs._sweep import plan
from joulefs._trace import Trace
from joulefs._verdict import Row, of_program

__all__ = ["replay"]


@described
def replay(recording: Trace | str | os.PathLike[str], **options: Unpack[Options]) -> Result:
    """Replays a recording, once for each combination of the values given; as many at once as there are processors.

    Nothing is kept but the result. For many runs, or long ones, see :func:`joulefs.sweep`.
    """
    with ended_by_signals(), tempfile.TemporaryDirectory(prefix="joulefs-") as made:
        parts = []
        verdicts: list[Row] = []
        for number, (command, name, places) in enumerate(plan(recording, options)):
            directory = Path(made) / str(number)
            said = answer([*command, "--parquet", str(directory)])
            parts.append(Part(directory, places))
            verdicts += of_program(said.get("comparison", []), name)
        return Result(parts, now=True, verdicts=verdicts)
