//! What does a volume undergo in long use? Rounds of deleting, overwriting, appending, renaming and creating files,
//! with the volume kept at a given fill level.
//!
//! A round is a pure function of the rounds before it, so several writers that alternate all know the state without
//! communicating. The operations are the zoo's ([`crate::zoo::ZooOp`]), performed by system calls or in process.
//!
//! Left out: times, owners and attributes, which the zoo covers.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use device::Rng;

use crate::zoo::{RenameFlags, ZooOp, fill};

/// Number of directories.
const DIRECTORIES: u64 = 8;
/// Longest file, in bytes.
const LONGEST: u64 = 1 << 20;

/// The state after some rounds: every file and its size in bytes.
struct Churn {
    rng: Rng,
    files: BTreeMap<Vec<u8>, u64>,
    bytes: u64,
    made: u64,
    ops: Vec<ZooOp>,
}

/// The operations of round `round` (from 0), if every round leaves files of `budget` bytes in total, counted in blocks
/// of 4 KiB.
pub fn round(seed: u64, budget: u64, round: u64) -> Vec<ZooOp> {
    let mut churn = Churn { rng: Rng::new(seed), files: BTreeMap::new(), bytes: 0, made: 0, ops: Vec::new() };
    for d in 0..DIRECTORIES {
        churn.ops.push(ZooOp::Mkdir { path: format!("d{d}").into_bytes(), perm: 0o755 });
    }
    for number in 0..=round {
        if number > 0 {
            churn.ops.clear();
            churn.wear();
        }
        churn.fill_up(budget);
    }
    churn.ops
}

/// Space for a file of `size` bytes, with a share of its nodes.
fn cost(size: u64) -> u64 {
    size.div_ceil(4096) * 4096 + 4096 * (1 + size / (4096 * 900))
}

impl Churn {
    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n.max(1))
    }

    fn any_file(&mut self) -> Option<(Vec<u8>, u64)> {
        let n = self.below(self.files.len() as u64);
        let (path, size) = self.files.iter().nth(usize::try_from(n).ok()?)?;
        Some((path.clone(), *size))
    }

    fn set(&mut self, path: Vec<u8>, size: u64) {
        self.bytes += cost(size);
        if let Some(old) = self.files.insert(path, size) {
            self.bytes -= cost(old);
        }
    }

    fn remove(&mut self, path: &[u8]) {
        if let Some(old) = self.files.remove(path) {
            self.bytes -= cost(old);
        }
    }

    fn new_path(&mut self) -> Vec<u8> {
        let n = self.made;
        self.made += 1;
        // Suffixes of the hot and the cold list, and none.
        let suffix = ["", ".db", ".jpg", ".log"][(n % 4) as usize];
        format!("d{}/f{n:06}{suffix}", self.below(DIRECTORIES)).into_bytes()
    }

    fn write(&mut self, path: &[u8], offset: u64, len: u64) {
        let stream = self.rng.next_u64();
        let len = usize::try_from(len).unwrap_or(0);
        self.ops.push(ZooOp::Write { path: path.to_vec(), offset, len, stream });
    }

    /// Removes a tenth of the files; overwrites, truncates, moves or syncs some of the rest.
    fn wear(&mut self) {
        for _ in 0..self.files.len() / 10 {
            let Some((path, _)) = self.any_file() else {
                return;
            };
            self.remove(&path);
            self.ops.push(ZooOp::Unlink { path });
        }
        for _ in 0..self.files.len() / 5 {
            let Some((path, size)) = self.any_file() else {
                return;
            };
            match self.below(10) {
                0 => {
                    let size = self.below(size + 1);
                    self.ops.push(ZooOp::Truncate { path: path.clone(), size });
                    self.set(path, size);
                }
                1 => {
                    let to = self.new_path();
                    self.remove(&path);
                    let flags = RenameFlags::empty();
                    self.ops.push(ZooOp::Rename { from: path, to: to.clone(), flags });
                    self.set(to, size);
                }
                2 => {
                    if let Some((to, _)) = self.any_file().filter(|(to, _)| *to != path) {
                        self.remove(&path);
                        let flags = RenameFlags::empty();
                        self.ops.push(ZooOp::Rename { from: path, to: to.clone(), flags });
                        self.set(to, size);
                    }
                }
                3 => self.ops.push(ZooOp::Fsync { path }),
                _ => {
                    let offset = self.below(size.max(1)) / 512 * 512;
                    let len = (1 + self.below(40_000)).min(size - offset);
                    self.write(&path, offset, len);
                    if self.below(4) == 0 {
                        self.ops.push(ZooOp::Fsync { path });
                    }
                }
            }
        }
    }

    fn fill_up(&mut self, budget: u64) {
        loop {
            let size = match self.below(10) {
                0..5 => self.below(20_000),
                5..9 => self.below(200_000),
                _ => self.below(LONGEST),
            };
            if self.bytes + cost(size) > budget {
                return;
            }
            let path = self.new_path();
            self.ops.push(ZooOp::Create { path: path.clone(), perm: 0o644 });
            self.write(&path, 0, size);
            self.set(path, size);
        }
    }
}

/// The contents of file `i` of [`acknowledge_forever`].
pub fn acknowledged_content(i: u64) -> Vec<u8> {
    let mut content = vec![0; usize::try_from(i * 1313 % 150_000).unwrap_or(0)];
    fill(i, 0, &mut content);
    content
}

/// Writes files below `root` until the power fails. After file `i`, `new/N/made-i` with N = i % 40, and `old/N` are
/// synced, a directory `ack-i` is created in `told`. In between there are unsynced changes.
///
/// # Errors
/// The first operation that failed.
pub fn acknowledge_forever(root: &Path, told: &Path) -> io::Result<()> {
    fs::create_dir(root.join("old"))?;
    fs::create_dir(root.join("new"))?;
    for n in 0..40 {
        fs::write(root.join(format!("old/{n}")), vec![b'o'; n * 997])?;
        fs::create_dir(root.join(format!("new/{n}")))?;
    }
    File::open(root)?.sync_all()?;
    rustix::fs::syncfs(File::open(root)?)?;
    for i in 0.. {
        let n = i % 40;
        let at = |name: &str| root.join(format!("new/{n}/{name}-{i}"));
        fs::write(at("made"), acknowledged_content(i))?;
        let mut old = OpenOptions::new().append(true).open(root.join(format!("old/{n}")))?;
        writeln!(old, "again {i}")?;
        // A moved file and a hard-linked file need a checkpoint to become durable, others only their nodes.
        if i % 8 == 3 {
            fs::rename(at("made"), at("moved"))?;
            fs::rename(at("moved"), at("made"))?;
        } else if i % 8 == 7 {
            fs::hard_link(at("made"), at("link"))?;
        }
        File::open(at("made"))?.sync_all()?;
        old.sync_data()?;
        fs::write(root.join(format!("lost-{i}")), "never synced")?;
        if i >= 3 {
            fs::remove_file(root.join(format!("lost-{}", i - 3)))?;
        }
        fs::create_dir(told.join(format!("ack-{i}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfs::MemFs;
    use crate::zoo::in_process::perform;

    #[test]
    fn rounds_follow_one_another_and_keep_the_volume_full() {
        let fs = MemFs::new(1 << 30);
        for number in 0..5 {
            let ops = round(3, 20 << 20, number);
            assert!(ops.len() > 20, "{}", ops.len());
            perform(&fs, &ops).expect("each round finds what the others left");
            let free = vfs::FileSystem::statfs(&fs).expect("statfs").blocks_free;
            let used = (1 << 30) - free * 4096;
            assert!((15 << 20..=20 << 20).contains(&used), "{used}");
        }
    }
}
