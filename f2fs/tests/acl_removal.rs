//! Removing a missing access list succeeds like removing an existing one.

use std::sync::Arc;

use joulefs_f2fs::mkfs::Options;
use vfs::{Error, FileSystem, XattrFlags};

use crate::log_rig::*;

const LISTS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

#[test]
fn an_access_list_that_is_not_there_can_be_removed_but_no_other_attribute() {
    let dev = Arc::new(formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let file = new_file(&vol, vol.root(), "file");
    let dir = vol.mkdir(ROOT, vol.root(), b"dir", 0o750, 0).unwrap().attr.ino;
    for ino in [file, dir] {
        let before = vol.getattr(ino).unwrap();
        for list in LISTS {
            vol.removexattr(ino, list).unwrap();
            assert!(matches!(vol.getxattr(ino, list), Err(Error::NoAttribute)));
        }
        assert_eq!(vol.getattr(ino).unwrap(), before);
        for other in [&b"user.x"[..], b"trusted.x", b"security.x"] {
            assert!(matches!(vol.removexattr(ino, other), Err(Error::NoAttribute)));
        }
    }
    let link = vol.symlink(ROOT, vol.root(), b"link", b"file").unwrap().attr.ino;
    for list in LISTS {
        assert!(matches!(vol.removexattr(link, list), Err(Error::Unsupported(_))));
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
}

#[test]
fn a_removed_list_is_gone_and_can_be_removed_again() {
    let dev = Arc::new(formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    let dir = vol.mkdir(ROOT, vol.root(), b"dir", 0o750, 0).unwrap().attr.ino;
    // u::rwx, u:1000:rwx, g::r-x, m::rwx, o::---
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [(1, 7, u32::MAX), (2, 7, 1000), (4, 5, u32::MAX), (16, 7, u32::MAX), (32, 0, u32::MAX)] {
        list.extend([tag, 0, perm, 0]);
        list.extend(id.to_le_bytes());
    }
    for name in LISTS {
        vol.setxattr(dir, name, &list, XattrFlags::empty()).unwrap();
        let perm = vol.getattr(dir).unwrap().perm;
        for _ in 0..2 {
            vol.removexattr(dir, name).unwrap();
            assert!(matches!(vol.getxattr(dir, name), Err(Error::NoAttribute)));
            assert_eq!(vol.getattr(dir).unwrap().perm, perm);
        }
    }
    assert!(vol.listxattr(dir).unwrap().is_empty());
    vol.unmount().unwrap();
    assert_clean(&*dev, "after unmount");
}
