//! The meter shows the cost of compression by cause: packed blocks separate from others, the profile's time for each
//! packed or unpacked cluster, and nothing for an fsync of a synced file.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::clock::Clock;
use device::energy::{Energy, Nanos};
use format::superblock::Features;
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::compress::costs::Costs;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::FileSystem;

use crate::log_rig::*;
use crate::metered::Metered;

const BLOCK: usize = 4096;
const CLUSTER: usize = 4 * BLOCK;

/// With four different times.
fn metered() -> Metered {
    Metered::new(Features::COMPRESSION, |profile| {
        profile.host.compress.value = Nanos(5_000);
        profile.host.decompress.value = Nanos(700);
        profile.host.zstd_compress.value = Nanos(11_000);
        profile.host.zstd_decompress.value = Nanos(1_300);
    })
}

fn mounted(rig: &Metered, algorithm: &str, booked: bool) -> Arc<Volume> {
    let mut options = MountOptions { compress_costs: Costs::of(&rig.profile), ..MountOptions::default() };
    options.compress.set("compress_algorithm", Some(algorithm)).unwrap();
    options.compress.set("compress_extension", Some("*")).unwrap();
    rig.mounted(booked, options)
}

/// The cost of `clusters` clusters at `block` per block.
fn clusters(rig: &Metered, block: u64, clusters: u64) -> Energy {
    rig.computing(Nanos(block * 4), clusters)
}

/// Three clusters of words, two of noise, and one more block.
fn contents() -> Vec<u8> {
    let words: Vec<u8> = (0..3 * CLUSTER).map(|i| b"the log cleans its segments, "[i % 29]).collect();
    [words, pattern(3, 2 * CLUSTER), vec![7; BLOCK]].concat()
}

#[test]
fn packed_blocks_have_a_cause_and_each_cluster_the_profiles_time() {
    for (algorithm, pack, unpack) in [("lz4", 5_000, 700), ("lzo-rle", 5_000, 700), ("zstd", 11_000, 1_300)] {
        let rig = metered();
        let vol = mounted(&rig, algorithm, true);
        let before = rig.clock.monotonic();
        let f = new_file(&vol, vol.root(), "f");
        write(&vol, f, 0, &contents());
        vol.sync().unwrap();
        let counts = rig.device.snapshot();
        assert_eq!(vol.counters.packed_clusters.load(Relaxed), 3);
        let packed = 3 * 4 - vol.counters.packed_saved.load(Relaxed);
        // Packing noise was also tried; the last block is not a whole cluster.
        assert_eq!(rig.ledger().cause(Cause::Compress as u8), clusters(&rig, pack, 5), "{algorithm}");
        assert_eq!(counts[Cause::Compressed as u8].blocks_written, packed + 9, "one request, named after its first");
        assert_eq!(counts[Cause::UserData as u8].blocks_written, 0);
        assert_eq!(rig.ledger().cause(Cause::Decompress as u8), Energy::ZERO);
        assert!(read_all(&vol, f) == contents());
        let counts = &rig.device.snapshot() - &counts;
        assert_eq!(rig.ledger().cause(Cause::Decompress as u8), clusters(&rig, unpack, 3), "{algorithm}");
        assert_eq!(counts[Cause::Compressed as u8].blocks_read, packed);
        assert_eq!(counts[Cause::UserData as u8].blocks_read, 9);
        let waited = (rig.clock.monotonic() - before).as_nanos() as u64;
        assert!(waited > 4 * (5 * pack + 3 * unpack), "whoever asked has waited for it");
        vol.unmount().unwrap();
    }
}

#[test]
fn blocks_that_are_not_packed_are_user_data() {
    let rig = metered();
    let vol = mounted(&rig, "lz4", true);
    let f = new_file(&vol, vol.root(), "f");
    write(&vol, f, 0, &pattern(3, 2 * CLUSTER));
    vol.sync().unwrap();
    let counts = rig.device.snapshot();
    assert_eq!(counts[Cause::UserData as u8].blocks_written, 8);
    assert_eq!(counts[Cause::Compressed as u8].blocks_written, 0);
    // A packed cluster elsewhere needs its own request.
    let g = new_file(&vol, vol.root(), "g");
    write(&vol, g, 0, &contents()[..CLUSTER]);
    vol.sync().unwrap();
    let counts = &rig.device.snapshot() - &counts;
    assert_eq!(counts[Cause::UserData as u8].blocks_written, 0);
    assert_eq!(counts[Cause::Compressed as u8].blocks_written, 1);
    vol.unmount().unwrap();
}

#[test]
fn without_a_meter_nothing_is_booked_for_compressing() {
    let rig = metered();
    let vol = mounted(&rig, "lz4", false);
    let f = new_file(&vol, vol.root(), "f");
    write(&vol, f, 0, &contents());
    vol.sync().unwrap();
    assert!(read_all(&vol, f) == contents());
    let ledger = rig.ledger();
    assert_eq!(ledger.cause(Cause::Compress as u8) + ledger.cause(Cause::Decompress as u8), Energy::ZERO);
    assert!(ledger.cause(Cause::Compressed as u8) > Energy::ZERO);
    vol.unmount().unwrap();
}

/// Every fsync of a changed compressed file is a checkpoint; without a change it writes nothing.
#[test]
fn an_fsync_of_a_compressed_file_writes_what_is_not_durable_and_nothing_else() {
    let rig = metered();
    let vol = mounted(&rig, "lz4", true);
    let f = new_file(&vol, vol.root(), "f");
    write(&vol, f, 0, &contents());
    let synced = |vol: &Volume| {
        let (slow, written) = (vol.counters.slow_fsyncs.load(Relaxed), rig.device.snapshot().total().blocks_written);
        vol.fsync(f, false).unwrap();
        let written = rig.device.snapshot().total().blocks_written - written;
        (vol.counters.slow_fsyncs.load(Relaxed) - slow, written > 0)
    };
    assert_eq!(synced(&vol), (1, true));
    assert_eq!(synced(&vol), (0, false));
    // Every cluster that can be packed is packed.
    vol.repack(f, true).unwrap();
    // Noise was rewritten.
    assert_eq!(synced(&vol), (1, true));
    let g = new_file(&vol, vol.root(), "g");
    write(&vol, g, 0, &contents()[..CLUSTER]);
    vol.sync().unwrap();
    // Nothing to pack: the file stays durable.
    vol.repack(g, true).unwrap();
    let slow = vol.counters.slow_fsyncs.load(Relaxed);
    vol.fsync(g, false).unwrap();
    assert_eq!(vol.counters.slow_fsyncs.load(Relaxed), slow, "nothing changed since the checkpoint");
    // Written back by the timer, together with its node: not durable before the fsync.
    write(&vol, f, 0, &pattern(8, 2 * CLUSTER));
    rig.clock.advance(std::time::Duration::from_secs(10));
    vol.tick().unwrap();
    assert_eq!(synced(&vol), (1, true));
    vol.unmount().unwrap();
}
