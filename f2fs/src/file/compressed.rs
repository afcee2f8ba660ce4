//! How are clusters read that Linux compressed?
//!
//! A compressed file's clusters never straddle nodes: of each node's address slots only a multiple of the cluster size
//! is used. The first slot of a compressed cluster is a mark, the following slots are its blocks.

use format::compress::Method;
use format::inode::extra_end;
use format::node::ADDRS_PER_BLOCK;
use format::{Block, BlockAddr};

use super::BLOCK;
use crate::cause::Cause;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::node::map::Lookup;
use crate::volume::Volume;

/// The index at which a plain file has the slot that a file with clusters of `cluster` blocks uses for block `index`.
fn slot_index(index: u64, direct: u32, cluster: u64) -> u64 {
    let whole = |n: u32| u64::from(n) / cluster * cluster;
    let (own, per) = (whole(direct), whole(ADDRS_PER_BLOCK));
    match index.checked_sub(own) {
        None => index,
        Some(i) => u64::from(direct) + i / per * u64::from(ADDRS_PER_BLOCK) + i % per,
    }
}

impl Volume {
    pub(crate) fn read_compressed(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (direct, parameters) = inode.node.inode(|r| {
            let direct = self.division(r)?.direct_slots();
            let p = r
                .extra()
                .filter(|_| r.extra_isize() >= extra_end::COMPRESS)
                .map(|e| (e.i_compress_algorithm, e.i_log_cluster_size, e.i_compress_flag.get()));
            Ok::<_, Error>((direct, p))
        })?;
        let ino = inode.ino;
        let (algorithm, log, flag) = parameters.ok_or_else(|| {
            Error::corrupt(format_args!("inode {ino}: compressed, but without compression attributes"))
        })?;
        let method =
            Method::of_inode(algorithm, log, flag).map_err(|e| Error::corrupt(format_args!("inode {ino}: {e}")))?;
        let n = method.cluster_blocks() as u64;
        let mut plain = vec![0u8; method.cluster_bytes()];
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let cluster = at / BLOCK / n;
            let inside = (at - cluster * n * BLOCK) as usize;
            let first = cluster * n;
            match self.find(&inode.node, slot_index(first, direct, n))? {
                Lookup::At(place) => {
                    self.read_steady(&place.node, || self.read_cluster(inode, &method, first, direct, n, &mut plain))?
                }
                Lookup::Hole(_) => plain.fill(0),
            }
            let m = (plain.len() - inside).min(buf.len() - done);
            buf[done..done + m].copy_from_slice(&plain[inside..inside + m]);
            done += m;
        }
        Ok(())
    }

    fn read_cluster(
        &self,
        inode: &Inode,
        method: &Method,
        first: u64,
        direct: u32,
        n: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let tag = Cause::UserData.of(inode.ino);
        let addrs =
            (0..n).map(|k| self.addr_of(&inode.node, slot_index(first + k, direct, n))).collect::<Result<Vec<_>>>()?;
        if addrs[0] != BlockAddr::COMPRESS {
            for (addr, page) in addrs.iter().zip(out.chunks_exact_mut(4096)) {
                if addr.is_real() {
                    self.check_data_addr(*addr, inode.ino, first)?;
                    page.copy_from_slice(&self.read_block(*addr, tag)?[..]);
                } else {
                    page.fill(0);
                }
            }
            return Ok(());
        }
        let mut packed: Vec<Block> = Vec::new();
        for addr in addrs[1..].iter().take_while(|a| a.is_real()) {
            self.check_data_addr(*addr, inode.ino, first)?;
            packed.push(*self.read_block(*addr, tag)?);
        }
        method
            .decompress(packed.as_flattened(), out)
            .map_err(|e| Error::corrupt(format_args!("inode {}, cluster at file block {first}: {e}", inode.ino)))
    }
}
