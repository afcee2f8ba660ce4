//! Does setting an access ACL take the file's sgid bit away?
//!
//! It does if the caller is neither privileged nor in the file's group. The kernel passes this on in an extended form
//! of the request (`FUSE_SETXATTR_ACL_KILL_SGID`), which `fuser` 0.18 does not decode; so this module checks it.

use fuser::Request;
use vfs::{FileSystem, Ino, Result};

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
const SGID: u16 = 0o2000;

/// Whether this `setxattr` must also clear sgid.
pub(crate) fn drops_sgid(fs: &dyn FileSystem, req: &Request, ino: Ino, name: &[u8]) -> Result<bool> {
    if name != ACCESS_ACL || req.uid() == 0 {
        return Ok(false);
    }
    let attr = fs.getattr(ino)?;
    Ok(attr.perm & SGID != 0 && attr.gid != req.gid() && !in_group(req.pid(), attr.gid))
}

/// Whether the task has `gid` among its supplementary groups; false if the task has ended.
pub(crate) fn in_group(task: u32, gid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{task}/status")).is_ok_and(|status| listed(&status, gid))
}

fn listed(status: &str, gid: u32) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .is_some_and(|groups| groups.split_whitespace().any(|g| g.parse() == Ok(gid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn supplementary_groups_are_read_from_the_task_status() {
        let status = "Name:\tx\nUid:\t5\t5\t5\t5\nGid:\t6\t6\t6\t6\nGroups:\t4 24 100 \nNStgid:\t7\n";
        assert!(listed(status, 24));
        assert!(!listed(status, 2));
        assert!(!listed(status, 6));
        assert!(!listed("Name:\tx\n", 24));
    }
}
