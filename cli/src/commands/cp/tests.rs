//! What a copy on the host leaves after a partial failure, or after another process puts a link in its way.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

/// A directory that cannot be read, and next to it an empty file with an attribute that no file system accepts.
struct Odd;

const READABLE: &[u8] = b"/file";

/// An empty file's contents.
struct Nothing;

impl Reader for Nothing {
    fn next_data(&mut self, _: u64) -> Out<Option<(u64, u64)>> {
        Ok(None)
    }
    fn read_at(&mut self, _: u64, _: &mut [u8]) -> Out<usize> {
        Ok(0)
    }
}

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
    let below = below::Below::open(dir.path()).unwrap();
    for to in [b"/old", b"/new"] {
        let (source, sink, links) = (&Odd, &below, HashMap::new());
        let mut copy = Copy {
            source,
            sink,
            links,
            allowance: crate::bounded::Allowance::new(None, false),
            bar: &bar,
            stop: &stop,
            buf: vec![0; 4096],
            done: &mut done,
        };
        copy.tree(READABLE, to).unwrap();
    }
    assert_eq!((done.failed.len(), done.files), (2, 1), "{:?}", done.failed);
    assert_eq!(fs::read(&old).unwrap(), b"old");
    // Its contents are complete, and no file was replaced.
    assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
}

/// A tree of empty files. Before the second one is read, another process changes the copy.
struct Meddled<F: Fn()> {
    meddle: F,
}

impl<F: Fn()> Source for Meddled<F> {
    fn glance(&self, path: &[u8]) -> Out<Glance> {
        let kind = if path.ends_with(b"file") { FileKind::Regular } else { FileKind::Directory };
        Ok(Glance { kind, size: 0, file: (0, path.len() as u64) })
    }
    fn item(&self, path: &[u8]) -> Out<Item> {
        if path == b"/dir/second-file" {
            (self.meddle)();
        }
        Ok(Item::made(self.glance(path)?.kind, 0o644))
    }
    fn names(&self, path: &[u8]) -> (Vec<Vec<u8>>, Out<()>) {
        let names: &[&[u8]] = match path {
            b"/" => &[b"dir"],
            b"/dir" => &[b"first-file", b"second-file", b"third", b"x-file"],
            _ => &[b"a-file"],
        };
        (names.iter().map(|n| n.to_vec()).collect(), Ok(()))
    }
    fn open<'s>(&'s self, _: &[u8]) -> Out<Box<dyn Reader + 's>> {
        Ok(Box::new(Nothing))
    }
}

#[test]
fn a_directory_of_a_copy_that_is_replaced_by_a_link_meanwhile_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (out, roots, aside) = (dir.path().join("out"), dir.path().join("roots"), dir.path().join("aside"));
    fs::create_dir(&roots).unwrap();
    fs::set_permissions(&roots, fs::Permissions::from_mode(0o711)).unwrap();
    let source = Meddled {
        meddle: || {
            fs::rename(out.join("dir"), &aside).unwrap();
            std::os::unix::fs::symlink(&roots, out.join("dir")).unwrap();
        },
    };
    let failed = copy_tree(&source, &out, &Interrupt::catch().unwrap(), false, true).unwrap();
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 0, "the copy went where the link leads to");
    assert_eq!(fs::metadata(&roots).unwrap().permissions().mode() & 0o7777, 0o711);
    assert!(fs::read_link(out.join("dir")).is_ok());
    assert!(aside.join("first-file").exists());
    assert!(!failed.is_empty(), "the directory of that name is not finished");
}

#[test]
fn nobody_else_looks_into_a_directory_before_it_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("out");
    let failed = copy_tree(&Odd, &to, &Interrupt::catch().unwrap(), false, true).unwrap();
    assert_eq!(failed, ["unreadable"]);
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o7777, 0o700);
}
