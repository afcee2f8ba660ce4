"""What writes cost in joules: recordings replayed on simulated storage devices.

    import joulefs as jf
    r = jf.replay("phone.blktrace", profile=["kirin9000-ufs31", "galaxy-nexus-emmc"])
    r.energy().pivot_table("joules", "run", "cause", "sum")

The work is done by the binary `joulefs`, which comes with this package. Every run's result is a set of Parquet tables;
here they become DataFrames.
"""

from joulefs._binary import Error, binary, version
from joulefs._inspect import Inspection, inspect
from joulefs._options import Options, Value, Values
from joulefs._replay import replay
from joulefs._result import Result, read
from joulefs._sweep import Point, Sweep, sweep
from joulefs._trace import Stat, Trace, trace

__all__ = [
    "Error",
    "Inspection",
    "Options",
    "Point",
    "Result",
    "Stat",
    "Sweep",
    "Trace",
    "Value",
    "Values",
    "binary",
    "inspect",
    "read",
    "replay",
    "sweep",
    "trace",
    "version",
]
