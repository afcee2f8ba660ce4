//! How are an access ACL and the permission bits of a mode kept consistent?
//!
//! The format is that of the xattrs (version 2): a header, then for each entry a tag, permissions and an id,
//! little-endian. Only the entries that correspond to mode bits are used.

use vfs::{Error, Result};

pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;

const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

fn tag(entry: &[u8]) -> u16 {
    u16::from_le_bytes([entry[0], entry[1]])
}

fn entries(acl: &[u8]) -> Result<&[u8]> {
    let bad = Error::Invalid("malformed ACL");
    match acl.split_first_chunk::<HEADER>() {
        Some((header, entries)) if u32::from_le_bytes(*header) == VERSION && entries.len() % ENTRY == 0 => Ok(entries),
        _ => Err(bad),
    }
}

/// The permission bits (`& 0o777`) of a mode under `acl`.
pub(super) fn perm(acl: &[u8]) -> Result<u16> {
    let (mut user, mut group, mut mask, mut other) = (0, 0, None, 0);
    for entry in entries(acl)?.chunks_exact(ENTRY) {
        let bits = u16::from_le_bytes([entry[2], entry[3]]) & 7;
        match tag(entry) {
            USER_OBJ => user = bits,
            GROUP_OBJ => group = bits,
            MASK => mask = Some(bits),
            OTHER => other = bits,
            _ => {}
        }
    }
    Ok(user << 6 | mask.unwrap_or(group) << 3 | other)
}

/// Updates `acl` after a `chmod` to `perm`.
pub(super) fn follow(acl: &mut [u8], perm: u16) -> Result<()> {
    let masked = entries(acl)?.chunks_exact(ENTRY).any(|e| tag(e) == MASK);
    for entry in acl[HEADER..].chunks_exact_mut(ENTRY) {
        let bits = match tag(entry) {
            USER_OBJ => perm >> 6,
            GROUP_OBJ if !masked => perm >> 3,
            MASK => perm >> 3,
            OTHER => perm,
            _ => continue,
        };
        entry[2..4].copy_from_slice(&(bits & 7).to_le_bytes());
    }
    Ok(())
}
