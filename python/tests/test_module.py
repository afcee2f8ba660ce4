"""What the module says of recordings and images, and how it refuses."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CALLS, REQUESTS, ROOT, USED, said

import joulefs as jf
from joulefs._options import commands


def test_a_recording_is_counted_as_the_program_counts_it() -> None:
    requests, calls = jf.trace(REQUESTS).stat(), jf.trace(str(CALLS)).stat()
    told = said("trace", "stat", REQUESTS)
    assert requests.report == told and requests.format == "blktrace"
    operations = requests.operations.set_index("op")["count"].to_dict()
    assert operations == {row["op"]: row["count"] for row in told["operations"]}
    assert list(requests.devices["device"]) == ["254,16"] and len(requests.processes) == 9
    assert calls.operations.set_index("op")["count"].to_dict() == said("trace", "stat", CALLS)["operations"]
    assert len(calls.files) > 0 and calls.seconds > 1


def test_keywords_become_the_words_of_a_command() -> None:
    def words(**options: object) -> list[tuple[str, str]]:
        return [(" ".join(c.words), c.name) for c in commands(options)]  # type: ignore[arg-type]

    assert words() == [("", "")]
    assert words(profile="a", full=True, hurry=False, seed=None, page_cache="none") == [
        ("--profile a --full --page-cache none", "")
    ]
    assert words(seed=range(3), gc=("atgc", "fagc"), delta="on") == [
        ("--compare seed=0,1,2 --compare gc=atgc,fagc -o delta=on", "")
    ]
    assert words(assume={"device.ready": ["5mW", "10mW"], "flush": "5s"}, options={"x": 1}) == [
        ("--compare device.ready=5mW,10mW --assume flush=5s -o x=1", "")
    ]
    assert words(age=[None, "full"], full=[False, True]) == [("--compare age=none,full --compare full=off,on", "")]
    assert words(after=["a", Path("b")], from_="1s") == [("--after a --after b --from 1s", "")]
    assert words(further=["b", Path("c")], no_cache=True) == [("b c --no-cache", "")]
    assert words(no_cache=[False, True]) == [("", "no_cache=off"), ("--no-cache", "no_cache=on")]
    # What the program does not compare is a command for each.
    assert words(hurry=[False, True], repeat=[1, 2], gc=["atgc"]) == [
        ("--compare gc=atgc --repeat 1", "hurry=off repeat=1"),
        ("--compare gc=atgc --repeat 2", "hurry=off repeat=2"),
        ("--compare gc=atgc --hurry --repeat 1", "hurry=on repeat=1"),
        ("--compare gc=atgc --hurry --repeat 2", "hurry=on repeat=2"),
    ]
    for wrong in ({"seed": []}, {"gc": ["a,b"]}, {"hurry": 3}, {"size": object()}):
        with pytest.raises(jf.Error) as caught:
            list(commands(wrong))  # type: ignore[arg-type]
        assert caught.value.code == 2 and next(iter(wrong)) in caught.value.message


def test_what_the_program_does_not_compare_is_compared_too() -> None:
    result = jf.replay(CALLS, repeat=[1, 2], gc=["atgc"], age="full-fragmented", size="256M", hurry=True, seeds=1)
    runs = result.runs()
    assert list(runs["run"]) == ["none repeat=1", "atgc repeat=1", "none repeat=2", "atgc repeat=2"]
    assert list(runs["number"]) == [0, 1, 2, 3] and list(runs["repeat"]) == [1, 1, 2, 2]
    assert runs["against_control"].notna().tolist() == [False, True, False, True]


def test_owners_are_processes_of_requests_and_files_of_calls() -> None:
    requests, calls = jf.replay(REQUESTS), jf.replay(CALLS, **USED)
    assert "dd" in set(requests.energy()["owner"]) and set(requests.runs()["owners"]) == {"process"}
    assert any(str(owner).startswith("/") for owner in calls.energy()["owner"])
    assert list(requests.runs()["run"]) == ["kirin9000-ufs31"]
    keys = calls.energy().set_index("cause")["cause_key"].to_dict()
    assert keys["user data"] == "user_data" and keys["nodes for fsync"] == "nodes_for_fsync"


def test_an_image_is_looked_at(tmp_path: Path) -> None:
    image = tmp_path / "v.img"
    said("mkfs", image, "--size", "64M")
    subprocess.run([jf.binary(), "cp", ROOT / "README.md", f"{image}:/README.md"], check=True)
    seen = jf.inspect(image, extents=True)
    named = seen.files.set_index("path")
    assert named.loc["/README.md", "size_bytes"] == (ROOT / "README.md").stat().st_size
    assert len(seen.files.nlargest(20, "dof")) >= 1 and len(seen.segments) > 0 and len(seen.extents) > 0
    assert seen.report["schema"] == "joulefs-inspect" and len(jf.inspect(image).extents) == 0


def test_a_refusal_is_one_exception_with_the_programs_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for attempt, words, code in (
        (lambda: jf.replay(CALLS, profile="nothing"), 'no profile "nothing"', 2),
        (lambda: jf.replay(tmp_path / "none"), "none", 1),
        (lambda: jf.replay(REQUESTS, gc=["atgc"]), "for a recording of a block device only", 2),
        (lambda: jf.sweep(CALLS, gc=["magic"]), "magic", 2),
        (lambda: jf.trace(tmp_path / "none").stat(), "none", 1),
        (lambda: jf.inspect(tmp_path / "none"), "none", 1),
        (lambda: jf.read(tmp_path), "no results there", 1),
        (lambda: jf.sweep(CALLS).shard(3, 2), "shard 3 of 2", 2),
        (lambda: jf.sweep(CALLS).run("ray", tmp_path / "runs"), "joblib", 2),  # type: ignore[arg-type]
    ):
        with pytest.raises(jf.Error) as caught:
            attempt()
        assert words in caught.value.message and "\n" not in caught.value.message, caught.value.message
        assert caught.value.code == code, caught.value.message
        assert str(pickle.loads(pickle.dumps(caught.value))) == caught.value.message
    monkeypatch.setenv("JOULEFS", str(tmp_path))
    with pytest.raises(jf.Error, match="JOULEFS"):
        jf.binary()


def test_every_type_is_told() -> None:
    command = [sys.executable, "-m", "mypy", "--cache-dir", "../target/tools/mypy"]
    ran = subprocess.run(command, cwd=ROOT / "python", capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
