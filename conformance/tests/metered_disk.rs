//! The kernel's file systems and ours on a metered disk: intact, with every joule accounted for.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use device::energy::profile::Profile;
use device::energy::{Component, Energy, Operation, Part};
use device::gauge::{Gauge, Report, Setup, Speed};
use device::{Access, FileDevice, Memory, model};
use fuse::gauge::Files;
use fuse::{Caching, MountOptions, Mounted};
use judges::oracle::tools::{assert_fsck_clean, locate};
use judges::oracle::tree::assert_same;
use judges::zoo::{Size, in_process, plan};
use tempfile::TempDir;

use crate::rig::*;

const BYTES: u64 = 256 * MIB;

/// A phone's empty flash device, as a file.
struct Metered {
    gauge: Arc<Gauge>,
    mounted: Mounted,
    _dir: TempDir,
    disk: PathBuf,
}

impl Metered {
    fn new() -> Self {
        let profile = Profile::find("kirin9000-ufs31").expect("shipped");
        let model = model::build(&profile, BYTES / 4096).expect("not too large");
        let contents = Arc::new(Memory::new(BYTES / 4096));
        let setup = Setup { contents, discards_read_zero: true, model, profile, speed: Speed::Unpaced };
        let gauge = Arc::new(Gauge::new(setup));
        let dir = work_dir();
        let options = MountOptions { caching: Caching::Live, ..MountOptions::default() };
        let mounted = fuse::mount(Arc::new(Files::new(gauge.clone())), dir.path(), &options).expect("mounts");
        Metered { gauge, mounted, disk: dir.path().join("disk"), _dir: dir }
    }

    /// Unmounts, and returns the cost: the sum is the same by every breakdown.
    #[track_caller]
    fn end(self) -> Report {
        self.mounted.unmount().expect("nobody uses it");
        self.mounted.wait().expect("a clean end");
        let report = self.gauge.report();
        let ledger = &report.ledger;
        let total = ledger.total();
        let components: Energy = Component::ALL.iter().map(|c| ledger.component(*c)).sum();
        let parts: Energy = Part::ALL.iter().map(|p| ledger.part(*p)).sum();
        let rows: Energy = report.rows().flat_map(|r| r.energy).sum();
        assert_eq!((components, parts, rows), (total, total, total));
        for row in report.rows() {
            let energy: Energy = row.energy.into_iter().sum();
            assert_eq!(ledger.operation(row.operation).energy, energy, "{:?}", row.operation);
        }
        assert!(ledger.component(Component::Storage) > Energy::ZERO);
        report
    }
}

fn count(report: &Report, operation: Operation) -> u64 {
    report.ledger.operation(operation).operations
}

#[test]
fn the_kernels_ext4_on_it_is_whole_and_its_trims_are_counted() {
    let metered = Metered::new();
    let made = Command::new(locate("mkfs.ext4", "e2fsprogs")).arg("-q").arg(&metered.disk).output().expect("starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let before = metered.gauge.report();
    // Counted before the kernel runs: as a process (6.1) it handles flushes itself and passes hardly any on.
    assert!(count(&before, Operation::Flush) > 0, "mkfs.ext4 syncs what it wrote");
    let script = "dd if=/dev/zero of=big bs=1M count=32 2>/dev/null; sync; rm big; sync; fstrim $MNT
                  for d in 1 2 3 4 5; do mkdir $d; for n in 1 9 90 900 9000 90000; do seq $d $n >$d/$n; done
                  ln -s $d/90 to-$d; ln $d/900 also-$d; mv $d/9 $d/moved; done; sync; treelist . >$OUT/tree";
    let run = kernel().fs_type("ext4").run(&metered.disk, script).expect_ok();
    let after = metered.gauge.report();
    let more = |o| count(&after, o) - count(&before, o);
    assert!(more(Operation::Discard) > 0, "fstrim discards");
    let written =
        after.times.work[Operation::Write as usize].blocks - before.times.work[Operation::Write as usize].blocks;
    assert!(written >= 32 * MIB / 4096, "{written} blocks");

    // What a second boot of the kernel finds, and what e2fsck reports.
    let again = kernel().fs_type("ext4").read_only().run(&metered.disk, "treelist . >$OUT/tree").expect_ok();
    assert_same(("written", &printed(run.out(), "tree")), ("read back", &printed(again.out(), "tree")));
    let checked = Command::new(locate("e2fsck", "e2fsprogs")).arg("-fn").arg(&metered.disk).output().expect("starts");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
    metered.end();
}

#[test]
fn the_kernels_f2fs_and_ours_see_one_tree_on_it() {
    let metered = Metered::new();
    let disk = &metered.disk;
    let opened = || Arc::new(FileDevice::open(disk, Access::ReadWrite).unwrap_or_else(|e| panic!("{e}")));
    f2fs::mkfs::format(&*opened(), &device::RealClock::new(), &f2fs::mkfs::Options::default()).expect("formats");
    let volume = mount_device(opened(), false).unwrap_or_else(|e| panic!("{e}"));
    in_process::perform(&*volume, &plan(4, Size::Small)).expect("the zoo");
    let ours = list(&volume);
    unmount(volume);

    let run = kernel().run(disk, &format!("{TREELIST} >$OUT/tree; echo more >more; sync")).expect_ok();
    assert_same(("ours", &ours), ("Linux", &printed(run.out(), "tree")));
    let volume = mount_device(opened(), true).unwrap_or_else(|e| panic!("{e}"));
    assert!(list(&volume).contains("/more "));
    unmount(volume);
    assert!(assert_fsck_clean(disk).unmounted());
    let report = metered.end();
    assert!(count(&report, Operation::Flush) > 0 && count(&report, Operation::Write) > 0);
}
