//! Any field with a wrong value and a valid checksum gives an answer, soon, without a panic; and whatever a repair
//! reports as repaired is clean for every checker and usable.
//!
//! `JOULEFS_DEEP=1` forges a hundred times as much; `JOULEFS_REPLAY=<volume>:<n>` repeats one case.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::{BlockDevice, Lba, Memory, Rng, Tag};
use f2fs::{MountError, MountOptions, Volume, mkfs};
use format::checkpoint;
use format::node;
use format::superblock::{Features, SuperBlock};
use judges::damage::{block, clock};
use judges::forge::Forger;
use trials::contents::{Seen, contents};
use trials::populated::{unmounted, volume};

use crate::endure::{all_end_well, change, endure, watched};

fn replayed() -> Option<String> {
    std::env::var("JOULEFS_REPLAY").ok()
}

/// The case numbers to run for a volume.
fn cases(volume: u64, count: u64) -> Vec<u64> {
    if let Some(replay) = replayed() {
        let (of, n) = replay.split_once(':').expect("JOULEFS_REPLAY=<volume>:<n>");
        return if of == volume.to_string() { vec![n.parse().expect("a number")] } else { Vec::new() };
    }
    let first = std::env::var("JOULEFS_FIRST_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0);
    (first..first + if std::env::var_os("JOULEFS_DEEP").is_some() { 100 * count } else { count }).collect()
}

/// A copy with one forged field, sometimes a few.
fn forged(base: &Memory, forger: &Forger, seed: u64, n: u64) -> (Memory, String) {
    let image = base.fork();
    let mut rng = Rng::new(seed << 32 | n);
    let times = if rng.chance(1, 4) { 2 + rng.below(4) } else { 1 };
    let places: Vec<String> = (0..times).map(|_| forger.forge(&image, &mut rng)).collect();
    (image, format!("forged:{seed}:{n} ({})", places.join("; ")))
}

fn lies_are_survived(seed: u64, options: &mkfs::Options) {
    let base = volume(options);
    let forger = Forger::of(&base);
    let cases = cases(seed, 5000);
    let all = cases.len();
    let mounted = all_end_well(watched(cases, move |n| forged(&base, &forger, seed, n), |image, _| endure(image)));
    println!("{mounted} of {all} could be mounted for writing");
    assert!(all < 100 || mounted > all / 2, "only {mounted} of {all} lied behind the mount");
}

#[test]
fn a_lie_under_a_good_checksum_on_a_plain_volume_is_survived() {
    lies_are_survived(1, &mkfs::Options::default());
}

#[test]
fn a_lie_under_a_good_checksum_on_a_volume_with_modern_features_is_survived() {
    lies_are_survived(2, &mkfs::Options::modern());
}

fn with_deltas() -> mkfs::Options {
    let modern = mkfs::Options::modern();
    mkfs::Options { features: modern.features | Features::DELTA, ..modern }
}

/// The number of delta nodes on our volume.
fn delta_nodes(image: &Memory) -> usize {
    let of = |at: &u64| node::delta::owner(&block(image, *at)).is_some();
    let main = SuperBlock::check(&block(image, 0)).unwrap().main.0;
    (u64::from(main)..image.blocks()).filter(of).count()
}

#[test]
fn a_lie_under_a_good_checksum_on_a_volume_with_deltas_is_survived() {
    assert!(delta_nodes(&volume(&with_deltas())) > 2);
    lies_are_survived(5, &with_deltas());
}

/// Checks that a repaired volume is clean for us, stays so in use, and has its previous contents except for damaged
/// files. False if it could not be repaired.
fn repaired(image: &Memory, name: &str, before: &BTreeMap<Vec<u8>, Seen>) -> bool {
    let clean = |image: &Memory, when: &str| {
        let report = fsck::check(image, &fsck::Options::default()).unwrap_or_else(|e| panic!("{when}: {e}"));
        assert!(report.is_clean(), "{when}: {:?}", report.errors().take(3).collect::<Vec<_>>());
    };
    match fsck::repair(image, &fsck::Options::default()) {
        Ok(done) if replayed().is_some() => {
            println!("{}", done.before);
            done.actions.iter().for_each(|action| println!("{action}"));
        }
        Ok(_) => {}
        Err(e) => {
            println!("{name}: refused: {e}");
            return false;
        }
    }
    clean(image, "after repair");
    // Forged versions, journals or table copies may affect all files.
    if !name.contains("checkpoint") {
        let after: BTreeSet<u64> = contents(image).into_values().map(|seen| seen.digest).collect();
        let gone: BTreeSet<u64> =
            before.values().map(|seen| seen.digest).filter(|what| !after.contains(what)).collect();
        let lies = name.matches("->").count();
        assert!(gone.len() <= lies, "{} files are lost by {lies} lies", gone.len());
    }
    let dev = Arc::new(image.fork());
    let vol = match Volume::mount(dev.clone(), clock(), MountOptions::default()) {
        Ok(vol) => vol,
        // Valid states of a volume that we never leave ourselves.
        Err(MountError::CannotWrite { .. } | MountError::CannotRead { .. }) => return false,
        Err(e) => panic!("mount: {e}"),
    };
    change(&vol);
    drop(vol);
    clean(&dev, "after use");
    true
}

fn lies_are_repaired(seed: u64, options: &mkfs::Options) {
    let base = unmounted(options);
    let forger = Forger::of(&base);
    let cases = cases(seed, 1000);
    let all = cases.len();
    let before = contents(&base);
    let make = move |n| forged(&base, &forger, seed, n);
    let done = all_end_well(watched(cases, make, move |image, name| repaired(image, name, &before)));
    println!("{done} of {all} were repaired");
    assert!(all < 100 || done > all * 3 / 4, "only {done} of {all} were repaired");
}

#[test]
fn a_lie_on_a_plain_volume_is_repaired_or_refused() {
    lies_are_repaired(3, &mkfs::Options::default());
}

#[test]
fn a_lie_on_a_volume_with_modern_features_is_repaired_or_refused() {
    lies_are_repaired(4, &mkfs::Options::modern());
}

#[test]
fn a_lie_on_a_volume_with_deltas_is_repaired_or_refused() {
    lies_are_repaired(6, &with_deltas());
}

/// Both journals and the summaries of the data logs are in one block of a compact pack.
#[test]
fn a_checkpoint_whose_node_journal_cannot_be_read_loses_no_file() {
    for options in [mkfs::Options::default(), mkfs::Options::modern()] {
        let image = unmounted(&options);
        let before = contents(&image);
        let sb = SuperBlock::check(&block(&image, 0)).unwrap();
        let packs = [sb.cp.0, sb.cp.0 + 512].map(u64::from);
        let newest = packs.into_iter().max_by_key(|at| checkpoint::version(&block(&image, *at)).unwrap_or(0)).unwrap();
        let mut journal = block(&image, newest + 1);
        assert!((1..=38).contains(&journal[0]), "a journal in use");
        journal[..2].copy_from_slice(&[0xFF, 0x7F]);
        image.write(Lba(newest + 1), &*journal, Tag::default()).unwrap();
        assert!(repaired(&image, "journal", &before));
        assert_eq!(contents(&image), before);
    }
}
