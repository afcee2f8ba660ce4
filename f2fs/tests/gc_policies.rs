//! Under every victim policy the files stay intact: the same operations, with background cleaning on a virtual clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use device::{Counting, Memory, VirtualClock};
use joulefs_f2fs::cause::Cause;
use joulefs_f2fs::gc::settings::Settings;
use joulefs_f2fs::mkfs::Options;

use joulefs_f2fs::{MountOptions, Volume};
use vfs::{FileSystem, Ino};
use victim::Policy;

use crate::log_rig::*;

const BLOCK: u64 = 4096;

/// The result of one run.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    cleaned: u64,
    victims_of_nodes: u64,
    moved: u64,
    threaded: u64,
    moved_data_written: u64,
    total_written: u64,
    free_pieces: u64,
}

struct Run {
    dev: Arc<Counting<Memory>>,
    clock: Arc<VirtualClock>,
    vol: Arc<Volume>,
    settings: Settings,
    files: BTreeMap<String, (Ino, Vec<u8>)>,
}

impl Run {
    fn new(mib: u64, options: &Options, policy: Policy) -> Run {
        let dev = Arc::new(Counting::new(formatted(mib, options)));
        let clock = clock();
        // `joule` cleans at any price until this much is free.
        let settings = Settings { policy, step_blocks: 48, keep_free: 90, ..Settings::default() };
        let options = MountOptions { gc: settings, ..MountOptions::default() };
        let vol = Volume::mount(dev.clone(), clock.clone(), options).unwrap();
        vol.tune("atgc_age_threshold", "0").unwrap();
        Run { dev, clock, vol, settings, files: BTreeMap::new() }
    }

    fn put(&mut self, name: &str, at: u64, data: &[u8]) {
        let vol = &self.vol;
        let (ino, have) =
            self.files.entry(name.to_owned()).or_insert_with(|| (new_file(vol, vol.root(), name), Vec::new()));
        write(vol, *ino, at, data);
        let end = at as usize + data.len();
        have.resize(have.len().max(end), 0);
        have[at as usize..end].copy_from_slice(data);
    }

    fn remove(&mut self, name: &str) {
        if let Some((ino, _)) = self.files.remove(name) {
            self.vol.unlink(self.vol.root(), name.as_bytes()).unwrap();
            self.vol.forget(ino, 1);
        }
    }

    /// An idle period.
    fn rest(&self, minutes: u64) {
        for _ in 0..minutes {
            self.clock.advance(Duration::from_secs(60));
            self.vol.tick().unwrap();
        }
        self.vol.audit_segments().unwrap();
    }

    /// Files of many sizes, overwritten in parts, removed and recreated; sometimes an idle hour.
    fn work(&mut self, rounds: u64) {
        let mut rng = device::Rng::new(77);
        let many = self.vol.statfs().unwrap().blocks_free * 6 / 10 / 210;
        // Block by block: every segment has blocks of every file.
        for i in 0..250 {
            for k in (0..many).filter(|k| i < 64 || k % 4 != 3) {
                self.put(&format!("f{k}"), i * BLOCK, &pattern(k * 1000 + i, 4096));
            }
            for n in 0..4 {
                self.put(&format!("small{}", i * 4 + n), 0, &pattern(i, if n == 3 { 5000 } else { 90 }));
            }
        }
        self.vol.sync().unwrap();
        for round in 0..rounds {
            for n in 0..400u64 {
                let k = rng.below(many);
                let name = format!("f{k}");
                let size = self.files.get(&name).map_or(60, |f| f.1.len() as u64 / BLOCK);
                let seed = 1_000_000 + round * 1000 + n;
                match rng.below(100) {
                    0..=2 => self.remove(&name),
                    3..=6 => {
                        self.vol.fsync(self.files.values().nth(rng.index(self.files.len())).unwrap().0, false).unwrap()
                    }
                    7..=9 => self.put(&format!("small{}", rng.below(1000)), rng.below(8000), &pattern(seed, 300)),
                    // Some files are old and stay unchanged.
                    _ if k.is_multiple_of(3) && size >= 60 => {}
                    _ => self.put(&name, rng.below(size.max(40)) * BLOCK, &pattern(seed, 4096 * (1 + rng.index(3)))),
                }
            }
            if round % 3 == 2 {
                self.vol.sync().unwrap();
            }
            self.rest(4);
            // Some at once, between two checkpoints.
            for _ in 0..3 {
                self.vol.clean_in_background(&self.settings).unwrap();
            }
            self.vol.audit_segments().unwrap();
        }
    }

    fn end(self) -> Outcome {
        let Run { dev, clock: _, vol, files, .. } = self;
        for (name, (ino, have)) in &files {
            assert!(read_all(&vol, *ino) == *have, "{name}, while mounted");
        }
        let pieces = {
            vol.sync().unwrap();
            vol.free_fragments()
        };
        vol.unmount().unwrap();
        let n = |c: &std::sync::atomic::AtomicU64| c.load(Relaxed);
        let c = &vol.counters;
        let counts = dev.snapshot();
        let outcome = Outcome {
            cleaned: n(&c.background_gc),
            victims_of_nodes: n(&c.node_victims),
            moved: n(&c.moved_background),
            threaded: n(&c.moved_threaded),
            moved_data_written: counts[Cause::BackgroundGcData as u8].blocks_written,
            total_written: counts.total().blocks_written,
            free_pieces: pieces.total(),
        };
        drop(vol);
        let image = dev.inner();
        assert_clean(image, "after unmount");
        assert_tools_clean(image);
        let again = mount_copy(image);
        again.audit_segments().unwrap();
        for (name, (_, have)) in &files {
            let ino = find(&again, name).unwrap_or_else(|| panic!("{name} is gone"));
            assert!(read_all(&again, ino) == *have, "{name}, mounted again");
            again.forget(ino, 1);
        }
        outcome
    }
}

fn under_every_policy(mib: u64, rounds: u64, options: &Options) -> Vec<(Policy, Outcome)> {
    let run = |policy| {
        let mut run = Run::new(mib, options, policy);
        run.work(rounds);
        let outcome = run.end();
        println!("{}: {outcome:?}", policy.name());
        (policy, outcome)
    };
    Policy::ALL.into_iter().map(run).collect()
}

fn judge(outcomes: &[(Policy, Outcome)]) {
    for (policy, o) in outcomes {
        assert!(o.cleaned > 10 && o.moved > 0, "{policy:?}: {o:?}");
        match policy {
            Policy::Greedy | Policy::CostBenefit | Policy::Mwhfb => assert_eq!(o.threaded, 0, "{policy:?}"),
            // To whichever is cheaper.
            Policy::Joule => assert!(0 < o.threaded && o.threaded < o.moved, "{o:?}"),
            Policy::Atgc | Policy::Fagc => assert!(o.threaded > 0, "{policy:?}: {o:?}"),
        }
        assert!(o.moved_data_written <= o.moved, "{policy:?}: {o:?}");
    }
    let of = |p: Policy| &outcomes.iter().find(|o| o.0 == p).unwrap().1;
    let four = [Policy::Greedy, Policy::CostBenefit, Policy::Atgc, Policy::Fagc].map(of);
    for (i, a) in four.iter().enumerate() {
        assert!(four[..i].iter().all(|b| a != b), "two policies did the same: {a:?}");
    }
}

#[test]
fn every_policy_leaves_the_same_files_and_another_ledger() {
    judge(&under_every_policy(96, 6, &Options::default()));
}

#[test]
fn every_policy_leaves_the_same_files_on_a_volume_of_large_sections() {
    judge(&under_every_policy(192, 6, &Options { segs_per_sec: 2, ..Options::modern() }));
}
