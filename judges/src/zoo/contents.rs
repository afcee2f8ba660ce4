//! Files for every way in which F2FS maps contents: inline, by the inode's own slots, by direct, indirect and double
//! indirect nodes, and at each boundary between them.

use super::plan_state::Plan;
use super::{Size, ZooOp};

const BLOCK: u64 = 4096;

/// Inode slots for block addresses: all 923, less 50 for inline attributes (the kernel's default), less 6 or 9 for
/// extra fields (24 or 36 bytes).
const SLOTS: [u64; 6] = [923, 873, 917, 914, 867, 864];
/// Addresses in a direct node, and node numbers in an indirect one.
const PER_NODE: u64 = 1018;

/// The largest inline contents under those layouts: four bytes per slot, with one slot reserved.
fn inline_limits() -> [usize; 6] {
    SLOTS.map(|slots| usize::try_from((slots - 1) * 4).unwrap_or(0))
}

fn name(directory: &str, what: impl std::fmt::Display) -> Vec<u8> {
    format!("{directory}/{what}").into_bytes()
}

pub(super) fn every_mapping(plan: &mut Plan, size: Size) {
    let dir = "contents";
    plan.mkdir(dir.as_bytes());
    let mut lengths = vec![0, 1, 2, 4095, 4096, 4097, 8192, 100_000];
    for limit in inline_limits() {
        lengths.extend([limit - 1, limit, limit + 1]);
    }
    lengths.sort_unstable();
    lengths.dedup();
    for len in lengths {
        plan.file(&name(dir, format_args!("bytes-{len}")), len);
    }
    // Fully written up to the first direct node, for the largest and the usual number of slots.
    for slots in [923, 873] {
        for len in [slots * BLOCK - 1, slots * BLOCK, slots * BLOCK + 1] {
            let path = name(dir, format_args!("slots-{slots}-bytes-{len}"));
            plan.file(&path, usize::try_from(len).unwrap_or(0));
        }
    }
    plan.file(&name(dir, "dense"), size.longest_dense_file());
    // All-zero contents, inline and in blocks, are not holes.
    for len in [100, 20_000] {
        let path = name(dir, format_args!("reserved-{len}"));
        plan.create(&path);
        plan.op(ZooOp::Reserve { path, offset: 0, len, keep_size: false });
    }
}

pub(super) fn sparse(plan: &mut Plan) {
    let dir = "sparse";
    plan.mkdir(dir.as_bytes());
    for slots in [923, 873] {
        // The ends of the inode, of the two direct and the two indirect nodes, and of the double indirect node's first
        // child.
        let ends = [
            slots,
            slots + PER_NODE,
            slots + 2 * PER_NODE,
            slots + 2 * PER_NODE + PER_NODE,
            slots + 2 * PER_NODE + PER_NODE * PER_NODE,
            slots + 2 * PER_NODE + 2 * PER_NODE * PER_NODE,
            slots + 2 * PER_NODE + 3 * PER_NODE * PER_NODE,
        ];
        for (level, block) in ends.into_iter().enumerate() {
            let path = name(dir, format_args!("boundary-{slots}-{level}"));
            plan.create(&path);
            // The last byte before, and the first after: two nodes of different depth.
            plan.write(&path, block * BLOCK - 1, 2);
        }
        let path = name(dir, format_args!("all-levels-{slots}"));
        plan.create(&path);
        for block in ends {
            plan.write(&path, block * BLOCK - 100, 5000);
        }
    }
    let path = name(dir, "only-a-size");
    plan.create(&path);
    plan.op(ZooOp::Truncate { path, size: 1 << 40 });
    let path = name(dir, "hole-first");
    plan.create(&path);
    plan.write(&path, 1_000_000, 10);
    let path = name(dir, "every-other-block");
    plan.create(&path);
    for block in 0..60 {
        plan.write(&path, block * 2 * BLOCK, 4096);
    }
    let path = name(dir, "reserved-beyond-the-end");
    plan.file(&path, 10);
    plan.op(ZooOp::Reserve { path, offset: 0, len: 1 << 20, keep_size: true });
}

pub(super) fn rewritten(plan: &mut Plan) {
    let dir = "rewritten";
    plan.mkdir(dir.as_bytes());
    let path = name(dir, "shorter-then-longer");
    plan.file(&path, 3 * 4096);
    plan.op(ZooOp::Truncate { path: path.clone(), size: 5000 });
    plan.op(ZooOp::Truncate { path, size: 20_000 });
    let path = name(dir, "inline-shorter-then-longer");
    plan.file(&path, 3000);
    plan.op(ZooOp::Truncate { path: path.clone(), size: 7 });
    plan.op(ZooOp::Truncate { path, size: 2000 });
    let path = name(dir, "grew-out-of-the-inode");
    plan.file(&path, 1000);
    plan.write(&path, 3000, 3000);
    let path = name(dir, "cut-inside-an-indirect-node");
    plan.create(&path);
    for block in [0, 900, 2000, 3000, 4000, 5000] {
        plan.write(&path, block * BLOCK, 4096);
    }
    plan.op(ZooOp::Truncate { path, size: 3000 * BLOCK + 17 });
    let path = name(dir, "cut-to-nothing");
    plan.file(&path, 300_000);
    plan.op(ZooOp::Truncate { path, size: 0 });
    let path = name(dir, "punched");
    plan.file(&path, 200_000);
    plan.op(ZooOp::PunchHole { path: path.clone(), offset: 5000, len: 90_000 });
    plan.op(ZooOp::PunchHole { path, offset: 190_000, len: 90_000 });
    let path = name(dir, "overwritten-in-the-middle");
    plan.file(&path, 100_000);
    plan.op(ZooOp::Fsync { path: path.clone() });
    plan.write(&path, 33_333, 22_222);
    plan.op(ZooOp::Fsync { path });
}

pub(super) fn at_random(plan: &mut Plan, size: Size) {
    let dir = "random";
    plan.mkdir(dir.as_bytes());
    for subdirectory in 0..8 {
        plan.mkdir(&name(dir, subdirectory));
    }
    for file in 0..size.random_files() {
        let subdirectory = plan.below(8);
        let path = name(dir, format_args!("{subdirectory}/{file}"));
        plan.create(&path);
        for _ in 0..plan.below(5) {
            let offset = match plan.below(4) {
                0 => plan.below(4000),
                1 => plan.below(60_000),
                2 => plan.below(64) * BLOCK,
                _ => plan.below(3_000_000),
            };
            let len = match plan.below(3) {
                0 => plan.index(200),
                1 => plan.index(5000),
                _ => plan.index(40_000),
            };
            plan.write(&path, offset, len + 1);
        }
        match plan.below(6) {
            0 => {
                let size = plan.below(100_000);
                plan.op(ZooOp::Truncate { path, size });
            }
            1 => {
                let (offset, len) = (plan.below(50_000), plan.below(50_000) + 1);
                plan.op(ZooOp::PunchHole { path, offset, len });
            }
            2 => plan.op(ZooOp::Fsync { path }),
            _ => {}
        }
    }
}
