//! Which protocol features does a mount request?

use fuser::{FopenFlags, InitFlags, KernelConfig};

/// Largest write request. The kernel's own limit is 256 pages (`fs.fuse.max_pages_limit`).
const MAX_WRITE: u32 = 1 << 20;

/// Background requests (read-ahead, writeback) before the kernel throttles.
const MAX_BACKGROUND: u16 = 64;

/// Protocol features requested if the kernel offers them.
///
/// `FUSE_ASYNC_DIO` is not among them: with it, an asynchronous direct write (`io_submit`, `io_uring`) completes
/// without dropping pages that a buffered read cached meanwhile, and these stay stale for good.
const WANTED: [InitFlags; 14] = [
    InitFlags::FUSE_ASYNC_READ,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_EXPORT_SUPPORT,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_SPLICE_READ,
    InitFlags::FUSE_SPLICE_WRITE,
    InitFlags::FUSE_SPLICE_MOVE,
];

/// What the kernel may cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caching {
    /// Contents are read and written through its cache; writes arrive immediately.
    Through,
    /// It may also collect writes, and owns the times of regular files. Much faster for small writes; the file system
    /// sees them late and merged.
    #[default]
    Writeback,
    /// Nothing: files change on their own. Every read, write and attribute request arrives as issued.
    Live,
}

impl Caching {
    /// Flags for an opened file.
    pub(crate) fn of_open(self) -> FopenFlags {
        match self {
            Caching::Through | Caching::Writeback => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
            Caching::Live => {
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH
            }
        }
    }
}

/// The features in use that change answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Agreed {
    /// `OPEN` may be refused for good; then `RELEASE` is not sent either.
    pub(crate) no_open: bool,
    /// The file system sees each handle. Otherwise the kernel's reference on the inode keeps an open file alive.
    pub(crate) counts_opens: bool,
    /// The same for `OPENDIR`.
    pub(crate) no_opendir: bool,
    /// `O_TRUNC` comes with the `OPEN`, not as a separate truncation before it.
    pub(crate) truncating_open: bool,
    /// A file may be opened past the kernel's cache while others have it open or mapped through the cache: the kernel
    /// keeps both consistent (Linux 6.6).
    pub(crate) direct_opens: bool,
}

/// Requests every useful feature that the kernel offers. The kernel sends `OPEN` for each file, unless none is ever
/// refused (`refuses_opening`) and none can be changed.
pub(crate) fn negotiate(config: &mut KernelConfig, caching: Caching, read_only: bool, refuses_opening: bool) -> Agreed {
    let offered = config.capabilities();
    let mut want = |flag: InitFlags| {
        // Fails only if not offered.
        offered.contains(flag) && config.add_capabilities(flag).is_ok()
    };
    for flag in WANTED {
        want(flag);
    }
    if caching == Caching::Writeback {
        want(InitFlags::FUSE_WRITEBACK_CACHE);
    }
    let direct_opens = caching != Caching::Through && want(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
    let agreed = if caching == Caching::Live {
        let truncating_open = want(InitFlags::FUSE_ATOMIC_O_TRUNC);
        Agreed { truncating_open, counts_opens: true, direct_opens, ..Agreed::default() }
    } else {
        Agreed {
            no_open: read_only && !refuses_opening && want(InitFlags::FUSE_NO_OPEN_SUPPORT),
            counts_opens: refuses_opening,
            no_opendir: want(InitFlags::FUSE_NO_OPENDIR_SUPPORT),
            truncating_open: false,
            direct_opens,
        }
    };
    // Both fail only for values out of range; fuser's limits are 16 MiB and not zero.
    let _ = config.set_max_write(MAX_WRITE);
    let _ = config.set_max_background(MAX_BACKGROUND);
    agreed
}
