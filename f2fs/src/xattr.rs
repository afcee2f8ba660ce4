//! How are extended attributes stored? As one list in the inode's inline area and, if it needs more, a node.

use crate::context::Context;
use crate::node::Nodes;
use std::sync::Arc;

use format::Nid;
use format::inode::{Inline, RawInode};
use format::node::XATTR_NODE_OFFSET;
use format::xattr::{self, NODE_BYTES};
use vfs::XattrFlags;

use crate::error::{At, Result};
use crate::fields::{Touch, put_inline, touch};
use crate::inode::Inode;
use crate::node::cache::Node;
use crate::pack::PackState;

/// Extended attributes and access control lists.
pub struct Xattrs {
    pub(crate) ctx: Arc<Context>,
    pub(crate) nodes: Arc<Nodes>,
}

impl Xattrs {
    pub(crate) fn new(ctx: &Arc<Context>, nodes: &Arc<Nodes>) -> Arc<Self> {
        Arc::new(Xattrs { ctx: ctx.clone(), nodes: nodes.clone() })
    }
}

impl Xattrs {
    /// The node for attributes that do not fit in the inode, checked to be one.
    pub(crate) fn xattr_node(&self, inode: &Inode) -> Result<Option<Arc<Node>>> {
        match inode.node.inode(|r| Nid(r.i_xattr_nid.get())) {
            Nid(0) => Ok(None),
            nid => self.nodes.child(inode.ino, nid, XATTR_NODE_OFFSET).map(Some),
        }
    }

    /// The bytes of the whole list, and how many of them are in the inode.
    fn xattr_area(&self, inode: &Inode) -> Result<(Vec<u8>, usize)> {
        let mut area = {
            let bytes = inode.node.read();
            let r = RawInode::of(&bytes);
            match r.inline().contains(Inline::XATTR) {
                true => bytes[self.nodes.division(r)?.xattr_area()].to_vec(),
                false => Vec::new(),
            }
        };
        let inline = area.len();
        if let Some(n) = self.xattr_node(inode)? {
            area.extend_from_slice(&n.read()[..NODE_BYTES]);
        }
        Ok((area, inline))
    }

    /// The value of an entry.
    pub(crate) fn xattr(&self, inode: &Inode, index: u8, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let (area, _) = self.xattr_area(inode)?;
        let v = xattr::get(&area, index, name).at(|| format!("inode {}", inode.ino))?;
        Ok(v.map(<[u8]>::to_vec))
    }

    /// Every entry's full name.
    pub(crate) fn xattr_names(&self, inode: &Inode) -> Result<Vec<Vec<u8>>> {
        let (area, _) = self.xattr_area(inode)?;
        let all = xattr::entries(&area).at(|| format!("inode {}", inode.ino))?;
        Ok(all.iter().filter_map(|e| xattr::full_name(e.index, e.name)).collect())
    }

    /// Sets or removes an entry. The caller holds the inode's lock exclusively.
    pub(crate) fn put_xattr(
        &self,
        _held: &PackState,
        inode: &Arc<Inode>,
        index: u8,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        let (area, inline) = self.xattr_area(inode)?;
        let place = || format!("inode {}", inode.ino);
        let old = xattr::get(&area, index, name).at(place)?;
        if old.is_some() && flags.contains(XattrFlags::CREATE) {
            return Err(vfs::Error::Exists.into());
        }
        if old.is_none() && (value.is_none() || flags.contains(XattrFlags::REPLACE)) {
            return Err(vfs::Error::NoAttribute.into());
        }
        if old.is_some() && old == value {
            return Ok(());
        }
        let node = self.xattr_node(inode)?;
        let small = xattr::set(&area, index, name, value, inline).at(place)?;
        let whole = match &small {
            Some(_) => None,
            None => {
                let full = xattr::capacity(inline, true);
                // Linux returns E2BIG, too: more space on the volume would not help.
                Some(xattr::set(&area, index, name, value, full).at(place)?.ok_or(vfs::Error::AttributeTooLarge)?)
            }
        };
        match (small, whole) {
            (Some(small), _) => {
                self.store_inline_xattr(inode, &small)?;
                if let Some(n) = node {
                    self.nodes.free_node(&n, false)?;
                    self.nodes.edit_inode(&inode.node, |r| r.i_xattr_nid = 0.into());
                    self.nodes.add_blocks(&inode.node, -1);
                }
            }
            (None, Some(whole)) => {
                let n = match node {
                    Some(n) => n,
                    None => {
                        let n = self.nodes.new_node(&inode.node, XATTR_NODE_OFFSET)?;
                        self.nodes.edit_inode(&inode.node, |r| r.i_xattr_nid = n.nid.0.into());
                        n
                    }
                };
                self.store_inline_xattr(inode, &whole[..inline])?;
                self.nodes.edit(&n, |b| b[..NODE_BYTES].copy_from_slice(&whole[inline..]));
            }
            (None, None) => {}
        }
        let now = self.ctx.now();
        self.nodes.edit_inode(&inode.node, |r| touch(r, Touch::Changed, now));
        Ok(())
    }

    fn store_inline_xattr(&self, inode: &Inode, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        self.nodes.edit(&inode.node, |b| {
            let range = self.nodes.division(RawInode::of(b))?.xattr_area();
            put_inline(RawInode::of_mut(b), Inline::XATTR, true);
            b[range].copy_from_slice(bytes);
            Ok(())
        })
    }
}
