//! Any flipped bits cause no panic and no endless loop, and a repaired volume passes fsck.f2fs.

use device::{BlockDevice, Lba, Rng, Tag};
use format::{BLOCK, BlockAddr, nat};

use crate::rig::{FEATURES, Volume, volume};

/// Used metadata blocks: (areas before the main one, nodes and directories).
fn metadata(v: &Volume) -> (Vec<u64>, Vec<u64>) {
    let filled = |at: &u64| v.read(BlockAddr(*at as u32)).iter().any(|&b| b != 0);
    let areas = (0..u64::from(v.sb.main.0)).filter(filled).collect();
    let mut main = Vec::new();
    for n in 0..v.sb.nat_blocks() {
        for second in [false, true] {
            let block = v.read(v.sb.nat_block(n, second));
            for i in 0..nat::NAT_ENTRIES as usize {
                let addr = nat::get(&block, i).addr;
                if v.sb.locate(addr).is_some() {
                    main.push(u64::from(addr.0));
                }
            }
        }
    }
    for dir in [v.sb.root, v.ino("many"), v.ino("deep")] {
        // Directories are chosen far more often than their share of blocks.
        main.extend(v.dir_blocks(dir).iter().flat_map(|(_, a)| [u64::from(a.0); 8]));
    }
    (areas, main)
}

fn flip(v: &Volume, rng: &mut Rng, (areas, main): &(Vec<u64>, Vec<u64>)) -> (u64, usize) {
    let at = if rng.chance(1, 3) { areas[rng.index(areas.len())] } else { main[rng.index(main.len())] };
    let mut block = [0; BLOCK];
    v.dev.read(Lba(at), &mut block, Tag::default()).unwrap();
    let used: Vec<usize> = (0..BLOCK).filter(|i| block[*i] != 0).collect();
    let byte = if used.is_empty() || rng.chance(1, 3) { rng.index(BLOCK) } else { used[rng.index(used.len())] };
    block[byte] ^= 1 << rng.below(8);
    v.dev.write(Lba(at), &block, Tag::default()).unwrap();
    (at, byte)
}

#[test]
fn two_thousand_flipped_bits_neither_panic_nor_hang() {
    for (features, seed) in [(&[][..], 1), (FEATURES, 2)] {
        let base = volume(features);
        let blocks = metadata(&base);
        let mut rng = Rng::new(seed);
        let mut found = 0;
        for _ in 0..1000 {
            let v = Volume { dev: base.dev.fork(), ..volume(features) };
            // One flip or many.
            for _ in 0..1 + rng.below(2) * rng.below(40) {
                flip(&v, &mut rng, &blocks);
            }
            let clean = fsck::check(&v.dev, &fsck::Options::default()).is_ok_and(|r| r.is_clean());
            found += u32::from(!clean);
        }
        assert!(found > 300, "only {found} of 1000 were seen");
    }
}

#[test]
fn showers_of_flips_are_repaired_or_refused_but_never_made_worse_silently() {
    let base = volume(FEATURES);
    let blocks = metadata(&base);
    let mut rng = Rng::new(3);
    let mut repaired = 0;
    for round in 0..80 {
        let v = Volume { dev: base.dev.fork(), ..volume(FEATURES) };
        let places: Vec<_> = (0..1 + round % 6).map(|_| flip(&v, &mut rng, &blocks)).collect();
        match fsck::repair(&v.dev, &fsck::Options::default()) {
            Ok(_) => {
                v.repairs();
                repaired += 1;
            }
            Err(e) => println!("refused after {places:?}: {e}"),
        }
    }
    assert!(repaired > 70, "only {repaired} of 80 were repaired");
}

#[test]
fn a_repair_that_loses_power_leaves_a_volume_that_can_be_repaired() {
    let base = volume(&[]);
    let (at, slot, _) = base.entry(base.ino("many"), "file_number_9");
    base.edit(at, |b| format::dentry::remove(&format::dentry::Layout::BLOCK, b, slot));
    base.edit_inode(base.ino("mid"), |r| r.i_blocks = 77.into());
    let whole = base.dev.fork();
    let counting = device::Counting::new(std::sync::Arc::new(whole));
    fsck::repair(&counting, &fsck::Options::default()).unwrap();
    let writes = counting.snapshot().total().writes;
    assert!(writes > 10);
    for after in 0..writes {
        let disk = std::sync::Arc::new(base.dev.fork());
        let limited = Limited { below: disk.clone(), left: after.into() };
        fsck::repair(&limited, &fsck::Options::default()).expect_err("the power went");
        let v = Volume { dev: disk.fork(), ..volume(&[]) };
        v.repairs();
        assert_eq!(v.check().counts.files, volume(&[]).check().counts.files);
    }
}

/// A device that accepts a limited number of writes.
struct Limited {
    below: std::sync::Arc<device::Memory>,
    left: std::sync::atomic::AtomicU64,
}

impl BlockDevice for Limited {
    fn blocks(&self) -> u64 {
        self.below.blocks()
    }
    fn read(&self, at: Lba, buf: &mut [u8], tag: Tag) -> device::Result<()> {
        self.below.read(at, buf, tag)
    }
    fn write(&self, at: Lba, data: &[u8], tag: Tag) -> device::Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let spent = self.left.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_err();
        if spent { Err(device::DeviceError::PowerCut { op: "write" }) } else { self.below.write(at, data, tag) }
    }
    fn flush(&self, tag: Tag) -> device::Result<()> {
        self.below.flush(tag)
    }
    fn discard(&self, at: Lba, blocks: u64, tag: Tag) -> device::Result<()> {
        self.below.discard(at, blocks, tag)
    }
}
