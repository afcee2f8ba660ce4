//! Which dirty pages become deltas, and which older deltas make room for them?
//!
//! Bases are read and compared before any lock of nodes or segments is taken. Cleaning may move a base meanwhile, which
//! changes its address and not its bytes.

use std::sync::atomic::Ordering;

use format::Block;
use format::delta::{self, Codec, Entry};
use format::inode::{Advise, Division, Inline, InodeFlags, RawInode};
use rustc_hash::FxHashMap;
use vfs::FileKind;

use super::choose::{Costs, Want, choose};
use crate::file::temperature::{Writeback, in_place};
use crate::inode::Inode;
use crate::node::cache::Node;
use crate::volume::Volume;

/// A zone with less room holds nothing.
const LEAST_ROOM: usize = delta::TRAILER + delta::HEADER + 1;

/// A page's delta, not yet in the zone.
pub(crate) struct Encoded {
    codec: Codec,
    check: u32,
    payload: Vec<u8>,
}

impl Encoded {
    /// As an entry for a slot.
    pub(crate) fn entry(&self, slot: u32) -> Entry<'_> {
        Entry { slot, codec: self.codec, check: self.check, payload: &self.payload }
    }
}

/// What is to be done with dirty pages.
#[derive(Default)]
pub(crate) struct Plan {
    /// Deltas to put into the zone, by file block.
    pub(crate) deltas: FxHashMap<u64, Encoded>,
    /// Slots whose old deltas make room first.
    pub(crate) fold: Vec<u32>,
}

impl Volume {
    /// True if inodes of this volume may hold deltas.
    pub(crate) fn may_hold_deltas(&self) -> bool {
        self.has(format::superblock::Features::DELTA)
    }

    /// Plans for an inode's dirty pages. A base that cannot be read makes no delta: the page is written whole, which
    /// may even heal it.
    pub(crate) fn plan_deltas(&self, inode: &Inode, dirty: &[(u64, &Block)], why: Writeback) -> Plan {
        let mut plan = Plan::default();
        if !self.options.delta || !self.may_hold_deltas() || inode.kind != FileKind::Regular {
            return plan;
        }
        let node = &inode.node;
        let Some((d, generation, stay)) = node.inode(|r| {
            let lawful = r.inline().contains(Inline::EXTRA_ATTR)
                && !r.inline().intersects(Inline::DATA | Inline::PIN_FILE)
                && !r.flags().contains(InodeFlags::COMPRESS)
                && !r.advise().intersects(Advise::ENCRYPT | Advise::VERITY);
            let d = r.divide(self.sb.features).ok().filter(|_| lawful)?;
            Some((d, r.i_generation.get(), in_place(r, dirty.len(), why)))
        }) else {
            return plan;
        };
        let (room, held) = node.inode(|r| (delta::room(r, d), d.zone > 0));
        let mut wanted = 0;
        if room < LEAST_ROOM && !held {
            return plan;
        }
        // Overwriting one block in place costs as much as writing the inode, if that is not written anyway.
        let alone = why == Writeback::FsyncContents && dirty.len() == 1;
        for &(index, page) in dirty.iter().take_while(|(i, _)| *i < u64::from(d.addressed())) {
            let slot = index as u32;
            let (addr, delta) = self.has_delta(node, slot);
            if !addr.is_real() || (alone && stay && !delta) {
                continue;
            }
            if wanted > room {
                // More than there is room for: what follows is not even compared.
                break;
            }
            let Ok(Some(base)) = self.base_of(node, slot) else { continue };
            let mut payload = Vec::new();
            if let Some(codec) = delta::codec::encode(&base, page, &mut payload) {
                let check = self.page_check(node, generation, slot, page);
                wanted += delta::HEADER + payload.len();
                plan.deltas.insert(index, Encoded { codec, check, payload });
            }
        }
        if !plan.deltas.is_empty() {
            let leaving = |slot: u32| dirty.binary_search_by_key(&u64::from(slot), |(index, _)| *index).is_ok();
            node.inode(|r| make_room_in_zone(r, d, &leaving, &mut plan));
        }
        plan
    }

    /// Puts a delta into the zone of an inode whose bytes the caller has locked; the caller marks the node dirty. False
    /// if there is no room.
    pub(crate) fn put_delta(&self, node: &Node, bytes: &mut Block, entry: &Entry<'_>) -> bool {
        let raw = RawInode::of_mut(bytes);
        let Ok(d) = raw.divide(self.sb.features) else { return false };
        let put = node.nid == node.ino.nid() && delta::put(raw, d, entry);
        if put {
            self.counters.deltas.fetch_add(1, Ordering::Relaxed);
            self.counters.delta_bytes.fetch_add((delta::HEADER + entry.payload.len()) as u64, Ordering::Relaxed);
        }
        put
    }
}

/// Chooses what has room. `leaving` says which slots' old deltas go in any case, since their pages are dirty.
fn make_room_in_zone(raw: &RawInode, d: Division, leaving: &dyn Fn(u32) -> bool, plan: &mut Plan) {
    let room = delta::room(raw, d).saturating_sub(delta::TRAILER);
    let want = |slot: u32, payload: usize| Want { slot, bytes: delta::HEADER + payload };
    let old: Vec<Want> =
        delta::entries(raw, d).filter(|e| !leaving(e.slot)).map(|e| want(e.slot, e.payload.len())).collect();
    let new: Vec<Want> = plan.deltas.iter().map(|(index, e)| want(*index as u32, e.payload.len())).collect();
    let choice = choose(&Costs::PAPER, room, &old, &new);
    for slot in choice.whole {
        plan.deltas.remove(&slot.into());
    }
    plan.fold = choice.fold;
}
