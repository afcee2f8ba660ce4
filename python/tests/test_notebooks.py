"""The notebooks that are shown say what comes out today."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from conftest import ROOT

#: `scripts/run-notebooks`, as a module.
MADE = runpy.run_path(str(ROOT / "scripts/run-notebooks"))
NAMES = sorted(file.stem for file in (ROOT / "docs/notebooks").glob("*.py"))


def told(notebook: Any) -> list[tuple[str, str, list[str]]]:
    """What is in the cells, and what came out of them as text; pictures are not compared, but that they are there is."""

    def of(output: Any) -> str:
        data = output.get("data", {})
        return f"{data.get('text/plain', output.get('text', ''))}{' and a picture' if 'image/png' in data else ''}"

    return [(c.cell_type, c.source, [of(o) for o in c.get("outputs", [])]) for c in notebook.cells]


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_run_anew_says_the_same(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    # It is set for the kernel, and put back here.
    monkeypatch.setenv("JOULEFS_CACHE", "")
    kept = nbformat.read(ROOT / f"docs/notebooks/{name}.ipynb", as_version=4)
    assert told(MADE["run"](name)) == told(kept), "scripts/run-notebooks makes it anew"
    pictures = [text for _, _, outputs in told(kept) for text in outputs if "a picture" in text]
    assert pictures and len(NAMES) >= 2
