//! What `joulefs mkfs` considers empty, and what it refuses to overwrite.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::theirs::assert_clean;

const GIB: u64 = 1 << 30;

fn mkfs(image: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_joulefs")).arg("mkfs").arg(image).args(more).output().unwrap()
}

fn error(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).trim_end().to_owned()
}

fn sparse(dir: &tempfile::TempDir, bytes: u64) -> PathBuf {
    let path = dir.path().join("disk.img");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

#[test]
fn a_large_file_of_holes_is_formatted_without_being_read() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse(&dir, 256 * GIB);
    // Reading everything takes far more CPU time than this.
    let limited = Command::new("sh")
        .args(["-c", "ulimit -t 20; exec \"$0\" mkfs \"$1\"", env!("CARGO_BIN_EXE_joulefs")])
        .arg(&image)
        .output()
        .unwrap();
    assert!(limited.status.success(), "{}", error(&limited));
    assert!(fs::metadata(&image).unwrap().blocks() < 20_000, "the holes were filled");
    let again = mkfs(&image, &[]);
    assert!(error(&again).contains("--force"), "a volume is no empty file: {}", error(&again));
}

#[test]
fn one_byte_anywhere_is_data() {
    let dir = tempfile::tempdir().unwrap();
    let image = sparse(&dir, 64 << 20);
    for at in [0, 12_345_678, (64 << 20) - 1] {
        let file = OpenOptions::new().write(true).open(&image).unwrap();
        file.write_all_at(b"x", at).unwrap();
        let refused = mkfs(&image, &[]);
        assert!(!refused.status.success());
        assert!(error(&refused).contains("holds data"), "byte {at}: {}", error(&refused));
        assert_eq!(error(&refused).lines().count(), 1);
        let refused = mkfs(&image, &["--size", "128M"]);
        assert!(error(&refused).contains("holds data"), "byte {at}: {}", error(&refused));
        assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20, "a refused file was changed");
        file.write_all_at(&[0], at).unwrap();
    }
    assert!(mkfs(&image, &[]).status.success());
    assert_clean(&image);
}

#[test]
fn zeroes_that_were_written_are_no_data() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    fs::write(&image, vec![0; 60 << 20]).unwrap();
    let out = mkfs(&image, &[]);
    assert!(out.status.success(), "{}", error(&out));
    assert_clean(&image);
}

#[test]
fn force_overwrites_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk.img");
    fs::write(&image, vec![0xA5; 60 << 20]).unwrap();
    assert!(!mkfs(&image, &[]).status.success());
    let out = mkfs(&image, &["--force"]);
    assert!(out.status.success(), "{}", error(&out));
    assert_clean(&image);
}
