//! Where is an inode's zone of deltas if its mark is wrong?
//!
//! A zone ends where the inline attributes begin, and its last bytes contain its length. So the mark can be
//! restored if the whole zone is valid. Otherwise the zone is dropped. Then its words must not become addresses:
//! everything behind the last address that a summary confirms is cleared.

use format::delta;
use format::inode::{ADDR_OFFSET, Inline, RawInode};
use format::summary::Summary;
use format::{Block, BlockAddr, FormatError, Nid};

use super::FsckError;
use super::bases::{Bases, may_have_nodes, without_deltas};
use super::load::Image;

/// Checks an inode's zone, its mark and its root.
///
/// # Errors
/// The first fault.
pub fn verify(img: &Image<'_>, block: &Block) -> Result<(), FormatError> {
    let features = img.sb.features;
    let raw = RawInode::of(block);
    let [_, mark, length] = raw.i_ext.map(|w| w.get());
    let bad =
        |value: u32, must| Err(FormatError::Field { structure: "inode", field: "i_ext", value: value.into(), must });
    if without_deltas(features) != features && mark >= delta::MARK && length != 0 {
        // No extent begins at such an address.
        return bad(length, "0 behind the mark of deltas");
    }
    raw.divide(features)?;
    delta::verify(raw, features)?;
    if mark < delta::MARK && with_mark(img, block).is_some() {
        return bad(mark, "the mark of the deltas that the inode holds");
    }
    Ok(())
}

/// The inode with the mark that its zone needs, if the whole zone is valid.
pub fn with_mark(img: &Image<'_>, block: &Block) -> Option<Box<Block>> {
    let features = img.sb.features;
    let raw = RawInode::of(block);
    let end = raw.divide(without_deltas(features)).ok()?.xattr_area().start;
    let trailer: [u8; delta::TRAILER] = block.get(end - delta::TRAILER..end)?.try_into().ok()?;
    let used = u32::from(u16::from_le_bytes([trailer[0], trailer[1]]));
    if without_deltas(features) == features || end < ADDR_OFFSET + delta::TRAILER || used == 0 {
        return None;
    }
    let words = (used + delta::TRAILER as u32).div_ceil(4);
    let mut marked = Box::new(*block);
    let raw = RawInode::of_mut(&mut marked);
    raw.i_ext[1] = (delta::MARK + words).into();
    raw.i_ext[2] = 0.into();
    delta::verify(raw, features).ok()?;
    let (division, shape) = (raw.divide(features).ok()?, raw.shape(features).ok()?);
    let bases = Bases::new(img, raw, division, shape);
    let fits = |e: delta::Entry<'_>| {
        let addr = raw.addr(division, e.slot);
        img.sb.locate(addr).is_some() && bases.fits(addr, e.slot, (e.codec, e.payload, e.check))
    };
    // Addresses that look like entries do not give a page with a matching check.
    delta::entries(raw, division).any(fits).then_some(marked)
}

/// The inode without zone and root.
pub fn without(img: &Image<'_>, block: &Block) -> Result<Box<Block>, FsckError> {
    let features = without_deltas(img.sb.features);
    let mut bare = Box::new(*block);
    let raw = RawInode::of_mut(&mut bare);
    let [root, mark, length] = raw.i_ext.map(|w| w.get());
    raw.i_ext = [0.into(); 3];
    let Ok(division) = raw.divide(features) else { return Ok(bare) };
    if raw.inline().intersects(Inline::DATA | Inline::DENTRY) {
        return Ok(bare);
    }
    let nid = raw.footer.nid.get();
    let mut last = None;
    for slot in 0..division.direct_slots() {
        if is_borne_out(img, raw.addr(division, slot), Nid(nid), slot)? {
            last = Some(slot);
        }
    }
    for slot in last.map_or(0, |last| last + 1)..division.direct_slots() {
        raw.set_addr(division, slot, BlockAddr::NULL);
    }
    // A root may be right even if the zone is not.
    if may_have_nodes(raw) && mark >= delta::MARK && length == 0 && root != 0 {
        delta::set_root(raw, Some(Nid(root)));
    }
    Ok(bare)
}

/// True if a block is in use and its summary, if known, has this slot.
fn is_borne_out(img: &Image<'_>, addr: BlockAddr, nid: Nid, slot: u32) -> Result<bool, FsckError> {
    let Some((seg, off)) = img.sb.locate(addr).filter(|_| img.marked(addr)) else { return Ok(false) };
    let named = |s: Summary| (s.nid, u32::from(s.slot)) == (nid, slot);
    Ok(img.summary(seg, off)?.is_none_or(named))
}
