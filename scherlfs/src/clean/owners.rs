//! Which inodes have blocks in the victims? ScherlFS has no map from blocks to files, so every inode is examined,
//! in disk order, as many per step as the caller permits.

use scherlfs_format::{Addr, FIRST_INO, Ino, ROOT, ifile};
use vfs::Result;

use super::care::{Owned, Victims};
use crate::cause::Cause;
use crate::inode::{Inode, lists, own_blocks};
use crate::load;
use crate::volume::State;

fn owned(inode: &Inode, victims: &Victims) -> Option<Owned> {
    let own = own_blocks(inode).filter(|run| victims.touch(*run)).map(|run| run.start.0);
    let parts = inode.extents.stored(0).flat_map(|(_, at, blocks)| victims.of_run(at, blocks));
    let (mut first, mut blocks) = (own.min(), 0);
    for (start, n) in parts {
        first = Some(first.map_or(start, |f| f.min(start)));
        blocks += n;
    }
    let piece = 1 + lists(inode).count() as u64 + blocks;
    first.map(|at| Owned { ino: inode.ino, is_dir: inode.is_dir(), first: Addr(at), piece })
}

impl State {
    /// Examines the inodes in this number of inode map blocks; returns where to continue if there are more.
    pub(super) fn look_for_owners(
        &mut self,
        from: u64,
        blocks: usize,
        victims: &Victims,
        found: &mut Vec<Owned>,
    ) -> Result<Option<u64>> {
        let dev = self.dev.clone();
        let (indices, rest) = self.imap.next_blocks(from, blocks);
        let mut elsewhere = Vec::new();
        for index in indices {
            let block = self.imap.load(&*dev, index)?;
            let places: Vec<_> = (0..ifile::ENTRIES).map(|at| (at, ifile::get(block, at))).collect();
            for (at, place) in places {
                let ino = Ino(u32::try_from(index * ifile::ENTRIES as u64 + at as u64).unwrap_or(u32::MAX));
                let Some(addr) = place.addr.filter(|_| ino >= FIRST_INO || ino == ROOT) else { continue };
                match self.inodes.get(&ino) {
                    Some(inode) => found.extend(owned(inode, victims)),
                    None => elsewhere.push((addr, ino)),
                }
            }
        }
        elsewhere.sort_unstable();
        for (addr, ino) in elsewhere {
            let inode = load::inode_at(&*dev, ino, addr, Cause::Cleaning)?;
            found.extend(owned(&inode, victims));
        }
        Ok(rest)
    }
}
