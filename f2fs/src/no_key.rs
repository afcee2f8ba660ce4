//! How is an encrypted name shown without its key?
//!
//! Names in an encrypted directory are ciphertext, which may contain any byte. Like Linux without the key, a listing
//! shows them encoded (base64url, without padding): the entry's hash, a zero where other file systems have a second
//! hash, and the ciphertext; if it is longer than 149 bytes, the rest as SHA-256. A lookup of the encoded name finds
//! the entry (unlike in Linux, a lookup of the ciphertext does too). `.` and `..` are not encrypted. The target of an
//! encrypted symlink is shown in the same form, with a hash of zero.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use format::dentry::Dentry;
use sha2::{Digest, Sha256};

/// Bytes of both hashes.
const HASHES: usize = 8;
/// Bytes of ciphertext in an encoded name.
const PLAIN: usize = 149;
/// Bytes of a SHA-256.
const DIGEST: usize = 32;

/// The encoded name of an entry.
pub(crate) fn encoded(entry: &Dentry<'_>) -> String {
    encode(entry.hash, entry.name)
}

/// The shown target of an encrypted symlink, from its stored form: the length of the ciphertext, and the ciphertext.
/// `None` if damaged.
pub(crate) fn target(stored: &[u8]) -> Option<String> {
    let (length, rest) = stored.split_first_chunk()?;
    let ciphertext = rest.get(..u16::from_le_bytes(*length).into())?;
    (!ciphertext.is_empty()).then(|| encode(0, ciphertext))
}

/// Length of the result of [`target`] for this many stored bytes.
pub(crate) fn target_len(stored: u64) -> u64 {
    let ciphertext = stored.saturating_sub(2);
    let shown = HASHES as u64 + if ciphertext > PLAIN as u64 { (PLAIN + DIGEST) as u64 } else { ciphertext };
    (shown * 4).div_ceil(3)
}

fn encode(hash: u32, ciphertext: &[u8]) -> String {
    let mut bytes = [&hash.to_le_bytes()[..], &[0; 4]].concat();
    let (head, rest) = ciphertext.split_at(ciphertext.len().min(PLAIN));
    bytes.extend_from_slice(head);
    if !rest.is_empty() {
        bytes.extend_from_slice(&Sha256::digest(rest));
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An encoded name, decoded.
pub(crate) struct Sought {
    /// The entry's hash.
    pub(crate) hash: u32,
    bytes: Vec<u8>,
}

impl Sought {
    /// `None` for bytes that are not an encoded name, such as `..`.
    pub(crate) fn new(name: &[u8]) -> Option<Sought> {
        let bytes = URL_SAFE_NO_PAD.decode(name).ok()?;
        let lawful = bytes.len() > HASHES && (bytes.len() <= HASHES + PLAIN || bytes.len() == HASHES + PLAIN + DIGEST);
        let (hash, rest) = bytes.split_first_chunk::<4>()?;
        (lawful && rest.starts_with(&[0; 4]))
            .then(|| Sought { hash: u32::from_le_bytes(*hash), bytes: rest[4..].to_vec() })
    }

    /// True if the encoded name means this ciphertext.
    pub(crate) fn is(&self, name: &[u8]) -> bool {
        match self.bytes.split_at_checked(PLAIN) {
            Some((head, digest)) if !digest.is_empty() => {
                name.len() > PLAIN && name.starts_with(head) && Sha256::digest(&name[PLAIN..])[..] == *digest
            }
            _ => name == self.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(hash: u32, name: &[u8]) -> Dentry<'_> {
        Dentry { slot: 0, hash, ino: 4, kind: 1, name }
    }

    #[test]
    fn every_ciphertext_has_a_name_that_finds_it_and_no_other() {
        let all: Vec<Vec<u8>> = [1, 16, 148, 149, 150, 151, 255]
            .into_iter()
            .flat_map(|len| [vec![b'/'; len], vec![0; len], (0..len).map(|i| i as u8).collect()])
            .collect();
        for (i, name) in all.iter().enumerate() {
            let text = encoded(&entry(0x89AB_CDEF, name));
            assert!(
                text.len() <= 255 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)),
                "{text}"
            );
            let sought = Sought::new(text.as_bytes()).unwrap();
            assert_eq!(sought.hash, 0x89AB_CDEF);
            for (k, other) in all.iter().enumerate() {
                assert_eq!(sought.is(other), i == k || name == other, "{i} {k}");
            }
        }
    }

    #[test]
    fn a_name_is_encoded_as_linux_encodes_it() {
        // 0x04030201, 0, and sixteen bytes.
        let name: Vec<u8> = (0..16).map(|i| 0xF0 + i).collect();
        assert_eq!(encoded(&entry(0x0403_0201, &name)), "AQIDBAAAAADw8fLz9PX29_j5-vv8_f7_");
    }

    #[test]
    fn a_target_is_as_long_as_it_is_said_to_be() {
        for len in [1usize, 16, 32, 64, 149, 150, 4000] {
            let stored = [&(len as u16).to_le_bytes()[..], &vec![7; len]].concat();
            assert_eq!(target(&stored).map(|t| t.len() as u64), Some(target_len(stored.len() as u64)), "{len}");
        }
        assert!(target(&[0, 0, 1]).is_none() && target(&[9, 0, 1]).is_none() && target(&[1]).is_none());
    }

    #[test]
    fn dots_plain_names_and_torn_ones_are_no_encoded_names() {
        for name in [&b"."[..], b"..", b"file.txt", b"AQIDBAAAAAA", b"AQIDBAEAAADw8fLz9PX29_j5-vv8_f7_", b""] {
            assert!(Sought::new(name).is_none(), "{name:?}");
        }
    }
}
