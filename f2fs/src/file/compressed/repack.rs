//! How does a user compress or decompress an existing file?
//!
//! (Linux: `F2FS_IOC_COMPRESS_FILE` and `F2FS_IOC_DECOMPRESS_FILE`, on a mount with `compress_mode=user` only.)
//! Clusters are loaded and written back, in steps like other long operations. A cluster with a hole stays unchanged.

use std::sync::Arc;

use super::cluster_of;
use super::writeback::{Pack, Which};
use crate::context::Begin;
use crate::error::Result;
use crate::file::BLOCK;
use crate::file::Files;
use crate::file::run::BATCH;
use crate::inode::{Content, Inode};
use crate::node::map::Lookup;

impl Files {
    /// Packs every raw cluster if that saves a block, or unpacks all.
    pub(crate) fn repack(&self, volume: &dyn Begin, inode: &Arc<Inode>, packed: bool) -> Result<()> {
        let _turn = inode.steps.turn.lock();
        let pack = if packed { Pack::Yes } else { Pack::No };
        let mut at = 0;
        loop {
            let _admitted = self.admit(BATCH as u64);
            let change = volume.begin()?;
            let mut content = inode.content.write();
            self.inodes.check_there(inode)?;
            self.check_plain(inode)?;
            self.check_has_room(inode)?;
            let Some(method) = self.clusters(inode)? else {
                return Err(vfs::Error::Invalid("the file is not a compressed one").into());
            };
            let end = inode.size().div_ceil(BLOCK);
            let mut brought = 0;
            while at < end && brought < BATCH {
                if let Lookup::Hole(blocks) = self.nodes.find(&inode.node, at)? {
                    at = blocks.end;
                    continue;
                }
                let cluster = cluster_of(at, method);
                at = cluster.end;
                match (self.is_packed(inode, method, cluster.start)?, packed) {
                    (true, false) => self.open_cluster(inode, &mut content, cluster.start)?,
                    (false, true) if cluster.end <= end => {
                        for index in cluster.clone() {
                            self.bring(inode, &mut content, index)?;
                        }
                    }
                    _ => continue,
                }
                brought += method.cluster_blocks() as usize;
            }
            self.write_clusters(&change, inode, &mut content, method, Which::All, pack)?;
            if at >= end {
                return Ok(());
            }
        }
    }

    /// Makes a page of a raw cluster dirty, unless it is a hole.
    fn bring(&self, inode: &Arc<Inode>, content: &mut Content, index: u64) -> Result<()> {
        if content.pages.contains_key(&index) {
            return Ok(());
        }
        if let Some(page) = self.deltas.load_stored(inode, index)? {
            content.pages.insert(index, page);
            inode.gained_dirty(&self.inodes, 1);
        }
        Ok(())
    }
}
