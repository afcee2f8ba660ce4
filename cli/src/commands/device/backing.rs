//! Where are the contents of a metered device kept?

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use device::{Access, BlockDevice, FileDevice, Lba, Memory, open_image};
use rustix::fs::{FallocateFlags, Mode, OFlags};

use super::Args;
use crate::half_made::HalfMade;
use crate::{Failure, held, image, size};

/// The largest device in bytes, 256 TiB: the limit of the simulation in memory.
const LARGEST: u64 = 1 << 48;

/// Where contents are kept, and whether discarded blocks then read as zeroes.
pub(super) struct Backing {
    pub contents: Arc<dyn BlockDevice>,
    /// Blocks that hold data.
    pub held: Vec<(Lba, u64)>,
    pub discards_read_zero: bool,
    /// The source shown in the mount table.
    pub source: String,
    /// The image, if newly created.
    pub made: Option<HalfMade>,
}

fn asked(args: &Args) -> Result<Option<u64>, Failure> {
    let Some(text) = &args.size else { return Ok(None) };
    Ok(Some(size::within("--size", text, 4096..=LARGEST)?))
}

/// The backing requested by the options.
pub(super) fn backing(args: &Args) -> Result<Backing, Failure> {
    let size = asked(args)?;
    let Some(path) = &args.image else {
        let bytes = size
            .ok_or_else(|| Failure::usage("--size is needed, e.g. --size 8G (or --image with a file that exists)"))?;
        let source = format!("{}-{}", args.profile, bytes);
        return Ok(Backing {
            contents: Arc::new(Memory::new(bytes / 4096)),
            held: Vec::new(),
            discards_read_zero: true,
            source,
            made: None,
        });
    };
    let named = |e: std::io::Error| format!("{}: {e}", path.display());
    let fresh = match std::fs::metadata(path) {
        Ok(meta) => meta.is_file() && meta.len() == 0,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => true,
        Err(e) => return Err(named(e).into()),
    };
    let mut made = None;
    let contents: Arc<dyn BlockDevice> = match size {
        Some(bytes) if fresh && !path.exists() => {
            let (dev, half) = image::create(path, bytes, HalfMade::new(path))?;
            made = Some(half);
            Arc::new(dev)
        }
        Some(bytes) if fresh => Arc::new(FileDevice::create(path, bytes).map_err(|e| e.to_string())?),
        None if fresh => {
            return Err(Failure::usage(format!("{}: empty file; give its size, e.g. --size 8G", path.display())));
        }
        _ => open_image(path, Access::ReadWrite).map_err(|e| e.to_string())?,
    };
    let bytes = contents.blocks().saturating_mul(4096);
    if let Some(asked) = size.filter(|asked| asked / 4096 != contents.blocks()) {
        return Err(Failure::Usage(format!(
            "--size {asked}: {} holds {bytes} bytes; leave --size out",
            path.display()
        )));
    }
    let path = std::fs::canonicalize(path).map_err(named)?;
    let source = path.display().to_string();
    let held = held::runs(&contents, &path)?;
    Ok(Backing { contents, held, discards_read_zero: has_holes(&path), source, made })
}

/// True if the host can punch holes in the image. On a block device it always can: Linux writes zeroes if the device
/// cannot.
fn has_holes(image: &Path) -> bool {
    let Ok(meta) = image.metadata() else { return false };
    if !meta.is_file() {
        return true;
    }
    let dir = image.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR).is_ok_and(|probe| {
        let probe = File::from(probe);
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        probe.set_len(4096).is_ok() && rustix::fs::fallocate(&probe, hole, 0, 4096).is_ok()
    })
}
