//! How are names created, moved and removed?
//!
//! Everything here holds the lock of the name tree, and then inode locks one at a time.

use std::sync::Arc;

use vfs::{Caller, DeviceNumber, Entry, Error, FileKind, FileSystem, Ino, NewNode, RenameFlags, Result};

use super::node::{Body, Node};
use super::{MemFs, NAME_MAX, ROOT};

impl MemFs {
    /// Creates an inode and its name. Takes a reference.
    pub(super) fn make(&self, caller: Caller, parent: Ino, name: &[u8], new: &NewNode, body: Body) -> Result<Entry> {
        check_name(name)?;
        let _tree = self.tree.lock();
        let parent = self.node(parent)?;
        let (parent_perm, parent_gid) = {
            let state = parent.state.read();
            if state.directory()?.get(name).is_some() {
                return Err(Error::Exists);
            }
            // A removed directory that is still in use.
            if state.nlink == 0 {
                return Err(Error::NotFound);
            }
            (state.perm, state.gid)
        };
        let inherits = parent_perm & 0o2000 != 0;
        let is_dir = new.kind == FileKind::Directory;
        let mut new = *new;
        if inherits && is_dir {
            new.perm |= 0o2000;
        }
        let owner = Caller { uid: caller.uid, gid: if inherits { parent_gid } else { caller.gid } };
        let node = self.new_node(owner, &new, if is_dir { 2 } else { 1 }, body);
        let mut state = parent.state.write();
        state.directory_mut()?.insert(name, node.ino, new.kind);
        state.nlink += u32::from(is_dir);
        state.modified(self.now());
        drop(state);
        Ok(Entry { attr: node.attr() })
    }

    /// Removes one name of an inode; a directory loses all.
    fn drop_link(&self, node: &Node) {
        {
            let mut state = node.state.write();
            state.nlink = if node.kind == FileKind::Directory { 0 } else { state.nlink.saturating_sub(1) };
            state.changed(self.now());
        }
        self.reap(node);
    }

    pub(super) fn remove(&self, parent: Ino, name: &[u8], directory: bool) -> Result<()> {
        check_name(name)?;
        let _tree = self.tree.lock();
        let parent = self.node(parent)?;
        let node = self.child(&parent, name)?;
        match (directory, node.kind == FileKind::Directory) {
            (true, false) => return Err(Error::NotDirectory),
            (false, true) => return Err(Error::IsDirectory),
            (true, true) if !node.state.read().directory()?.is_empty() => {
                return Err(Error::NotEmpty);
            }
            _ => {}
        }
        {
            let mut state = parent.state.write();
            state.directory_mut()?.remove(name);
            state.nlink -= u32::from(directory);
            state.modified(self.now());
        }
        self.drop_link(&node);
        Ok(())
    }

    pub(super) fn child(&self, parent: &Node, name: &[u8]) -> Result<Arc<Node>> {
        let ino = parent.state.read().directory()?.get(name).ok_or(Error::NotFound)?;
        self.node(ino)
    }

    /// True if `ino` is `under` or below it.
    fn is_below(&self, ino: Ino, under: Ino) -> Result<bool> {
        let mut at = ino;
        loop {
            if at == under {
                return Ok(true);
            }
            if at == ROOT {
                return Ok(false);
            }
            at = self.node(at)?.state.read().directory()?.parent;
        }
    }

    /// Replaces or creates the name in `parent`, and updates the parent's subdirectory count and the moved directory's
    /// `..`.
    fn put(&self, parent: &Node, name: &[u8], node: &Node, replaced: Option<&Node>) -> Result<()> {
        let is_dir = node.kind == FileKind::Directory;
        let was_dir = replaced.is_some_and(|n| n.kind == FileKind::Directory);
        let now = self.now();
        {
            let mut state = parent.state.write();
            state.directory_mut()?.insert(name, node.ino, node.kind);
            state.nlink = state.nlink + u32::from(is_dir) - u32::from(was_dir);
            state.modified(now);
        }
        let mut state = node.state.write();
        state.changed(now);
        if is_dir {
            state.directory_mut()?.parent = parent.ino;
        }
        Ok(())
    }

    fn take_away(&self, parent: &Node, name: &[u8], node: &Node) -> Result<()> {
        let mut state = parent.state.write();
        state.directory_mut()?.remove(name);
        state.nlink -= u32::from(node.kind == FileKind::Directory);
        state.modified(self.now());
        Ok(())
    }

    pub(super) fn move_name(
        &self,
        caller: Caller,
        (from_ino, from_name): (Ino, &[u8]),
        (to_ino, to_name): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<()> {
        check_name(from_name)?;
        check_name(to_name)?;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags.intersects(RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT) {
            return Err(Error::Invalid("rename flags that contradict each other"));
        }
        let tree = self.tree.lock();
        let (from, to) = (self.node(from_ino)?, self.node(to_ino)?);
        let node = self.child(&from, from_name)?;
        let target = match self.child(&to, to_name) {
            Ok(target) => Some(target),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        if node.kind == FileKind::Directory && self.is_below(to_ino, node.ino)? {
            return Err(Error::Invalid("a directory into itself"));
        }
        if to.state.read().nlink == 0 {
            return Err(Error::NotFound);
        }
        if exchange {
            let target = target.ok_or(Error::NotFound)?;
            if target.kind == FileKind::Directory && self.is_below(from_ino, target.ino)? {
                return Err(Error::Invalid("a directory into itself"));
            }
            self.put(&from, from_name, &target, Some(&node))?;
            return self.put(&to, to_name, &node, Some(&target));
        }
        if let Some(target) = &target {
            if flags.contains(RenameFlags::NO_REPLACE) {
                return Err(Error::Exists);
            }
            if target.ino == node.ino {
                return Ok(());
            }
            match (node.kind == FileKind::Directory, target.kind == FileKind::Directory) {
                (true, false) => return Err(Error::NotDirectory),
                (false, true) => return Err(Error::IsDirectory),
                (true, true) if !target.state.read().directory()?.is_empty() => {
                    return Err(Error::NotEmpty);
                }
                _ => {}
            }
        }
        self.take_away(&from, from_name, &node)?;
        self.put(&to, to_name, &node, target.as_deref())?;
        if let Some(target) = target {
            self.drop_link(&target);
        }
        drop(tree);
        if flags.contains(RenameFlags::WHITEOUT) {
            let new = NewNode { kind: FileKind::CharDevice, perm: 0, umask: 0, rdev: DeviceNumber::default() };
            let entry = self.mknod(caller, from_ino, from_name, &new)?;
            self.forget(entry.attr.ino, 1);
        }
        Ok(())
    }
}

pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] => Err(Error::NotFound),
        b"." | b".." => Err(Error::Invalid("a name made of dots")),
        _ if name.len() > NAME_MAX => Err(Error::NameTooLong),
        _ if name.iter().any(|b| matches!(b, b'/' | 0)) => Err(Error::Invalid("a slash or a zero in a name")),
        _ => Ok(()),
    }
}
