//! How are all entries listed in a stable order?
//!
//! A cookie is the slot number plus one, counted over all blocks; an inline directory counts as the first block.
//! Entries move only when an inline directory moves to blocks.

use format::dentry::{self as area, Layout, SLOTS_PER_BLOCK};
use format::inode::{Advise, RawInode};
use vfs::{DirEntry, Flow};

use super::kind_of;
use crate::dir::Names;
use crate::error::Result;
use crate::inode::Inode;
use crate::no_key;
use crate::node::map::Lookup;

impl Names {
    /// Passes on the entries after `cookie`.
    pub(crate) fn list(&self, dir: &Inode, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> Flow) -> Result<()> {
        let encrypted = dir.node.inode(|r| r.advise().contains(Advise::ENCRYPT));
        let per = SLOTS_PER_BLOCK as u64;
        let mut index = cookie / per;
        let mut from = (cookie % per) as usize;
        if self.is_inline_dir(dir) {
            let bytes = **dir.node.read();
            let a = &bytes[self.inline_dir_area(RawInode::of(&bytes))?];
            if index == 0 {
                hand_out(&Layout::inline(a.len()), a, (0, from), encrypted, each);
            }
            return Ok(());
        }
        // A damaged size may claim more than any directory can have.
        let most = dir.node.inode(|r| self.nodes.shape(r))?.max_blocks();
        let blocks = dir.size().div_ceil(4096).min(most);
        while index < blocks {
            // A copy, so that the callback may use the directory.
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
                    if hand_out(&Layout::BLOCK, &b[..], (index, from), encrypted, each) == Flow::Stop {
                        return Ok(());
                    }
                    index += 1;
                }
                None => {
                    index = match self.nodes.find(&dir.node, index)? {
                        Lookup::Hole(blocks) => blocks.end,
                        Lookup::At(_) => index + 1,
                    }
                }
            }
            from = 0;
        }
        Ok(())
    }
}

fn hand_out(
    l: &Layout,
    a: &[u8],
    (index, from): (u64, usize),
    encrypted: bool,
    each: &mut dyn FnMut(DirEntry<'_>) -> Flow,
) -> Flow {
    let mut ghost_until = 0;
    for d in area::entries(l, a, 0) {
        let next = d.slot + area::slots_for(d.name.len());
        let encoded = (encrypted && d.name != b"." && d.name != b"..").then(|| no_key::encoded(&d));
        let name = encoded.as_ref().map_or(d.name, |name| name.as_bytes());
        let lawful = !name.contains(&b'/') && !name.contains(&0);
        if d.slot < from || d.slot < ghost_until || !lawful {
            continue;
        }
        ghost_until = next;
        let Some(kind) = kind_of(d.kind) else { continue };
        let entry =
            DirEntry { ino: vfs::Ino(d.ino.into()), kind, name, next: index * SLOTS_PER_BLOCK as u64 + next as u64 };
        if each(entry) == Flow::Stop {
            return Flow::Stop;
        }
    }
    Flow::Continue
}

#[cfg(test)]
mod tests {
    use vfs::FileSystem;

    use super::*;
    use crate::MountOptions;
    use crate::fields::put_advise;
    use crate::rig::*;

    #[test]
    fn every_name_of_an_encrypted_directory_is_listed_and_found_under_its_encoded_form() {
        for inline in [true, false] {
            let (_, vol) = mounted(64, MountOptions { inline, ..MountOptions::default() });
            let d = dir(&vol, vol.root(), "d");
            let long = "l".repeat(200);
            let made = ["aXb", "aYb", "plain", &long].map(|name| try_file(&vol, d, name).unwrap());
            let inode = vol.names.outer(d).unwrap();
            // Ciphertext may contain any byte.
            let forge = |bytes: &mut [u8]| {
                for (from, to) in [(b"aXb", b"a/b"), (b"aYb", b"a\0b")] {
                    if let Some(at) = bytes.windows(3).position(|w| w == from) {
                        bytes[at..at + 3].copy_from_slice(to);
                    }
                }
            };
            vol.nodes.edit(&inode.node, |bytes| forge(&mut bytes[..]));
            inode.content.write().dir.values_mut().for_each(|block| forge(&mut block.edit()[..]));
            vol.nodes.edit_inode(&inode.node, |r| put_advise(r, Advise::ENCRYPT, true));
            let mut listed = Vec::new();
            vol.readdir(d, 0, &mut |entry| {
                listed.push((entry.name.to_vec(), entry.ino));
                Flow::Continue
            })
            .unwrap();
            assert_eq!([&listed[0].0, &listed[1].0], [&b"."[..], b".."]);
            assert_eq!(listed.len(), 2 + made.len(), "inline {inline}");
            for (name, ino) in &listed[2..] {
                assert!(made.contains(ino));
                assert_eq!(vol.lookup(d, name).unwrap().attr.ino, *ino, "{}", String::from_utf8_lossy(name));
            }
        }
    }
}
