//! A successful flush makes all earlier writes durable, whatever failed before.

use std::sync::Arc;
use std::time::Duration;

use device::{
    BLOCK, BlockDevice, DeviceError, Fault, Faulty, Gate, Lba, Loss, Memory, Op, PowerCut, Retained, Rng, Tag,
};
use proptest::prelude::*;

const TAG: Tag = Tag { cause: 0, owner: 0 };
const BLOCKS: u64 = 24;
/// More than any test writes between two flushes.
const AMPLE: usize = 64 << 20;

type Host = Arc<Faulty<Arc<PowerCut>>>;

/// A host whose flushes and writes can fail, with a retained device on top.
fn retained(limit: usize) -> (Arc<PowerCut>, Host, Retained<Host>) {
    let power = Arc::new(PowerCut::new(Memory::new(BLOCKS)));
    let host = Arc::new(Faulty::new(power.clone()));
    (power, host.clone(), Retained::new(host, limit))
}

fn bytes(value: u8, blocks: u64) -> Vec<u8> {
    vec![value; blocks as usize * BLOCK]
}

/// The byte that fills each block; `None` if the block is torn.
fn values(device: &impl BlockDevice) -> Vec<Option<u8>> {
    let mut all = bytes(0, BLOCKS);
    device.read(Lba(0), &mut all, TAG).unwrap();
    all.chunks(BLOCK).map(|block| block.iter().all(|b| *b == block[0]).then_some(block[0])).collect()
}

#[derive(Debug, Clone)]
enum Step {
    Write { at: u64, blocks: u64, fails: bool },
    Discard { at: u64, blocks: u64 },
    Flush { fails: Option<Loss> },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let loss = prop_oneof![Just(Loss::AllLost), any::<u64>().prop_map(Loss::Random)];
    let step = prop_oneof![
        8 => (0..20u64, 1..5u64, prop::bool::weighted(0.1))
            .prop_map(|(at, blocks, fails)| Step::Write { at, blocks, fails }),
        1 => (0..20u64, 1..5u64).prop_map(|(at, blocks)| Step::Discard { at, blocks }),
        3 => prop::option::of(loss).prop_map(|fails| Step::Flush { fails }),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn after_a_flush_that_succeeds_a_power_cut_takes_nothing(steps in steps(), limit in prop_oneof![Just(AMPLE), 1..20usize]) {
        // A small limit counts blocks: then the device flushes by itself.
        let (power, host, device) = retained(if limit == AMPLE { AMPLE } else { limit * BLOCK });
        // The contents of each block; unknown after a discard.
        let mut model = vec![Some(0u8); BLOCKS as usize];
        for (number, step) in (1..=250u8).cycle().zip(steps) {
            match step {
                Step::Write { at, blocks, fails } => {
                    if fails {
                        // Only the last block fails: those before it are stored.
                        host.add(Fault::Place { op: Op::Write, blocks: at + blocks - 1..at + blocks });
                        let failed = device.write(Lba(at), &bytes(number, blocks), TAG);
                        prop_assert!(matches!(failed, Err(DeviceError::Io { .. })), "{:?}", failed);
                        host.heal();
                    }
                    device.write(Lba(at), &bytes(number, blocks), TAG).unwrap();
                    model[at as usize..][..blocks as usize].fill(Some(number));
                }
                Step::Discard { at, blocks } => {
                    device.discard(Lba(at), blocks, TAG).unwrap();
                    model[at as usize..][..blocks as usize].fill(None);
                }
                Step::Flush { fails } => {
                    if let Some(loss) = fails {
                        power.fail_flush(power.flushes_begun() + 1, loss);
                    }
                    prop_assert_eq!(device.flush(TAG).is_err(), fails.is_some());
                    if fails.is_none() {
                        let left = values(&power.image(Loss::AllLost));
                        for (block, value) in model.iter().enumerate() {
                            prop_assert!(value.is_none() || *value == left[block], "block {} after a cut", block);
                        }
                    }
                }
            }
            let read = values(&device);
            for (block, value) in model.iter().enumerate() {
                prop_assert!(value.is_none() || *value == read[block], "block {} as it is read", block);
            }
        }
    }
}

/// Some writes and flushes, each repeated until it succeeds; checks the medium under any loss.
fn run_of_writes(device: &impl BlockDevice, power: &PowerCut) {
    let persist = |operation: &dyn Fn() -> device::Result<()>| {
        if operation().is_err() {
            operation().unwrap();
        }
    };
    let mut rng = Rng::new(7);
    let mut model = vec![Some(0); BLOCKS as usize];
    for value in 1..40 {
        let (at, blocks) = (rng.below(20), 1 + rng.below(4));
        persist(&|| device.write(Lba(at), &bytes(value, blocks), TAG));
        model[at as usize..][..blocks as usize].fill(Some(value));
        if rng.chance(1, 3) {
            persist(&|| device.flush(TAG));
            assert_eq!(values(&power.image(Loss::AllLost)), model);
        }
    }
}

#[test]
fn whichever_request_fails_once_the_flush_after_it_loses_nothing() {
    let (power, host, device) = retained(AMPLE);
    run_of_writes(&device, &power);
    let (writes, flushes) = (host.requests(Op::Write), power.flushes_begun());
    assert!(writes > 30 && flushes > 5);
    for number in 1..=writes {
        let (power, host, device) = retained(AMPLE);
        host.add(Fault::Spoiled { request: number });
        run_of_writes(&device, &power);
    }
    for number in 1..=flushes {
        for loss in Loss::PLAIN {
            let (power, _, device) = retained(AMPLE);
            power.fail_flush(number, loss);
            run_of_writes(&device, &power);
        }
    }
}

#[test]
fn without_copies_a_repeated_flush_loses_what_the_failed_one_dropped() {
    // The basis of the other tests.
    let (power, host, _) = retained(AMPLE);
    host.write(Lba(3), &bytes(5, 1), TAG).unwrap();
    power.fail_flush(1, Loss::AllLost);
    assert!(host.flush(TAG).is_err());
    assert!(host.flush(TAG).is_ok());
    assert_eq!(values(&power.image(Loss::AllKept))[3], Some(0));
}

#[test]
fn copies_go_with_a_flush_and_never_pass_the_limit() {
    let (power, _, device) = retained(8 * BLOCK);
    for at in 0..BLOCKS {
        device.write(Lba(at), &bytes(1, 1), TAG).unwrap();
        assert!(device.copied_blocks() <= 8, "{} copies", device.copied_blocks());
    }
    assert!(power.flush_count() > 0, "nobody asked for a flush");
    device.flush(TAG).unwrap();
    assert_eq!(device.copied_blocks(), 0);
    device.write(Lba(3), &bytes(2, 2), TAG).unwrap();
    device.discard(Lba(4), 9, TAG).unwrap();
    assert_eq!(device.copied_blocks(), 1);
}

#[test]
fn while_flushes_fail_writes_beyond_the_limit_fail_too_and_then_go_on() {
    let (power, host, device) = retained(8 * BLOCK);
    host.add(Fault::Nth { op: Op::Flush, requests: 1..u64::MAX });
    let written = (0..BLOCKS).take_while(|at| device.write(Lba(*at), &bytes(1, 1), TAG).is_ok()).count() as u64;
    assert!((4..=8).contains(&written), "{written} blocks without a flush");
    assert!(device.write(Lba(0), &bytes(1, 1), TAG).is_err());
    host.heal();
    for at in 0..BLOCKS {
        device.write(Lba(at), &bytes(2, 1), TAG).unwrap();
    }
    device.flush(TAG).unwrap();
    assert_eq!(values(&power.image(Loss::AllLost)), [Some(2); BLOCKS as usize]);
}

#[test]
fn a_flush_waits_for_the_copies_of_writes_in_progress() {
    let power = Arc::new(PowerCut::new(Memory::new(BLOCKS)));
    let gate = Arc::new(Gate::new(power.clone()));
    let device = Retained::new(gate.clone(), AMPLE);
    device.write(Lba(0), &bytes(1, 1), TAG).unwrap();
    power.fail_flush(1, Loss::AllLost);
    gate.stop_done(Op::Write, None);
    std::thread::scope(|s| {
        let writer = s.spawn(|| device.write(Lba(1), &bytes(2, 1), TAG));
        assert!(gate.await_one());
        // The device below has the block, and would lose it; there is no copy yet.
        let flush = s.spawn(|| device.flush(TAG));
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(power.flushes_begun(), 0);
        gate.go_on();
        writer.join().unwrap().unwrap();
        assert!(flush.join().unwrap().is_err());
    });
    device.flush(TAG).unwrap();
    assert_eq!(values(&power.image(Loss::AllLost))[..3], [1, 2, 0].map(Some));
}

#[test]
fn threads_that_write_while_flushes_fail_lose_nothing() {
    for seed in 0..20 {
        let (power, _, device) = retained([AMPLE, 6 * BLOCK][seed as usize % 2]);
        std::thread::scope(|s| {
            for thread in 0..4 {
                let device = &device;
                s.spawn(move || {
                    let mut rng = Rng::new(seed * 4 + thread);
                    for value in 1..200u8 {
                        let at = Lba(thread * 6 + rng.below(6));
                        while device.write(at, &bytes(value, 1), TAG).is_err() {}
                        let mut read = bytes(0, 1);
                        device.read(at, &mut read, TAG).unwrap();
                        assert!(read == bytes(value, 1), "a write was not seen");
                    }
                });
            }
            for number in 1..60 {
                power.fail_flush(power.flushes_begun() + 1 + number % 3, Loss::Random(seed));
                _ = device.flush(TAG);
            }
        });
        let written = values(&device);
        while device.flush(TAG).is_err() {}
        assert_eq!(values(&power.image(Loss::AllLost)), written, "seed {seed}");
    }
}
