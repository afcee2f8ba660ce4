//! What a device loses and keeps when it is switched off and on, and its initial contents.

use std::sync::Arc;

use device::energy::profile::Profile;
use device::energy::{Energy, Meter, Nanos, Operation, Part};
use device::model::{self, Model, Pace, Simulated};
use device::{BLOCK, BlockDevice, Lba, Memory, Tag, Time, VirtualClock};

const BLOCKS: u64 = 64 * 1024;
const TAG: Tag = Tag { cause: 3, owner: 7 };

type Device = Simulated<Memory>;

fn simulated(profile: &str, change: impl FnOnce(&mut dyn Model)) -> Device {
    let profile = Profile::find(profile).expect("shipped");
    let mut model = model::build(&profile, BLOCKS).expect("small");
    change(&mut *model);
    let clock = Arc::new(VirtualClock::new(Time::default()));
    let meter = Arc::new(Meter::new(profile.host.prices()));
    Simulated::new(Memory::new(BLOCKS), model, meter, Pace::Virtual(clock))
}

fn n(device: &Device, name: &str) -> u64 {
    device.counters().iter().find(|c| c.0 == name).unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Reads a block from each of 16 map pages; returns the map energy and the duration.
fn read_about(device: &Device) -> (Energy, Nanos) {
    let (before, from) = (device.ledger(), device.time());
    for page in 0..16 {
        device.read(Lba(page * 1024 + 5), &mut [0; BLOCK], TAG).expect("a read");
    }
    (device.ledger().since(&before).part(Part::FlashMap), Nanos(device.time().0 - from.0))
}

#[test]
fn after_a_power_cycle_the_map_comes_from_flash_again_and_every_block_is_there() {
    let device = simulated("kirin9000-ufs31", |_| {});
    for at in (0..16 * 1024).step_by(256) {
        device.write(Lba(at), &[at as u8; 256 * BLOCK], TAG).expect("a write");
    }
    device.flush(TAG).expect("a flush");
    let warm = read_about(&device);
    assert_eq!((warm.0, n(&device, "map_pages_fetched")), (Energy::ZERO, 0));

    // Still in the write buffer: the device reports this before it goes off.
    device.write(Lba(77), &[9; BLOCK], TAG).expect("a write");
    let before = device.ledger();
    device.power_cycle(TAG).expect("a power cycle");
    let spent = device.ledger().since(&before);
    assert_eq!(spent.operation(Operation::Flush).operations, 1);
    assert!(spent.part(Part::FlashMap) > Energy::ZERO, "what of the map was changed is written back");
    assert_eq!(spent.cause(TAG.cause), spent.total(), "who asks pays");
    assert_eq!(n(&device, "map_pages_written"), 16);

    let cold = read_about(&device);
    assert_eq!(n(&device, "map_pages_fetched"), 16);
    assert!(cold.0 > warm.0 && cold.1 > warm.1, "{cold:?} after {warm:?}");
    assert_eq!(read_about(&device), warm, "what was fetched is kept");
    let mut back = [0; BLOCK];
    device.read(Lba(77), &mut back, TAG).expect("a read");
    assert_eq!((back, n(&device, "blocks_read_from_buffer")), ([9; BLOCK], 0));

    let before = device.ledger();
    device.power_cycle(TAG).expect("a power cycle");
    assert_eq!(device.ledger().since(&before).part(Part::FlashMap), Energy::ZERO, "nothing was changed since");
}

#[test]
fn a_disk_that_was_switched_off_spins_up_and_reads_from_the_platter() {
    let disk = simulated("microdrive", |_| {});
    let read = || disk.read(Lba(100), &mut [0; 8 * BLOCK], TAG).expect("a read");
    disk.write(Lba(9000), &[1; 64 * BLOCK], TAG).expect("a write");
    read();
    read();
    assert_eq!((n(&disk, "reads_from_buffer"), n(&disk, "spin_ups")), (1, 0));
    disk.power_cycle(TAG).expect("a power cycle");
    read();
    assert_eq!((n(&disk, "reads_from_buffer"), n(&disk, "spin_ups")), (1, 1));
}

#[test]
fn what_is_held_from_the_start_costs_nothing_before_it_is_read_and_then_as_if_it_had_been_written() {
    let runs = [(Lba(0), 5000), (Lba(10_000), 20_000)];
    let filled = simulated("kirin9000-ufs31", |m| m.fill(Nanos(0), &runs));
    assert_eq!(filled.ledger().total(), Energy::ZERO);
    let untouched = ["wear_least", "wear_most"];
    assert!(filled.counters().iter().all(|(name, v)| *v == 0 || untouched.contains(name)), "{:?}", filled.counters());

    let written = simulated("kirin9000-ufs31", |_| {});
    for (first, blocks) in runs {
        for at in (first.0..first.0 + blocks).step_by(100) {
            written.write(Lba(at), &[1; 100 * BLOCK], TAG).expect("a write");
        }
    }
    written.power_cycle(TAG).expect("a power cycle");
    let empty = simulated("kirin9000-ufs31", |_| {});
    let flash = |d: &Device| {
        // The duration depends on the chip pages of the blocks.
        let (map, _) = read_about(d);
        (map, d.ledger().part(Part::FlashRead), n(d, "blocks_read_from_flash"), n(d, "map_pages_fetched"))
    };
    let (filled, written, empty) = (flash(&filled), flash(&written), flash(&empty));
    assert_eq!(filled, written);
    // On the tenth map page only blocks other than the one read are buffered.
    assert_eq!((filled.2, filled.3), (11, 12));
    assert_eq!(empty, (Energy::ZERO, Energy::ZERO, 0, 0));
}
