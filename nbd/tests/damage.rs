//! Whatever bytes a client sends, the server sends whole messages or nothing.

// Its other tests use more of it.
#[allow(dead_code)]
use device::rng::Rng;

use crate::drivers;

/// A session with every kind of request.
fn sensible() -> Vec<u8> {
    let mut out = vec![0, 0, 0, 3];
    let mut option = |number: u32, data: &[u8]| {
        out.extend(b"IHAVEOPT");
        out.extend(number.to_be_bytes());
        out.extend((data.len() as u32).to_be_bytes());
        out.extend(data);
    };
    option(3, &[]);
    option(8, &[]);
    option(6, &[0, 0, 0, 0, 0, 2, 0, 2, 0, 3]);
    option(7, &[0, 0, 0, 0, 0, 1, 0, 3]);
    for (n, (command, flags, offset, length)) in [
        (1u16, 1u16, 5000u64, 9u32),
        (0, 0, 0, 65536),
        (4, 0, 1, 60_000),
        (6, 2, 9, 5000),
        (6, 0, 0, 8192),
        (3, 0, 0, 0),
    ]
    .into_iter()
    .enumerate()
    {
        out.extend([0x25, 0x60, 0x95, 0x13]);
        out.extend(flags.to_be_bytes());
        out.extend(command.to_be_bytes());
        out.extend((n as u64).to_be_bytes());
        out.extend(offset.to_be_bytes());
        out.extend(length.to_be_bytes());
        if command == 1 {
            out.extend(vec![7; length as usize]);
        }
    }
    out.extend([0x25, 0x60, 0x95, 0x13, 0, 0, 0, 2]);
    out.extend([0; 20]);
    out
}

#[test]
fn a_sensible_conversation_with_some_bytes_changed_ends_in_order() {
    let sensible = sensible();
    drivers::session(&sensible);
    for end in 0..sensible.len() {
        drivers::session(&sensible[..end]);
    }
    let mut rng = Rng::new(1);
    for _ in 0..3000 {
        let mut bytes = sensible.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = if rng.chance(1, 2) { rng.below(256) as u8 } else { bytes[at] ^ (1 << rng.below(8)) };
        }
        drivers::session(&bytes);
    }
}

#[test]
fn noise_is_turned_away() {
    let mut rng = Rng::new(2);
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..rng.below(200)).map(|_| rng.below(256) as u8).collect();
        drivers::session(&bytes);
    }
}
