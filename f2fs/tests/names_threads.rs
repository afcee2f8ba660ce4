//! Names changed by several threads at the same time.

use std::sync::Arc;

use joulefs_f2fs::Volume;
use joulefs_f2fs::mkfs::Options;
use vfs::{Error, FileSystem, Ino, RenameFlags};

use crate::log_rig::mkdir;
use crate::log_rig::*;

fn rename(vol: &Volume, from: (Ino, &str), to: (Ino, &str)) -> vfs::Result<()> {
    vol.rename(ROOT, (from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()), RenameFlags::empty())
}

/// A directory inside one with a larger number, so that number order and tree order disagree.
#[test]
fn moving_a_file_down_and_removing_the_directory_it_moves_to_wait_for_each_other() {
    let vol: Arc<Volume> = mount(Arc::new(formatted(64, &Options::default())));
    let below = mkdir(&vol, vol.root(), "below");
    let above = mkdir(&vol, vol.root(), "above");
    assert!(below < above);
    rename(&vol, (vol.root(), "below"), (above, "below")).unwrap();
    new_file(&vol, below, "stays");
    new_file(&vol, above, "moves");
    new_file(&vol, above, "turns");
    std::thread::scope(|s| {
        s.spawn(|| {
            for _ in 0..3000 {
                rename(&vol, (above, "moves"), (below, "moves")).unwrap();
                rename(&vol, (below, "moves"), (above, "moves")).unwrap();
            }
        });
        s.spawn(|| {
            for _ in 0..6000 {
                assert_eq!(vol.rmdir(above, b"below"), Err(Error::NotEmpty));
            }
        });
        s.spawn(|| {
            for _ in 0..3000 {
                rename(&vol, (above, "turns"), (above, "turned")).unwrap();
                rename(&vol, (above, "turned"), (above, "turns")).unwrap();
            }
        });
    });
    for (dir, name) in [(above, "moves"), (above, "turns"), (below, "stays")] {
        vol.lookup(dir, name.as_bytes()).unwrap();
    }
    vol.unmount().unwrap();
}
