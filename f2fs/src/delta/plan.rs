//! Which dirty pages become deltas, and which older deltas make room for them?
//!
//! Bases are read and compared before any lock of nodes or segments is taken. Cleaning may move a base meanwhile; that
//! changes its address but not its bytes.

use std::sync::atomic::Ordering;

use device::energy::Work;
use format::delta::{self, Codec, Entry};
use format::inode::{Advise, Division, Inline, InodeFlags, RawInode};
use format::{Block, BlockAddr};
use rustc_hash::{FxHashMap, FxHashSet};
use vfs::FileKind;

use super::choose::{Compared, Pages, Want, choose, compared};
use super::costs::Costs;
use super::encoded::Encoded;
use super::places::{Places, Reads};
use super::read::Page;
use super::study::Study;
use crate::cause::Cause;
use crate::delta::Deltas;
use crate::error::Result;
use crate::inode::Inode;
use crate::inode::known::Frames;
use crate::inode::luck::Luck;
use crate::inode::overwrite::overwrites;
use crate::node::cache::Node;
use crate::node::map::{Lookup, Place, addr_in};
use crate::segment::temperature::Writeback;

/// A smaller zone holds no deltas.
const LEAST_ROOM: usize = delta::TRAILER + delta::HEADER + 1;

/// By default, an fsync of at most this many pages reads all missing bases.
const FEW: usize = 8;

/// A dirty page that may become a delta.
struct Candidate<'p> {
    index: u64,
    page: &'p Block,
    place: Place,
    /// Address of its base.
    addr: BlockAddr,
    /// Whether the page has a delta: if so, its base is not overwritten.
    has: bool,
}

/// The plan for dirty pages.
#[derive(Default)]
pub(crate) struct Plan {
    /// Deltas to put into the zone, by file block.
    pub(crate) deltas: FxHashMap<u64, Encoded>,
    /// Slots whose old deltas must first be folded to make room.
    pub(crate) fold: Vec<u64>,
    /// Deltas to put into delta nodes.
    pub(crate) noted: Vec<(u64, Encoded)>,
    /// Pages that are packed whole into delta nodes.
    pub(crate) packed: Vec<(u64, Encoded)>,
}

impl Deltas {
    /// Plans for an inode's dirty pages. If a base cannot be read, the page is written as a whole block, which may even
    /// repair it.
    ///
    /// Deltas go into the zone if all of them have room there and the file has no delta nodes. Otherwise they go into
    /// delta nodes, which a file gets at its second fsync, because more will probably follow. A background writeback
    /// creates no first delta node, and a file that is only read gets none. The first fsync of a small file packs its
    /// new pages into delta nodes ([`super::packed`]).
    pub(crate) fn plan_deltas(
        &self,
        inode: &Inode,
        (luck, frames): (&mut Luck, &mut Frames),
        dirty: &[(u64, &Block)],
        why: Writeback,
    ) -> Result<Plan> {
        let mut plan = Plan::default();
        if !self.ctx.options.delta || !self.ctx.may_hold_deltas() || inode.kind != FileKind::Regular {
            return Ok(plan);
        }
        let node = &inode.node;
        let Some(d) = node.inode(|r| {
            let lawful = r.inline().contains(Inline::EXTRA_ATTR)
                && !r.inline().intersects(Inline::DATA | Inline::PIN_FILE)
                && !r.flags().contains(InodeFlags::COMPRESS)
                && !r.advise().intersects(Advise::ENCRYPT | Advise::VERITY);
            r.divide(self.ctx.sb.features).ok().filter(|_| lawful)
        }) else {
            return Ok(plan);
        };
        let stay = overwrites((&self.ctx, &self.nodes), node, dirty.iter().map(|(i, _)| *i), why);
        let known = self.deltas(node)?;
        let synced_again = why != Writeback::Background && self.promises.has_written(node.ino);
        let places = self.ctx.options.delta_places;
        let study = self.ctx.options.delta_study;
        let to_nodes =
            places != Places::Inode && !inode.heat.only_read() && (!known.is_empty() || synced_again || study.alone);
        let packs = places == Places::Both && why != Writeback::Background && !study.is_of_others();
        let (room, held) = node.inode(|r| (delta::room(r, d), d.zone > 0));
        let in_zone = |index: u64| index < u64::from(d.addressed());
        let compares = to_nodes || places != Places::Nodes && (held || room >= LEAST_ROOM);
        if !packs && !compares {
            return Ok(plan);
        }
        // Overwriting one block in place costs as much as writing the inode, unless the inode is written anyway.
        let alone = why == Writeback::FsyncContents && dirty.len() == 1;
        let limit = if to_nodes { study.longest } else { delta::LONGEST };
        if to_nodes
            && !study.is_of_others()
            && why != Writeback::Background
            && !(alone && stay && !known.has(dirty[0].0))
        {
            plan.noted = self.plan_frames(inode, frames, &known, dirty)?;
        }
        let framed: FxHashSet<u64> = plan.noted.iter().map(|(index, _)| *index).collect();
        let dirty: Vec<(u64, &Block)> = dirty.iter().filter(|(index, _)| !framed.contains(index)).copied().collect();
        let dirty = &dirty[..];
        if packs {
            plan.packed = self.plan_packed(inode, luck, &known, dirty);
        }
        if !compares {
            return Ok(plan);
        }
        let mut candidates = Vec::new();
        if study.is_of_others() {
            // Published systems do not skip pages.
            luck.stays_found();
        }
        let lost = luck.is_lost();
        for &(index, page) in dirty.iter().take_while(|(index, _)| to_nodes || in_zone(*index)) {
            if lost && !luck.tries() {
                continue;
            }
            let Ok(Lookup::At(place)) = self.nodes.find(node, index) else { continue };
            let (addr, has) = {
                let bytes = place.node.read();
                let has = known.has(index) || self.is_in_zone(&place.node, &bytes, place.slot);
                (addr_in(&self.ctx, &place.node, &bytes, place.slot), has)
            };
            // If a page consists of kept pages, the block at its address is stale.
            let based = || self.noted(node, &known, index).is_ok_and(|d| d.is_none_or(|d| d.codec.has_base()));
            let can = match study.alone {
                true => addr != BlockAddr::NULL,
                false => addr.is_real() && (!known.has(index) || based()),
            };
            if can && (has || !(alone && stay)) {
                candidates.push(Candidate { index, page, place, addr, has });
            }
        }
        let absent = self.bases.as_ref().map(|bases| bases.lacking(candidates.iter().map(|c| c.addr.0.into())));
        let lacking: FxHashSet<u64> = absent.unwrap_or_default().into_iter().collect();
        let cold = match luck.hopes() && !study.is_of_others() {
            true => self.bases_to_read(node, &candidates, why != Writeback::Background, stay),
            // Each base is read when its page is compared: for probed pages, and because published systems do so.
            false => FxHashSet::default(),
        };
        let mut read_until = 0;
        let mut wanted = 0;
        for Candidate { index, page, place, addr, .. } in candidates {
            if cold.contains(&addr) || (!lost && !luck.tries()) {
                continue;
            }
            if wanted > room && !to_nodes {
                // More deltas than fit: the rest is not even compared.
                break;
            }
            if addr.is_real() && lacking.contains(&addr.0.into()) {
                let prices = &self.ctx.options.prices;
                luck.spent += prices.read_block + if read_until == addr.0 { 0 } else { prices.request };
                read_until = addr.0 + 1;
            }
            let at = Page { inode: node, block: index, place: &place, index: &known };
            luck.spent += self.ctx.options.delta_costs.encode_pj;
            let made = match study.alone {
                true => {
                    self.ctx.compute(
                        Work::DeltaEncode,
                        self.ctx.options.delta_costs.encode,
                        Cause::DeltaEncode.of(node.ino),
                    );
                    delta::codec::encode_alone(page, limit).map(|payload| (Codec::Alone, payload))
                }
                false => {
                    let Ok(Some(base)) = self.base_of(at) else { continue };
                    let mut payload = Vec::new();
                    self.ctx.compute(
                        Work::DeltaEncode,
                        self.ctx.options.delta_costs.encode,
                        Cause::DeltaEncode.of(node.ino),
                    );
                    delta::codec::encode(&base, page, limit, &mut payload).map(|codec| (codec, payload))
                }
            };
            if let (true, Some((codec, payload))) = (luck.wants(made.is_some()), made) {
                // OK to cast: no file has 2^32 blocks.
                let check = self.page_check(node, index as u32, page);
                wanted += delta::HEADER + payload.len();
                plan.noted.push((index, Encoded::new(codec, check, payload)));
            }
        }
        if study.alone && !Study::packs(plan.noted.iter().map(|(_, e)| e.payload.len())) {
            plan.noted.clear();
        }
        if plan.noted.is_empty() {
            return Ok(plan);
        }
        let leaving = |slot: u32| dirty.binary_search_by_key(&u64::from(slot), |(index, _)| *index).is_ok();
        let fits_zone =
            |e: &(u64, Encoded)| in_zone(e.0) && e.1.codec.has_base() && e.1.payload.len() <= delta::LONGEST;
        let staying = node.inode(|r| {
            let others = delta::entries(r, d).filter(|e| !leaving(e.slot));
            others.map(|e| delta::HEADER + e.payload.len()).sum::<usize>()
        });
        let all_fit = plan.noted.iter().all(fits_zone) && staying + wanted + delta::TRAILER <= room;
        if !to_nodes || (known.is_empty() && all_fit && places == Places::Both) {
            plan.deltas = std::mem::take(&mut plan.noted).into_iter().filter(fits_zone).collect();
            node.inode(|r| make_room_in_zone(&self.ctx.options.delta_costs, r, d, &leaving, &mut plan));
        }
        Ok(plan)
    }

    /// Reads the bases worth reading, adjacent ones together. Returns the others: their pages are written as whole
    /// blocks. `synced`: by an fsync, which could overwrite the pages if `in_place`.
    fn bases_to_read(
        &self,
        inode: &Node,
        pages: &[Candidate<'_>],
        synced: bool,
        in_place: bool,
    ) -> FxHashSet<BlockAddr> {
        let mut out = FxHashSet::default();
        let Some(bases) = &self.bases else { return out };
        let mut all: Vec<u64> = pages.iter().map(|p| p.addr.0.into()).collect();
        all.sort_unstable();
        let cold = bases.lacking(all.iter().copied());
        let few = synced && pages.len() <= FEW;
        let in_place = in_place && pages.iter().all(|p| !p.has || cold.binary_search(&p.addr.0.into()).is_err());
        let warm: Vec<u64> = all.into_iter().filter(|at| cold.binary_search(at).is_err()).collect();
        let of = |at: &[u64]| Pages { count: at.len() as u64, runs: at.chunk_by(|a, b| a + 1 == *b).count() as u64 };
        let all = match self.ctx.options.delta_reads {
            Reads::All => true,
            Reads::Few => few,
            Reads::Joules => false,
        };
        let choice = || compared(&self.ctx.options.prices, of(&warm), of(&cold), in_place);
        match if all { Compared::All } else { choice() } {
            Compared::All => bases.bring(&cold, Cause::DeltaBase.of(inode.ino)),
            Compared::InMemory => out.extend(cold.iter().map(|at| BlockAddr(*at as u32))),
        }
        out
    }

    /// Puts a delta into the zone of an inode whose bytes the caller has locked; the caller marks the node dirty. False
    /// if it does not fit.
    pub(crate) fn put_delta(&self, node: &Node, bytes: &mut Block, entry: &Entry<'_>) -> bool {
        let raw = RawInode::of_mut(bytes);
        let Ok(d) = raw.divide(self.ctx.sb.features) else { return false };
        let put = node.nid == node.ino.nid() && delta::insert(raw, d, entry);
        if put {
            self.ctx.counters.deltas.fetch_add(1, Ordering::Relaxed);
            self.ctx.counters.delta_bytes.fetch_add((delta::HEADER + entry.payload.len()) as u64, Ordering::Relaxed);
        }
        put
    }
}

/// Chooses what fits. `leaving` selects the slots whose old deltas are dropped in any case, because their pages are
/// dirty.
fn make_room_in_zone(costs: &Costs, raw: &RawInode, d: Division, leaving: &dyn Fn(u32) -> bool, plan: &mut Plan) {
    let room = delta::room(raw, d).saturating_sub(delta::TRAILER);
    let want = |slot: u32, payload: usize| Want { slot, bytes: delta::HEADER + payload };
    let old: Vec<Want> =
        delta::entries(raw, d).filter(|e| !leaving(e.slot)).map(|e| want(e.slot, e.payload.len())).collect();
    let new: Vec<Want> = plan.deltas.iter().map(|(index, e)| want(*index as u32, e.payload.len())).collect();
    let choice = choose(costs, room, &old, &new);
    for slot in choice.whole {
        plan.deltas.remove(&slot.into());
    }
    plan.fold = choice.fold.into_iter().map(u64::from).collect();
}
