//! Permitted and forbidden results of a power cut.

use std::collections::BTreeSet;

use device::{BLOCK, BlockDevice, DeviceError, Lba, Loss, Memory, PowerCut, Rng, SECTOR, Tag};
use proptest::prelude::*;

const TAG: Tag = Tag { cause: 0, owner: 0 };

fn block(memory: &Memory, at: u64) -> Vec<u8> {
    let mut buf = vec![0; BLOCK];
    memory.read(Lba(at), &mut buf, TAG).unwrap();
    buf
}

/// The first byte of each sector; all bytes of a sector are equal.
fn sectors(memory: &Memory, at: u64) -> Vec<u8> {
    let values: Vec<u8> = block(memory, at).chunks(SECTOR).map(|s| s[0]).collect();
    assert!(block(memory, at).chunks(SECTOR).zip(&values).all(|(s, v)| s.iter().all(|b| b == v)));
    values
}

fn write(device: &PowerCut, at: u64, value: u8) {
    device.write(Lba(at), &[value; BLOCK], TAG).unwrap();
}

#[derive(Debug, Clone)]
enum Step {
    Write { at: u64, blocks: u64 },
    Discard { at: u64, blocks: u64 },
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..20u64, 1..5u64).prop_map(|(at, blocks)| Step::Write { at, blocks }),
        1 => (0..20u64, 1..5u64).prop_map(|(at, blocks)| Step::Discard { at, blocks }),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sector_after_a_cut_is_one_the_contract_allows(steps in steps(), cut in 1..40u64, seed: u64) {
        let device = PowerCut::new(Memory::new(24));
        device.cut_after(cut);
        // Allowed values of a sector per block; each write uses its number as the value.
        let mut allowed: Vec<BTreeSet<u8>> = vec![BTreeSet::from([0]); 24];
        let mut ever = allowed.clone();
        let mut last: Vec<Option<u8>> = vec![Some(0); 24];
        let mut number = 0u8;
        for step in &steps {
            match *step {
                Step::Write { at, blocks } => {
                    number += 1;
                    let result = device.write(Lba(at), &vec![number; blocks as usize * BLOCK], TAG);
                    for b in at as usize..(at + blocks) as usize {
                        allowed[b].insert(number);
                        ever[b].insert(number);
                        last[b] = Some(number);
                    }
                    if u64::from(number) == cut {
                        prop_assert!(matches!(result, Err(DeviceError::PowerCut { .. })), "{:?}", result);
                        break;
                    }
                    prop_assert!(result.is_ok());
                }
                Step::Discard { at, blocks } => {
                    device.discard(Lba(at), blocks, TAG).unwrap();
                    for b in at as usize..(at + blocks) as usize {
                        allowed[b] = ever[b].clone();
                        last[b] = None;
                    }
                }
                Step::Flush => {
                    device.flush(TAG).unwrap();
                    for (now, value) in allowed.iter_mut().zip(&last) {
                        if let Some(value) = value {
                            *now = BTreeSet::from([*value]);
                        }
                    }
                }
            }
        }
        let plain = Loss::PLAIN.into_iter().chain([Loss::FirstKept(seed % 5), Loss::LastTorn(seed % 20), Loss::AllBut(seed % 5)]);
        for loss in (0..20).map(|i| Loss::Random(seed.wrapping_add(i))).chain(plain) {
            let image = device.image(loss);
            for (b, allowed) in allowed.iter().enumerate() {
                for value in sectors(&image, b as u64) {
                    prop_assert!(allowed.contains(&value), "{}: block {} has {}, not of {:?}", loss, b, value, allowed);
                }
            }
        }
    }
}

#[test]
fn everything_fails_once_the_power_is_off() {
    let device = PowerCut::new(Memory::new(8));
    device.cut_after(2);
    write(&device, 0, 1);
    let off = |r: device::Result<()>| assert!(matches!(r, Err(DeviceError::PowerCut { .. })), "{r:?}");
    off(device.write(Lba(1), &[2; BLOCK], TAG));
    off(device.write(Lba(1), &[2; BLOCK], TAG));
    off(device.read(Lba(0), &mut [0; BLOCK], TAG));
    off(device.flush(TAG));
    off(device.discard(Lba(0), 1, TAG));
    assert_eq!((device.write_count(), device.is_cut(), device.unflushed()), (2, true, 2));
}

#[test]
fn unflushed_writes_are_sometimes_kept_sometimes_lost_sometimes_torn_sometimes_reordered() {
    let device = PowerCut::new(Memory::new(8));
    write(&device, 0, 1);
    device.flush(TAG).unwrap();
    write(&device, 0, 2);
    write(&device, 0, 3);
    device.write(Lba(2), &[4; 3 * BLOCK], TAG).unwrap();
    let mut seen = [false; 6];
    for seed in 0..300 {
        let image = device.survivors(seed);
        let (zero, long) = (sectors(&image, 0), [2, 3, 4].map(|b| sectors(&image, b)));
        seen[0] |= zero == [1; 8];
        seen[1] |= zero == [2; 8];
        seen[2] |= zero == [3; 8];
        seen[3] |= zero.contains(&1) && zero.contains(&3);
        // A write of several blocks: some blocks complete, others missing; and torn inside a block.
        seen[4] |= long.iter().any(|b| *b == [4; 8]) && long.iter().any(|b| *b == [0; 8]);
        seen[5] |= long.iter().any(|b| b.contains(&0) && b.contains(&4));
    }
    assert_eq!(seen, [true; 6]);
    // Losing the newest differs from swapping the two; a swap is visible only if both are kept.
    assert_eq!(sectors(&device.image(Loss::Reversed), 0), [2; 8]);
}

#[test]
fn each_named_loss_leaves_what_it_says() {
    let device = PowerCut::new(Memory::new(8));
    write(&device, 7, 9);
    device.flush(TAG).unwrap();
    (0..3).for_each(|i| write(&device, i, i as u8 + 1));
    let left = |loss| -> Vec<u8> {
        let image = device.image(loss);
        [0, 1, 2, 7].map(|b| block(&image, b)[0]).to_vec()
    };
    assert_eq!(left(Loss::AllKept), [1, 2, 3, 9]);
    assert_eq!(left(Loss::AllLost), [0, 0, 0, 9]);
    assert_eq!(left(Loss::OnlyLastKept), [0, 0, 3, 9]);
    assert_eq!(left(Loss::AllButLast), [1, 2, 0, 9]);
    assert_eq!(left(Loss::AllButFirst), [0, 2, 3, 9]);
    assert_eq!(left(Loss::FirstKept(2)), [1, 2, 0, 9]);
    assert_eq!(left(Loss::AllBut(1)), [1, 0, 3, 9]);
    assert_eq!(sectors(&device.image(Loss::LastTorn(3)), 2), [3, 3, 3, 0, 0, 0, 0, 0]);
    assert!(device.survivors(11).same_as(&device.survivors(11)));
}

#[test]
fn a_flushed_discard_may_still_show_the_old_bytes() {
    let device = PowerCut::new(Memory::new(8));
    write(&device, 3, 5);
    device.discard(Lba(3), 1, TAG).unwrap();
    device.flush(TAG).unwrap();
    let found: BTreeSet<u8> = (0..50).map(|seed| block(&device.survivors(seed), 3)[0]).collect();
    assert_eq!(found, BTreeSet::from([0, 5]));
    write(&device, 3, 6);
    device.flush(TAG).unwrap();
    assert!((0..50).all(|seed| block(&device.survivors(seed), 3)[0] == 6));
}

#[test]
fn a_cut_that_is_looked_at_twice_starts_again_from_its_image() {
    let device = PowerCut::new(Memory::new(8));
    write(&device, 0, 1);
    let next = PowerCut::new(device.image(Loss::AllKept));
    assert_eq!(next.unflushed(), 0);
    write(&next, 1, 2);
    assert_eq!(block(&next.image(Loss::AllLost), 0)[0], 1);
    assert_eq!(block(&device.image(Loss::AllKept), 1)[0], 0);
}

#[test]
fn losses_are_read_back_from_their_names() {
    let mut rng = Rng::new(4);
    let n = rng.next_u64();
    let with = [Loss::FirstKept(n), Loss::AllBut(n), Loss::LastTorn(n), Loss::Random(n)];
    for loss in Loss::PLAIN.into_iter().chain(with) {
        assert_eq!(loss.to_string().parse(), Ok(loss));
    }
    assert!("random".parse::<Loss>().is_err() && "random:x".parse::<Loss>().is_err());
}
