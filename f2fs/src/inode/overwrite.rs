//! Does an fsync overwrite its pages in place?
//!
//! Linux's rule counts pages. By price, requests count: pages that lie together need one, in place or not, and pages at
//! new places need another for the node with their addresses, often a flush more, and leave room that is lost until it
//! is discarded. Left out on purpose: reads of a file whose pages were scattered, and appended pages, which have no place.

use std::sync::Arc;

use super::balance::Asked;
use crate::context::Context;
use crate::node::Nodes;
use crate::node::cache::Node;
use crate::node::map::{Lookup, addr_in};
use crate::options::{FsyncMode, InPlace};
use crate::segment::temperature::{Writeback, in_place};

/// For the dirty pages of a file, in order.
pub(crate) fn overwrites(
    (ctx, nodes): (&Context, &Nodes),
    inode: &Arc<Node>,
    pages: impl ExactSizeIterator<Item = u64>,
    why: Writeback,
) -> bool {
    let few = match ctx.options.in_place {
        _ if matches!(why, Writeback::Background | Writeback::Atomic) => false,
        InPlace::Few(most) => pages.len() <= most,
        InPlace::Price => overwriting_pays((ctx, nodes), inode, pages, why),
    };
    inode.inode(|r| in_place(r, few, why, ctx.options.mode))
}

fn overwriting_pays(
    (ctx, nodes): (&Context, &Nodes),
    inode: &Arc<Node>,
    pages: impl Iterator<Item = u64>,
    why: Writeback,
) -> bool {
    let mut asked = Asked {
        pages: 0,
        runs: 0,
        stays: true,
        inode: why == Writeback::Fsync,
        in_order: ctx.options.fsync_mode == FsyncMode::Strict,
    };
    let mut next = None;
    for page in pages {
        let Ok(Lookup::At(place)) = nodes.find(inode, page) else { return false };
        let addr = addr_in(ctx, &place.node, &place.node.read(), place.slot);
        if !addr.is_real() {
            return false;
        }
        asked.pages += 1;
        asked.runs += u64::from(next != Some(addr.0));
        next = Some(addr.0 + 1);
    }
    asked.pays_in_place(&ctx.options.prices)
}
