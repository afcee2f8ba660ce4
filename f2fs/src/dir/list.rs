//! How are all entries listed in a stable order?
//!
//! A cookie is one more than the slot's number, counted over the blocks; an inline directory counts
//! as its first block would. Entries move only when an inline directory leaves its inode.

use format::dentry::{self as area, Layout, SLOTS_PER_BLOCK};
use format::inode::RawInode;
use vfs::{DirEntry, Flow};

use super::kind_of;
use crate::error::Result;
use crate::inode::Inode;
use crate::node::map::Lookup;
use crate::volume::Volume;

impl Volume {
    /// Hands out entries after `cookie`.
    pub(crate) fn list(&self, dir: &Inode, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()> {
        let per = SLOTS_PER_BLOCK as u64;
        let mut index = cookie / per;
        let mut from = (cookie % per) as usize;
        if self.is_inline_dir(dir) {
            let bytes = **dir.node.read();
            let a = &bytes[self.inline_dir_area(RawInode::of(&bytes))?];
            if index == 0 {
                hand_out(&Layout::inline(a.len()), a, 0, from, each);
            }
            return Ok(());
        }
        let blocks = dir.size().div_ceil(4096);
        while index < blocks {
            // A copy, so that the receiver may call back into the directory.
            let in_memory = dir.content.read().dir.get(&index).map(|b| Box::new(*b.bytes()));
            let block = match in_memory {
                Some(b) => Some(b),
                None => {
                    let mut content = dir.content.write();
                    self.dir_block(dir, &mut content, index)?.map(|b| Box::new(*b.bytes()))
                }
            };
            match block {
                Some(b) => {
                    if hand_out(&Layout::BLOCK, &b[..], index, from, each) == Flow::Stop {
                        return Ok(());
                    }
                    index += 1;
                }
                None => {
                    index = match self.find(&dir.node, index)? {
                        Lookup::HoleUntil(next) => next,
                        Lookup::At(_) => index + 1,
                    }
                }
            }
            from = 0;
        }
        Ok(())
    }
}

fn hand_out(l: &Layout, a: &[u8], index: u64, from: usize, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Flow {
    let mut ghost_until = 0;
    for d in area::entries(l, a, 0) {
        let next = d.slot + area::slots_for(d.name.len());
        let lawful = !d.name.contains(&b'/') && !d.name.contains(&0);
        if d.slot < from || d.slot < ghost_until || !lawful {
            continue;
        }
        ghost_until = next;
        let Some(kind) = kind_of(d.kind) else { continue };
        let entry = DirEntry {
            ino: vfs::Ino(d.ino.into()),
            kind,
            name: d.name,
            next: index * SLOTS_PER_BLOCK as u64 + next as u64,
        };
        if each(entry) == Flow::Stop {
            return Flow::Stop;
        }
    }
    Flow::Continue
}
