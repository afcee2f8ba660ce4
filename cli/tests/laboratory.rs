//! `joulefs lab` runs `joulefs-lab`, a separate program, if installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::room::Room;

/// A copy of the program in a directory, next to files that the test adds.
fn alone(room: &Room, path: &str, args: &[&str]) -> Output {
    let program = room.path("joulefs");
    if !program.exists() {
        fs::copy(crate::PROGRAM, &program).unwrap();
    }
    Command::new(program).args(args).env("PATH", path).output().unwrap()
}

fn script(room: &Room, name: &str, text: &str) {
    fs::write(room.path(name), text).unwrap();
    fs::set_permissions(room.path(name), fs::Permissions::from_mode(0o755)).unwrap();
}

const SHOWS: &str = "#!/bin/sh\necho \"$0: $JOULEFS_VERSION: $*\"\nexit 3\n";

#[test]
fn without_it_one_line_says_how_to_install_it() {
    let room = Room::new();
    let out = alone(&room, "/nowhere", &["lab", "list"]);
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("joulefs-lab") && text.contains("cargo install --path lab"), "{text}");
}

#[test]
fn it_is_run_from_the_programs_directory_first_with_all_words_as_typed_and_its_exit_code() {
    let room = Room::new();
    fs::create_dir(room.path("bin")).unwrap();
    script(&room, "bin/joulefs-lab", SHOWS);
    let path = format!("{}:/usr/bin:/bin", room.text("bin"));
    let version = env!("CARGO_PKG_VERSION");
    let ran = |args: &[&str]| {
        let out = alone(&room, &path, args);
        assert_eq!(out.status.code(), Some(3), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let words = ["lab", "run", "--quick", "x y", "--set", "a=1", "--help"];
    assert_eq!(ran(&words), format!("{}: {version}: run --quick x y --set a=1 --help\n", room.text("bin/joulefs-lab")));
    script(&room, "joulefs-lab", SHOWS);
    let own = room.text("joulefs-lab");
    assert_eq!(ran(&["--json", "lab", "list"]), format!("{own}: {version}: --json list\n"));
    assert_eq!(ran(&["lab", "--help"]), format!("{own}: {version}: --help\n"));
    assert_eq!(ran(&["help", "lab", "run"]), format!("{own}: {version}: help run\n"));
    assert_eq!(ran(&["lab"]), format!("{own}: {version}: \n"));
}
