//! File kinds in modes and in directory entries.

const MASK: u16 = 0o170_000;
/// Kind bits of a directory.
pub(crate) const DIRECTORY: u16 = 0o040_000;
/// Kind bits of a regular file.
pub(crate) const REGULAR: u16 = 0o100_000;
/// Kind bits of a symbolic link.
pub(crate) const SYMLINK: u16 = 0o120_000;

/// The kind bits of a mode.
pub(crate) fn of_mode(mode: u16) -> u16 {
    mode & MASK
}

/// True if a mode is valid.
pub(crate) fn lawful(mode: u16) -> bool {
    (1..=7).any(|n| of_entry(n) == of_mode(mode))
}

/// The kind bits for an entry's kind.
pub(crate) fn of_entry(kind: u8) -> u16 {
    match kind {
        1 => REGULAR,
        2 => DIRECTORY,
        3 => 0o020_000,
        4 => 0o060_000,
        5 => 0o010_000,
        6 => 0o140_000,
        _ => SYMLINK,
    }
}

/// The entry's kind for a mode.
pub(crate) fn for_entry(mode: u16) -> u8 {
    (1..=7).find(|n| of_entry(*n) == of_mode(mode)).unwrap_or(1)
}
