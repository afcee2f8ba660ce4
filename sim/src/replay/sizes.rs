//! How large is a size that a person typed, and is it valid?

use std::ops::RangeInclusive;

use f2fs::mkfs::{Geometry, MAX_BLOCKS, MkfsError, Options};
use volume::Kind;
use volume::size::{SCHERLFS_BLOCKS, parse};

use super::error::Error;
use crate::words;

/// Bytes from `512M`, `1.5G` or `8GB`; the error names the option.
pub fn of(option: &str, text: &str) -> Result<u64, Error> {
    parse(text).ok_or_else(|| Error::Setting(format!("{option} {text}: not a size; give e.g. 512M, 1.5G or 8GB")))
}

/// Like [`of`], within limits in bytes that the error names.
pub fn within(option: &str, text: &str, limits: RangeInclusive<u64>) -> Result<u64, Error> {
    let bytes = of(option, text)?;
    if limits.contains(&bytes) {
        return Ok(bytes);
    }
    let [from, to] = [limits.start(), limits.end()].map(|n| words::bytes(*n));
    Err(Error::Setting(format!("{option} {text}: must be from {from} to {to}")))
}

/// Bytes of `--size` for a new F2FS volume with these options.
pub fn of_f2fs(text: &str, options: &Options) -> Result<u64, Error> {
    let bytes = of("--size", text)?;
    let wrong = |why: String| Err(Error::Setting(format!("--size {text}: {why}")));
    if bytes / 4096 > MAX_BLOCKS {
        return wrong(format!("larger than the maximum of F2FS, {}", words::bytes(MAX_BLOCKS * 4096)));
    }
    match Geometry::plan(bytes / 4096, options) {
        Err(MkfsError::TooSmall { minimum, .. }) => {
            let least = words::bytes(minimum * 4096);
            wrong(format!("too small; with these options a volume needs at least {least}"))
        }
        Err(e) => Err(Error::Setting(e.to_string())),
        Ok(_) => Ok(bytes),
    }
}

/// Bytes of `--size` for a new volume with the default options of its file system.
pub fn of_volume(kind: Kind, text: &str) -> Result<u64, Error> {
    match kind {
        Kind::F2fs => of_f2fs(text, &Options::default()),
        Kind::ScherlFs => of_scherlfs(text),
    }
}

/// Bytes of `--size` for a new ScherlFS volume with any options.
pub fn of_scherlfs(text: &str) -> Result<u64, Error> {
    let blocks = SCHERLFS_BLOCKS;
    within("--size", text, blocks.start() * 4096..=blocks.end() * 4096).map(|bytes| bytes & !4095)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(error: &Error) -> String {
        assert!(error.is_of_settings());
        error.to_string()
    }

    #[test]
    fn a_volume_is_not_smaller_or_larger_than_f2fs_can_be() {
        let options = Options::default();
        assert_eq!(of_f2fs("1G", &options).unwrap(), 1 << 30);
        for (size, words) in
            [("1K", "needs at least 52.00 MiB"), ("17T", "larger than the maximum of F2FS"), ("0", "too small")]
        {
            let text = text(&of_f2fs(size, &options).unwrap_err());
            assert!(text.starts_with(&format!("--size {size}: ")) && text.contains(words), "{text}");
        }
    }

    #[test]
    fn a_size_out_of_its_limits_is_refused() {
        assert_eq!(within("--size", "8G", 1 << 20..=1 << 40).unwrap(), 8 << 30);
        let error = within("--size", "8K", 1 << 20..=1 << 40).unwrap_err();
        assert_eq!(text(&error), "--size 8K: must be from 1.00 MiB to 1.00 TiB");
    }

    #[test]
    fn each_file_system_has_its_own_smallest_volume() {
        assert_eq!(of_volume(Kind::ScherlFs, "1M").unwrap(), 1 << 20);
        text(&of_volume(Kind::F2fs, "1M").unwrap_err());
        text(&of_volume(Kind::ScherlFs, "4K").unwrap_err());
    }
}
