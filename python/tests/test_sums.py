"""Sums of the rows are what the ledger says, to the picojoule: the rows read by pyarrow, the ledger by a shell's JSON."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from conftest import CALLS, REQUESTS, ROOT, USED, said

import joulefs as jf

USED_WORDS = ["--age", "full-fragmented", "--size", "256M", "--hurry"]


@pytest.mark.parametrize(
    ("recording", "options"),
    [
        (CALLS, [*USED_WORDS, "--compare", "gc=atgc,fagc", "--compare", "seed=1,2"]),
        (CALLS, ["--compare", "delta=on", "--compare", "fs=f2fs"]),
        (REQUESTS, ["--compare", "profile=kirin9000-ufs31,laptop-disk-4200", "--compare", "full=off,on"]),
        (ROOT / "trace/fixtures/strace/programs.y.strace.gz", ["--compare", "fill=50%,90%", "--seeds", "1"]),
    ],
)
def test_sums_are_the_ledgers_by_run_cause_and_component(recording: Path, options: list[str], tmp_path: Path) -> None:
    answer = said("trace", "replay", recording, *options, "--parquet", tmp_path)
    rows = pq.read_table(tmp_path / "energy.parquet").to_pylist()
    runs = pq.read_table(tmp_path / "runs.parquet").to_pylist()
    assert [run["total_pj"] for run in runs] == [variant["total_pj"] for variant in answer["variants"]]
    for number, variant in enumerate(answer["variants"]):
        own = [row for row in rows if row["run"] == number]
        # Whole numbers of Python: nothing is rounded on the way.
        assert sum(row["pj"] for row in own) == variant["total_pj"] > 0
        components: Counter[str] = Counter()
        causes: Counter[str] = Counter()
        for row in own:
            components[row["component"]] += row["pj"]
            causes[row["cause_key"]] += row["pj"]
        assert +components == +Counter(variant["components_pj"])
        assert causes == Counter({cause: energies["pj"] for cause, energies in variant["causes"].items()})
        assert len({(row["owner"], row["cause_number"], row["component"]) for row in own}) == len(own)


def test_frames_have_the_sums_of_the_rows() -> None:
    result = jf.replay(CALLS, gc=["atgc", "fagc"], seed=[1, 2], **USED)
    runs, energy = result.runs(), result.energy()
    assert list(runs["run"]) == ["none seed=1", "none seed=2", "atgc seed=1", "atgc seed=2", "fagc seed=1", "fagc seed=2"]
    by_run = energy.groupby("run")["pj"].sum()
    assert [int(by_run[run]) for run in runs["run"]] == [int(pj) for pj in runs["total_pj"]]
    assert runs["total_pj"].nunique() == 6, "what is compared makes a difference here"
    pivot = energy.pivot_table("joules", "run", "cause", "sum")
    assert pivot.sum(axis=1).sub(runs.set_index("run")["joules"]).abs().max() < 1e-12
    controls = runs.set_index("key")["total_pj"]
    for row in runs.to_dict("records"):
        if row["run"].startswith("none"):
            assert row["against_control"] != row["against_control"]
        else:
            assert row["against_control"] == row["total_pj"] / controls[row["control"]] - 1
    whole, parts = result.timeline(), result.timeline(by="component")
    last = whole.groupby("run")["pj"].last()
    assert [int(last[run]) for run in runs["run"]] == [int(pj) for pj in runs["total_pj"]]
    assert set(parts["component"]) == {"cpu", "dram", "storage", "board"}
    assert len(parts) == 4 * len(whole)
    # Watts over the time between two rows are the joules between them.
    for _, one in whole.groupby("run"):
        joules = (one["watts"] * one["time_s"].diff()).sum()
        assert joules == pytest.approx(one["joules"].iloc[-1] - one["joules"].iloc[0], rel=1e-5)
    assert set(result.latency()["run"]) == set(runs["run"])
