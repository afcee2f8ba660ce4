//! POSIX access control lists: their form on disk, their form in user space, and their effect on the mode of a
//! file.
//!
//! On disk a list is a version word (1) and entries of 4 bytes (tag, permissions), or of 8 for named users and
//! groups (the id follows). In the extended attribute that user space sees, the version is 2 and every entry has 8
//! bytes. Left out: who may set a list.

use std::fmt;

const DISK_VERSION: u32 = 1;
const WIRE_VERSION: u32 = 2;
/// The id of an entry without user or group (kernel `ACL_UNDEFINED_ID`).
const NO_ID: u32 = !0;
const RWX: u16 = 0o777;

/// Bytes that are not an access control list, or a list that breaks the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AclError {
    /// Unknown version; Linux returns "operation not supported".
    #[error("access control list: version is {0}")]
    Version(u32),
    /// The size does not fit a whole number of entries.
    #[error("access control list: {0} bytes hold no whole number of entries")]
    Length(usize),
    /// An entry has an unknown tag.
    #[error("access control list: tag of an entry is {0:#x}")]
    Tag(u16),
    /// An entry allows more than read, write and execute.
    #[error("access control list: permissions of an entry are {0:#x}")]
    Permissions(u16),
    /// Entries are missing, duplicate, out of order, or have an invalid id.
    #[error("access control list: entry {0} is missing, out of order or names nobody")]
    Order(usize),
}

/// The subject of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tag {
    /// The file's owner.
    Owner,
    /// The user with this id.
    User(u32),
    /// The file's group.
    OwningGroup,
    /// The group with this id.
    Group(u32),
    /// Upper limit of what named users, named groups and the owning group get.
    Mask,
    /// All other users.
    Other,
}

impl Tag {
    fn number(self) -> u16 {
        match self {
            Tag::Owner => 0x01,
            Tag::User(_) => 0x02,
            Tag::OwningGroup => 0x04,
            Tag::Group(_) => 0x08,
            Tag::Mask => 0x10,
            Tag::Other => 0x20,
        }
    }
    fn id(self) -> Option<u32> {
        match self {
            Tag::User(id) | Tag::Group(id) => Some(id),
            _ => None,
        }
    }
    /// Decodes a tag number; `id` is called only if the tag has an id.
    fn read(number: u16, id: impl FnOnce() -> Option<u32>) -> Result<Option<Tag>, AclError> {
        Ok(match number {
            0x01 => Some(Tag::Owner),
            0x02 => id().map(Tag::User),
            0x04 => Some(Tag::OwningGroup),
            0x08 => id().map(Tag::Group),
            0x10 => Some(Tag::Mask),
            0x20 => Some(Tag::Other),
            n => return Err(AclError::Tag(n)),
        })
    }
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclEntry {
    /// Its subject.
    pub tag: Tag,
    /// Read 4, write 2, execute 1.
    pub perm: u8,
}

/// An ordered list of entries. [`Acl::valid`] checks it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl {
    /// The entries.
    pub entries: Vec<AclEntry>,
}

fn half(b: &[u8], at: usize) -> Option<u16> {
    b.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]))
}

fn word(b: &[u8], at: usize) -> Option<u32> {
    b.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn permissions(perm: u16) -> Result<u8, AclError> {
    if perm > 7 { Err(AclError::Permissions(perm)) } else { Ok(perm as u8) }
}

fn body(bytes: &[u8], version: u32) -> Result<&[u8], AclError> {
    match word(bytes, 0) {
        Some(v) if v == version => Ok(&bytes[4..]),
        Some(v) => Err(AclError::Version(v)),
        None => Err(AclError::Length(bytes.len())),
    }
}

impl Acl {
    /// Reads the value of a `system.posix_acl_*` attribute. An empty value, or no entries, is an empty list, which
    /// in a `setxattr` means "remove". Ids of entries without a named user or group are ignored.
    pub fn from_wire(value: &[u8]) -> Result<Acl, AclError> {
        if value.is_empty() {
            return Ok(Acl::default());
        }
        let entries = body(value, WIRE_VERSION)?.chunks_exact(8);
        if !entries.remainder().is_empty() {
            return Err(AclError::Length(value.len()));
        }
        let read = |e: &[u8]| {
            let tag = Tag::read(half(e, 0).unwrap_or(0), || word(e, 4))?;
            let tag = tag.ok_or(AclError::Length(value.len()))?;
            Ok(AclEntry { tag, perm: permissions(half(e, 2).unwrap_or(0))? })
        };
        Ok(Acl { entries: entries.map(read).collect::<Result<_, _>>()? })
    }

    /// Encodes the list as user space sees it.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut out = WIRE_VERSION.to_le_bytes().to_vec();
        for e in &self.entries {
            out.extend_from_slice(&e.tag.number().to_le_bytes());
            out.extend_from_slice(&u16::from(e.perm).to_le_bytes());
            out.extend_from_slice(&e.tag.id().unwrap_or(NO_ID).to_le_bytes());
        }
        out
    }

    /// Reads F2FS's own form. Order and completeness are not checked, as in Linux.
    pub fn from_disk(bytes: &[u8]) -> Result<Acl, AclError> {
        let mut rest = body(bytes, DISK_VERSION)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let short = AclError::Length(bytes.len());
            let (number, perm) = half(rest, 0).zip(half(rest, 2)).ok_or(short)?;
            let tag = Tag::read(number, || word(rest, 4))?.ok_or(short)?;
            entries.push(AclEntry { tag, perm: permissions(perm)? });
            rest = &rest[if tag.id().is_some() { 8 } else { 4 }..];
        }
        Ok(Acl { entries })
    }

    /// Encodes F2FS's own form.
    pub fn to_disk(&self) -> Vec<u8> {
        let mut out = DISK_VERSION.to_le_bytes().to_vec();
        for e in &self.entries {
            out.extend_from_slice(&e.tag.number().to_le_bytes());
            out.extend_from_slice(&u16::from(e.perm).to_le_bytes());
            if let Some(id) = e.tag.id() {
                out.extend_from_slice(&id.to_le_bytes());
            }
        }
        out
    }

    /// Checks the rules of POSIX 1003.1e as Linux does (kernel `posix_acl_valid`): owner, users, owning group,
    /// groups, mask, other, in this order; a mask if any user or group is named; valid ids.
    pub fn valid(&self) -> Result<(), AclError> {
        let mut stage = 0;
        let mut named = false;
        for (i, e) in self.entries.iter().enumerate() {
            let next = match (e.tag, stage) {
                (Tag::Owner, 0) => 1,
                (Tag::User(id), 1) if id != NO_ID => 1,
                (Tag::OwningGroup, 1) => 2,
                (Tag::Group(id), 2) if id != NO_ID => 2,
                (Tag::Mask, 2) => 3,
                (Tag::Other, 3) => 4,
                (Tag::Other, 2) if !named => 4,
                _ => return Err(AclError::Order(i)),
            };
            named |= e.tag.id().is_some();
            if e.perm > 7 {
                return Err(AclError::Permissions(e.perm.into()));
            }
            stage = next;
        }
        if stage == 4 { Ok(()) } else { Err(AclError::Order(self.entries.len())) }
    }

    /// The closest nine permission bits of a mode, and true if they express the whole list (kernel
    /// `posix_acl_equiv_mode`). If so, a file needs no list.
    pub fn equivalent_mode(&self) -> (u16, bool) {
        let mut mode = 0;
        let mut minimal = true;
        let mut mask = None;
        for e in &self.entries {
            let perm = u16::from(e.perm & 7);
            match e.tag {
                Tag::Owner => mode |= perm << 6,
                Tag::OwningGroup => mode |= perm << 3,
                Tag::Other => mode |= perm,
                Tag::Mask => {
                    mask = Some(perm);
                    minimal = false;
                }
                Tag::User(_) | Tag::Group(_) => minimal = false,
            }
        }
        if let Some(mask) = mask {
            mode = mode & !0o070 | mask << 3;
        }
        (mode, minimal)
    }

    /// Index of the entry that the group bits of the mode stand for: the mask, or else the owning group.
    fn group_class(&self) -> Option<usize> {
        let at = |tag| self.entries.iter().position(|e| e.tag == tag);
        at(Tag::Mask).or_else(|| at(Tag::OwningGroup))
    }

    /// Turns this list, the parent's default list, into the access list of a new file created with `mode` (kernel
    /// `posix_acl_create_masq`): removes from each what the other does not grant. Returns the mode, and true if it
    /// expresses the whole list.
    pub fn create_masq(&mut self, mode: u16) -> (u16, bool) {
        let mut kept = mode & RWX;
        let group = self.group_class();
        let mut minimal = true;
        for (i, e) in self.entries.iter_mut().enumerate() {
            minimal &= !matches!(e.tag, Tag::User(_) | Tag::Group(_) | Tag::Mask);
            let shift = match e.tag {
                Tag::Owner => 6,
                Tag::Other => 0,
                _ if Some(i) == group => 3,
                _ => continue,
            };
            e.perm &= (mode >> shift & 7) as u8;
            kept &= !(7 << shift) | u16::from(e.perm) << shift;
        }
        (mode & !RWX | kept, minimal)
    }

    /// Applies `chmod` to the list (kernel `posix_acl_chmod_masq`): owner, other and the group class take the bits
    /// of the mode.
    pub fn chmod(&mut self, mode: u16) {
        let group = self.group_class();
        for (i, e) in self.entries.iter_mut().enumerate() {
            let shift = match e.tag {
                Tag::Owner => 6,
                Tag::Other => 0,
                _ if Some(i) == group => 3,
                _ => continue,
            };
            e.perm = (mode >> shift & 7) as u8;
        }
    }
}

impl fmt::Display for Acl {
    /// Abbreviated as by `getfacl`: `u::rwx,u:5:r--,g::r-x,m::r-x,o::---`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, e) in self.entries.iter().enumerate() {
            let (kind, id) = match e.tag {
                Tag::Owner => ("u", None),
                Tag::User(id) => ("u", Some(id)),
                Tag::OwningGroup => ("g", None),
                Tag::Group(id) => ("g", Some(id)),
                Tag::Mask => ("m", None),
                Tag::Other => ("o", None),
            };
            write!(f, "{}{kind}:", if i == 0 { "" } else { "," })?;
            if let Some(id) = id {
                write!(f, "{id}")?;
            }
            let bit = |b, c| if e.perm & b != 0 { c } else { '-' };
            write!(f, ":{}{}{}", bit(4, 'r'), bit(2, 'w'), bit(1, 'x'))?;
        }
        Ok(())
    }
}

/// Converts the value of a `system.posix_acl_*` attribute to F2FS's own form; the list must be valid.
pub fn to_disk(xattr_value: &[u8]) -> Result<Vec<u8>, AclError> {
    let acl = Acl::from_wire(xattr_value)?;
    acl.valid()?;
    Ok(acl.to_disk())
}

/// Converts F2FS's own form to the value of a `system.posix_acl_*` attribute.
pub fn from_disk(bytes: &[u8]) -> Result<Vec<u8>, AclError> {
    Acl::from_disk(bytes).map(|acl| acl.to_wire())
}

/// Mode and lists that a new inode inherits from its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    /// Its mode, with unchanged type bits.
    pub mode: u16,
    /// Its access list, if the mode does not express it.
    pub access: Option<Acl>,
    /// Its default list, for a directory.
    pub default: Option<Acl>,
}

/// Mode and lists of a new inode created with `mode` (type bits included) under a parent whose default list is
/// `default` (kernel `posix_acl_create`). The umask counts only if the parent has no default list. Symbolic links
/// inherit nothing and keep their mode.
pub fn inherit(default: Option<&Acl>, mode: u16, umask: u16) -> Inherited {
    const KIND: u16 = 0o170_000;
    const DIRECTORY: u16 = 0o040_000;
    const SYMLINK: u16 = 0o120_000;
    if mode & KIND == SYMLINK {
        return Inherited { mode, access: None, default: None };
    }
    let Some(default) = default else {
        return Inherited { mode: mode & !(umask & RWX), access: None, default: None };
    };
    let mut access = default.clone();
    let (mode, minimal) = access.create_masq(mode);
    Inherited {
        mode,
        access: (!minimal).then_some(access),
        default: (mode & KIND == DIRECTORY).then(|| default.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(list: &[(Tag, u8)]) -> Acl {
        Acl { entries: list.iter().map(|&(tag, perm)| AclEntry { tag, perm }).collect() }
    }
    fn named() -> Acl {
        acl(&[
            (Tag::Owner, 7),
            (Tag::User(1000), 6),
            (Tag::OwningGroup, 5),
            (Tag::Group(50), 4),
            (Tag::Mask, 6),
            (Tag::Other, 1),
        ])
    }
    fn minimal() -> Acl {
        acl(&[(Tag::Owner, 7), (Tag::OwningGroup, 5), (Tag::Other, 4)])
    }

    #[test]
    fn both_forms_are_read_back_as_written() {
        for a in [named(), minimal()] {
            assert_eq!(Acl::from_wire(&a.to_wire()).unwrap(), a);
            assert_eq!(Acl::from_disk(&a.to_disk()).unwrap(), a);
            assert_eq!(from_disk(&to_disk(&a.to_wire()).unwrap()).unwrap(), a.to_wire());
        }
    }

    #[test]
    fn the_bytes_on_disk_are_as_linux_lays_them_out() {
        let bytes = acl(&[(Tag::Owner, 6), (Tag::User(0x0102), 4)]).to_disk();
        assert_eq!(bytes, [1, 0, 0, 0, 1, 0, 6, 0, 2, 0, 4, 0, 2, 1, 0, 0]);
        // Four short entries, the rest long: kernel `f2fs_acl_size`.
        assert_eq!(named().to_disk().len(), 4 + 4 * 4 + 2 * 8);
    }

    #[test]
    fn lists_out_of_order_or_incomplete_are_refused() {
        assert_eq!(named().valid(), Ok(()));
        assert_eq!(minimal().valid(), Ok(()));
        let mut no_mask = named();
        no_mask.entries.remove(4);
        assert_eq!(no_mask.valid(), Err(AclError::Order(4)));
        let mut swapped = named();
        swapped.entries.swap(0, 1);
        assert!(swapped.valid().is_err());
        let mut cut = minimal();
        cut.entries.pop();
        assert_eq!(cut.valid(), Err(AclError::Order(2)));
        assert!(Acl::default().valid().is_err());
        let mut nobody = named();
        nobody.entries[1].tag = Tag::User(!0);
        assert_eq!(nobody.valid(), Err(AclError::Order(1)));
        let mut twice = minimal();
        twice.entries.push(AclEntry { tag: Tag::Other, perm: 0 });
        assert_eq!(twice.valid(), Err(AclError::Order(3)));
    }

    #[test]
    fn wrong_bytes_name_what_is_wrong() {
        let mut wire = named().to_wire();
        assert_eq!(Acl::from_wire(&wire[..wire.len() - 1]), Err(AclError::Length(51)));
        assert_eq!(Acl::from_wire(&wire[..3]), Err(AclError::Length(3)));
        wire[6] = 8;
        assert_eq!(Acl::from_wire(&wire), Err(AclError::Permissions(8)));
        wire[4] = 3;
        assert_eq!(Acl::from_wire(&wire), Err(AclError::Tag(3)));
        wire[0] = 9;
        assert_eq!(Acl::from_wire(&wire), Err(AclError::Version(9)));
        let disk = named().to_disk();
        assert_eq!(Acl::from_disk(&disk[..14]), Err(AclError::Length(14)));
        assert_eq!(Acl::from_wire(&[]).unwrap(), Acl::default());
    }

    #[test]
    fn the_mask_stands_for_the_group_in_the_mode() {
        assert_eq!(named().equivalent_mode(), (0o761, false));
        assert_eq!(minimal().equivalent_mode(), (0o754, true));
    }

    #[test]
    fn a_default_list_and_the_mode_limit_each_other() {
        let got = inherit(Some(&named()), 0o100_664, 0o077);
        assert_eq!(got.mode, 0o100_660);
        let access = got.access.unwrap();
        assert_eq!(access.to_string(), "u::rw-,u:1000:rw-,g::r-x,g:50:r--,m::rw-,o::---");
        assert_eq!(got.default, None);

        let got = inherit(Some(&named()), 0o040_755, 0);
        assert_eq!((got.mode, got.default), (0o040_741, Some(named())));

        let got = inherit(Some(&minimal()), 0o100_666, 0o077);
        assert_eq!((got.mode, got.access), (0o100_644, None));
        let got = inherit(None, 0o100_666, 0o027);
        assert_eq!(got.mode, 0o100_640);
        assert_eq!(inherit(Some(&named()), 0o120_777, 0o077).mode, 0o120_777);
    }

    #[test]
    fn chmod_writes_owner_group_class_and_other() {
        let mut a = named();
        a.chmod(0o4640);
        assert_eq!(a.to_string(), "u::rw-,u:1000:rw-,g::r-x,g:50:r--,m::r--,o::---");
        let mut a = minimal();
        a.chmod(0o421);
        assert_eq!(a.equivalent_mode(), (0o421, true));
    }
}
