//! Which changes of a file clear its suid and sgid bits, and how does the kernel learn of it?
//!
//! Contents that an unprivileged user changed must not run as the file's owner. With `FUSE_HANDLE_KILLPRIV_V2` the
//! kernel leaves clearing the bits to us, but keeps using its cached mode: it would still see a set-uid file. So an
//! operation that clears bits here also declares the attributes stale before it answers: a program that sees its write
//! succeed can never run the file with the old mode.
//!
//! The serving thread itself sends this notice. It does not block: the caller holds the inode, so the inode is not
//! being freed, and invalidating only attributes does not make the kernel write pages back.
//!
//! As in Linux since 6.2, sgid without group execution is cleared if the writer is not in the file's group. The request
//! does not contain the writer's groups.

use fuser::Request;
use vfs::{Attr, Error, Ino, Result, SetAttr};

use crate::acl::in_group;
use crate::attr::SUID;
use crate::operations::Adapter;

const SGID: u16 = 0o2000;
const GROUP_EXECUTION: u16 = 0o0010;

/// Whether every unprivileged writer clears bits of `perm`.
fn is_set_id(perm: u16) -> bool {
    perm & SUID != 0 || perm & (SGID | GROUP_EXECUTION) == SGID | GROUP_EXECUTION
}

/// Whether sgid is set without group execution.
fn is_sgid_alone(perm: u16) -> bool {
    perm & (SGID | GROUP_EXECUTION) == SGID
}

impl Adapter {
    /// The file's permissions without sgid, if it is set without group execution and the caller is not in the group.
    pub(crate) fn without_sgid(&self, req: &Request, attr: &Attr) -> Option<u16> {
        let stranger = is_sgid_alone(attr.perm) && attr.gid != req.gid() && !in_group(req.pid(), attr.gid);
        stranger.then_some(attr.perm & !SGID)
    }

    /// Runs a change that clears the bits if `clears`, and notifies the kernel if any were set. It does so after a
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
                // Such a file always keeps its bits.
                Ok(_) | Err(Error::NotPermitted(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let result = change();
        if perm.is_some() || is_set_id(attr.perm) {
            // A notice while the kernel reads the mode would make it discard the answer.
            self.notices.admission.forgotten(ino);
            self.notices.attributes_changed(self.numbers.to_fuse(ino));
        }
        result
    }

    /// Steps before `fallocate` changes contents: drop file capabilities, and clear the bits. The request does not
    /// contain whether its caller is privileged; only the super-user counts.
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
