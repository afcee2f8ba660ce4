//! Which requests carry contents of files?
//!
//! The file system declares this for each of its causes.

use vfs::Reason;

/// The causes whose requests carry file contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contents([u64; 4]);

impl Contents {
    /// The causes of a file system with these reasons.
    pub fn from_reasons(reasons: &[Reason]) -> Self {
        let mut bits = [0; 4];
        for reason in reasons.iter().filter(|r| r.contents) {
            bits[usize::from(reason.number) / 64] |= 1 << (reason.number % 64);
        }
        Contents(bits)
    }

    /// Whether requests with this cause carry file contents.
    pub fn has(&self, cause: u8) -> bool {
        self.0[usize::from(cause) / 64] & (1 << (cause % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use volume::Kind;

    use super::*;

    #[test]
    fn exactly_the_declared_causes_carry_contents() {
        for kind in Kind::ALL {
            let (reasons, contents) = (kind.reasons(), Contents::from_reasons(&kind.reasons()));
            assert!(reasons.iter().any(|r| r.contents) && reasons.iter().any(|r| !r.contents), "{kind}");
            for cause in 0..=u8::MAX {
                let says = reasons.iter().any(|r| r.number == cause && r.contents);
                assert_eq!(contents.has(cause), says, "{kind}, cause {cause}");
            }
        }
    }
}
