//! What a copy on the host leaves when a part of it fails.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A directory that cannot be read, and beside it an empty file with an attribute that no file system takes.
struct Odd;

const READABLE: &[u8] = b"/file";

impl Source for Odd {
    fn glance(&self, path: &[u8]) -> Out<Glance> {
        let kind = if path == READABLE { FileKind::Regular } else { FileKind::Directory };
        Ok(Glance { kind, size: 0, file: (0, path.len() as u64) })
    }
    fn item(&self, path: &[u8]) -> Out<Item> {
        let xattrs = vec![(b"user.large".to_vec(), vec![7; 1 << 20])];
        Ok(Item { xattrs, ..Item::made(self.glance(path)?.kind, 0o644) })
    }
    fn names(&self, _: &[u8]) -> (Vec<Vec<u8>>, Out<()>) {
        (Vec::new(), Err("unreadable".into()))
    }
    fn open<'s>(&'s self, _: &[u8]) -> Out<Box<dyn Reader + 's>> {
        struct Nothing;
        impl Reader for Nothing {
            fn next_data(&mut self, _: u64) -> Out<Option<(u64, u64)>> {
                Ok(None)
            }
            fn read_at(&mut self, _: u64, _: &mut [u8]) -> Out<usize> {
                Ok(0)
            }
        }
        Ok(Box::new(Nothing))
    }
}

#[test]
fn a_file_is_not_replaced_by_a_copy_that_could_not_be_finished() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::write(&old, "old").unwrap();
    let (mut done, stop) = (Done::default(), Interrupt::catch().unwrap());
    let bar = ProgressBar::hidden();
    for to in [&old, &new] {
        let (source, sink, links) = (&Odd, &host::Host, HashMap::new());
        let mut copy = Copy {
            source,
            sink,
            links,
            above: Vec::new(),
            bar: &bar,
            stop: &stop,
            buf: vec![0; 4096],
            done: &mut done,
        };
        copy.tree(READABLE, to.as_os_str().as_bytes()).unwrap();
    }
    assert_eq!((done.failed.len(), done.files), (2, 1), "{:?}", done.failed);
    assert_eq!(fs::read(&old).unwrap(), b"old");
    // Its contents are whole, and nothing had to give way.
    assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

#[test]
fn nobody_else_looks_into_a_directory_before_it_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("out");
    let failed = copy_tree(&Odd, &to, &Interrupt::catch().unwrap(), true).unwrap();
    assert_eq!(failed, ["unreadable"]);
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o7777, 0o700);
}
