"""What the tests share: recordings of the repository, and the program that is judged."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import joulefs as jf

ROOT = Path(__file__).resolve().parents[2]
#: Calls of a program, with contents; a volume in use on which policies of cleaning differ, and seeds too.
CALLS = ROOT / "recordings/editor.rec"
USED: jf.Options = {"age": "full-fragmented", "size": "256M", "hurry": True}
#: Requests to a block device.
REQUESTS = ROOT / "trace/fixtures/blktrace/vdb.blktrace.zst"


def said(*words: str | os.PathLike[str]) -> Any:
    """What the program says to a shell, past the module that is judged."""
    ran = subprocess.run([str(jf.binary()), "--json", *map(str, words)], capture_output=True, text=True, check=True)
    return json.loads(ran.stdout)


def same(one: jf.Result, other: jf.Result) -> None:
    """Fails unless two results are equal in every cell of every frame."""
    for frame in ("runs", "energy", "timeline", "latency"):
        a, b = (getattr(result, frame)() for result in (one, other))
        pd.testing.assert_frame_equal(a, b, check_exact=True)
    assert len(one) > 0


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "runs"
