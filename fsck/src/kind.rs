//! Conversion between mode bits and dentry types.

/// Dentry type number of directories.
pub const DIR: u8 = 2;

/// Mode bits of a dentry type number.
pub fn mode_of(kind: u8) -> u16 {
    [0o100_000, 0o040_000, 0o020_000, 0o060_000, 0o010_000, 0o140_000, 0o120_000]
        .get(usize::from(kind).wrapping_sub(1))
        .copied()
        .unwrap_or(0o100_000)
}

/// Dentry type number of a mode; `None` if the mode is of no type.
pub fn kind_of(mode: u16) -> Option<u8> {
    Some(match mode & 0o170_000 {
        0o100_000 => 1,
        0o040_000 => DIR,
        0o020_000 => 3,
        0o060_000 => 4,
        0o010_000 => 5,
        0o140_000 => 6,
        0o120_000 => 7,
        _ => return None,
    })
}
