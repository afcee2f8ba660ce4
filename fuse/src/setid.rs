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
//! Sgid without group execution goes, as in Linux since 6.2, if the writer is not in the file's group; which the
//! request does not say.

use fuser::Request;
use vfs::{Attr, Error, Ino, Result, SetAttr};

use crate::acl::in_group;
use crate::attr::SUID;
use crate::operations::Adapter;

const SGID: u16 = 0o2000;
const GROUP_EXECUTION: u16 = 0o0010;

/// Whether bits of `perm` are cleared for every unprivileged writer.
fn is_set_id(perm: u16) -> bool {
    perm & SUID != 0 || perm & (SGID | GROUP_EXECUTION) == SGID | GROUP_EXECUTION
}

/// Whether sgid, if it is there, does not come with group execution.
fn is_sgid_alone(perm: u16) -> bool {
    perm & (SGID | GROUP_EXECUTION) == SGID
}

impl Adapter {
    /// What is left of a file's permissions if sgid without group execution goes, because the caller is not in the group.
    pub(crate) fn without_sgid(&self, req: &Request, attr: &Attr) -> Option<u16> {
        let stranger = is_sgid_alone(attr.perm) && attr.gid != req.gid() && !in_group(req.pid(), attr.gid);
        stranger.then_some(attr.perm & !SGID)
    }

    /// Does what clears the bits if `clears`, and tells the kernel if there were any. It is told after a
    /// failure too: part of the change may have been made.
    pub(crate) fn clearing<T>(
        &self,
        req: &Request,
        ino: Ino,
        clears: bool,
        change: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        if !clears {
            return change();
        }
        let attr = self.fs.getattr(ino)?;
        let perm = self.without_sgid(req, &attr);
        if perm.is_some() {
            match self.fs.setattr(ino, &SetAttr { perm, ..SetAttr::default() }) {
                // Such a file keeps its bits for good.
                Ok(_) | Err(Error::NotPermitted(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let result = change();
        if perm.is_some() || is_set_id(attr.perm) {
            // A notice that comes while the kernel asks for the mode would make it drop the answer.
            self.notices.admission.forgotten(ino);
            self.notices.attributes_changed(self.numbers.to_fuse(ino));
        }
        result
    }

    /// What goes before `fallocate` changes contents: file capabilities, and the bits. The request does not
    /// say whether its caller is privileged; the super-user is the one who is.
    pub(crate) fn before_fallocate(&self, req: &Request, ino: Ino) -> Result<()> {
        self.capabilities.drop_from(&*self.fs, ino)?;
        if req.uid() == 0 {
            return Ok(());
        }
        self.clearing(req, ino, true, || {
            if is_set_id(self.fs.getattr(ino)?.perm) {
                let set = SetAttr { kill_suid_sgid: true, ..SetAttr::default() };
                self.fs.setattr(ino, &set)?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sgid_without_group_execution_is_a_matter_of_its_own() {
        let cases = [(0o755, false, false), (0o2745, false, true), (0o2755, true, false), (0o4644, true, false)];
        for (perm, set_id, alone) in cases.into_iter().chain([(0o1777, false, false), (0o6666, true, true)]) {
            assert_eq!((is_set_id(perm), is_sgid_alone(perm)), (set_id, alone), "{perm:o}");
        }
    }
}
