"""A sweep gives one table, whoever makes its runs, and however often it is interrupted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import CALLS, REQUESTS, USED, same

import joulefs as jf

#: Heavy enough to be hit in the middle: each run takes some tenths of a second.
LONG: jf.Options = {**USED, "repeat": 20, "gc": ["atgc", "fagc"], "seed": [1, 2, 3]}


@pytest.fixture(scope="module")
def long() -> jf.Result:
    """What comes of the heavy ones, made by one command."""
    return jf.replay(CALLS, **LONG)


def short() -> jf.Sweep:
    return jf.sweep(CALLS, gc=["atgc", "fagc"], seed=range(1, 3), **USED)


def made(cache: Path) -> dict[str, int]:
    """When each run of a cache was made."""
    return {place.name: place.stat().st_mtime_ns for place in cache.iterdir() if not place.name.startswith(".")}


def halves(cache: Path) -> list[str]:
    return [place.name for place in cache.iterdir() if place.name.startswith(".half-")]


def test_one_process_many_threads_and_one_command_give_the_same_table(tmp_path: Path) -> None:
    serial = short().run("serial", tmp_path / "serial")
    same(serial, short().run("joblib", tmp_path / "joblib", jobs=2))
    same(serial, jf.replay(CALLS, gc=["atgc", "fagc"], seed=[1, 2], **USED))
    assert len(serial) == 6 and serial.runs()["total_pj"].nunique() == 6


def test_what_is_there_is_not_made_again_and_more_values_make_only_more_runs(cache: Path) -> None:
    told: list[tuple[int, int]] = []
    first = short().run("serial", cache)
    before = made(cache)
    again = short().run("serial", cache, told=lambda done, of: told.append((done, of)))
    same(first, again)
    assert made(cache) == before and told == []
    more = jf.sweep(CALLS, gc=["atgc", "fagc"], seed=range(1, 4), **USED)
    assert list(more.status(cache)["done"]).count(False) == 3
    result = more.run("serial", cache, told=lambda done, of: told.append((done, of)))
    assert told == [(7, 9), (8, 9), (9, 9)]
    assert before.items() <= made(cache).items()
    # A run that was made for another comparison is called as in this one.
    one = jf.sweep(CALLS, seed=1, seeds=1, gc=["atgc"], **USED).run("serial", cache)
    assert list(one.runs()["run"]) == ["none", "atgc"] and len(made(cache)) == 9
    of_all = result.runs().set_index("run")["total_pj"]
    assert list(one.runs()["total_pj"]) == [of_all["none seed=1"], of_all["atgc seed=1"]]


def test_parts_are_the_whole(tmp_path: Path) -> None:
    whole = short()
    result = whole.run("serial", tmp_path / "whole")
    for number in (1, 2, 3):
        part = whole.shard(number, 3)
        # As the program itself parts them.
        words = [*whole.points[0].command, "--shard", f"{number}/3", "--parquet", str(tmp_path / "parts" / str(number))]
        subprocess.run([jf.binary(), *words], check=True, capture_output=True)
        own = jf.read(tmp_path / "parts" / str(number))
        assert [point.name for point in part.points] == list(own.runs()["run"])
        same(part.run("serial", tmp_path / "shared"), own)
    same(jf.read(tmp_path / "parts"), result)
    same(whole.result(tmp_path / "shared"), result)


def test_a_killed_sweep_leaves_nothing_half_and_goes_on(cache: Path, long: jf.Result) -> None:
    # When the first run is done it kills itself, with the programs that it has started.
    script = (
        "import joulefs as jf, os, signal\n"
        f"s = jf.sweep({str(CALLS)!r}, **{dict(LONG)!r})\n"
        f"s.run('joblib', {str(cache)!r}, jobs=2, told=lambda done, of: os.killpg(0, signal.SIGKILL))\n"
    )
    sweep = jf.sweep(CALLS, **LONG)
    child = subprocess.run([sys.executable, "-c", script], start_new_session=True, check=False)
    assert child.returncode == -signal.SIGKILL
    there, torn = made(cache), halves(cache)
    assert 1 <= len(there) < 9, there
    assert torn, "it was in the middle of a run"
    for key in there:
        assert all((cache / key / f"{name}.parquet").exists() for name in ("runs", "energy", "timeline", "latency"))
    told: list[tuple[int, int]] = []
    result = sweep.run("joblib", cache, jobs=2, told=lambda done, of: told.append((done, of)))
    assert told[0] == (len(there) + 1, 9) and told[-1] == (9, 9)
    assert there.items() <= made(cache).items() and halves(cache) == []
    same(result, long)


def test_what_was_cut_off_is_not_taken_for_done(cache: Path) -> None:
    sweep = short()
    first = sweep.run("serial", cache)
    key = sweep.points[3].key
    shutil.move(cache / key, cache / f".half-{key}-elsewhere-1-ab")
    assert not sweep.status(cache)["done"][3]
    same(sweep.run("serial", cache), first)
    # Another machine's is left alone.
    assert halves(cache) == [f".half-{key}-elsewhere-1-ab"]


def test_two_processes_with_one_cache_make_one_table(cache: Path, long: jf.Result) -> None:
    script = (
        "import joulefs as jf\n"
        f"s = jf.sweep({str(CALLS)!r}, **{dict(LONG)!r})\n"
        "print(flush=True); input()\n"
        f"print(len(s.run('joblib', {str(cache)!r}, jobs=1)))\n"
    )
    start = [sys.executable, "-c", script]
    both = [subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for child in both:
        assert child.stdout is not None and child.stdin is not None
        child.stdout.readline()
    for child in both:
        child.stdin.write("\n")  # type: ignore[union-attr]
        child.stdin.flush()  # type: ignore[union-attr]
    assert [child.communicate()[0].strip() for child in both] == ["9", "9"]
    assert [child.returncode for child in both] == [0, 0]
    assert halves(cache) == [] and len(made(cache)) == 9
    same(jf.sweep(CALLS, **LONG).result(cache), long)


def test_dask_gives_the_same_table_while_a_worker_is_killed(cache: Path, long: jf.Result) -> None:
    from distributed import Client, LocalCluster

    sweep = jf.sweep(CALLS, **LONG)
    # A scheduler and two workers, each a process, on this machine alone.
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None, memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        pids = client.run(os.getpid)
        assert len(set(pids.values())) == 2 and os.getpid() not in pids.values()
        killed: list[int] = []

        def kill(done: int, of: int) -> None:
            if killed or done == of:
                return
            busy = [worker for worker, tasks in client.processing().items() if tasks]
            victim = next((pid for worker, pid in pids.items() if worker in busy), None)
            if victim is not None:
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

        result = sweep.run(client, cache, told=kill)
        assert killed, "a worker was killed that had something to do"
        with pytest.raises(ProcessLookupError):
            os.kill(killed[0], 0)
    assert len(made(cache)) == 9
    same(result, long)
    # What the worker left is cleared away by who comes next, once the program that it had started has ended.
    deadline = time.monotonic() + 30
    while halves(cache) and time.monotonic() < deadline:
        sweep.run("serial", cache)
        time.sleep(0.2)
    assert halves(cache) == []


def test_a_run_that_fails_stops_no_other(cache: Path) -> None:
    sweep = jf.sweep(REQUESTS, size=["1G", "16M", "2G"])
    with pytest.raises(jf.Error, match=r"size=16M: --size 16M: ") as caught:
        sweep.run("joblib", cache)
    assert caught.value.code == 2 and "--only" in caught.value.command
    assert list(sweep.status(cache)["done"]) == [True, False, True]
    assert halves(cache) == []


def test_a_recording_that_changed_since_is_another(tmp_path: Path, cache: Path) -> None:
    copy = tmp_path / "copy.blktrace.zst"
    shutil.copy(REQUESTS, copy)
    sweep = jf.sweep(copy, full=[False, True])
    sweep.run("serial", cache)
    shutil.copy(CALLS, copy)
    assert jf.sweep(copy).points[0].key not in made(cache)
    with pytest.raises(jf.Error):
        sweep.run("serial", tmp_path / "other")
