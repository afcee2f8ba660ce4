"""Rows that joulefs-lab wrote of experiments. JOULEFS_LAB names the program; lab/tests/program/rows_of_runs.rs starts this."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyarrow.parquet as pq

import joulefs as jf

LAB = os.environ["JOULEFS_LAB"]


def test_rows_of_experiments_are_read_as_those_of_replays(tmp_path: Path) -> None:
    words = ["--quick", "--variant", "none", "--variant", "fagc", "--results", tmp_path / "results"]
    ran = subprocess.run([LAB, "--json", "run", "gc-bound", *words, "--parquet", tmp_path / "rows"], capture_output=True, check=True)
    answer = json.loads(ran.stdout)
    phases = [phase for variant in answer[0]["outcome"]["variants"] for phase in variant["phases"]]
    totals = [sum(spent["pj"] for spent in phase["spent"]) for phase in phases]
    rows = pq.read_table(tmp_path / "rows/energy.parquet").to_pylist()
    assert [sum(row["pj"] for row in rows if row["run"] == number) for number in range(len(phases))] == totals
    result = jf.read(tmp_path / "rows")
    runs = result.runs()
    assert list(runs["total_pj"]) == totals and list(runs["phase"]) == [phase["name"] for phase in phases]
    assert runs["against_control"].notna().sum() == len(phases) / 2, "each phase of fagc beside that of none"
    last = result.timeline().groupby("run")["pj"].last()
    assert [int(last[run]) for run in runs["run"]] == totals
    assert list(runs.columns)[:4] == ["run", "joules", "seconds", "against_control"]
