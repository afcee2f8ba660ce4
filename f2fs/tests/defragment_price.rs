//! A plan's estimates of cost and savings of defragmentation are close to the energy that a simulated phone uses: with
//! copies, and with flash pages remapped to another place.

use std::sync::Arc;

use device::clock::{Clock, VirtualClock};
use device::energy::profile::Profile;
use device::energy::{Energy, Meter};
use device::model::{self, Pace, Simulated};
use device::{Counting, Memory};
use inspect::file::Extent;
use inspect::price::Prices;
use inspect::treatment::{How, Run, fragmented, plan, whole};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{FileSystem, Ino, Moving};

use crate::log_rig::{self, *};

type Device = Arc<Counting<Arc<Simulated<Memory>>>>;

fn phone(profile: &Profile) -> (Device, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::new(log_rig::clock().now()));
    let model = model::build(profile, 256 << 8).unwrap();
    let meter = Arc::new(Meter::new(profile.host.prices()));
    let simulated = Simulated::new(Memory::new(256 << 8), model, meter, Pace::Virtual(clock.clone()));
    let device = Arc::new(Counting::new(Arc::new(simulated)));
    let options = Options { uuid: Some([7; 16]), checkpoint_version: Some(9), ..Options::modern() };
    joulefs_f2fs::mkfs::format(&device, &*clock, &options).unwrap();
    (device, clock)
}

/// Reads all of a file, half a mebibyte at a time; returns the cost.
fn read_for(device: &Device, vol: &Volume, f: Ino) -> Energy {
    let before = device.inner().ledger().cause(Cause::UserData as u8);
    let size = vol.getattr(f).unwrap().size;
    let mut buf = vec![0; 512 << 10];
    for at in (0..size).step_by(buf.len()) {
        vol.read(f, at, &mut buf).unwrap();
    }
    device.inner().ledger().cause(Cause::UserData as u8) - before
}

fn within(percent: u64, said: Energy, spent: Energy, what: &str) {
    println!("{what}: {said} said, {spent} spent");
    let near = said.0.abs_diff(spent.0) * 100 <= spent.0 * percent;
    assert!(near, "{what}: {said} said, {spent} spent");
}

#[test]
fn a_plan_says_about_what_a_phone_spends() {
    for name in ["kirin9000-ufs31", "galaxy-nexus-emmc"] {
        let profile = Profile::find(name).unwrap();
        let prices = Prices::from_profile(&profile);
        for (how, moving) in [(How::Copy, Moving::Copy), (How::Share, Moving::Share)] {
            let (device, clock) = phone(&profile);
            let vol = Volume::mount(device.clone(), clock, MountOptions::default()).unwrap();
            // Three alternating files, in stretches of three blocks.
            let files = ["a", "b", "c"].map(|name| new_file(&vol, vol.root(), name));
            for n in 0..300u64 {
                for f in files {
                    write(&vol, f, n * 3 * 4096, &pattern(n, 3 * 4096));
                    vol.fsync(f, false).unwrap();
                }
            }
            vol.sync().unwrap();
            let f = files[1];
            let runs: Vec<Run> = vol
                .extents(f, 0, usize::MAX)
                .unwrap()
                .into_iter()
                .map(|e| (Extent { from: e.from, addr: e.addr, blocks: e.blocks }, e.begins))
                .collect();
            let plan = plan(&runs, fragmented(&runs), &[whole()], how, &prices, 128);
            let fragmented_read = read_for(&device, &vol, f);
            assert_eq!(vol.bring_together(f, moving).unwrap(), 900);
            let nodes = device.inner().ledger().cause(Cause::FsyncNode as u8);
            vol.fsync(f, false).unwrap();
            let ledger = device.inner().ledger();
            let spent = ledger.cause(Cause::Defragment as u8) + (ledger.cause(Cause::FsyncNode as u8) - nodes);
            within(25, plan.cost.energy, spent, &format!("{name}, {how:?}: moving"));
            within(20, plan.uses.0.energy, fragmented_read, &format!("{name}, {how:?}: reading it torn"));
            within(20, plan.uses.1.energy, read_for(&device, &vol, f), &format!("{name}, {how:?}: reading it whole"));
            vol.unmount().unwrap();
        }
    }
}
