//! Power cuts while compressed files change. An fsync of such a file is a checkpoint, so recovery finds a state that
//! existed at one time, for every file at or after its last fsync, and every checker accepts it.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::{Loss, Memory, PowerCut, Rng};
use format::superblock::Features;
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use vfs::{Allocate, FileSystem, SetAttr, WriteFlags};

use crate::log_rig::*;

/// Names and contents.
type Tree = BTreeMap<String, Arc<Vec<u8>>>;

const FILES: usize = 5;
const STEPS: usize = 120;

fn options() -> MountOptions {
    let mut options = MountOptions { dirty_limit: 40, ..MountOptions::default() };
    options.compress.set("compress_extension", Some("*")).unwrap();
    options
}

fn mounted(dev: Arc<dyn device::BlockDevice>) -> Arc<Volume> {
    Volume::mount(dev, clock(), options()).unwrap()
}

/// A volume with compressed files of every algorithm, fragmented and three quarters full, so that logs fill holes and
/// sections are cleaned.
fn prepared() -> (Memory, Tree) {
    let modern = Options::modern();
    let dev = Arc::new(formatted(56, &Options { features: modern.features | Features::COMPRESSION, ..modern }));
    let vol = mounted(dev.clone());
    let mut tree = Tree::new();
    for k in 0..FILES {
        let f = new_file(&vol, vol.root(), &format!("f{k}"));
        vol.set_compression(f, k as u8 % 4, [2, 3, 2, 5, 8][k]).unwrap();
        let data = contents(&mut Rng::new(k as u64), 400_000 + k * 3333);
        write(&vol, f, 0, &data);
        tree.insert(format!("f{k}"), Arc::new(data));
    }
    let stills = vol.statfs().unwrap().blocks_free / 74 - 8;
    for k in 0..stills {
        let f = new_file(&vol, vol.root(), &format!("still{k}.db"));
        write(&vol, f, 0, &pattern(k, 300_000));
    }
    vol.sync().unwrap();
    for k in (0..stills).step_by(3) {
        vol.unlink(vol.root(), format!("still{k}.db").as_bytes()).unwrap();
    }
    vol.unmount().unwrap();
    (dev.fork(), tree)
}

fn contents(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let n = rng.range(100..15_000) as usize;
        match rng.below(4) {
            0 => out.extend((0..n / 8 + 1).flat_map(|_| rng.next_u64().to_le_bytes())),
            k => out.extend((0..n).map(|i| b"the log cleans its segments, "[i % 29] ^ k as u8)),
        }
    }
    out.truncate(len);
    out
}

/// The state after each step, and the step after which each file's last fsync returned. (The fsync of an unchanged file
/// makes no other file durable.)
struct Past {
    trees: Vec<Tree>,
    durable: BTreeMap<String, usize>,
}

/// Runs steps until the power cut.
fn course(vol: &Volume, tree: Tree, seed: u64, is_cut: &dyn Fn() -> bool) -> Past {
    let mut rng = Rng::new(seed);
    let mut past = Past { trees: vec![tree], durable: BTreeMap::new() };
    vol.tune("gc_urgent", "1").unwrap();
    for step in 0..STEPS {
        let mut tree = past.trees[step].clone();
        let name = format!("f{}", rng.index(FILES));
        let Some(ino) = find(vol, &name) else { break };
        let bytes = Arc::make_mut(tree.get_mut(&name).unwrap());
        let at = rng.below(bytes.len() as u64 + 20_000);
        let n = rng.range(1..150_000);
        let mut synced = false;
        match rng.below(14) {
            0..6 => {
                let data = contents(&mut rng, n as usize);
                let _ = vol.write(ino, at, &data, WriteFlags::empty());
                bytes.resize(bytes.len().max(at as usize + data.len()), 0);
                bytes[at as usize..at as usize + data.len()].copy_from_slice(&data);
            }
            6 => {
                let _ = vol.setattr(ino, &SetAttr { size: Some(at), ..SetAttr::default() });
                bytes.resize(at as usize, 0);
            }
            7 => {
                let _ = vol.fallocate(ino, Allocate::PunchHole, at, n);
                let end = bytes.len().min((at + n) as usize);
                bytes[(at as usize).min(end)..end].fill(0);
            }
            8 => {
                // Both keep contents; the count of reserved blocks must stay right.
                if vol.release_saved(ino).is_ok() && rng.chance(1, 2) {
                    synced = vol.fsync(ino, false).is_ok();
                }
                let _ = vol.reserve_saved(ino);
            }
            9 => drop(vol.repack(ino, rng.chance(1, 2))),
            10 => drop(vol.tick()),
            _ => synced = vol.fsync(ino, false).is_ok(),
        }
        past.trees.push(tree);
        if is_cut() {
            break;
        }
        if synced {
            past.durable.insert(name, step + 1);
        }
    }
    past
}

#[test]
fn what_a_cut_leaves_of_compressed_files_is_all_of_one_time() {
    let (image, tree) = prepared();
    assert_tools_clean(&image);
    let mut later = 0;
    for seed in 0..6 {
        let run = |cut: Option<u64>| {
            let dev = Arc::new(PowerCut::new(image.fork()));
            let vol = mounted(dev.clone());
            if let Some(write) = cut {
                dev.cut_after(write);
            }
            let past = course(&vol, tree.clone(), seed, &|| dev.is_cut());
            (dev, past)
        };
        let (dev, past) = run(None);
        let writes = dev.write_count();
        assert_eq!(past.trees.len(), STEPS + 1);
        assert!(writes > 60 && past.durable.len() > 1, "{writes} writes");
        for k in 0..30 {
            let cut = 1 + (writes - 1) * k / 30;
            let (dev, past) = run(Some(cut));
            for loss in [Loss::AllLost, Loss::AllKept, Loss::Random(seed * 100 + k)] {
                let when = format!("seed {seed}, cut after {cut} of {writes}, {loss}");
                let left = dev.image(loss);
                let found = recovered(&left, |vol| {
                    let read = |k| (format!("f{k}"), Arc::new(read_all(vol, find(vol, &format!("f{k}")).unwrap())));
                    (0..FILES).map(read).collect::<Tree>()
                });
                let at = past.trees.iter().rposition(|tree| *tree == found);
                let at = at.unwrap_or_else(|| panic!("{when}: files of no one time"));
                for (name, step) in &past.durable {
                    let kept = past.trees[*step..].iter().any(|tree| tree[name] == found[name]);
                    assert!(kept, "{when}: {name} as after step {at}, synced after {step}");
                }
                later += usize::from(past.durable.values().all(|step| at > *step));
                if k % 10 == 0 {
                    assert_tools_clean(&left);
                }
            }
        }
    }
    // Checkpoints not caused by an fsync were cut, too.
    assert!(later > 0);
}
