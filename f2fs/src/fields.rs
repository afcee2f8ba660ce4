//! How are the fields of an inode read and set in its bytes?
//!
//! Left out: permissions and locks for setting them.

use format::compress::Method;
use format::inode::{Advise, Division, Inline, RawInode};
use format::node::delta::Stamp;
use vfs::DeviceNumber;

/// True for a directory's inode.
pub fn is_dir(raw: &RawInode) -> bool {
    raw.i_mode.get() & 0o170000 == 0o040000
}

/// Stores a device number (kernel `__set_inode_rdev`).
pub(crate) fn set_device_number(r: &mut RawInode, d: Division, n: DeviceNumber) {
    use format::BlockAddr;
    if n.major < 256 && n.minor < 256 {
        r.set_addr(d, 0, BlockAddr(n.major << 8 | n.minor));
        r.set_addr(d, 1, BlockAddr(0));
    } else {
        r.set_addr(d, 0, BlockAddr(0));
        r.set_addr(d, 1, BlockAddr(n.minor & 0xFF | n.major << 8 | (n.minor & !0xFF) << 12));
    }
}

/// Which times of an inode are set to now.
#[derive(Clone, Copy)]
pub(crate) enum Touch {
    /// Contents changed, and therefore attributes.
    Modified,
    /// Only attributes changed.
    Changed,
}

/// Sets times.
pub(crate) fn touch(r: &mut RawInode, what: Touch, now: device::clock::Time) {
    if matches!(what, Touch::Modified) {
        r.i_mtime = (now.secs as u64).into();
        r.i_mtime_nsec = now.nanos.into();
    }
    r.i_ctime = (now.secs as u64).into();
    r.i_ctime_nsec = now.nanos.into();
}

/// What an fsync may record in a delta node instead of writing the inode.
pub(crate) fn stamp_of(r: &RawInode) -> Stamp {
    Stamp {
        size: r.i_size.get(),
        mtime: (r.i_mtime.get(), r.i_mtime_nsec.get()),
        ctime: (r.i_ctime.get(), r.i_ctime_nsec.get()),
    }
}

/// Sets size and times as recorded by an fsync.
pub(crate) fn put_stamp(r: &mut RawInode, stamp: &Stamp) {
    r.i_size = stamp.size.into();
    (r.i_mtime, r.i_mtime_nsec) = (stamp.mtime.0.into(), stamp.mtime.1.into());
    (r.i_ctime, r.i_ctime_nsec) = (stamp.ctime.0.into(), stamp.ctime.1.into());
}

/// Sets or clears `i_inline` bits.
pub(crate) fn put_inline(r: &mut RawInode, bits: Inline, on: bool) {
    let mut i = r.inline();
    i.set(bits, on);
    r.i_inline = i.bits();
}

/// Sets or clears `i_advise` bits.
pub(crate) fn put_advise(r: &mut RawInode, bits: Advise, on: bool) {
    let mut a = r.advise();
    a.set(bits, on);
    r.i_advise = a.bits();
}

/// Stores the compression method in an inode.
pub(crate) fn put_method(r: &mut RawInode, method: Method) {
    if let Some(e) = r.extra_mut() {
        let flag;
        (e.i_compress_algorithm, e.i_log_cluster_size, flag) = method.for_inode();
        e.i_compress_flag = flag.into();
        e.i_compr_blocks = 0.into();
    }
}
