//! One field of each structure is set to a wrong value (the same fields as in f2fs-tools' `inject.f2fs`): each is
//! found under its name, and repaired so that both checkers are satisfied.

use format::inode::RawInode;
use format::node::{self, Footer};
use format::{BlockAddr, Ino, Nid, bits, dentry};
use fsck::FindingKind as K;

use crate::rig::{FEATURES, Volume, volume};

/// Injects, demands the finding and a repair, and the same number of files.
#[track_caller]
fn injected(what: &str, inject: impl Fn(&Volume), found: impl Fn(&K) -> bool) {
    let v = volume(&FEATURES[..5]);
    let files = v.check().counts.files;
    inject(&v);
    let report = v.check();
    assert!(report.findings.iter().any(|f| found(&f.kind)), "{what} is not found:\n{report}");
    v.repairs();
    let after = v.check().counts.files;
    assert_eq!(after, files, "{what}: a file came or went");
}

fn file(v: &Volume) -> (Nid, Ino) {
    let ino = v.ino("mid");
    (ino.nid(), ino)
}

#[test]
fn fields_of_an_inode() {
    type Set = fn(&mut RawInode);
    type Is = fn(&K) -> bool;
    let cases: [(&str, Set, Is); 12] = [
        ("i_links of 0", |r| r.i_links = 0.into(), |k| matches!(k, K::LinksWrong { .. })),
        ("i_links of 7", |r| r.i_links = 7.into(), |k| matches!(k, K::LinksWrong { .. })),
        ("i_blocks", |r| r.i_blocks = 1000.into(), |k| matches!(k, K::BlocksWrong { .. })),
        ("i_mode of no type", |r| r.i_mode = 0o644.into(), |k| matches!(k, K::NodeUnusable { .. })),
        ("i_namelen", |r| r.i_namelen = 300.into(), |k| matches!(k, K::NameLenBad { .. })),
        ("i_xattr_nid that is the inode", |r| r.i_xattr_nid = r.footer_nid(), |k| matches!(k, K::NodeUnusable { .. })),
        ("i_nid that is the inode", |r| r.i_nid[0] = r.footer_nid(), |k| matches!(k, K::NodeUnusable { .. })),
        ("i_nid outside the NAT", |r| r.i_nid[2] = 0x00FF_FFFF.into(), |k| matches!(k, K::NodeUnusable { .. })),
        ("i_pino", |r| r.i_pino = 77.into(), |k| matches!(k, K::ParentWrong { .. })),
        ("i_inline", |r| r.i_inline |= 4, |k| matches!(k, K::InlineMisplaced { .. } | K::InlineWrong { .. })),
        ("i_flags of casefold", |r| r.i_flags = 0x4000_0000.into(), |k| matches!(k, K::MarkMisplaced { .. })),
        ("i_advise of encryption", |r| r.i_advise |= 4, |k| matches!(k, K::MarkMisplaced { .. })),
    ];
    for (what, set, is) in cases {
        if what == "i_pino" {
            // Only a warning: nothing to repair.
            let v = volume(&FEATURES[..5]);
            v.edit_inode(file(&v).1, set);
            v.finds(is);
            continue;
        }
        injected(what, |v| v.edit_inode(file(v).1, set), is);
    }
}

/// Accesses the number in an inode's footer like a field with a node number.
trait FooterNid {
    fn footer_nid(&self) -> zerocopy::byteorder::little_endian::U32;
}

impl FooterNid for RawInode {
    fn footer_nid(&self) -> zerocopy::byteorder::little_endian::U32 {
        self.footer.nid
    }
}

#[test]
fn an_address_and_extra_attributes_of_an_inode() {
    let at = |v: &Volume| v.division(file(v).1);
    for addr in [1u32, 0x00FF_FFFF, 0xFFFF_FFFE] {
        let set = |v: &Volume| {
            let d = at(v);
            v.edit_inode(file(v).1, |r| r.set_addr(d, 3, BlockAddr(addr)));
        };
        injected("i_addr", set, |k| matches!(k, K::AddrOutside { .. } | K::ClusterMark { .. }));
    }
    let size = |v: &Volume| v.edit_inode(file(v).1, |r| r.extra_mut().unwrap().i_extra_isize = 0xFFFF.into());
    injected("i_extra_isize", size, |k| matches!(k, K::InodeBad { .. }));
    let sum = |v: &Volume| {
        let addr = v.nat(file(v).0).addr;
        v.edit(addr, |b| RawInode::of_mut(b).extra_mut().unwrap().i_inode_checksum = 0xDEAD_BEEF.into());
    };
    injected("i_inode_checksum", sum, |k| matches!(k, K::InodeChecksum { .. }));
}

#[test]
fn fields_of_a_footer() {
    let direct = |v: &Volume| RawInode::of(&v.node(v.ino("big").nid())).nid(0);
    let set = |change: fn(Footer) -> Footer| {
        move |v: &Volume| {
            v.edit_node(direct(v), |b| {
                let f = node::footer(b);
                node::set_footer(b, &change(f));
            })
        }
    };
    injected("nid", set(|f| Footer { nid: Nid(60_000), ..f }), |k| matches!(k, K::NodeUnusable { .. }));
    injected("ino", set(|f| Footer { ino: Ino(60_000), ..f }), |k| matches!(k, K::NodeUnusable { .. }));
    injected("offset", set(|f| Footer { offset: 77, ..f }), |k| matches!(k, K::NodeOffsetWrong { .. }));
    // These fields are meaningless in a node outside a chain.
    for change in [(|f| Footer { cp_ver: 77, ..f }) as fn(Footer) -> Footer, |f| Footer { next: BlockAddr(1), ..f }] {
        let v = volume(&FEATURES[..5]);
        set(change)(&v);
        assert!(v.check().is_clean(), "{}", v.check());
    }
}

#[test]
fn entries_of_the_nat() {
    let unusable = |k: &K| matches!(k, K::NodeUnusable { .. });
    injected("ino", |v| v.edit_nat(file(v).0, |e| e.ino = Ino(3)), |k| matches!(k, K::NatInoWrong { .. }));
    injected("block_addr of 0", |v| v.edit_nat(file(v).0, |e| e.addr = BlockAddr::NULL), unusable);
    injected("block_addr outside", |v| v.edit_nat(file(v).0, |e| e.addr = BlockAddr(7)), unusable);
    let other = |v: &Volume| {
        let addr = v.nat(v.ino("other").nid()).addr;
        v.edit_nat(file(v).0, |e| e.addr = addr);
    };
    injected("block_addr of another", other, unusable);
    injected("version", |v| v.edit_nat(file(v).0, |e| e.version ^= 0x55), |k| matches!(k, K::SummaryWrong { .. }));
    for nid in [Nid(1), Nid(2)] {
        injected("reserved", |v| v.edit_nat(nid, |e| e.addr = BlockAddr(0)), |k| matches!(k, K::NatReserved { .. }));
        injected("reserved", |v| v.edit_nat(nid, |e| e.ino = Ino(9)), |k| matches!(k, K::NatReserved { .. }));
    }
}

#[test]
fn entries_of_a_directory() {
    fn entry(change: impl Fn(&mut [u8], usize)) -> impl Fn(&Volume) {
        move |v: &Volume| {
            let (at, slot, _) = v.entry(v.ino("many"), "file_number_7");
            v.edit(at, |b| change(&mut b[..], slot));
        }
    }
    let field = |off: usize, bytes: &'static [u8]| {
        entry(move |b, slot| b[30 + 11 * slot + off..][..bytes.len()].copy_from_slice(bytes))
    };
    injected("d_bitmap", entry(|b, slot| _ = bits::lsb_put(b, slot, false)), |k| {
        matches!(k, K::Unreachable { .. } | K::DentryBad { .. })
    });
    injected("d_hash", field(0, &[1, 2, 3, 4]), |k| matches!(k, K::DentryHash { .. }));
    injected("d_ino", field(4, &[0xFF, 0xFF, 0xFF, 0]), |k| matches!(k, K::NodeUnusable { .. }));
    injected("d_len", field(8, &[0xFF, 0xFF]), |k| matches!(k, K::DentryBad { .. }));
    injected("d_ftype", field(10, &[9]), |k| matches!(k, K::DentryType { .. }));
    let name = |b: &mut [u8], slot: usize| b[dentry::Layout::BLOCK.names_at() + 8 * slot] = b'/';
    injected("filename", entry(name), |k| matches!(k, K::DentryBad { .. }));
    for slot in [0, 1] {
        let dot = move |v: &Volume| {
            let (_, at) = v.dir_blocks(v.ino("many"))[0];
            v.edit(at, |b| dentry::remove(&dentry::Layout::BLOCK, b, slot));
        };
        injected("a dot", dot, |k| matches!(k, K::Dots { .. }));
    }
}
