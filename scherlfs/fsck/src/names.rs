//! Checks names and their targets.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use scherlfs_format::directory::Entries;
use scherlfs_format::{BLOCK, IFILE, Ino, ORPHANS, ROOT};

use crate::finding::{Finding, State};
use crate::map::{Map, Node};
use crate::{Disk, kind};

/// The name of the inode map.
const IFILE_NAME: &[u8] = b".ifile";

/// Follows all names from the root; returns the number of directories.
pub(crate) fn judge(
    disk: &Disk<'_>,
    map: &Map,
    nodes: &BTreeMap<Ino, Node>,
    state: State,
    findings: &mut Vec<Finding>,
) -> u64 {
    let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut waiting = vec![ROOT];
    let mut reached = FxHashSet::from_iter([ROOT]);
    let mut directories = 0;
    let mut mapped = false;
    if nodes.get(&ROOT).is_none_or(|n| kind::of_mode(n.inode.attributes.mode) != kind::DIRECTORY) {
        findings.push(Finding::Unreachable { ino: ROOT, state });
        return 0;
    }
    while let Some(dir) = waiting.pop() {
        let Some(node) = nodes.get(&dir) else { continue };
        directories += 1;
        *links.entry(dir).or_default() += if dir == ROOT { 2 } else { 1 };
        let mut names = FxHashSet::default();
        let size = node.inode.attributes.size;
        if size % BLOCK as u64 != 0 {
            findings.push(Finding::Directory {
                ino: dir,
                block: 0,
                state,
                why: format!("{size} bytes are not whole blocks"),
            });
        }
        for index in 0..size / BLOCK as u64 {
            let wrong = |why| Finding::Directory { ino: dir, block: index, state, why };
            let block = match node.place(index).ok_or("it is a hole".to_owned()).and_then(|at| disk.read(at)) {
                Ok(block) => block,
                Err(why) => {
                    findings.push(wrong(why));
                    continue;
                }
            };
            let entries = match Entries::read(&block, dir, index) {
                Ok(entries) => entries,
                Err(e) => {
                    findings.push(wrong(e.to_string()));
                    continue;
                }
            };
            for e in entries.named() {
                let wrong = |why: String| Finding::Name { dir, name: e.name.to_vec(), state, why };
                if e.name.contains(&b'/') || e.name.contains(&0) || e.name == b"." || e.name == b".." {
                    findings.push(wrong("no file can have this name".into()));
                }
                if !names.insert(e.name.to_vec()) {
                    findings.push(wrong("it is there twice".into()));
                }
                if e.ino == IFILE || (dir == ROOT && e.name == IFILE_NAME) {
                    match e.ino == IFILE && dir == ROOT && e.name == IFILE_NAME && e.kind == 1 {
                        true => mapped = true,
                        false => findings.push(wrong("it is not the inode map's".into())),
                    }
                    continue;
                }
                let Some(child) = nodes.get(&e.ino) else {
                    findings.push(wrong(format!("it leads to inode {}, which does not exist", e.ino)));
                    continue;
                };
                let mode = kind::of_mode(child.inode.attributes.mode);
                if mode != kind::of_entry(e.kind) {
                    findings.push(wrong(format!("it says another kind than inode {}", e.ino)));
                }
                *links.entry(e.ino).or_default() += 1;
                let first = reached.insert(e.ino);
                if mode == kind::DIRECTORY {
                    *links.entry(dir).or_default() += 1;
                    if child.inode.attributes.parent != dir {
                        findings.push(wrong(format!("inode {} says another directory is above it", e.ino)));
                    }
                    if first {
                        waiting.push(e.ino);
                    } else {
                        findings.push(wrong("it is a second name of a directory".into()));
                    }
                }
            }
        }
    }
    if !mapped {
        findings.push(Finding::Hidden { ino: IFILE, why: "it has no name in the root directory".into() });
    }
    for ino in &map.orphans {
        let why = match () {
            () if !map.places.contains_key(ino) => "does not exist",
            () if links.get(ino).is_some_and(|n| *n > 0) => "has a name",
            () => continue,
        };
        findings.push(Finding::Hidden { ino: ORPHANS, why: format!("inode {ino} {why}") });
    }
    for (&ino, node) in nodes {
        let (stored, counted) = (node.inode.attributes.nlink, links.get(&ino).copied().unwrap_or(0));
        if stored == 0 && counted == 0 && map.orphans.contains(&ino) {
            continue;
        }
        if counted == 0 {
            findings.push(Finding::Unreachable { ino, state });
        } else if stored != counted {
            findings.push(Finding::Links { ino, stored, counted, state });
        }
    }
    directories
}
