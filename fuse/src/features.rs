//! Which features of the protocol are asked for?

use fuser::{FopenFlags, InitFlags, KernelConfig};

/// Largest write request. The kernel's own limit is 256 pages (`fs.fuse.max_pages_limit`).
const MAX_WRITE: u32 = 1 << 20;

/// Requests the kernel may have in the background (read-ahead, writeback) before it holds back.
const MAX_BACKGROUND: u16 = 64;

/// Protocol features asked for wherever the kernel offers them.
///
/// `FUSE_ASYNC_DIO` is not among them: with it an asynchronous direct write (`io_submit`, `io_uring`) ends without
/// the kernel dropping pages that a buffered read put into its cache meanwhile, and they stay stale for good.
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

/// What the kernel may keep of files' contents and attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Caching {
    /// Contents are read and written through its cache; writes arrive at once.
    Through,
    /// It may also collect writes, and owns the times of regular files. Much faster for small writes;
    /// the file system sees them late and merged.
    #[default]
    Writeback,
    /// Nothing: files change without its doing. Every read, write and question about attributes arrives
    /// as it was asked.
    Live,
}

impl Caching {
    /// What an opened file is allowed.
    pub(crate) fn of_open(self) -> FopenFlags {
        match self {
            Caching::Through | Caching::Writeback => FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH,
            Caching::Live => {
                FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES | FopenFlags::FOPEN_NOFLUSH
            }
        }
    }
}

/// What the kernel agreed to, as far as answers depend on it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Agreed {
    /// `OPEN` may be refused for good, and then `RELEASE` is not sent either.
    pub(crate) no_open: bool,
    /// The file system is told of each handle. Elsewhere the kernel's reference on the inode keeps a file alive that is open.
    pub(crate) counts_opens: bool,
    /// The same for `OPENDIR`.
    pub(crate) no_opendir: bool,
    /// `O_TRUNC` comes with the `OPEN`, not as a truncation before it.
    pub(crate) truncating_open: bool,
    /// A file may be opened past the kernel's cache next to others that have it open through the cache, and be mapped: the
    /// kernel keeps both in step (Linux 6.6).
    pub(crate) direct_opens: bool,
}

/// Asks for everything useful that the kernel offers. The kernel asks about each file that is opened, unless all may be
/// (`refuses_opening`) and none can be changed.
pub(crate) fn negotiate(config: &mut KernelConfig, caching: Caching, read_only: bool, refuses_opening: bool) -> Agreed {
    let offered = config.capabilities();
    let mut want = |flag: InitFlags| {
        // Only refused if it is not offered.
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
    // Both only fail for values out of range; fuser's limits are 16 MiB and not zero.
    let _ = config.set_max_write(MAX_WRITE);
    let _ = config.set_max_background(MAX_BACKGROUND);
    agreed
}
