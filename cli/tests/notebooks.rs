//! Runs the tests of the notebook module (python/tests), in an environment created by scripts/install-tools.

use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn the_module_for_python_passes_its_own_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join("target/tools/python/bin/python");
    assert!(python.exists(), "{}: missing: scripts/install-tools suites", python.display());
    let ran = Command::new(&python)
        // The laboratory's output is tested in lab/tests/program/rows_of_runs.rs.
        .args(["-m", "pytest", "-rs", "--ignore=tests/test_lab.py"])
        .current_dir(root.join("python"))
        .env("JOULEFS", env!("CARGO_BIN_EXE_joulefs"))
        .env("PYTHONPATH", root.join("python/src"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{text}");
    println!("{text}");
}
