//! The meter shows the cost of deltas by cause: the profile's time for each, the same in every run.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::clock::Clock;
use device::energy::{Energy, Operation, Part};
use format::superblock::Features;
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::delta::{Costs, Places};
use joulefs_f2fs::{MountOptions, Volume};
use vfs::FileSystem;

use crate::log_rig::*;
use crate::metered::Metered;

const BLOCK: usize = 4096;

fn metered() -> Metered {
    Metered::new(Features::DELTA, |_| ())
}

fn mounted(rig: &Metered, booked: bool) -> Arc<Volume> {
    rig.mounted(booked, MountOptions { delta_costs: Costs::of(&rig.profile), ..MountOptions::default() })
}

/// Creates a file, changes `rounds` pages of it slightly with an fsync each, and reads all of it.
fn small_changes(vol: &Volume, rounds: usize) -> vfs::Ino {
    let f = new_file(vol, vol.root(), "f");
    write(vol, f, 0, &pattern(1, 20 * BLOCK));
    vol.sync().unwrap();
    for round in 0..rounds {
        write(vol, f, ((round % 20) * BLOCK + 8 * round) as u64, &pattern(round as u64, 8));
        vol.fsync(f, false).unwrap();
    }
    assert_eq!(read_all(vol, f).len(), 20 * BLOCK);
    f
}

#[test]
fn each_delta_costs_the_profiles_time_of_making_it_and_each_read_of_one_that_of_applying_it() {
    let rig = metered();
    let vol = mounted(&rig, true);
    let before = rig.clock.monotonic();
    small_changes(&vol, 12);
    let (ledger, costs) = (rig.ledger(), Costs::of(&rig.profile));
    assert_eq!(vol.counters.deltas.load(Relaxed), 12);
    assert_eq!(ledger.cause(Cause::DeltaEncode as u8), rig.computing(costs.encode, 12));
    assert_eq!(ledger.cause(Cause::DeltaDecode as u8), rig.computing(costs.decode, 12), "read once");
    assert_eq!(ledger.operation(Operation::Work).operations, 24);
    assert_eq!(ledger.part_for(Part::CpuWork, Cause::DeltaEncode as u8), {
        rig.profile.host.prices().cpu_busy.over(costs.encode).times(12)
    });
    // The caller waited for it: elapsed time covers the requests and the processor.
    assert!((rig.clock.monotonic() - before).as_nanos() as u64 > 12 * (costs.encode.0 + costs.decode.0));
    let counts = rig.device.snapshot();
    assert_eq!(counts[Cause::DeltaBase as u8].blocks_read, 12, "each page is compared with its base");
    assert!(ledger.cause(Cause::DeltaBase as u8) > Energy::ZERO);
}

#[test]
fn without_a_meter_nothing_is_booked_for_computing() {
    let rig = metered();
    small_changes(&mounted(&rig, false), 12);
    let ledger = rig.ledger();
    assert_eq!(ledger.operation(Operation::Work).operations, 0);
    assert_eq!(ledger.cause(Cause::DeltaEncode as u8), Energy::ZERO);
}

#[test]
fn a_folded_page_is_read_and_written_on_the_account_of_folding() {
    let rig = metered();
    let vol = mounted(&rig, true);
    small_changes(&vol, 8);
    vol.unmount().unwrap();
    // No base is in memory, and no delta node is used.
    let costs = Costs::of(&rig.profile);
    let inodes = MountOptions { delta_places: Places::Inode, delta_costs: costs, ..MountOptions::default() };
    let vol = rig.mounted(true, inodes);
    let f = find(&vol, "f").unwrap();
    let before = rig.device.snapshot();
    // The file grows into its zone.
    write(&vol, f, (20 * BLOCK) as u64, &pattern(5, 845 * BLOCK));
    vol.sync().unwrap();
    let folded = vol.counters.folded.load(Relaxed);
    let counts = &rig.device.snapshot() - &before;
    let fold = counts[Cause::DeltaFold as u8];
    assert!(folded > 0, "nothing was folded");
    assert_eq!((fold.blocks_read, fold.blocks_written), (folded, folded));
    assert!(rig.ledger().cause(Cause::DeltaFold as u8) > Energy::ZERO);
}

#[test]
fn the_same_small_changes_cost_the_same_to_the_last_picojoule() {
    let run = || {
        let rig = metered();
        let vol = mounted(&rig, true);
        small_changes(&vol, 60);
        vol.unmount().unwrap();
        (rig.ledger(), rig.clock.monotonic())
    };
    let (first, again) = (run(), run());
    assert!(first.0.cause(Cause::DeltaEncode as u8) > Energy::ZERO);
    assert_eq!(first, again);
}
