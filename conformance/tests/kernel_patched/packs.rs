//! How well the patched kernel's policies pack free space: the experiment `fagc-table6` in small, and a worn volume. What comes
//! out is what comes out of ours on the same image.

use std::path::Path;
use std::sync::Arc;

use device::{Access, FileDevice, Memory};
use joulefs_conformance::oracle::linux::Linux;
use joulefs_conformance::oracle::tools::assert_fsck_clean;
use joulefs_conformance::packing::space::Space;
use joulefs_conformance::packing::{
    Course, Drive, FAGC_FULLEST, Holes, PATCHED, Way, linux, of_data, ours,
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
        let (gcs, moved) = of_data(&course.rounds);
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

/// Which is last to be worth a move depends on seconds, and those of Linux are real.
#[track_caller]
fn assert_alike(name: &str, linux: &Packed, ours: &Packed) {
    assert!(linux.gcs.abs_diff(ours.gcs) <= 1, "{name}: {linux:?} {ours:?}");
    assert!(linux.moved.abs_diff(ours.moved) <= 512, "{name}: {linux:?} {ours:?}");
    assert!(linux.space.free.abs_diff(ours.space.free) <= 2, "{name}: {linux:?} {ours:?}");
    assert!(linux.space.fragments.abs_diff(ours.space.fragments) <= 64, "{name}: {linux:?} {ours:?}");
}

#[test]
fn the_papers_volume_is_packed_as_by_ours_and_fagc_cleans_a_fraction_of_it() {
    let Some(kernel) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    let holes = Holes { mib: 384, segments: 20, valid: 256, invalid_percent: 55.53 };
    let path = work.path().join("image");
    holes.volume().expect("a volume").save_hollow(&path).expect("an image");
    let bench = Bench::of(kernel, Memory::load(&path).expect("an image"), work.path());
    let [f2fs, atgc, fagc] = ["cost-benefit", "atgc", "fagc"].map(|name| {
        let (linux, ours) = (bench.linux(way(name)), bench.ours(way(name)));
        assert_alike(name, &linux, &ours);
        linux
    });
    let fullest = bench.linux(FAGC_FULLEST);
    // FAGC TACO'23, Table 6: 82.68 % less than F2FS, 74.51 % less than ATGC, which packs better here than there.
    let less = |than: &Packed| 100.0 - 100.0 * fagc.gcs as f64 / than.gcs as f64;
    println!("GCs of FAGC: {:.1} % less than F2FS, {:.1} % less than ATGC", less(&f2fs), less(&atgc));
    assert!((80.0..87.0).contains(&less(&f2fs)) && (66.0..76.0).contains(&less(&atgc)));
    // Hardly a fragment is left behind any of them.
    for packed in [&f2fs, &atgc, &fagc, &fullest] {
        assert!(packed.space.fragments * 50 < bench.before.fragments, "{packed:?} of {:?}", bench.before);
    }
    // It leaves alone what lies in one piece, so it wins fewer free segments.
    assert!(bench.won(&fagc) < bench.won(&atgc) && bench.won(&fagc) > 0, "{fagc:?} {atgc:?}");
}
