//! Extended attributes: the list of names and values of an inode, and the encoding of full names.
//!
//! The list occupies one logical area: the inline part at the end of the inode's address words, followed by the
//! body of the xattr node if there is one. An entry may straddle the two. Left out: the location of the parts (see
//! [`crate::inode::Division::xattr_area`]) and who may read which name.

use crate::FormatError;

/// Bytes of an xattr node for the list (kernel `VALID_XATTR_BLOCK_SIZE`): the block without its footer.
pub const NODE_BYTES: usize = crate::node::FOOTER;
/// The list's magic (kernel `F2FS_XATTR_MAGIC`).
pub const MAGIC: u32 = 0xF2F5_2011;
/// Bytes of the header: magic, reference count (1), 16 reserved.
pub const HEADER: usize = 24;
/// The longest name, without its prefix.
pub const NAME_MAX: usize = 255;

const ENTRY: usize = 4;
/// The zero word that ends a list shorter than its area.
const TERMINATOR: usize = 4;
const S: &str = "xattr list";

/// Numbers that stand for name prefixes (kernel `F2FS_XATTR_INDEX_*`).
pub mod index {
    /// `user.`
    pub const USER: u8 = 1;
    /// `system.posix_acl_access`
    pub const ACL_ACCESS: u8 = 2;
    /// `system.posix_acl_default`
    pub const ACL_DEFAULT: u8 = 3;
    /// `trusted.`
    pub const TRUSTED: u8 = 4;
    /// Reserved for Lustre.
    pub const LUSTRE: u8 = 5;
    /// `security.`
    pub const SECURITY: u8 = 6;
    /// `system.advise`: never in the list; its value is the inode's `i_advise`.
    pub const ADVISE: u8 = 7;
    /// fscrypt's context, without a full name.
    pub const ENCRYPTION: u8 = 9;
    /// fs-verity's descriptor location, without a full name.
    pub const VERITY: u8 = 11;
}

/// Prefixes that a name follows.
const PREFIXES: [(u8, &[u8]); 3] =
    [(index::USER, b"user."), (index::TRUSTED, b"trusted."), (index::SECURITY, b"security.")];
/// Full names.
const WHOLE: [(u8, &[u8]); 3] = [
    (index::ACL_ACCESS, b"system.posix_acl_access"),
    (index::ACL_DEFAULT, b"system.posix_acl_default"),
    (index::ADVISE, b"system.advise"),
];

/// Splits a full name into index and rest; `None` if F2FS cannot store it (no known prefix, nothing behind the
/// prefix, or a rest of more than [`NAME_MAX`] bytes).
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    if let Some(&(i, _)) = WHOLE.iter().find(|(_, name)| *name == full) {
        return Some((i, &[]));
    }
    PREFIXES
        .iter()
        .find_map(|&(i, prefix)| Some((i, full.strip_prefix(prefix)?)))
        .filter(|(_, rest)| (1..=NAME_MAX).contains(&rest.len()))
}

/// The full name of an entry; `None` for entries hidden from users (encryption, verity) and for unknown indexes.
pub fn full_name(index: u8, rest: &[u8]) -> Option<Vec<u8>> {
    if let Some(&(_, name)) = WHOLE.iter().find(|&&(i, _)| i == index) {
        return rest.is_empty().then(|| name.to_vec());
    }
    let &(_, prefix) = PREFIXES.iter().find(|&&(i, _)| i == index)?;
    (!rest.is_empty()).then(|| [prefix, rest].concat())
}

/// One attribute of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct XattrRef<'a> {
    /// The index of the name's prefix.
    pub index: u8,
    /// The name without its prefix.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

/// Length of the longest value in an inode with `inline` bytes of inline area (kernel `MAX_VALUE_LEN`). Linux
/// rejects a longer one, and one that does not fit next to the existing entries, with "argument list too long".
pub fn max_value(inline: usize) -> usize {
    capacity(inline, true) - HEADER - ENTRY
}

/// Bytes of the logical area with `inline` bytes in the inode, with or without an xattr node (kernel `XATTR_SIZE`).
pub fn capacity(inline: usize, node: bool) -> usize {
    inline + if node { NODE_BYTES } else { 0 }
}

/// Bytes of one entry: kernel `ENTRY_SIZE`, a multiple of 4.
pub fn entry_len(name: &[u8], value: &[u8]) -> usize {
    (ENTRY + name.len() + value.len()).next_multiple_of(4)
}

/// The attributes of an area, in order. An area shorter than a header, or with a header of zeros, has none. An
/// entry that passes the end of the area is an error; a list that fills the area to the last byte needs no
/// terminator.
pub fn entries(area: &[u8]) -> Result<Vec<XattrRef<'_>>, FormatError> {
    let Some((header, mut rest)) = area.split_first_chunk::<HEADER>() else {
        return Ok(Vec::new());
    };
    let magic = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    if magic == 0 && rest.first_chunk().is_none_or(|first| *first == [0; 4]) {
        return Ok(Vec::new());
    }
    if magic != MAGIC {
        return Err(FormatError::field(S, "h_magic", magic, "0xf2f52011"));
    }
    let mut out = Vec::new();
    while let Some(&[index, name_len, v0, v1]) = rest.first_chunk::<ENTRY>() {
        if [index, name_len, v0, v1] == [0; 4] {
            break;
        }
        let (name_len, value_len) = (usize::from(name_len), usize::from(u16::from_le_bytes([v0, v1])));
        let need = (ENTRY + name_len + value_len).next_multiple_of(4);
        let entry = rest.get(ENTRY..need);
        let Some((name, value)) = entry.and_then(|e| e.split_at_checked(name_len)) else {
            return Err(FormatError::Short { structure: "xattr entry", have: rest.len(), need });
        };
        out.push(XattrRef { index, name, value: &value[..value_len] });
        rest = &rest[need..];
    }
    Ok(out)
}

/// End of the list: header, entries and, if there is room, terminator, in bytes from the start of the area. The
/// rest must be zero (fsck checks it).
pub fn used(area: &[u8]) -> Result<usize, FormatError> {
    let all = entries(area)?;
    let len = all.iter().map(|e| entry_len(e.name, e.value)).sum::<usize>();
    Ok((HEADER + len + TERMINATOR).min(area.len()))
}

/// The value of one attribute.
pub fn get<'a>(area: &'a [u8], index: u8, name: &[u8]) -> Result<Option<&'a [u8]>, FormatError> {
    let all = entries(area)?;
    Ok(all.iter().find(|e| e.index == index && e.name == name).map(|e| e.value))
}

/// Bytes of a list: header and entries. The end of the area can replace the terminator.
pub fn encoded_len(entries: &[(u8, &[u8], &[u8])]) -> usize {
    HEADER + entries.iter().map(|(_, n, v)| entry_len(n, v)).sum::<usize>()
}

/// An area of `capacity` bytes with these entries, padded with zeros. `None` if they do not fit, or if an entry is
/// invalid (index 0, a name past 255 bytes, a value past 65535). An empty list fits into any capacity: without room
/// for the header the area is all zero, which every reader takes as empty.
pub fn encode(entries: &[(u8, &[u8], &[u8])], capacity: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(capacity);
    let len = encoded_len(entries);
    if len > capacity {
        return entries.is_empty().then(|| vec![0; capacity]);
    }
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    out.resize(HEADER, 0);
    for &(index, name, value) in entries {
        if index == 0 {
            return None;
        }
        let start = out.len();
        out.extend_from_slice(&[index, u8::try_from(name.len()).ok()?]);
        out.extend_from_slice(&u16::try_from(value.len()).ok()?.to_le_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(value);
        out.resize(start + entry_len(name, value), 0);
    }
    out.resize(capacity, 0);
    Some(out)
}

/// The area after setting (`Some`) or removing (`None`) one attribute, `capacity` bytes long; the inner `None`
/// means it does not fit. As in Linux, a new entry is appended.
pub fn set(
    area: &[u8],
    index: u8,
    name: &[u8],
    value: Option<&[u8]>,
    capacity: usize,
) -> Result<Option<Vec<u8>>, FormatError> {
    let mut all: Vec<_> = entries(area)?
        .into_iter()
        .filter(|e| e.index != index || e.name != name)
        .map(|e| (e.index, e.name, e.value))
        .collect();
    if let Some(value) = value {
        all.push((index, name, value));
    }
    Ok(encode(&all, capacity))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_back_in_order() {
        let list: [(u8, &[u8], &[u8]); 3] = [(1, b"a", b"value"), (2, b"", &[7; 28]), (6, b"selinux", b"")];
        let area = encode(&list, 200).unwrap();
        let got: Vec<_> = entries(&area).unwrap().iter().map(|e| (e.index, e.name, e.value)).collect();
        assert_eq!(got, list);
        assert_eq!(get(&area, 1, b"a").unwrap(), Some(&b"value"[..]));
        assert_eq!(get(&area, 4, b"a").unwrap(), None);
        assert_eq!(used(&area).unwrap(), encoded_len(&list) + TERMINATOR);
    }

    #[test]
    fn a_list_fits_exactly_or_not_at_all() {
        let list: [(u8, &[u8], &[u8]); 1] = [(1, b"abc", b"12345")];
        let need = encoded_len(&list);
        assert_eq!(need, 24 + 12);
        let area = encode(&list, need).unwrap();
        assert_eq!((entries(&area).unwrap().len(), used(&area).unwrap()), (1, need));
        assert!(encode(&list, need - 1).is_none());
    }

    #[test]
    fn the_longest_value_fits_and_one_byte_more_does_not() {
        let value = vec![1; max_value(200)];
        let full = capacity(200, true);
        // Name and value share the room of the longest value of an empty name.
        assert!(encode(&[(1, b"", &value)], full).is_some());
        assert!(encode(&[(1, b"n", &value)], full).is_none());
    }

    #[test]
    fn an_entry_past_the_end_of_the_area_is_refused() {
        let mut area = encode(&[(1, b"abc", b"12345")], 64).unwrap();
        area[HEADER + 2] = 34;
        assert!(matches!(entries(&area), Err(FormatError::Short { need: 44, have: 40, .. })));
        area[0] ^= 1;
        assert!(matches!(entries(&area), Err(FormatError::Field { field: "h_magic", .. })));
    }

    #[test]
    fn no_area_and_an_area_of_zeros_are_empty_lists() {
        for len in [0, 3, 24, 27, 28, 200] {
            assert_eq!(entries(&vec![0; len]).unwrap(), []);
            let empty = encode(&[], len).unwrap();
            assert_eq!(entries(&empty).unwrap(), []);
            assert_eq!(empty.len(), len);
        }
    }

    #[test]
    fn setting_replaces_and_removing_removes() {
        let a = set(&[], 1, b"x", Some(b"1"), 100).unwrap().unwrap();
        let a = set(&a, 1, b"y", Some(b"2"), 100).unwrap().unwrap();
        let a = set(&a, 1, b"x", Some(b"33333"), 100).unwrap().unwrap();
        let names: Vec<_> = entries(&a).unwrap().iter().map(|e| e.name.to_vec()).collect();
        assert_eq!(names, [b"y".to_vec(), b"x".to_vec()]);
        assert_eq!(get(&a, 1, b"x").unwrap(), Some(&b"33333"[..]));
        let a = set(&a, 1, b"x", None, 100).unwrap().unwrap();
        assert_eq!(get(&a, 1, b"x").unwrap(), None);
        assert_eq!(set(&a, 1, b"z", Some(&[0; 80]), 100).unwrap(), None);
    }

    #[test]
    fn full_names_map_to_an_index_and_back() {
        for full in [
            &b"user.foo"[..],
            b"trusted.overlay.opaque",
            b"security.selinux",
            b"system.posix_acl_access",
            b"system.posix_acl_default",
            b"system.advise",
        ] {
            let (i, rest) = split_name(full).unwrap();
            assert_eq!(full_name(i, rest).as_deref(), Some(full));
        }
        for wrong in [&b"user."[..], b"user", b"system.foo", b"system.posix_acl_access2", b"", b"os2.x"] {
            assert_eq!(split_name(wrong), None);
        }
        assert_eq!(split_name(&[&b"user."[..], &[b'n'; 256]].concat()), None);
        assert_eq!(full_name(index::ENCRYPTION, b"c"), None);
        assert_eq!(full_name(index::ACL_ACCESS, b"x"), None);
    }
}
