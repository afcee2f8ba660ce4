//! A name restored by roll-forward is one that the file still has.

use device::Loss;
use joulefs_f2fs::mkfs::Options;
use vfs::FileSystem;

use crate::log_rig::*;

#[test]
fn a_synced_file_whose_first_name_is_gone_comes_back_under_the_name_it_has() {
    let dev = power_cut(&formatted(64, &Options::default()));
    let vol = mount(dev.clone());
    vol.sync().unwrap();
    let ino = new_file(&vol, vol.root(), "first");
    write(&vol, ino, 0, b"contents");
    vol.link(ino, vol.root(), b"second").unwrap();
    vol.unlink(vol.root(), b"first").unwrap();
    vol.fsync(ino, false).unwrap();
    for loss in Loss::PLAIN {
        recovered(&dev.image(loss), |vol| {
            assert!(find(vol, "first").is_none(), "{loss}");
            let found = find(vol, "second").expect("the name it has");
            assert_eq!(read_all(vol, found), b"contents");
        });
    }
}

#[test]
fn a_hard_link_leaves_no_parent_to_warn_of() {
    let mem = std::sync::Arc::new(formatted(64, &Options::default()));
    let vol = mount(mem.clone());
    let dir = vol.mkdir(Default::default(), vol.root(), b"dir", 0o755, 0).unwrap().attr.ino;
    let ino = new_file(&vol, vol.root(), "first");
    vol.link(ino, dir, b"second").unwrap();
    vol.unlink(vol.root(), b"first").unwrap();
    vol.unmount().unwrap();
    let report = fsck::check(&*mem, &Default::default()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}
