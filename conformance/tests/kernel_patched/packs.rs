//! How well the patched kernel's policies pack free space: the experiment `fagc-table6` in small, and a worn volume. What comes
//! out is what comes out of ours on the same image.

use std::path::Path;
use std::sync::Arc;

use device::{Access, FileDevice, Memory};
use joulefs_conformance::oracle::linux::Linux;
use joulefs_conformance::oracle::tools::assert_fsck_clean;
use joulefs_conformance::packing::space::Space;
use joulefs_conformance::packing::{
    Course, Drive, FAGC, FAGC_FULLEST, Holes, JOULE_ASKED, PATCHED, Way, linux, ours,
};
use joulefs_conformance::worn::LARGE;

use super::patched;

const DRIVE: Drive = Drive { limit: 1_000, every: 1 };

/// What a policy did, and how the free space lies behind it.
#[derive(Debug, Clone)]
struct Packed {
    gcs: u64,
    moved: u64,
    space: Space,
}

impl Packed {
    fn of(course: &Course, space: Space) -> Self {
        assert!(course.ended, "it comes to an end: {course:?}");
        let (gcs, moved) = (course.rounds.len() as u64, course.rounds.iter().map(|r| r.moved).sum());
        Packed { gcs, moved, space }
    }
}

/// A volume, and kernels and ours that clean copies of it.
struct Bench<'a> {
    kernel: Linux,
    image: Memory,
    before: Space,
    work: &'a Path,
}

impl<'a> Bench<'a> {
    fn of(kernel: Linux, image: Memory, work: &'a Path) -> Self {
        let before = Space::on(&image).expect("a segment table");
        println!("before: {before:?}");
        Bench { kernel, image, before, work }
    }

    fn linux(&self, way: Way) -> Packed {
        let path = self.work.join("copy");
        self.image.save(&path).expect("an image");
        let course = linux(self.kernel.clone(), &path, way, DRIVE).expect("a course");
        assert_fsck_clean(&path);
        let left = FileDevice::open(&path, Access::ReadOnly).expect("an image");
        let packed = Packed::of(&course, Space::on(&left).expect("a segment table"));
        println!("{:<14} Linux {packed:?}", way.name);
        packed
    }

    fn ours(&self, way: Way) -> Packed {
        let device = Arc::new(self.image.fork());
        let course = ours(device.clone(), way, DRIVE).expect("a course");
        let packed = Packed::of(&course, Space::on(&*device).expect("a segment table"));
        println!("{:<14} ours  {packed:?}", way.name);
        packed
    }

    /// Free segments won.
    fn won(&self, packed: &Packed) -> i64 {
        packed.space.free as i64 - self.before.free as i64
    }
}

fn way(name: &str) -> Way {
    PATCHED.into_iter().find(|way| way.name == name).expect("a way of this name")
}
