"""`help()` has the program's words, and a wrong word gets the right one."""

from __future__ import annotations

import json
import os
import pydoc
import re
import subprocess
from pathlib import Path

import pytest
from conftest import CALLS

import joulefs as jf
from joulefs import _help
from joulefs._options import Options

HEAD = '''"""What does each option of a replay mean? Made by tests/test_help.py from the program's help; do not edit."""

#: A line for each option, by its name as a keyword.
LINES = {
'''
MIDDLE = """}

#: Other options of a volume.
VOLUME = (
"""


def first(text: str) -> str:
    """The first statement of an option's help, in one line."""
    text = re.sub(r" \[possible values: .*?\]| \([^)]*\)?", "", " ".join(text.split()))
    text = text[0].upper() + text[1:]
    # What is said of a default alone needs the rest.
    return text + "." if text.startswith("Default ") else re.split(r"; |(?<!e\.g)\. |, e\.g\. |: (?=whenever)", text)[0].rstrip(".,") + "."


def told(*words: str) -> str:
    return subprocess.run([jf.binary(), *words], capture_output=True, text=True, check=True).stdout


def generated() -> str:
    """The file, from the program's help."""
    replay = dict(re.findall(r"^ +(?:-\w, )?--([a-z-]+)(?: <\S+>)? {2,}(.*(?:\n {30,}.*)*)", told("trace", "replay", "-h"), re.M))
    mount = dict(re.findall(r"^  ([a-z_]+)(?:=\S*)?\n((?: {8}.*\n)+)", told("mount", "--help"), re.M))
    lines = {}
    for keyword in Options.__annotations__:
        name = keyword.rstrip("_")
        if keyword == "options":
            lines[keyword] = "Options of the volume that are not listed here, by name."
        elif keyword == "further":
            # Not an option of the program, but further words.
            lines[keyword] = "Further files of the same recording: requests are merged by time, files of calls follow each other."
        else:
            lines[keyword] = first(replay.get(name.replace("_", "-")) or mount[name])
    quoted = [f"    {json.dumps(name)}: {json.dumps(line)},\n" for name, line in lines.items()]
    volume = [f"    {json.dumps(name)},\n" for name in mount if name not in lines]
    return HEAD + "".join(quoted) + MIDDLE + "".join(volume) + ")\n"


def test_every_option_has_the_programs_own_line() -> None:
    file = Path(_help.__file__)
    if os.environ.get("JOULEFS_RENEW"):
        file.write_text(generated())
    assert file.read_text() == generated(), "JOULEFS_RENEW=1 makes it anew"
    for function in (jf.replay, jf.sweep, jf.Trace.replay, jf.Trace.sweep):
        shown = pydoc.render_doc(function, renderer=pydoc.plaintext)
        for keyword, line in _help.LINES.items():
            assert re.search(rf"^ +{keyword} +{re.escape(line)}$", shown, re.M), (keyword, shown)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("policy", "gc"),
        ("device", "profile"),
        ("filesystem", "fs"),
        ("start", "from_"),
        ("profil", "profile"),
        ("pagecache", "page_cache"),
        ("compression", "compress_algorithm"),
        ("jobs", "run"),
    ],
)
def test_a_wrong_word_gets_the_right_one_by_meaning_and_by_spelling(wrong: str, right: str) -> None:
    with pytest.raises(jf.Error, match=rf"no option {wrong}\b.*\b{right}\b") as caught:
        jf.sweep(CALLS, **{wrong: "x"})  # type: ignore[arg-type]
    assert caught.value.code == 2


def test_an_option_of_the_volume_needs_no_list_of_its_own() -> None:
    with pytest.raises(jf.Error, match="streams"):
        jf.sweep(CALLS, streams="nonsense")  # type: ignore[call-arg]
    with pytest.raises(jf.Error, match=r"no option zzz; help\(joulefs\.replay\) lists them"):
        jf.sweep(CALLS, zzz=1)  # type: ignore[call-arg]
