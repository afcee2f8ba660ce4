//! How does the Linux kernel access a [`vfs::FileSystem`]?
//!
//! [`mount`](fn@mount) serves any file system through `/dev/fuse`: `adapter` turns FUSE requests into `vfs` calls,
//! [`errno`] is the only table from errors to error numbers, [`mount`](mod@mount) runs a mount from its beginning to
//! its last checkpoint, [`gauge`] shows a metered device as a file, [`unmount`] ends a mount from outside, [`daemon`]
//! runs one in the background. Through its [`socket`] a mount reports its state and its end; [`memory`] limits its
//! caches; `setid` and `capability` remove privileges from files changed by other users, `chattr` handles file flags,
//! `compression` the requests for compressed files, `atomic` those for writes that become durable together; `shown` shows
//! all files with one owner; `admission` decides which writes the kernel's cache may take.
//!
//! # What a FUSE mount cannot do
//! * `syncfs(2)` and `sync(2)` write the kernel's cache back to this process but do not make it durable: the kernel
//!   sends `FUSE_SYNCFS` only to mounts of type `fuseblk`, which need a block device as their source. `fsync` of a file
//!   or a directory does arrive.
//! * For the same reason `umount(8)` returns before the last checkpoint is written: a plain `fuse` mount gets no
//!   `FUSE_DESTROY`. (On `fuseblk` it would, but the `fuser` library answers it before the file system sees it.)
//!   [`unmount::unmount`] first makes everything durable, then waits for the process's final report ([`socket`]), and
//!   until the image is released.
//! * `O_TMPFILE` and birth times in `statx` have opcodes (`TMPFILE`, `STATX`) that `fuser` 0.18, the newest release,
//!   does not decode; the kernel falls back or reports "not supported". `fuser`'s main line has both.
//! * The kernel refuses `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE` on FUSE, and forwards neither `FIEMAP`
//!   nor `FIBMAP`: programs that request extents get "not supported".
//! * With the writeback cache, if a volume becomes full while a file is open, the write that does not fit gets the
//!   error only if it is no larger than a small reserve (`admission`). Of a larger write the part that does not fit is
//!   lost, and the next write, `fsync` or `close` reports it. Files opened later are exact (Linux 6.6 and later).
//!   Errors of pages written through a mapping are reported by `msync`, `fsync` and `close`; there is no `SIGBUS`.
//! * A process that opened an append-only file may clear `O_APPEND` (`fcntl`), which other file systems refuse. Its writes below
//!   the end are refused then: before they return if the file was append-only when it was opened (Linux 6.6 and later), otherwise
//!   by the next write, `fsync` or `close`.
//! * `chattr` cannot set flags that JouleFS does not enforce (`S`, `D`, `F`); an owner may set the times of an
//!   append-only file.
//! * Access times follow the rule of Linux's `relatime`. Opening a file read-only counts as reading it, since reads
//!   from the kernel's cache do not arrive here. Reading the cache through a descriptor that may also write does not
//!   count; a page that the kernel reads to change a part of it does.
//! * With the writeback cache the kernel shows the change time that `chattr` sets only after the file is closed (Linux
//!   6.18 and later), or after the kernel has forgotten the file.
//! * A reader's `O_NOATIME` and a later `mount -o remount,ro` or `remount,noatime` are ignored: reads still change
//!   access times. `-o noatime` when mounting prevents that.
//! * With the writeback cache the kernel stamps written files, and this process stamps new ones, by the same coarse
//!   clock. Since Linux 6.13 the kernel's stamps run ahead of that clock by up to a tick (1 to 10 ms) while other
//!   programs query times on file systems with finer ones (ext4, tmpfs): a file created in that tick can look older
//!   than one written just before. Later writes never look older.
//! * An asynchronous direct write (`io_submit`, `io_uring`) is done while the call waits; with `FUSE_ASYNC_DIO` the
//!   kernel would leave stale pages in its cache.
//! * `fuser` reads requests and writes replies by `read` and `writev`, never by `splice`.
#![allow(clippy::disallowed_methods, reason = "the kernel above keeps real time, and people wait in it")]
#![forbid(unsafe_code)]

mod acl;
mod adapter;
mod admission;
mod atomic;
mod attr;
mod capability;
mod chattr;
mod compression;
pub mod control;
pub mod daemon;
mod dirty_limit;
pub mod errno;
mod features;
pub mod gauge;
mod kept;
mod listing;
pub mod memory;
pub mod mount;
mod notices;
mod operations;
mod room;
mod seek;
mod setid;
mod shown;
pub mod socket;
pub mod unmount;

pub use features::Caching;
pub use mount::{MountError, MountOptions, Mounted, mount, place, run_until_unmounted, run_with_socket};
pub use shown::Owner;
