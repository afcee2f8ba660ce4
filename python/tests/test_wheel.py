"""The wheel, installed by pip into an environment that has never seen the repository, does what the first page promises."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import CALLS, REQUESTS, ROOT

import joulefs as jf

#: As in python/README.md, with recordings of the repository in place of the reader's.
TEN_LINES = '''\
import joulefs as jf
t = jf.trace("telegram_exec.csv.gz")
t.stat().operations
r = jf.replay(t, profile=["kirin9000-ufs31", "galaxy-nexus-emmc"], full=[False, True])
e = r.energy()
e.pivot_table("joules", "run", "cause", "sum").plot.barh(stacked=True)
r.timeline().set_index("time_s").groupby("run")["watts"].plot(legend=True)
s = jf.sweep("app.strace", gc=["atgc", "fagc"], age="phone-year", seed=range(20))
s.run(engine="joblib", cache="runs/")
jf.inspect("phone.img").files.nlargest(20, "dof")
'''


def maturin(out: Path) -> Path:
    """A wheel with the binary that is judged: maturin packs it, and a stand-in for cargo says that it is compiled."""
    stand_in = ROOT / "python/tests/prebuilt"
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())
    # It takes away what it packs, and puts a copy back: other tests would look for the program in vain meanwhile.
    built = Path(shutil.copy2(jf.binary(), out.parent / "joulefs"))
    # Under `cargo test` CARGO names the real one, which maturin would prefer to that of the PATH.
    env = {
        **{name: value for name, value in os.environ.items() if name not in ("CARGO", "RUSTC_BOOTSTRAP")},
        "PATH": f"{stand_in}:{os.environ['PATH']}",
        "JOULEFS_BUILT": str(built),
        "JOULEFS_VERSION": workspace["workspace"]["package"]["version"],
    }
    command = [str(Path(sys.executable).parent / "maturin"), "build", "--profile", "dev", "--out", str(out)]
    ran = subprocess.run(command, cwd=ROOT / "python", env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (wheel,) = out.glob("*.whl")
    return wheel


def test_the_first_page_has_the_ten_lines() -> None:
    indented = "".join(f"    {line}\n" for line in TEN_LINES.splitlines())
    # Its comments are for readers.
    page = "\n".join(line.split("  #")[0].rstrip() for line in (ROOT / "python/README.md").read_text().splitlines())
    assert indented in page + "\n"


def test_a_wheel_in_a_clean_environment_runs_the_ten_lines(tmp_path: Path) -> None:
    wheel = maturin(tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    assert any(name.endswith(".data/scripts/joulefs") for name in names) and "joulefs/py.typed" in names
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    # What it depends on comes from the environment of the tests, so that nothing is fetched anew; the package itself and its
    # binary only from the wheel.
    python = venv / "bin/python"
    here = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True)
    libraries = Path(jf.__file__).parent  # the sources, which must not be found
    site = Path(sys.executable).parent.parent / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    (Path(here.stdout.strip()) / "libraries.pth").write_text(f"{site}\n")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "JOULEFS"))}
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    installed = subprocess.run([*pip, "--no-index", str(wheel)], env=clean, capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr
    work = tmp_path / "work"
    work.mkdir()
    lines = TEN_LINES.replace("telegram_exec.csv.gz", str(REQUESTS)).replace("app.strace", str(CALLS))
    lines = lines.replace("range(20)", "range(2)")
    # Whatever the lines load, pip brings without being told an extra.
    told = (
        "\nimport json, re, sys, importlib.metadata as m"
        "\nasked = {re.split('[^a-z0-9]', q)[0] for q in m.requires('joulefs') if 'extra' not in q}"
        "\nloaded = {'pandas', 'pyarrow', 'joblib', 'matplotlib', 'distributed'} & sys.modules.keys()"
        "\nassert loaded == asked, (loaded, asked)"
        "\nprint(json.dumps([jf.__file__, str(jf.binary()), len(r), len(s), len(e), len(s.result('runs/'))]))\n"
    )
    subprocess.run([venv / "bin/joulefs", "mkfs", work / "phone.img", "--size", "64M"], check=True, capture_output=True)
    env = {**clean, "MPLBACKEND": "Agg", "PATH": "/usr/bin:/bin"}
    ran = subprocess.run([python, "-c", lines + told], cwd=work, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    module, binary, runs, points, rows, made = json.loads(ran.stdout.splitlines()[-1])
    assert Path(module).is_relative_to(venv) and Path(binary) == venv / "bin/joulefs"
    assert libraries not in Path(module).parents
    assert (runs, points, made) == (4, 6, 6) and rows > 50
    # pip takes away what it brought.
    uninstall = [sys.executable, "-m", "pip", "--python", str(python), "uninstall", "--yes", "--quiet", "joulefs"]
    subprocess.run(uninstall, env=clean, check=True, capture_output=True)
    assert not (venv / "bin/joulefs").exists()


def test_a_wheel_without_its_binary_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOULEFS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(jf.Error, match="JOULEFS"):
        jf.binary()
