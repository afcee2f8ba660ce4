//! How f2fs-tools judge an image.

use std::path::Path;
use std::process::Command;

#[track_caller]
pub fn assert_clean(image: impl AsRef<Path>) {
    let theirs = Command::new("fsck.f2fs").arg("--dry-run").arg(image.as_ref()).output();
    let theirs = theirs.expect("fsck.f2fs is needed: install the Debian package f2fs-tools");
    assert!(theirs.status.success(), "{}", String::from_utf8_lossy(&theirs.stdout));
}
