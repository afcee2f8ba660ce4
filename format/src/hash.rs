//! The hash of a name in a directory (format facts: TEA over 16-byte pieces, MD4's start constants).

const DELTA: u32 = 0x9E37_79B9;

fn tea(state: &mut [u32; 2], key: [u32; 4]) {
    let [mut x, mut y] = *state;
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        x = x.wrapping_add((y << 4).wrapping_add(key[0]) ^ y.wrapping_add(sum) ^ (y >> 5).wrapping_add(key[1]));
        y = y.wrapping_add((x << 4).wrapping_add(key[2]) ^ x.wrapping_add(sum) ^ (x >> 5).wrapping_add(key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

/// Packs up to 16 bytes big-endian into four words, padded with `remaining` in every byte.
fn pack(piece: &[u8], remaining: usize) -> [u32; 4] {
    // The pad is built from the whole remaining length, of which a word keeps what fits.
    let len = remaining as u32;
    let mut pad = len | (len << 8);
    pad |= pad << 16;
    let mut out = [pad; 4];
    for (word, bytes) in out.iter_mut().zip(piece.chunks(4)) {
        for &b in bytes {
            *word = u32::from(b).wrapping_add(*word << 8);
        }
    }
    out
}

/// Hash of a file name as it stands on disk; `.` and `..` hash to 0.
pub fn name_hash(name: &[u8]) -> u32 {
    if name == b"." || name == b".." {
        return 0;
    }
    let mut state = [0x6745_2301, 0xEFCD_AB89];
    let mut rest = name;
    loop {
        let piece = &rest[..rest.len().min(16)];
        tea(&mut state, pack(piece, rest.len()));
        if rest.len() <= 16 {
            return state[0];
        }
        rest = &rest[16..];
    }
}
