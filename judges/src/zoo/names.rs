//! Directories of every shape, names of every length, and every kind of node.

use super::plan_state::Plan;
use super::{FileKind, RenameFlags, Size, ZooOp};

pub(super) fn directories(plan: &mut Plan, size: Size) {
    plan.mkdir(b"names");
    plan.mkdir(b"names/empty");
    // 182 slots fit into the usual inline directory, two of them are `.` and `..`; without inline attributes 192, with
    // extra fields 180 or 181.
    for count in [1, 177, 178, 179, 180, 181, 190, 191, 213, 300] {
        let dir = format!("names/with-{count}");
        plan.mkdir(dir.as_bytes());
        let first = format!("{dir}/0");
        plan.create(first.as_bytes());
        for entry in 1..count {
            plan.link(first.as_bytes(), format!("{dir}/{entry}").as_bytes());
        }
    }
    plan.mkdir(b"names/long");
    for len in [7_u8, 8, 9, 16, 17, 127, 128, 248, 249, 254, 255] {
        let letter = b'a' + len % 26;
        plan.create(&[b"names/long/".as_slice(), &vec![letter; len.into()]].concat());
        // A name may contain every byte but the slash and zero.
        let wild: Vec<u8> = (0..len).map(|i| i.wrapping_mul(37) | 0x81).collect();
        plan.create(&[b"names/long/".as_slice(), &wild].concat());
    }
    for odd in ["...", "..a", " ", "\n", "\\", "-rf", "ä", "Ä", "文件", "a=b", "*"] {
        plan.create(format!("names/long/{odd}").as_bytes());
    }
    let mut deep = b"names/deep".to_vec();
    plan.mkdir(&deep);
    for level in 0..100 {
        deep.extend_from_slice(format!("/{level}").as_bytes());
        plan.mkdir(&deep);
    }
    deep.extend_from_slice(b"/bottom");
    plan.file(&deep, 77);
    let mut wide = b"names/wide".to_vec();
    plan.mkdir(&wide);
    for letter in b"abcdef" {
        wide.push(b'/');
        wide.extend(vec![*letter; 255]);
        plan.mkdir(&wide);
    }

    // Enough names for several levels of hash buckets. Most are hard links to a few files: a name costs a slot, a file
    // a whole block.
    plan.mkdir(b"names/many");
    let mut file = Vec::new();
    for entry in 0..size.big_directory() {
        let path = format!("names/many/entry-{entry:06}-{:x}", plan.below(1 << 40)).into_bytes();
        if entry % 50 == 0 {
            plan.create(&path);
            file = path;
        } else {
            plan.link(&file, &path);
        }
    }
    // A directory that was large and now has holes.
    plan.mkdir(b"names/thinned");
    plan.create(b"names/thinned/0");
    let count = size.big_directory() / 2;
    for entry in 1..count {
        plan.link(b"names/thinned/0", format!("names/thinned/{entry}").as_bytes());
    }
    for entry in (1..count).filter(|entry| entry % 17 != 0) {
        plan.unlink(format!("names/thinned/{entry}").as_bytes());
    }
    for entry in 0..20 {
        plan.link(b"names/thinned/0", format!("names/thinned/again-{entry}").as_bytes());
    }
}

pub(super) fn links_and_nodes(plan: &mut Plan) {
    plan.mkdir(b"nodes");
    for len in [1_usize, 10, 59, 60, 255, 3451, 3452, 3464, 3487, 3488, 3489, 3688, 4000, 4095] {
        let target: Vec<u8> = (0..len).map(|i| if i % 50 == 49 { b'/' } else { b'x' }).collect();
        plan.symlink(format!("nodes/symlink-{len}").as_bytes(), &target);
    }
    plan.symlink(b"nodes/dangling", b"nowhere/at all");
    plan.symlink(b"nodes/dots", b"../contents/bytes-1");
    plan.link(b"nodes/symlink-60", b"nodes/second-name-of-a-symlink");
    plan.mknod(b"nodes/fifo", FileKind::Fifo, (0, 0));
    plan.mknod(b"nodes/socket", FileKind::Socket, (0, 0));
    let numbers = [(1, 3), (0, 0), (255, 255), (256, 256), (4095, 1_048_575), (8, 65_536)];
    for (major, minor) in numbers {
        let end = format!("{major}-{minor}");
        plan.mknod(format!("nodes/char-{end}").as_bytes(), FileKind::CharDevice, (major, minor));
        plan.mknod(format!("nodes/block-{end}").as_bytes(), FileKind::BlockDevice, (major, minor));
    }
    plan.link(b"nodes/fifo", b"nodes/second-name-of-a-fifo");
    plan.file(b"nodes/three-names", 5000);
    plan.link(b"nodes/three-names", b"nodes/three-names-2");
    plan.link(b"nodes/three-names", b"names/three-names-3");
    plan.op(ZooOp::Fsync { path: b"nodes/three-names-2".to_vec() });
    plan.write(b"names/three-names-3", 4000, 2000);
}

pub(super) fn moved_and_deleted(plan: &mut Plan) {
    let plain = RenameFlags::empty();
    plan.mkdir(b"moved");
    for dir in ["a", "b", "c", "gone"] {
        plan.mkdir(format!("moved/{dir}").as_bytes());
    }
    for file in 0..40 {
        plan.file(format!("moved/a/{file}").as_bytes(), 10 + file * 300);
    }
    for file in 0..10 {
        plan.rename(format!("moved/a/{file}").as_bytes(), format!("moved/b/was-{file}").as_bytes(), plain);
    }
    // Over another file, which is deleted.
    plan.rename(b"moved/a/10", b"moved/a/11", plain);
    // Over one name of a file with two.
    plan.link(b"moved/a/12", b"moved/b/twelve");
    plan.rename(b"moved/a/13", b"moved/a/12", plain);
    plan.rename(b"moved/a/14", b"moved/a/renamed-in-place", RenameFlags::NO_REPLACE);
    plan.rename(b"moved/a/15", b"moved/b/was-3", RenameFlags::EXCHANGE);
    plan.rename(b"moved/a/16", b"moved/b/left-a-whiteout", RenameFlags::WHITEOUT);
    plan.op(ZooOp::Fsync { path: b"moved/b/was-4".to_vec() });
    // Directories: to another parent (`..` changes), over an empty one, exchanged with a file.
    plan.mkdir(b"moved/c/below");
    plan.file(b"moved/c/below/file", 100);
    plan.rename(b"moved/c", b"moved/b/c", plain);
    plan.mkdir(b"moved/target");
    plan.rename(b"moved/b/c/below", b"moved/target", plain);
    plan.mkdir(b"moved/directory");
    plan.create(b"moved/directory/inside");
    plan.rename(b"moved/directory", b"moved/a/17", RenameFlags::EXCHANGE);
    plan.mkdir(b"moved/gone/deeper");
    for file in 20..30 {
        plan.unlink(format!("moved/a/{file}").as_bytes());
    }
    plan.rmdir(b"moved/gone/deeper");
    plan.rmdir(b"moved/gone");
    for round in 0..3 {
        for file in 0..30 {
            plan.file(format!("moved/short-lived-{file}").as_bytes(), 5000 * round);
        }
        for file in 0..30 {
            plan.unlink(format!("moved/short-lived-{file}").as_bytes());
        }
    }
}
