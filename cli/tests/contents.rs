//! File contents as bytes and as JSON.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::program::run;

/// A volume with two files: one with every byte value several times, one empty.
fn image(dir: &Path) -> (String, Vec<u8>) {
    let image = dir.join("v.img").display().to_string();
    let bytes: Vec<u8> = (0..2_500_003_u32).map(|i| (i % 251 * 7 + i / 4096) as u8).collect();
    std::fs::write(dir.join("many"), &bytes).unwrap();
    std::fs::write(dir.join("none"), b"").unwrap();
    assert!(run(&["mkfs", &image, "--size", "64M"]).status.success());
    for name in ["many", "none"] {
        let from = dir.join(name).display().to_string();
        assert!(run(&["cp", &from, &format!("{image}:/")]).status.success());
    }
    (image, bytes)
}

#[test]
fn bytes_come_out_as_they_are_one_file_after_another() {
    let dir = tempfile::tempdir().unwrap();
    let (image, bytes) = image(dir.path());
    let (many, none) = (format!("{image}:/many"), format!("{image}:/none"));
    assert!(run(&["cat", &many, &none, &many]).stdout == [&bytes[..], &bytes].concat());
}

#[test]
fn json_has_every_file_with_its_path_its_size_and_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (image, bytes) = image(dir.path());
    let (many, none) = (format!("{image}:/many"), format!("{image}:/none"));
    let out = run(&["--json", "cat", &many, &none]);
    assert!(out.status.success());
    let list: Value = serde_json::from_slice(&out.stdout).unwrap();
    let expected = [(&many, bytes), (&none, Vec::new())];
    assert_eq!(list.as_array().unwrap().len(), expected.len());
    for (file, (path, bytes)) in list.as_array().unwrap().iter().zip(expected) {
        assert_eq!(file["path"].as_str(), Some(&path[..]));
        assert_eq!(file["size"].as_u64(), Some(bytes.len() as u64));
        assert!(STANDARD.decode(file["base64"].as_str().unwrap()).unwrap() == bytes);
    }
}

#[test]
fn a_file_that_cannot_be_read_is_one_object_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let (image, _) = image(dir.path());
    for (wrong, why) in [("/nothing", "no such file"), ("/", "is a directory")] {
        let out = run(&["--json", "cat", &format!("{image}:/none"), &format!("{image}:{wrong}")]);
        assert_eq!(out.status.code(), Some(1));
        let failure: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(failure["error"].as_str().unwrap().contains(why), "{failure}");
    }
}
