//! Does the checkpoint have a file under the name that its inode records?
//!
//! An inode that was renamed, or had several names, is marked (`LOST_PINO`): roll-forward must not rely on its parent
//! and name, and each fsync of it is a checkpoint. Within a mount, `renamed` and `vouched` show when that ends. For an
//! inode marked before the mount this is unknown, so its directory is searched. When a file replaces another, Linux
//! writes an inode that still records the old name; in this case the name counts under which it was looked up.
//!
//! *Claim*: an inode vouched for here has its name, and no other, in the checkpoint. Its directory points to it now, so
//! do the checkpoint and the chain according to the account of names ([`crate::promises::replayed`]), and it has one
//! link. All of this is checked under the directory's lock. A thread that moves the name takes this lock and then
//! enters the inode in `renamed`; a thread that removes the name, or adds another, removes the inode from `vouched`.

use vfs::FileKind;

use crate::context::Change;
use crate::error::Result;
use crate::inode::Inode;
use crate::names::check_name;
use crate::promises::{Sighting, is_unsure};
use crate::volume::Volume;

impl Volume {
    /// Vouches for a marked inode's place if the checkpoint has it. The caller holds no lock of an inode.
    pub(super) fn confirm_place(&self, _change: &Change<'_>, inode: &Inode) {
        let ino = inode.ino;
        let unsure = inode.node.inode(|r| is_unsure(r).then(|| Sighting::recorded(r)));
        let Some(recorded) = unsure else { return };
        if self.is_new(ino)
            || self.promises.renamed.lock().contains(&ino)
            || self.promises.vouched.lock().contains(&ino)
        {
            return;
        }
        let seen = self.promises.sighting(ino);
        for place in [Some(recorded), seen].into_iter().flatten() {
            match self.confirm(inode, &place) {
                Ok(true) => return,
                Ok(false) => {}
                // The fsync then writes a checkpoint.
                Err(e) => log::debug!("inode {ino}: cannot read its directory {}: {e}", place.dir),
            }
        }
    }

    /// Vouches for an inode if this is its place both now and in the checkpoint.
    fn confirm(&self, inode: &Inode, place: &Sighting) -> Result<bool> {
        check_name(&place.name)?;
        let dir = self.inodes.inode(place.dir)?;
        if dir.kind != FileKind::Directory {
            return Ok(false);
        }
        let mut content = dir.content.write();
        let spelled = (&*place.name, self.names.naming(&dir).hash(&place.name));
        let is_there = self.names.find_exact(&dir, &mut content, spelled)?.is_some_and(|f| f.ino == inode.ino);
        let is_durable = self.promises.names.lock().is_untouched(dir.ino, &place.name);
        if !is_there || !is_durable || !inode.node.inode(is_unsure) {
            return Ok(false);
        }
        if inode.node.inode(Sighting::recorded) != *place {
            self.names.set_place(inode, &dir, &place.name);
        }
        self.promises.vouch_for_place(inode.ino);
        Ok(true)
    }
}
