//! A directory that claims too many blocks costs no more than its real blocks.

#[path = "../../fsck/tests/rig/mod.rs"]
mod rig;

use std::sync::Arc;
use std::time::Duration;

use device::{Clock, RealClock};
use vfs::{FileSystem, Flow, RenameFlags};

use crate::log_rig::{ROOT, mount};

#[test]
fn a_directory_of_claimed_exbibytes_is_listed_searched_and_removed_in_no_time() {
    for size in [1 << 42, 1 << 60, u64::MAX] {
        let v = rig::volume(&[]);
        let dir = v.ino("deep/er");
        v.edit_inode(dir, |r| r.i_size = size.into());
        let vol = mount(Arc::new(v.dev));
        let clock = RealClock::new();
        let began = clock.monotonic();
        let deep = vol.lookup(vol.root(), b"deep").unwrap().attr.ino;
        let er = vol.lookup(deep, b"er").unwrap().attr.ino;
        let mut names = 0;
        // Above the largest possible size, an error is fine too.
        let _ = vol.readdir(er, 0, &mut |_| {
            names += 1;
            Flow::Continue
        });
        assert!(names >= 3, "{names} names");
        assert!(vol.lookup(er, b"no such name").is_err());
        vol.unlink(er, b"leaf").unwrap();
        let _ = vol.rename(ROOT, (vol.root(), b"many"), (deep, b"er"), RenameFlags::empty());
        let _ = vol.rmdir(deep, b"er");
        let took = clock.monotonic() - began;
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
