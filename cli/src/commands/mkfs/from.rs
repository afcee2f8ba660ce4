//! `joulefs mkfs --from DIR`: how does a tree become an image, reproducibly and without root?
//!
//! The volume is created in a temporary file next to the image, filled, unmounted, and then renamed: a failure leaves
//! nothing behind. Without `--size` it is as large as the tree needs. Left out: owners and labels ([`super::owners`],
//! [`super::labels`]), and how files are copied ([`crate::commands::cp`]).

use std::fs;
use std::io::BufWriter;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::clock::Time;
use device::{Access, BlockDevice, Clock, FileDevice, RealClock, VirtualClock, write_sparse};
use f2fs::mkfs::{Geometry, Options};
use format::superblock::Features;
use inspect::{Findings, Progress, begin, tables};
use serde_json::json;
use vfs::{FileKind, Timestamp, XattrFlags, path};
use volume::{Kind, MountOptions};

use super::described::{Described, Description, LABEL};
use super::labels::Labels;
use super::owners::Owners;
use super::{Args, Wanted};
use crate::commands::cp::{self, Filled, Glance, Source, host};
use crate::image::Image;
use crate::interrupt::Interrupt;
use crate::whole::Part;
use crate::{Failure, output, progress};

/// What is said of a tree that becomes an image.
#[derive(clap::Args)]
#[command(next_help_heading = "A volume with files")]
pub struct Tree {
    /// Copy this directory into the new volume, with file types, modes, owners, times, attributes, hard links and
    /// holes. Does not need root; without --size the volume is as small as possible.
    #[arg(long, value_name = "DIR")]
    pub from: Option<PathBuf>,
    /// Take owners, modes and capabilities from this file, one path per line: `path uid gid mode [capabilities=MASK]`
    /// (Android's fs_config). It must have every path of the tree.
    #[arg(long, value_name = "FILE", requires = "from")]
    pub fs_config: Option<PathBuf>,
    /// Take SELinux labels from this file, in the format of file_contexts(5): path expression, optional file type,
    /// context.
    #[arg(long, value_name = "FILE", requires = "from")]
    pub file_contexts: Option<PathBuf>,
    /// The future mount point, which is the prefix of the paths in --fs-config and --file-contexts.
    #[arg(long, value_name = "PATH", default_value = "/", requires = "from")]
    pub mount_point: String,
    /// Use this time (seconds since 1970) for all files, and derive the UUID from it unless --uuid is given, so that
    /// the same tree gives the same image. Default: SOURCE_DATE_EPOCH, if set.
    #[arg(long, value_name = "SECONDS", requires = "from")]
    pub timestamp: Option<i64>,
    /// Make a volume that can never be written (feature ro). F2FS only.
    #[arg(long, requires = "from")]
    pub read_only: bool,
    /// Compress files (feature compression): lz4, zstd, lzo or lzo-rle. F2FS only.
    #[arg(long, value_name = "ALGORITHM", requires = "from")]
    pub compress: Option<String>,
    /// Write an Android sparse image (fastboot, simg2img). F2FS only.
    #[arg(long, requires = "from")]
    pub sparse: bool,
}

/// Maximum number of retries with a size one tenth larger, after a volume was too small.
const TRIES: u32 = 6;
/// Size up to which contents are stored inline, next to a small inode's attributes.
const INLINE: u64 = 3300;
/// Size above which a file's holes are queried.
const LARGE: u64 = 64 << 10;
/// Minimum number of block addresses in an inode, and number in a direct node.
const OWN: u64 = 860;
const IN_A_NODE: u64 = 1018;
/// Name bytes per directory slot, and slots per block.
const NAME: u64 = 8;
const NAMES: u64 = 214;

/// Upper bound of the blocks that a file needs.
fn blocks_of(
    source: &dyn Source,
    at: &[u8],
    Glance { kind, size, .. }: Glance,
    names: &[Vec<u8>],
) -> Result<u64, String> {
    Ok(match kind {
        FileKind::Directory => {
            let places: u64 = names.iter().map(|n| (n.len() as u64).div_ceil(NAME)).sum();
            // A directory that grew has partly filled blocks.
            2 + 3 * places / NAMES
        }
        FileKind::Regular if size > INLINE => {
            let mut data = size.div_ceil(4096);
            if size > LARGE {
                // Holes need no blocks.
                data = 0;
                let (mut file, mut from) = (source.open(at)?, 0);
                while let Some((start, end)) = file.next_data(from)?.filter(|(start, _)| *start < size) {
                    data += end.min(size).div_ceil(4096) - start / 4096;
                    from = end;
                }
            }
            let beyond = data.saturating_sub(OWN).div_ceil(IN_A_NODE);
            1 + data + beyond + beyond.div_ceil(IN_A_NODE) + u64::from(beyond > 2)
        }
        _ => 1,
    })
}

/// The smallest size of a volume with `blocks` blocks for files.
fn size_for(blocks: u64, options: &Options) -> Result<u64, Failure> {
    let mut size = blocks;
    loop {
        let lacks = match Geometry::plan(size, options) {
            Ok(g) => blocks.saturating_sub(u64::from(g.main_segs - g.overprov_segs) * 512),
            Err(f2fs::mkfs::MkfsError::TooSmall { minimum, .. }) => minimum.saturating_sub(size),
            Err(e) => return Err(Failure::usage(e)),
        };
        if lacks == 0 {
            return Ok(size * 4096);
        }
        size += lacks.next_multiple_of(512);
    }
}

fn list<T>(option: &str, file: Option<&Path>, parse: fn(&str) -> Result<T, String>) -> Result<Option<T>, Failure> {
    let Some(file) = file else { return Ok(None) };
    let text = fs::read_to_string(file).map_err(|e| format!("{option} {}: {e}", file.display()))?;
    Ok(Some(parse(&text).map_err(|e| format!("{option} {}, {e}", file.display()))?))
}

/// The timestamp for all files, if one is given.
fn time(tree: &Tree) -> Result<Option<i64>, Failure> {
    match (tree.timestamp, std::env::var("SOURCE_DATE_EPOCH")) {
        (Some(secs), _) => Ok(Some(secs)),
        (None, Ok(text)) => {
            let secs = text.parse().map_err(|_| Failure::usage(format!("SOURCE_DATE_EPOCH={text}: not seconds")))?;
            Ok(Some(secs))
        }
        (None, Err(_)) => Ok(None),
    }
}

impl Wanted {
    /// Derives random values from time and label, unless they were given.
    fn settle(&mut self, secs: i64, given_uuid: bool) {
        let hash = |of: &str, label: &str| -> [u8; 32] {
            *blake3::Hasher::new_derive_key(of)
                .update(&secs.to_le_bytes())
                .update(label.as_bytes())
                .finalize()
                .as_bytes()
        };
        let first = |bytes: [u8; 32]| -> [u8; 16] { std::array::from_fn(|n| bytes[n]) };
        match self {
            Wanted::F2fs(options) => {
                if !given_uuid {
                    options.uuid = Some(device::rng::uuid(first(hash("joulefs mkfs: uuid", &options.label))));
                }
                let [a, b, c, d, ..] = hash("joulefs mkfs: checkpoint", &options.label);
                options.checkpoint_version = Some(u32::from_le_bytes([a, b, c, d]) >> 1 | 1);
            }
            Wanted::ScherlFs(options) => {
                if !given_uuid {
                    options.uuid = device::rng::uuid(first(hash("joulefs mkfs: uuid", &options.label)));
                }
                options.secret = u128::from_le_bytes(first(hash("joulefs mkfs: secret", &options.label))) as u64;
            }
        }
    }
}

/// Mount options while the volume is filled.
fn mount_options(tree: &Tree) -> Result<MountOptions, Failure> {
    let mut options = MountOptions::default();
    if let Some(algorithm) = &tree.compress {
        for (name, value) in [("compress_algorithm", algorithm.as_str()), ("compress_extension", "*")] {
            let wrong = |e: volume::OptionError| Failure::usage(format!("--compress {algorithm}: {e}"));
            options.set(name, Some(value)).map_err(wrong)?;
        }
    }
    Ok(options)
}

/// Sets the labels of files that `mkfs` itself created.
fn describe_rest(image: &Image, description: &Description, source: &dyn Source) -> Result<(), String> {
    let at = b"/lost+found";
    let Ok(found) = path::walk(&*image.vol, at) else { return Ok(()) };
    if source.glance(at).is_ok() {
        return Ok(());
    }
    let fail = |e: vfs::Error| format!("{}:/lost+found: {e}", image.path().display());
    if let Some(label) = description.labels.as_ref().and_then(|l| l.of(&description.path(at), FileKind::Directory)) {
        image.vol.setxattr(found.ino(), LABEL, label, XattrFlags::empty()).map_err(fail)?;
    }
    Ok(())
}

/// Writes the volume in `file` to `out` as a sparse image.
fn sparse(file: &Path, out: fs::File) -> Result<(), Failure> {
    let fail = |e: String| format!("{}: {e}", file.display());
    let dev = FileDevice::open(file, Access::ReadOnly).map_err(|e| e.to_string())?;
    let mut found = Findings::default();
    let sb = begin::superblock(&dev, &mut found).map_err(|e| fail(e.to_string()))?;
    let pack = begin::pack(&dev, &sb, &mut found).ok_or_else(|| fail("no checkpoint".into()))?;
    let read = tables::read(&dev, &sb, &pack, &mut found, &mut Progress::new(&mut |_| true));
    let (sit, _) = read.map_err(|e| fail(e.to_string()))?;
    // Tables are written completely, to overwrite old contents; of the main area only used blocks.
    let needed = |at: u64| {
        let addr = u32::try_from(at).ok().map(format::BlockAddr);
        addr.and_then(|a| sb.locate(a)).is_none_or(|(seg, offset)| sit.segment(seg).has(offset))
    };
    let bar = progress::bytes(dev.blocks() * 4096, "writing the sparse image");
    let mut out = BufWriter::with_capacity(1 << 20, out);
    let wrote = write_sparse(&dev, needed, &mut out, &mut |blocks| {
        bar.inc(blocks * 4096);
        progress::show_if_slow(&bar);
    });
    bar.finish_and_clear();
    Ok(wrote.map_err(|e| fail(e.to_string()))?)
}

/// Rejects conflicting options.
fn check(args: &Args, wanted: &Wanted) -> Result<(), Failure> {
    let tree = &args.tree;
    if wanted.kind() != Kind::F2fs {
        let of_f2fs =
            [("--read-only", tree.read_only), ("--compress", tree.compress.is_some()), ("--sparse", tree.sparse)];
        if let Some((name, _)) = of_f2fs.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!("{name} is for F2FS; leave it out with --type scherlfs")));
        }
        if args.size.is_none() {
            return Err(Failure::usage("--from with --type scherlfs needs --size"));
        }
    }
    match fs::metadata(&args.image) {
        Ok(there) if !there.is_file() => {
            let at = args.image.display();
            Err(Failure::usage(format!(
                "{at}: --from cannot write to a block device; make an image file and copy it to the device, or mount \
                 the device and copy the files"
            )))
        }
        Ok(there) if there.len() > 0 && !args.force => {
            Err(format!("{}: already exists; give --force to overwrite it", args.image.display()).into())
        }
        _ => Ok(()),
    }
}

/// Runs it.
pub fn run(args: &Args, from: &Path, mut wanted: Wanted, as_json: bool) -> Result<(), Failure> {
    check(args, &wanted)?;
    let tree = &args.tree;
    let secs = time(tree)?;
    let description = Description {
        owners: list("--fs-config", tree.fs_config.as_deref(), Owners::parse)?,
        labels: list("--file-contexts", tree.file_contexts.as_deref(), Labels::parse)?,
        time: secs.map(|sec| Timestamp { sec, nsec: 0 }),
        mount_point: format!("/{}", tree.mount_point.trim_matches('/')).into_bytes(),
    };
    let meta = fs::metadata(from).map_err(|e| format!("--from {}: {e}", from.display()))?;
    if !meta.is_dir() {
        return Err(format!("--from {}: not a directory", from.display()).into());
    }
    let host = host::Host::new(from.as_os_str().as_bytes());
    let source = Described::new(&host, from.as_os_str().as_bytes().to_vec(), &description);
    if let Some(secs) = secs {
        wanted.settle(secs, args.uuid.is_some());
    }
    if let (Wanted::F2fs(options), Some(_)) = (&mut wanted, &tree.compress) {
        options.features |= Features::COMPRESSION | Features::EXTRA_ATTR;
    }
    wanted.assume_zeroed(true);
    let stop = Interrupt::catch()?;
    let cannot = |e: std::io::Error| format!("{}: {e}", args.image.display());
    let given = args.size.as_deref().map(|text| wanted.size(text)).transpose()?;
    let begin = || Part::create(&args.image, true).map(|(part, _)| part).map_err(cannot);
    let mut part = begin()?;
    let written = fs::metadata(part.path()).ok().map(|m| (m.dev(), m.ino()));
    let mut blocks = 0;
    let bytes = cp::survey(&source, written, &stop, &mut |at, glance, names| {
        blocks += blocks_of(&source, at, *glance, names)?;
        Ok(())
    })
    .map_err(|e| format!("--from: {e}"))?;
    let mut size = match (given, &wanted) {
        (Some(size), _) => size,
        // Space that the volume needs for itself: open logs, checkpoints.
        (None, Wanted::F2fs(options)) => size_for(blocks + blocks / 64 + 1024, options)?,
        (None, Wanted::ScherlFs(_)) => return Err(Failure::usage("--from with --type scherlfs needs --size")),
    };
    let mut tries = 0;
    let made = loop {
        tries += 1;
        match fill(args, &wanted, &source, part.path(), (size, bytes), secs, &stop) {
            Ok(made) => break made,
            Err(Full::NoSpace(why)) if args.size.is_some() || tries == TRIES => {
                let why = why.trim_end_matches('\n');
                return Err(format!("{why}; the volume has {}: give a larger --size", output::bytes(size)).into());
            }
            Err(Full::NoSpace(_)) => {
                size = (size + size / 10).next_multiple_of(2 << 20);
                part = begin()?;
            }
            Err(Full::Failed(failure)) => return Err(failure),
        }
    };
    stop.end();
    if tree.sparse {
        let (whole, open) = Part::create(&args.image, true).map_err(cannot)?;
        sparse(part.path(), open)?;
        whole.finish().map_err(cannot)?;
        drop(part);
    } else {
        part.finish().map_err(cannot)?;
    }
    tell(args, &wanted, size, &made, as_json);
    Ok(())
}

/// The result.
struct Done {
    filled: Filled,
    uuid: [u8; 16],
}

/// Why no image was made.
enum Full {
    /// The volume was too small.
    NoSpace(String),
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for Full {
    fn from(e: E) -> Self {
        Full::Failed(e.into())
    }
}

/// Creates a volume of `size` bytes in a file, and fills it with `bytes`.
fn fill(
    args: &Args,
    wanted: &Wanted,
    source: &Described<'_>,
    file: &Path,
    (size, bytes): (u64, u64),
    secs: Option<i64>,
    stop: &Interrupt,
) -> Result<Done, Full> {
    let tree = &args.tree;
    let clock: Arc<dyn Clock> = match secs {
        Some(secs) => Arc::new(VirtualClock::new(Time::new(secs, 0))),
        None => Arc::new(RealClock::new()),
    };
    let dev: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::create(file, size).map_err(|e| Failure::Failed(e.to_string()))?);
    let (_, _, uuid) = wanted.make(&dev, clock.clone()).map_err(|e| format!("{}: {e}", args.image.display()))?;
    drop(dev);
    let image = Image::open_at(file, mount_options(tree)?, clock)?;
    let filled = cp::fill(source, &image, bytes, stop)?;
    if let Some(why) = filled.failed.first() {
        let _ = image.close();
        if image.host_room().is_some_and(|room| room.is_short()) {
            let why = format!("{why}; no image was made: the file system that holds {} is full", args.image.display());
            return Err(Full::Failed(Failure::Failed(why)));
        }
        if filled.is_full {
            return Err(Full::NoSpace(why.clone()));
        }
        let more = filled.failed.len() - 1;
        let more = if more > 0 { format!("; {more} more failures") } else { String::new() };
        return Err(Full::Failed(Failure::Failed(format!("{why}{more}; no image was made"))));
    }
    describe_rest(&image, source.description, source)?;
    image.close()?;
    drop(image);
    if tree.read_only {
        let dev = FileDevice::open(file, Access::ReadWrite).map_err(|e| Failure::Failed(e.to_string()))?;
        f2fs::superblocks::make_read_only(&dev)
            .map_err(|e| Failure::Failed(format!("{}: {e}", args.image.display())))?;
    }
    Ok(Done { filled, uuid })
}

fn tell(args: &Args, wanted: &Wanted, size: u64, made: &Done, as_json: bool) {
    let uuid: String = made.uuid.iter().map(|b| format!("{b:02x}")).collect();
    let Filled { files, bytes, .. } = &made.filled;
    if as_json {
        output::print(&json!({
            "image": args.image.display().to_string(),
            "file_system": wanted.kind().name(),
            "uuid": uuid,
            "bytes": size,
            "files": files,
            "bytes_of_files": bytes,
            "sparse": args.tree.sparse,
        }));
    } else {
        output::line(&format!(
            "{}: {} volume with {files} files, {}, uuid {uuid}",
            args.image.display(),
            output::bytes(size),
            output::bytes(*bytes)
        ));
    }
}
