//! Which changes of a file take its suid and sgid bits away, and how does the kernel learn of it?
//!
//! Contents that an unprivileged user changed must not run as the file's owner. With
//! `FUSE_HANDLE_KILLPRIV_V2` the kernel leaves clearing the bits to us, and goes on believing the mode
//! it has cached: to it, the file would stay set-uid. So an operation that clears bits here also declares the
//! attributes stale, before the request is answered: a program that sees its write succeed can never
//! run the file with the old mode.
//!
//! The notice is sent by the thread that serves the request. That waits for nobody: the caller holds
//! the inode, so that it is not being freed, and attributes alone do not make the kernel write pages back.
//!
//! Left out: sgid without group execution, which Linux takes from writers outside the group. It gives
//! nobody anything.

use fuser::Request;
use vfs::{Ino, Result, SetAttr};

use crate::operations::Adapter;

/// Whether bits of `perm` would be cleared.
fn is_set_id(perm: u16) -> bool {
    const SUID: u16 = 0o4000;
    const SGID_WITH_EXECUTION: u16 = 0o2010;
    perm & SUID != 0 || perm & SGID_WITH_EXECUTION == SGID_WITH_EXECUTION
}

impl Adapter {
    fn has_set_id(&self, ino: Ino) -> Result<bool> {
        Ok(is_set_id(self.fs.getattr(ino)?.perm))
    }

    /// Does what clears the bits if `clears`, and tells the kernel if there were any. It is told after a
    /// failure too: part of the change may have been made.
    pub(crate) fn clearing<T>(&self, ino: Ino, clears: bool, change: impl FnOnce() -> Result<T>) -> Result<T> {
        let had = clears && self.has_set_id(ino)?;
        let result = change();
        if had {
            self.notices.attributes_changed(self.numbers.to_fuse(ino));
        }
        result
    }

    /// What goes before `fallocate` changes contents: file capabilities, and the bits. The request does not
    /// say whether its caller is privileged; the super-user is the one who is.
    pub(crate) fn before_fallocate(&self, req: &Request, ino: Ino) -> Result<()> {
        self.capabilities.drop_from(&*self.fs, ino)?;
        if req.uid() != 0 && self.has_set_id(ino)? {
            let set = SetAttr { kill_suid_sgid: true, ..SetAttr::default() };
            self.clearing(ino, true, || self.fs.setattr(ino, &set))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sgid_counts_only_with_group_execution() {
        for (perm, expected) in [(0o755, false), (0o2745, false), (0o2755, true), (0o4644, true), (0o1777, false)] {
            assert_eq!(is_set_id(perm), expected, "{perm:o}");
        }
    }
}
