//! Sets fields of an inode to their counted values.

use format::inode::{Inline, RawInode};
use format::{BLOCK, dentry};

use super::edit::Editor;
use super::{Action, RepairError, Session};
use crate::kind::mode_of;
use crate::report::FindingKind as K;

type Done = Result<(), RepairError>;

/// Sets totals to the counted values.
pub fn sum(e: &mut Editor<'_, '_>, session: &mut Session, kind: &K) -> Done {
    match *kind {
        K::BlocksWrong { ino, counted, .. } => e.inode(ino, |raw| raw.i_blocks = counted.into())?,
        K::LinksWrong { ino, counted, .. } => e.inode(ino, |raw| raw.i_links = counted.into())?,
        K::ComprBlocksWrong { ino, counted, .. } => e.inode(ino, |raw| {
            if let Some(extra) = raw.extra_mut() {
                extra.i_compr_blocks = counted.into();
            }
        })?,
        K::InlineTooLong { ino, room, .. } => e.inode(ino, |raw| raw.i_size = (room as u64).into())?,
        K::InlineUnmarked { ino } => e.inode(ino, |raw| raw.i_inline |= Inline::DATA_EXIST.bits())?,
        K::ExtentWrong { ino, .. } => e.inode(ino, RawInode::forget_extent)?,
        K::DirSizeWrong { ino, needs, .. } => e.inode(ino, |raw| raw.i_size = needs.into())?,
        K::DirDepthWrong { ino, needs, .. } => {
            e.inode(ino, |raw| raw.i_current_depth = needs.clamp(1, dentry::MAX_DEPTH).into())?
        }
        K::ParentWrong { ino, parent, .. } | K::DirParentWrong { ino, parent, .. } => {
            e.inode(ino, |raw| raw.i_pino = parent.0.into())?
        }
        K::SizeTooLarge { ino, is, most, .. } if most > BLOCK as u64 => {
            let inline = e.division(ino)?.map_or(0, |division| division.inline_area().len() as u64);
            e.inode(ino, |raw| raw.i_size = if raw.inline().contains(Inline::DENTRY) { inline } else { is }.into())?
        }
        K::SizeTooLarge { ino, .. } | K::SymlinkEmpty { ino } => {
            let target = match e.slot(ino, 0)? {
                Some((_, addr)) if e.img.sb.locate(addr).is_some() => {
                    let block = e.img.block(addr)?;
                    block.iter().position(|&b| b == 0).unwrap_or(BLOCK)
                }
                _ => 1,
            };
            e.inode(ino, |raw| raw.i_size = (target.max(1) as u64).into())?
        }
        // No path is left of it, but bytes may be: a file shows them, to its owner.
        K::SymlinkNul { ino, at: 0 } => e.inode(ino, |raw| raw.i_mode = (mode_of(1) | 0o600).into())?,
        // Linux follows a link up to there.
        K::SymlinkNul { ino, at } => e.inode(ino, |raw| raw.i_size = (at as u64).into())?,
        _ => return Ok(()),
    };
    session.actions.push(Action::Mended { finding: kind.to_string() });
    Ok(())
}
