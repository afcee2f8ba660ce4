//! What kind of file is it, by its mode and by its entry in a directory?

const MASK: u16 = 0o170_000;
/// Of a directory.
pub(crate) const DIRECTORY: u16 = 0o040_000;
/// Of a regular file.
pub(crate) const REGULAR: u16 = 0o100_000;
/// Of a symbolic link.
pub(crate) const SYMLINK: u16 = 0o120_000;

/// The kind in a mode.
pub(crate) fn of(mode: u16) -> u16 {
    mode & MASK
}

/// Whether a file can have this mode.
pub(crate) fn lawful(mode: u16) -> bool {
    (1..=7).any(|n| of_entry(n) == of(mode))
}

/// An entry's kind as a mode has it.
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

/// A mode's kind as an entry has it.
pub(crate) fn for_entry(mode: u16) -> u8 {
    (1..=7).find(|n| of_entry(*n) == of(mode)).unwrap_or(1)
}
