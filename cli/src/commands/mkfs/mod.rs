//! `joulefs mkfs`: where is a volume created, of what size, and which data must not be destroyed for it?
//!
//! A newly created file is removed if the format fails. With `--from` the volume is also filled ([`from`]). Layout and
//! defaults are defined by `f2fs::mkfs` and `scherlfs::make`.

mod described;
mod from;
mod labels;
mod owners;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use device::{Access, BlockDevice, Clock, FileDevice, RealClock};
use f2fs::mkfs::{self, MkfsError, Options};
use format::superblock::Features;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use scherlfs::{Placement, make};
use scherlfs_format::superblock::LABEL_MAX;
use serde_json::{Value, json};
use volume::Kind;

use crate::class::Class;
use crate::file_system::Type;
use crate::half_made::HalfMade;
use crate::{Failure, image, meant, output, size};

/// Make a volume in an image file or on a block device.
///
/// Linux can mount an F2FS volume too. A ScherlFS volume (log-structured, for disks) can only be mounted by JouleFS.
/// The root directory is owned by the user who runs `mkfs`, so that this user can write to the mounted volume.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs mkfs disk.img --size 8G\n  \
    joulefs mkfs disk.img --size 512M --label photos --features modern,quota\n  joulefs mkfs /dev/sdx\n  \
    joulefs mkfs card.img --for card --size 4G\n  \
    joulefs mkfs archive.img --type scherlfs --size 8G\n  \
    joulefs mkfs system.img --from tree --timestamp 1700000000 --read-only")]
pub struct Args {
    /// Image file (created if missing) or block device.
    image: PathBuf,
    /// Size, e.g. 512M, 1.5G, 1T; needed for a new file. K, M, G and T, alone or with iB, are powers of 1024; with B
    /// they are powers of 1000: 8G is 8GiB, and 8GB is less.
    #[arg(long, short)]
    size: Option<String>,
    /// The file system.
    #[arg(long = "type", short = 't', value_name = "TYPE", value_enum, default_value_t)]
    kind: Type,
    /// Make the volume for this class of devices: --type and --features in one word. With deltas, only JouleFS can
    /// mount it until `joulefs settle`.
    #[arg(long = "for", value_name = "DEVICE", value_enum, conflicts_with_all = ["kind", "features"])]
    class: Option<Class>,
    /// Volume label.
    #[arg(long, short, default_value = "")]
    label: String,
    /// Feature names, comma-separated (as mkfs.f2fs -O). "modern" means those without a cost (extra_attr,
    /// inode_checksum, flexible_inline_xattr, inode_crtime, lost_found, sb_checksum); "none" makes a volume that the
    /// oldest kernels can mount. Default: modern. F2FS only.
    #[arg(long, short = 'O', value_delimiter = ',')]
    features: Option<Vec<String>>,
    /// Percent of the volume reserved for cleaning; default: depends on the size. F2FS only.
    #[arg(long, allow_negative_numbers = true)]
    overprovision: Option<f64>,
    /// Segments (2 MiB) in a section, the unit of cleaning. Default: 1. F2FS only.
    #[arg(long)]
    segs_per_sec: Option<u32>,
    /// Format for a host-managed zoned disk with zones of this size (a multiple of 2M): one section per zone (as
    /// mkfs.f2fs -m). All zones before the main area must be conventional. Default on such a disk: its zone size. F2FS
    /// only.
    #[arg(long, value_name = "SIZE", conflicts_with = "segs_per_sec")]
    zoned: Option<String>,
    /// Where to put the inode of a file that grows by small writes: before its contents (each write adds an extent),
    /// after them, in either of two fixed places before them (in-place), or in-place but written later (delayed).
    /// Default: before. ScherlFS only.
    #[arg(long, value_name = "PLACE", value_parser = Placement::parse)]
    placement: Option<Placement>,
    /// Owner of the root directory, as numbers UID:GID. Default: the user who runs `mkfs`. With --from, owners come
    /// from the tree.
    #[arg(long, short = 'R', value_name = "UID:GID", value_parser = owner, conflicts_with = "from")]
    root_owner: Option<(u32, u32)>,
    /// UUID, 32 hexadecimal digits with or without dashes; default: random.
    #[arg(long)]
    uuid: Option<String>,
    /// Overwrite existing data.
    #[arg(long, short)]
    force: bool,
    #[command(flatten)]
    tree: from::Tree,
}

/// The requested file system with its options.
pub enum Wanted {
    F2fs(Options),
    ScherlFs(make::Options),
}

impl Wanted {
    fn kind(&self) -> Kind {
        match self {
            Wanted::F2fs(_) => Kind::F2fs,
            Wanted::ScherlFs(_) => Kind::ScherlFs,
        }
    }

    /// Parses the size of the volume.
    fn size(&self, text: &str) -> Result<u64, Failure> {
        match self {
            Wanted::F2fs(options) => Ok(size::of_f2fs(text, options)?),
            Wanted::ScherlFs(_) => Ok(size::of_scherlfs(text)?),
        }
    }

    /// Uses the zones of the disk, unless a zone size was given.
    fn take_zones(&mut self, dev: &dyn BlockDevice) {
        if let (Wanted::F2fs(options), Some(zones)) = (self, dev.zones())
            && !options.features.contains(Features::BLKZONED)
            && let Ok(segments) = u32::try_from(zones.zone_blocks() / 512)
        {
            *options = options.clone().zoned(segments.max(1));
        }
    }

    /// Sets whether the file is known to be all zero, so that it need not be zeroed.
    fn assume_zeroed(&mut self, zeroed: bool) {
        if let Wanted::F2fs(options) = self {
            options.assume_zeroed = zeroed;
        }
    }

    /// Formats; returns what was created as JSON, the bytes for files, and the UUID.
    fn make(&self, dev: &Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<(Value, u64, [u8; 16]), String> {
        Ok(match self {
            Wanted::F2fs(options) => {
                let made = mkfs::format(&**dev, &*clock, options).map_err(|e| e.to_string())?;
                (json!({ "features": made.features.names() }), made.user_blocks * 4096, made.uuid)
            }
            Wanted::ScherlFs(options) => {
                make::format(dev.clone(), &*clock, options).map_err(|e| e.to_string())?;
                let mounted =
                    volume::mount(Kind::ScherlFs, dev.clone(), clock, volume::MountOptions::default().read_only(true))
                        .map_err(|e| e.to_string())?;
                let all = mounted.volume().statfs().map_err(|e| e.to_string())?.blocks_available;
                (json!({}), all * 4096, options.uuid)
            }
        })
    }
}

fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|c| *c != '-').collect();
    // `from_str_radix` would accept a sign.
    let plain = digits.len() == 32 && digits.bytes().all(|c| c.is_ascii_hexdigit());
    Some(u128::from_str_radix(&digits, 16).ok().filter(|_| plain)?.to_be_bytes())
}

/// `UID:GID`.
fn owner(text: &str) -> Result<(u32, u32), String> {
    let (uid, gid) = text.split_once(':').ok_or("write UID:GID, such as 1000:1000")?;
    Ok((id(uid)?, id(gid)?))
}

/// Parses a user or group number. The largest number is Linux's invalid ID.
pub fn id(text: &str) -> Result<u32, String> {
    // `parse` would accept a sign.
    let digits = !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let id = digits.then(|| text.parse().ok()).flatten().filter(|id| *id != u32::MAX);
    id.ok_or_else(|| format!("{text:?} is not the number of a user or group, 0 to {}", u32::MAX - 1))
}

/// The owner of the root directory: by default the user who runs mkfs. An image of a tree must not depend on that user:
/// what the tree lacks (lost+found) belongs to root.
fn root_owner(args: &Args) -> (u32, u32) {
    let caller = super::names::caller();
    let default = if args.tree.from.is_some() { (0, 0) } else { (caller.uid, caller.gid) };
    args.root_owner.unwrap_or(default)
}

/// An error of `f2fs::mkfs` that does not depend on the size, with the names of command-line options.
fn wrong(args: &Args, e: &MkfsError) -> Failure {
    Failure::Usage(match e {
        MkfsError::Option { option: "label", value, must } => format!("--label: {value}; must be {must}"),
        MkfsError::Option { option: "overprovision", value, must } => {
            format!("--overprovision {value}: must be {must}")
        }
        MkfsError::Option { must, .. } => {
            format!("--segs-per-sec {}: must be in {must}", args.segs_per_sec.unwrap_or_default())
        }
        e => format!("--features {}: {e}", features(args).join(",")),
    })
}

fn features(args: &Args) -> Vec<String> {
    let of_class = || args.class.unwrap_or(Class::Laptop).features().iter().map(|name| (*name).to_owned()).collect();
    args.features.clone().unwrap_or_else(of_class)
}

/// The checked options of a command line.
pub fn options(args: &Args) -> Result<Wanted, Failure> {
    let uuid = args
        .uuid
        .as_deref()
        .map(|u| parse_uuid(u).ok_or_else(|| Failure::usage(format!("--uuid {u}: not 32 hexadecimal digits"))))
        .transpose()?;
    match args.class.map_or(args.kind, Class::file_system) {
        Type::F2fs => of_f2fs(args, uuid).map(Wanted::F2fs),
        Type::Scherlfs => of_scherlfs(args, uuid).map(Wanted::ScherlFs),
    }
}

fn of_scherlfs(args: &Args, uuid: Option<[u8; 16]>) -> Result<make::Options, Failure> {
    let given = [
        ("--features", args.features.is_some()),
        ("--overprovision", args.overprovision.is_some()),
        ("--segs-per-sec", args.segs_per_sec.is_some()),
        ("--zoned", args.zoned.is_some()),
    ];
    if let Some((name, _)) = given.iter().find(|(_, given)| *given) {
        return Err(Failure::usage(format!("{name} is for F2FS; leave it out with --type scherlfs and --for disk")));
    }
    if args.label.len() > LABEL_MAX {
        return Err(Failure::Usage(format!("--label: {} bytes; must be at most {LABEL_MAX}", args.label.len())));
    }
    let entropy = || device::rng::entropy().map_err(|e| format!("no random numbers: {e}"));
    let uuid = match uuid {
        Some(uuid) => uuid,
        None => device::rng::uuid(entropy()?),
    };
    // Not derived from the UUID, which users of the volume may know.
    let secret = u128::from_le_bytes(entropy()?) as u64;
    let placement = args.placement.unwrap_or_default();
    let owner = root_owner(args);
    Ok(make::Options { label: args.label.clone(), uuid, secret, placement, owner, ..make::Options::default() })
}

fn of_f2fs(args: &Args, uuid: Option<[u8; 16]>) -> Result<Options, Failure> {
    if args.placement.is_some() {
        return Err(Failure::usage("--placement is for ScherlFS; add --type scherlfs, or leave it out"));
    }
    let mut options = Options::default();
    let features = features(args);
    if features.len() > 1 && features.iter().any(|n| n == "none") {
        return Err(Failure::Usage(format!(
            "--features {}: none cannot be combined with other features",
            features.join(",")
        )));
    }
    for name in features.iter().filter(|n| !n.is_empty() && *n != "none") {
        if name == "modern" {
            options.features |= Options::modern().features;
            continue;
        }
        let (bit, _) = Features::NAMES
            .iter()
            .find(|(_, n)| n == name || (name == "quota" && *n == "quota_ino"))
            .ok_or_else(|| {
                let all: Vec<_> = Features::NAMES.iter().map(|(_, n)| *n).collect();
                let all = ["modern", "none", "quota"].into_iter().chain(all);
                let tip = meant::tip(name, all.clone());
                let all = all.collect::<Vec<_>>().join(", ");
                Failure::usage(format!("unknown feature {name:?}; known features: {all}{tip}"))
            })?;
        options.features |= *bit;
    }
    options.label.clone_from(&args.label);
    options.overprovision = args.overprovision;
    options.segs_per_sec = args.segs_per_sec.unwrap_or(1);
    if let Some(text) = &args.zoned {
        let bytes = size::within("--zoned", text, 2 << 20..=1 << 40)?;
        if bytes % (2 << 20) != 0 {
            return Err(Failure::Usage(format!("--zoned {text}: must be a multiple of 2M, a segment")));
        }
        options = options.zoned((bytes >> 21) as u32);
    }
    options.uuid = uuid;
    options.root_owner = root_owner(args);
    options.check().map_err(|e| wrong(args, &e))?;
    Ok(options)
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let mut options = options(args)?;
    if let Some(from) = &args.tree.from {
        return from::run(args, from, options, as_json);
    }
    let path = &args.image;
    let size = args.size.as_deref().map(|s| options.size(s)).transpose()?;
    let there = std::fs::metadata(path).ok();
    let mut made = None;
    let empty = there.as_ref().is_some_and(|m| m.is_file() && m.len() == 0);
    let dev = match (there, size) {
        (Some(m), _) if !args.force && !empty => {
            // No other process may write between the check and the format.
            let dev = opened(path)?;
            let blank = match m.is_file() {
                true => is_blank_file(path).map_err(|e| format!("{}: {e}", path.display()))?,
                false => is_blank_device(&*dev),
            };
            if !blank {
                return Err(format!("{}: holds data; give --force to overwrite it", path.display()).into());
            }
            if size.is_some() {
                drop(dev);
                reopen(path, size, &mut options)?
            } else {
                options.assume_zeroed(m.is_file());
                dev
            }
        }
        (Some(_), _) => reopen(path, size, &mut options)?,
        (None, Some(size)) => {
            options.assume_zeroed(true);
            let (dev, half) = image::create(path, size, HalfMade::watched(path))?;
            made = Some(half);
            Arc::new(dev)
        }
        (None, None) => {
            return Err(Failure::usage(format!("{}: no such file; give --size to make one", path.display())));
        }
    };
    if dev.zones().is_some() && options.kind() != Kind::F2fs {
        return Err(format!("{}: zoned disk; ScherlFS does not support zones", path.display()).into());
    }
    options.take_zones(&*dev);
    let (mut said, user_bytes, uuid) =
        options.make(&dev, Arc::new(RealClock::new())).map_err(|e| format!("{}: {e}", path.display()))?;
    if let Some(made) = made {
        made.keep();
    }
    let uuid: String = uuid.iter().map(|b| format!("{b:02x}")).collect();
    if as_json {
        said["image"] = json!(path.display().to_string());
        said["file_system"] = json!(options.kind().name());
        said["uuid"] = json!(uuid);
        said["bytes"] = json!(dev.blocks() * 4096);
        said["user_bytes"] = json!(user_bytes);
        output::print(&said);
    } else {
        output::line(&format!(
            "{}: {} {}volume, {} for files, uuid {uuid}",
            path.display(),
            output::bytes(dev.blocks() * 4096),
            if options.kind() == Kind::F2fs { "" } else { "ScherlFS " },
            output::bytes(user_bytes)
        ));
    }
    Ok(())
}

fn opened(path: &PathBuf) -> Result<Arc<dyn BlockDevice>, Failure> {
    let claimed = FileDevice::open(path, Access::ReadWrite).map_err(|e| e.to_string())?;
    Ok(host::zoned::over(claimed, Access::ReadWrite, |plain| Arc::new(plain))?)
}

fn reopen(path: &PathBuf, size: Option<u64>, options: &mut Wanted) -> Result<Arc<dyn BlockDevice>, Failure> {
    let file = std::fs::metadata(path).is_ok_and(|m| m.is_file());
    match size {
        Some(size) if file => {
            options.assume_zeroed(true);
            Ok(Arc::new(FileDevice::create(path, size).map_err(|e| e.to_string())?))
        }
        Some(_) => {
            Err(Failure::usage(format!("{}: --size is for files; a block device has a fixed size", path.display())))
        }
        None => opened(path),
    }
}

/// True if a format would destroy no data on a block device, which is too large to read completely: the places where
/// file systems and partition tables begin and end are zero.
fn is_blank_device(dev: &dyn BlockDevice) -> bool {
    const HEAD: u64 = 256;
    let zero = |at: u64, blocks: u64| {
        let mut bytes = vec![0; blocks as usize * 4096];
        dev.read(device::Lba(at), &mut bytes, device::Tag::default()).is_ok() && bytes.iter().all(|&b| b == 0)
    };
    let blocks = dev.blocks();
    zero(0, HEAD.min(blocks)) && zero(blocks - 1, 1)
}

/// True if every byte of a file is zero. Holes are not read, and reading stops at the first nonzero byte.
fn is_blank_file(path: &std::path::Path) -> std::io::Result<bool> {
    let file = File::open(path)?;
    let mut bytes = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        at = match rustix::fs::seek(&file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(true),
            // A host without hole support: all is data.
            Err(Errno::INVAL) => at,
            Err(e) => return Err(e.into()),
        };
        let n = file.read_at(&mut bytes, at)?;
        if n == 0 {
            return Ok(true);
        }
        if bytes[..n].iter().any(|&b| b != 0) {
            return Ok(false);
        }
        at += n as u64;
    }
}
