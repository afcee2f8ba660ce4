//! How are names added to and removed from directories, and where do files without a name go?

use format::dentry::{self, Layout};
use format::inode::{Inline, RawInode};
use format::nat::NatEntry;
use format::node::{self, Footer};
use format::{BLOCK, BlockAddr, Ino, bits};

use super::RepairError;
use super::edit::Editor;
use crate::FsckError;
use crate::hashes::Hashing;
use crate::kind::{DIR, kind_of};
use crate::report::{Area, DentryPlace};

/// Name of the directory for inodes whose name is lost.
pub const LOST_FOUND: &[u8] = b"lost+found";

/// A found entry.
pub struct Found {
    pub place: DentryPlace,
    pub ino: Ino,
}

impl Editor<'_, '_> {
    /// Every area with bytes in a directory.
    pub fn areas(&self, dir: Ino) -> Result<Vec<Area>, FsckError> {
        let Some(block) = self.peek(dir.nid())? else { return Ok(Vec::new()) };
        let raw = RawInode::of(&block);
        if raw.inline().contains(Inline::DENTRY) {
            return Ok(vec![Area::Inline]);
        }
        let blocks = raw.i_size.get().div_ceil(BLOCK as u64);
        let mut areas = Vec::new();
        // Bound the loop if the size is invalid: no directory has more blocks than its volume.
        for index in 0..blocks.min(self.img.cp.user_blocks) {
            match self.slot(dir, index)? {
                Some((_, addr)) if addr.is_real() => areas.push(Area::Block(index)),
                _ if self.data.contains_key(&(dir, index)) => areas.push(Area::Block(index)),
                _ => {}
            }
        }
        Ok(areas)
    }

    /// How a directory hashes names.
    pub fn hashing(&self, dir: Ino) -> Result<Hashing, FsckError> {
        let block = self.peek(dir.nid())?;
        Ok(block.map_or(Hashing::Bytes, |b| Hashing::for_dir(RawInode::of(&b), self.img.sb.features)))
    }

    /// Looks a name up through all of a directory's blocks.
    pub fn find(&self, dir: Ino, name: &[u8]) -> Result<Option<Found>, FsckError> {
        let hashing = self.hashing(dir)?;
        let (same, hash) = (hashing.same(name), hashing.hash(name));
        // Folding every entry for every lookup is slow; equal names have equal hashes.
        let sought = |d: &dentry::Dentry<'_>| d.name == name || (hash == Some(d.hash) && same(d.name));
        for area in self.areas(dir)? {
            let Some((layout, bytes)) = self.area(dir, area)? else { continue };
            if let Some(d) = dentry::entries(&layout, &bytes, 0).find(&sought) {
                let place = DentryPlace { dir, area, slot: d.slot };
                return Ok(Some(Found { place, ino: Ino(d.ino) }));
            }
        }
        Ok(None)
    }

    /// Removes the entry at a place. True if there was one.
    pub fn remove_entry(&mut self, place: DentryPlace) -> Result<bool, FsckError> {
        let mut gone = false;
        self.change_area(place.dir, place.area, |layout, bytes| {
            gone = dentry::at(layout, bytes, place.slot).is_some();
            if gone {
                dentry::remove(layout, bytes, place.slot);
            } else {
                bits::lsb_put(bytes, place.slot, false);
            }
        })?;
        Ok(gone)
    }

    /// Adds a name to a directory under the given hash. False if there is no room without new nodes.
    pub fn insert(&mut self, dir: Ino, name: &[u8], hash: u32, ino: Ino, kind: u8) -> Result<bool, FsckError> {
        let Some(block) = self.peek(dir.nid())? else { return Ok(false) };
        let raw = RawInode::of(&block);
        let slots = dentry::slots_for(name.len());
        if raw.inline().contains(Inline::DENTRY) {
            return self.insert_at(dir, Area::Inline, slots, name, hash, ino, kind);
        }
        for level in 0..dentry::MAX_DEPTH {
            for index in dentry::bucket(level, raw.i_dir_level, hash) {
                let Some((_, addr)) = self.slot(dir, index)? else { return Ok(false) };
                if !addr.is_real() && !self.data.contains_key(&(dir, index)) {
                    self.data.insert((dir, index), Box::new([0; BLOCK]));
                }
                if self.insert_at(dir, Area::Block(index), slots, name, hash, ino, kind)? {
                    let size = (index + 1) * BLOCK as u64;
                    return self.inode(dir, |raw| {
                        raw.i_size = raw.i_size.get().max(size).into();
                        raw.i_current_depth = raw.i_current_depth.get().max(level + 1).into();
                    });
                }
            }
        }
        Ok(false)
    }

    #[allow(clippy::too_many_arguments)] // the fields of an entry
    fn insert_at(
        &mut self,
        dir: Ino,
        area: Area,
        slots: usize,
        name: &[u8],
        hash: u32,
        ino: Ino,
        kind: u8,
    ) -> Result<bool, FsckError> {
        let Some((layout, bytes)) = self.area(dir, area)? else { return Ok(false) };
        let Some(slot) = dentry::free_run(&layout, &bytes, slots) else { return Ok(false) };
        self.change_area(dir, area, |layout, bytes| {
            dentry::insert(layout, bytes, slot, name, hash, ino.0, kind);
        })
    }

    /// Gives an inode the name `#<ino>` in lost+found, which is created if missing.
    pub fn adopt(&mut self, ino: Ino, kind: u8) -> Result<(), RepairError> {
        let home = self.lost_found()?;
        let name = format!("#{ino}");
        if self.find(home, name.as_bytes())?.is_some() {
            return Err(RepairError::LostFoundFull);
        }
        let hash = self.hashing(home)?.hash(name.as_bytes()).ok_or(RepairError::LostFoundFull)?;
        if !self.insert(home, name.as_bytes(), hash, ino, kind)? {
            return Err(RepairError::LostFoundFull);
        }
        self.set_parent(ino, home, name.as_bytes())?;
        Ok(())
    }

    /// Records a new parent and name in an inode, and the parent in a directory's `..`.
    pub fn set_parent(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> Result<(), FsckError> {
        let mut is_dir = false;
        self.inode(ino, |raw| {
            raw.i_pino = parent.0.into();
            let len = name.len().min(raw.i_name.len());
            raw.i_namelen = (len as u32).into();
            raw.i_name.fill(0);
            raw.i_name[..len].copy_from_slice(&name[..len]);
            is_dir = kind_of(raw.i_mode.get()) == Some(DIR);
        })?;
        if is_dir && let Some(dots) = self.find(ino, b"..")? {
            let DentryPlace { dir, area, slot } = dots.place;
            self.change_area(dir, area, |l, bytes| dentry::redirect(l, bytes, slot, parent.0, DIR))?;
        }
        Ok(())
    }

    fn lost_found(&mut self) -> Result<Ino, RepairError> {
        let root = self.img.sb.root;
        if let Some(found) = self.find(root, LOST_FOUND)? {
            let mode = self.peek(found.ino.nid())?.map(|b| RawInode::of(&b).i_mode.get());
            return match mode.and_then(kind_of) {
                Some(DIR) => Ok(found.ino),
                _ => Err(RepairError::LostFoundFull),
            };
        }
        let nid = self.free_nid()?.ok_or(RepairError::NoSpace)?;
        let ino = nid.as_ino();
        let (Some(mut block), Some(division)) = (self.peek(root.nid())?, self.division(root)?) else {
            return Err(RepairError::LostFoundFull);
        };
        // Like the root, except for its own fields.
        let xattrs = division.xattr_area();
        block[xattrs].fill(0);
        let raw = RawInode::of_mut(&mut block);
        let inline = raw.inline() & (Inline::XATTR | Inline::EXTRA_ATTR);
        raw.i_inline = inline.bits();
        raw.i_mode = 0o040_700.into();
        raw.i_advise = 0;
        raw.i_links = 2.into();
        raw.i_size = (BLOCK as u64).into();
        raw.i_blocks = 2.into();
        raw.i_current_depth = 1.into();
        raw.i_xattr_nid = 0.into();
        raw.i_flags = 0.into();
        raw.i_dir_level = 0;
        raw.forget_extent();
        for slot in 0..division.direct_slots() {
            raw.set_addr(division, slot, BlockAddr::NULL);
        }
        raw.i_nid = [0.into(); 5];
        let version = self.entry(nid)?.version;
        let footer = Footer { nid, ino, cold: false, offset: 0, ..node::footer(&block) };
        node::set_footer(&mut block, &footer);
        self.nodes.insert(nid, block);
        self.nat.insert(nid, NatEntry { version, ino, addr: BlockAddr::NULL });
        let mut first = Box::new([0; BLOCK]);
        dentry::insert(&Layout::BLOCK, &mut first[..], 0, b".", 0, ino.0, DIR);
        dentry::insert(&Layout::BLOCK, &mut first[..], 1, b"..", 0, root.0, DIR);
        self.data.insert((ino, 0), first);
        let hash = self.hashing(root)?.hash(LOST_FOUND).ok_or(RepairError::LostFoundFull)?;
        if !self.insert(root, LOST_FOUND, hash, ino, DIR)? {
            return Err(RepairError::LostFoundFull);
        }
        self.set_parent(ino, root, LOST_FOUND)?;
        Ok(ino)
    }
}
