//! Extended attributes of every size and class, access lists, and every mode bit.

use super::plan_state::Plan;
use super::{ZooOp, fill};

pub(super) fn extended(plan: &mut Plan) {
    plan.mkdir(b"xattr");
    let value = |len: usize, stream: u64| {
        let mut bytes = vec![0; len];
        fill(stream, 0, &mut bytes);
        bytes
    };
    // 200 bytes fit in the inode; the rest goes to a node of its own, of 4072 bytes.
    for len in [0, 1, 3, 4, 100, 150, 160, 170, 176, 177, 200, 255, 256, 1000, 3000, 3500] {
        let path = format!("xattr/value-{len}").into_bytes();
        plan.file(&path, 100);
        plan.set_xattr(&path, "user.v", &value(len, 1));
    }
    let path = b"xattr/many";
    plan.file(path, 5000);
    for n in 0..60 {
        plan.set_xattr(path, &format!("user.number-{n}"), &value(n, 2));
    }
    for n in (0..60).step_by(3) {
        plan.op(ZooOp::RemoveXattr { path: path.to_vec(), name: format!("user.number-{n}") });
    }
    for n in (1..60).step_by(3) {
        plan.set_xattr(path, &format!("user.number-{n}"), &value(60 - n, 3));
    }
    let path = b"xattr/none-left";
    plan.create(path);
    plan.set_xattr(path, "user.big", &value(2000, 4));
    plan.op(ZooOp::RemoveXattr { path: path.to_vec(), name: "user.big".into() });
    let path = b"xattr/long-name";
    plan.create(path);
    plan.set_xattr(path, &format!("user.{}", "n".repeat(250)), b"long");
    let path = b"xattr/classes";
    plan.file(path, 3000);
    for name in ["user.zoo", "trusted.zoo", "security.zoo"] {
        plan.set_xattr(path, name, name.as_bytes());
    }
    plan.mkdir(b"xattr/directory");
    plan.set_xattr(b"xattr/directory", "user.on-a-directory", b"yes");
    plan.set_xattr(b"xattr/directory", "trusted.large", &value(1500, 5));
    plan.symlink(b"xattr/symlink", b"classes");
    plan.set_xattr(b"xattr/symlink", "trusted.on-a-symlink", b"yes");
    // Attributes added after the contents have used the space of inline attributes.
    let path = b"xattr/inline-contents-first";
    plan.file(path, 3488);
    plan.set_xattr(path, "user.later", &value(300, 6));
    plan.write(path, 3480, 100);
}

/// An access list in the format of `system.posix_acl_*`: version 2, then tag, permissions, id for each entry.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(perm.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;
const NO_ID: u32 = u32::MAX;

pub(super) fn access_lists(plan: &mut Plan) {
    plan.mkdir(b"acl");
    let path = b"acl/file";
    plan.file(path, 10);
    let list = acl(&[
        (OWNER, 6, NO_ID),
        (USER, 4, 1000),
        (USER, 6, 1001),
        (OWNING_GROUP, 4, NO_ID),
        (GROUP, 5, 2000),
        (MASK, 7, NO_ID),
        (OTHERS, 0, NO_ID),
    ]);
    // The mask becomes the group bits of the mode: 0670.
    plan.set_xattr(path, "system.posix_acl_access", &list);
    let path = b"acl/then-chmod";
    plan.file(path, 10);
    plan.set_xattr(path, "system.posix_acl_access", &list);
    plan.op(ZooOp::Chmod { path: path.to_vec(), perm: 0o640 });
    let path = b"acl/no-more-than-a-mode";
    plan.file(path, 10);
    let small = acl(&[(OWNER, 6, NO_ID), (OWNING_GROUP, 4, NO_ID), (OTHERS, 0, NO_ID)]);
    plan.set_xattr(path, "system.posix_acl_access", &small);
    let path = b"acl/default";
    plan.mkdir(path);
    let default =
        acl(&[(OWNER, 7, NO_ID), (USER, 5, 1000), (OWNING_GROUP, 5, NO_ID), (MASK, 5, NO_ID), (OTHERS, 1, NO_ID)]);
    plan.set_xattr(path, "system.posix_acl_default", &default);
    plan.create(b"acl/default/file-that-inherits");
    plan.mkdir(b"acl/default/directory-that-inherits");
    plan.symlink(b"acl/default/symlink", b"x");
}

pub(super) fn modes_and_owners(plan: &mut Plan) {
    plan.mkdir(b"modes");
    for perm in [0, 0o777, 0o4755, 0o2755, 0o6711, 0o1644, 0o7777, 0o400] {
        let file = format!("modes/file-{perm:o}").into_bytes();
        plan.file(&file, 1);
        let directory = format!("modes/directory-{perm:o}").into_bytes();
        plan.mkdir(&directory);
        for path in [file, directory] {
            plan.op(ZooOp::Chown { path: path.clone(), uid: 1000, gid: 100 });
            plan.op(ZooOp::Chmod { path, perm });
        }
    }
    plan.symlink(b"modes/symlink", b"file-777");
    plan.op(ZooOp::Chown { path: b"modes/symlink".to_vec(), uid: 7, gid: 8 });
    let path = b"modes/large-ids".to_vec();
    plan.file(&path, 1);
    plan.op(ZooOp::Chown { path, uid: 0xffff_fffe, gid: 0x8000_0001 });
    // A file created in a set-group-id directory gets its group; directories inherit the bit.
    plan.file(b"modes/directory-2755/file", 1);
    plan.mkdir(b"modes/directory-2755/directory");
    plan.mkdir(b"modes/directory-2755/directory/directory");
}
