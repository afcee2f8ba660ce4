//! How does a volume implement [`vfs::Volume`], for mounting, accounting and reports?

use std::sync::atomic::Ordering;

use format::BlockAddr;
use vfs::{Accountant, Cleaned, FileSystem, FreeFragments, Look, Owner, Reason, Reporter};

use crate::cause::Cause;
use crate::gc::settings::Settings;
use crate::options::CheckpointChoice;
use crate::volume::Volume;

/// Data blocks addressed by a direct node.
const PER_NODE: u64 = 1018;

/// The largest file, in blocks, that fits into `room` blocks with its nodes and a directory block; `None` if none does.
fn largest_file(room: u64) -> Option<u64> {
    let rest = room.checked_sub(2)?;
    let nodes = rest / PER_NODE + rest / (PER_NODE * PER_NODE) * 2 + if rest > 900 { 3 } else { 0 };
    rest.checked_sub(nodes).filter(|&n| n > 0)
}

impl vfs::Volume for Volume {
    fn kind(&self) -> &'static str {
        "F2FS"
    }

    fn reasons(&self) -> Vec<Reason> {
        Cause::reasons()
    }

    fn own_blocks(&self) -> &'static str {
        "checkpoint, NAT, SIT, SSA"
    }

    fn owner_of(&self, owner: u64, look: Look) -> Owner {
        Volume::owner_of(self, owner, look)
    }

    fn keep_deleted_names(&self) {
        Volume::keep_deleted_names(self);
    }

    fn user_bytes(&self) -> u64 {
        self.counters.user_bytes.load(Ordering::Relaxed)
    }

    fn device_blocks(&self) -> u64 {
        self.superblock().block_count
    }

    fn free_fragments(&self) -> FreeFragments {
        self.logs.free_fragments()
    }

    fn largest_file(&self, free: u64) -> Option<u64> {
        largest_file(free)
    }

    fn cleans_ahead(&self) -> bool {
        self.cleaning().on
    }

    fn clean_ahead(&self, on: bool) {
        self.set_cleaning(Settings { on, ..self.cleaning() });
    }

    fn cleaned(&self) -> Cleaned {
        let c = &self.counters;
        Cleaned {
            sections: c.sections_cleaned(),
            waited_for: c.foreground_gc.load(Ordering::Relaxed),
            moved: c.moved_blocks(),
        }
    }

    fn account_by(&self, accountant: Accountant) {
        *self.accountant.lock() = Some(accountant);
    }

    fn report_too(&self, reporter: Reporter) {
        *self.reported_too.lock() = Some(reporter);
    }

    fn not_durable(&self) -> Option<Vec<vfs::Ino>> {
        Some(Volume::not_durable(self).into_iter().map(|ino| vfs::Ino(ino.0.into())).collect())
    }

    fn warning(&self) -> Option<String> {
        let inos = &self.superblock().quota_inos;
        let missing: Vec<String> = ["user", "group", "project"]
            .into_iter()
            .zip(inos)
            .filter(|(_, ino)| ino.0 != 0 && self.inode_address(**ino).is_ok_and(|addr| addr == BlockAddr::NULL))
            .map(|(whose, ino)| format!("the {whose} quota file (inode {ino}) is missing"))
            .collect();
        let missing = (!missing.is_empty()).then(|| missing.join(", ") + ": joulefs fsck --repair restores it");
        let quotas = inos.iter().any(|ino| ino.0 != 0);
        let counted = (quotas && !self.read_only()).then(|| {
            "JouleFS does not count usage by owner while it writes, and marks the volume: Linux mounts it without \
             quotas until fsck.f2fs recounts the usage"
                .to_owned()
        });
        let older = (self.ctx.options.checkpoint == CheckpointChoice::Older).then(|| {
            format!(
                "read-only, as of checkpoint {}, the one before the newest; joulefs fsck --repair --checkpoint older \
                 discards the newest one",
                self.ctx.cp.read().checkpoint.version
            )
        });
        let said: Vec<String> = older.into_iter().chain(missing).chain(counted).collect();
        (!said.is_empty()).then(|| said.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_fills_the_rest_leaves_room_for_its_nodes() {
        assert_eq!(largest_file(2), None);
        assert_eq!(largest_file(3), Some(1));
        for room in [500, 950, 5000, 3_000_000] {
            let n = largest_file(room).unwrap();
            // 923 blocks in the inode, then direct nodes, their indirect nodes and one above.
            let direct = n.saturating_sub(923).div_ceil(PER_NODE);
            let nodes = 1 + direct + direct.saturating_sub(2).div_ceil(PER_NODE) + u64::from(direct > 2 * PER_NODE);
            assert!(n + nodes < room, "{room}: {n} and {nodes}");
            assert!(n + nodes + 16 > room, "{room}: {n} and {nodes}");
        }
    }
}
