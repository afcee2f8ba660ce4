//! The volume as a [`vfs::Volume`]: what it answers to those who mount it, count what it spends and report that.

use std::sync::atomic::Ordering;

use vfs::{Accountant, FileSystem, Look, Owner, Reason, Reporter};

use crate::cause::Cause;
use crate::volume::Volume;

impl vfs::Volume for Volume {
    fn kind(&self) -> &'static str {
        "F2FS"
    }

    fn reasons(&self) -> Vec<Reason> {
        let cleaning =
            [Cause::ForegroundGcData, Cause::ForegroundGcNode, Cause::BackgroundGcData, Cause::BackgroundGcNode];
        Cause::ALL.iter().map(|c| Reason { number: *c as u8, text: c.text(), cleaning: cleaning.contains(c) }).collect()
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

    fn account_by(&self, accountant: Accountant) {
        *self.accountant.lock() = Some(accountant);
    }

    fn report_too(&self, reporter: Reporter) {
        *self.reported_too.lock() = Some(reporter);
    }

    fn warning(&self) -> Option<String> {
        let quotas = self.superblock().quota_inos.iter().any(|ino| ino.0 != 0);
        (quotas && !self.read_only()).then(|| {
            "usage by owner is not counted while JouleFS writes here, and the volume is marked so: Linux mounts it \
             without quotas until fsck.f2fs has counted anew"
                .to_owned()
        })
    }
}
