//! No bytes make the format panic: random ones, valid blocks with a few bytes changed, and blocks of a real volume,
//! unchanged, changed, and interpreted as another structure.

use format::node;
use format::{BLOCK, BlockAddr};

use crate::drivers;
use crate::image;

/// A small generator (SplitMix64), so that a failure can be repeated.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    /// Bytes of any length up to a block, in different densities.
    fn bytes(&mut self) -> Vec<u8> {
        let most = [16, 64, 600, BLOCK + 20][self.below(4)];
        let len = self.below(most);
        let mask = [0xFF, 0xFF, 0x0F, 0x01][self.below(4)];
        (0..len).map(|_| self.next() as u8 & mask).collect()
    }
    /// Changes up to eight bytes, or sets a run of them.
    fn damage(&mut self, bytes: &mut [u8]) {
        if self.below(4) == 0 {
            let (at, value) = (self.below(bytes.len()), [0, 0xFF, 0x80, 0x7F][self.below(4)]);
            let end = (at + 1 + self.below(16)).min(bytes.len());
            bytes[at..end].fill(value);
            return;
        }
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len());
            bytes[at] = if self.below(2) == 0 { self.next() as u8 } else { bytes[at] ^ 1 << self.below(8) };
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut chance = Chance(1);
    for _ in 0..3000 {
        let bytes = chance.bytes();
        for (_, driver) in drivers::ALL {
            driver(&bytes);
        }
    }
    for len in [0, 1, 3, 4, 23, 24, 27, 28, 191, 192, 506, 507, 4095, 4096, 4097] {
        for value in [0, 1, 0x7F, 0x80, 0xFF] {
            for (_, driver) in drivers::ALL {
                driver(&vec![value; len]);
            }
        }
    }
}

#[test]
fn blocks_of_a_real_volume_never_panic_whole_damaged_or_mistaken() {
    let images = image::make();
    let mut chance = Chance(2);
    for image in &images.all {
        let (sb, nodes) = (&image.sb, image.nodes());
        let mut places = vec![BlockAddr(0), image.pack, sb.sit, sb.nat];
        places.extend((1..image.cp.pack_blocks).map(|i| image.pack.plus(i)));
        places.extend((0..3).map(|i| sb.ssa.plus(i)));
        places.extend(nodes.values().step_by(40).map(|e| e.addr));
        places.extend(nodes.values().rev().take(6).map(|e| e.addr));
        let root = image.block(nodes[&sb.root.nid()].addr);
        places.extend(image.map(&nodes, &root).into_iter().filter(|a| a.is_real()));
        for at in places {
            let whole = image.block(at);
            for (_, driver) in drivers::ALL {
                driver(&whole);
            }
            let footer = node::footer(&whole);
            for _ in 0..12 {
                let mut changed = whole;
                chance.damage(&mut changed);
                for (_, driver) in drivers::ALL {
                    driver(&changed);
                }
                // Damages the numbers on which everything else depends.
                let mut changed = whole;
                chance.damage(&mut changed[..400]);
                node::set_footer(&mut changed, &footer);
                for (_, driver) in drivers::ALL {
                    driver(&changed);
                }
            }
        }
    }
}

#[test]
fn lawful_superblocks_and_checkpoints_with_any_one_byte_changed_never_panic() {
    for at in 0..3072u16 {
        for value in [0, 1, 0x7F, 0x80, 0xFF] {
            let [a, b] = at.to_le_bytes();
            drivers::superblock(&[a, b, value]);
            drivers::checkpoint(&[a, b, value]);
        }
    }
}

#[test]
fn the_lawful_bases_of_the_drivers_are_lawful() {
    let sb = format::superblock::SuperBlock::check(&drivers::lawful_superblock()).unwrap();
    format::checkpoint::Checkpoint::check(&sb, &drivers::lawful_checkpoint()).unwrap();
}
