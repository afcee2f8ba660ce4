//! Sizes as people write them.

use f2fs::mkfs::{Geometry, MAX_BLOCKS, MkfsError, Options};
pub use volume::size::parse;

use crate::Failure;

/// Bytes from `512M`, `1.5G` or `8GB`; the error names the option.
pub fn of(option: &str, text: &str) -> Result<u64, Failure> {
    parse(text).ok_or_else(|| Failure::usage(format!("{option} {text}: not a size; give e.g. 512M, 1.5G or 8GB")))
}

/// Like [`of`], within limits that the error names.
pub fn within(option: &str, text: &str, limits: std::ops::RangeInclusive<u64>) -> Result<u64, Failure> {
    let bytes = of(option, text)?;
    if limits.contains(&bytes) {
        return Ok(bytes);
    }
    let [from, to] = [limits.start(), limits.end()].map(|n| crate::output::bytes(*n));
    Err(Failure::usage(format!("{option} {text}: must be from {from} to {to}")))
}

/// `--size` of a volume with these options.
pub fn of_volume(text: &str, options: &Options) -> Result<u64, Failure> {
    let bytes = of("--size", text)?;
    let wrong = |why: String| Err(Failure::Usage(format!("--size {text}: {why}")));
    if bytes / 4096 > MAX_BLOCKS {
        return wrong(format!("larger than the maximum of F2FS, {}", crate::output::bytes(MAX_BLOCKS * 4096)));
    }
    match Geometry::plan(bytes / 4096, options) {
        Err(MkfsError::TooSmall { minimum, .. }) => {
            let least = crate::output::bytes(minimum * 4096);
            wrong(format!("too small; with these options a volume needs at least {least}"))
        }
        Err(e) => Err(Failure::usage(e)),
        Ok(_) => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_not_smaller_or_larger_than_f2fs_can_be() {
        let options = Options::default();
        assert_eq!(of_volume("1G", &options).unwrap(), 1 << 30);
        for (text, words) in
            [("1K", "needs at least 52.00 MiB"), ("17T", "larger than the maximum of F2FS"), ("0", "too small")]
        {
            let failure = of_volume(text, &options).unwrap_err();
            assert_eq!(failure.code(), 2);
            assert!(
                failure.text().starts_with(&format!("--size {text}: ")) && failure.text().contains(words),
                "{failure}"
            );
        }
    }

    #[test]
    fn a_size_out_of_its_limits_is_wrong_usage() {
        assert_eq!(within("--size", "8G", 1 << 20..=1 << 40).unwrap(), 8 << 30);
        let failure = within("--size", "8K", 1 << 20..=1 << 40).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert_eq!(failure.text(), "--size 8K: must be from 1.00 MiB to 1.00 TiB");
    }
}
