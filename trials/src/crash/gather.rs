//! Defragmentation of files, and the fragmented files it starts from.

use vfs::{Allocate, Moving};

use super::step::Step::{self, *};
use super::step::files;

/// Files that grow in turns, synced each time, so that none has two contiguous blocks; one is so long that nodes hold
/// its addresses, and has a hole.
pub(super) fn torn() -> Vec<Step> {
    let mut steps = files(3, 5000);
    for i in 0..40u64 {
        for f in 0..3u64 {
            let at = if f == 2 && i > 20 { (900 + i * 3) * 4096 } else { 5000 + i * 9000 };
            steps.extend([Write(format!("f{f}"), at, 9000, i * 3 + f), Fsync(format!("f{f}"))]);
        }
    }
    steps
}

/// Defragments files while they are written, synced, truncated, punched, and removed, while time passes and sections
/// are cleaned.
pub(super) fn brought_together(how: Moving) -> Vec<Step> {
    let f = |n: u64| format!("f{n}");
    let mut steps = vec![Defragment(f(0), 0, how), Fsync(f(0)), Defragment(f(1), 30, how), Fdatasync(f(1))];
    for i in 0..9u64 {
        let n = i % 3;
        // After the end, over blocks just moved, and in place: a small fsync.
        steps.extend([Write(f(n), i * 31_000, 12_000, i), Defragment(f(n), 0, how)]);
        steps.push(if i % 2 == 0 { Fsync(f(n)) } else { Tick(7) });
        steps.extend([Write(f(n), i * 8192, 300, i + 20), Fdatasync(f(n)), Defragment(f((n + 1) % 3), i, how)]);
        match i {
            1 => steps.extend([Truncate(f(1), 200_001), Fsync(f(1))]),
            2 => steps.extend([Fallocate(f(2), Allocate::PunchHole, 8192, 40_960), Defragment(f(2), 0, how)]),
            3 => steps.extend([Clean(64), Defragment(f(0), 0, how), Clean(5)]),
            4 => steps.extend([Sync, Defragment(f(2), 0, how), Fsync(f(2))]),
            5 => steps.extend([Fallocate(f(0), Allocate::Insert, 8192, 12_288), Defragment(f(0), 1, how), Fsync(f(0))]),
            6 => {
                let moved = || String::from("moved");
                steps.extend([Rename(f(1), moved()), Defragment(moved(), 0, how), Rename(moved(), f(1)), Fsync(f(1))]);
            }
            7 => steps.push(Tick(70)),
            _ => {}
        }
    }
    steps.extend([Defragment(f(2), 0, how), Unlink(f(2)), Fsyncdir(String::new()), Create("new".into())]);
    steps.extend([Write("new".into(), 0, 90_000, 5), Fsync("new".into()), Defragment("new".into(), 0, how), Sync]);
    steps
}
