"""Results show verdicts in a notebook, and those of runs made one by one are the program's."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from conftest import CALLS, USED, said

import joulefs as jf
from joulefs._verdict import _quantile, of_program, of_runs


@pytest.mark.parametrize(
    "options",
    [
        {**USED, "gc": ["atgc", "fagc"], "seed": [1, 2, 3]},
        {**USED, "gc": ["atgc", "fagc"], "seeds": 1},
        {"delta": ["off", "on"]},
        {"seed": [1, 2]},
        # A price that turns the sign.
        {"delta": ["off", "on"], "cold": True, "assume": {"host.cpu_busy": "2W"}},
    ],
)
def test_runs_are_judged_as_the_program_judges_them(options: jf.Options) -> None:
    result = jf.replay(CALLS, **options)
    own, programs = pd.DataFrame(of_runs(result.runs(), result._prices())), result.verdicts()
    pd.testing.assert_frame_equal(own, programs, check_dtype=False, rtol=1e-6, atol=1e-9)


def test_students_t_is_that_of_the_tables() -> None:
    for degrees, t in ((1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (255, 1.9693)):
        assert _quantile(degrees) == pytest.approx(t, abs=6e-5)


def test_a_sweep_and_its_parts_show_a_verdict_for_each_configuration(cache: Path) -> None:
    sweep = jf.sweep(CALLS, gc=["atgc", "fagc"], seed=[1, 2], **USED)
    result = sweep.run("serial", cache)
    page = result._repr_html_()
    told = said("trace", "replay", CALLS, "--age", "full-fragmented", "--size", "256M", "--hurry",
                "--compare", "gc=atgc,fagc", "--compare", "seed=1,2")  # fmt: skip
    for row in of_program(told["comparison"], ""):
        assert f">{row['run']}<" in page
    assert [row["verdict"] for row in of_runs(result.runs(), result._prices())] == list(result.verdicts()["verdict"])
    assert ">control<" in page and ">no difference seen<" in page
    assert page.count("<tr>") == 1 + 3 and "mJ<" in page and "% to " in page
    assert ">none seed=1<" in sweep._repr_html_()


def test_names_are_text_in_a_page() -> None:
    from joulefs._html import table

    page = table("<c>", ["<h>"], [["<script>"]] * 30)
    assert "<script>" not in page and "&lt;script&gt;" in page and "10 more rows" in page


def test_stat_and_inspection_have_a_page(tmp_path: Path) -> None:
    assert ">fsync<" in jf.trace(CALLS).stat()._repr_html_()
    image = tmp_path / "v.img"
    said("mkfs", image, "--size", "64M")
    assert "worst files" in jf.inspect(image)._repr_html_()


def test_written_rows_show_the_programs_own_verdicts(tmp_path: Path) -> None:
    told = said("trace", "replay", CALLS, "--compare", "delta=off,on", "--parquet", tmp_path / "rows")
    own = jf.read(tmp_path / "rows").verdicts()
    pd.testing.assert_frame_equal(own, pd.DataFrame(of_program(told["comparison"], "")), check_dtype=False, rtol=1e-9)
