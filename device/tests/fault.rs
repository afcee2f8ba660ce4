//! Faults occur where they were injected, and nowhere else.

use device::{BLOCK, BlockDevice, DeviceError, Fault, Faulty, Lba, Memory, Op, Tag};

const TAG: Tag = Tag { cause: 0, owner: 0 };

fn is_eio(result: device::Result<()>) -> bool {
    matches!(result, Err(DeviceError::Io { source, .. }) if source.raw_os_error() == Some(5))
}

fn byte(device: &impl BlockDevice, at: u64) -> u8 {
    let mut buf = [0; BLOCK];
    device.read(Lba(at), &mut buf, TAG).unwrap();
    buf[0]
}

#[test]
fn the_chosen_requests_fail_and_no_others() {
    let device = Faulty::new(Memory::new(8));
    device.add(Fault::Nth { op: Op::Write, requests: 2..4 });
    let results: Vec<bool> = (0..5).map(|i| is_eio(device.write(Lba(i), &[1; BLOCK], TAG))).collect();
    assert_eq!(results, [false, true, true, false, false]);
    assert_eq!([0, 1, 2, 3].map(|b| byte(&device, b)), [1, 0, 0, 1]);
    assert_eq!((device.requests(Op::Write), device.requests(Op::Read)), (5, 4));
    device.add(Fault::Nth { op: Op::Flush, requests: 1..u64::MAX });
    assert!(is_eio(device.flush(TAG)));
    device.heal();
    assert!(device.flush(TAG).is_ok());
}

#[test]
fn a_bad_place_fails_what_touches_it_and_keeps_what_came_before() {
    let device = Faulty::new(Memory::new(8));
    device.add(Fault::Place { op: Op::Write, blocks: 3..5 });
    device.add(Fault::Place { op: Op::Read, blocks: 6..7 });
    assert!(is_eio(device.write_gather(Lba(1), &[&[1; BLOCK], &[2; 3 * BLOCK]], TAG)));
    assert!(is_eio(device.read(Lba(5), &mut [0; 2 * BLOCK], TAG)));
    assert_eq!([1, 2, 3, 4].map(|b| byte(&device, b)), [1, 2, 0, 0]);
    assert!(device.write(Lba(5), &[1; BLOCK], TAG).is_ok());
}

#[test]
fn a_bad_bit_lasts_until_the_block_is_written() {
    let device = Faulty::new(Memory::new(8));
    device.add(Fault::BadBit { at: Lba(2), bit: 1 });
    let mut buf = [0; 4 * BLOCK];
    device.read(Lba(0), &mut buf, TAG).unwrap();
    assert_eq!(buf.iter().map(|b| u32::from(*b)).sum::<u32>(), 2);
    assert_eq!(buf[2 * BLOCK], 2);
    device.write(Lba(2), &[0; BLOCK], TAG).unwrap();
    assert_eq!(byte(&device, 2), 0);
}

#[test]
fn writes_are_flipped_or_lost_silently() {
    let device = Faulty::new(Memory::new(8));
    device.add(Fault::FlipOnWrite { request: 1, bit: 8 * BLOCK as u64 });
    device.add(Fault::Dropped { request: 2 });
    device.write(Lba(0), &[0; 2 * BLOCK], TAG).unwrap();
    device.write(Lba(4), &[1; BLOCK], TAG).unwrap();
    assert_eq!([0, 1, 4].map(|b| byte(&device, b)), [0, 1, 0]);
}
