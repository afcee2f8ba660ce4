//! `joulefs cat`

use std::io::Write;

use vfs::{FileKind, FileSystem, path};

use crate::Failure;
use crate::image::Image;
use crate::place::Place;

/// Print files inside an image.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  joulefs cat disk.img:/etc/fstab")]
pub struct Args {
    /// IMAGE:/path, one or more.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    places: Vec<Place>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    for place in &args.places {
        let fail = |e: vfs::Error| format!("{}: {e}", place.text());
        let (image, at) = place.inside()?;
        let image = Image::open(image, false)?;
        let fs = &*image.vol;
        let found = path::walk(fs, at).map_err(fail)?;
        if fs.getattr(found.ino()).map_err(fail)?.kind == FileKind::Directory {
            return Err(fail(vfs::Error::IsDirectory));
        }
        let mut buf = vec![0; 1 << 20];
        let mut offset = 0;
        loop {
            let n = fs.read(found.ino(), offset, &mut buf).map_err(fail)?;
            if n == 0 {
                break;
            }
            match out.write_all(&buf[..n]) {
                // The reader has seen enough.
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                other => other.map_err(|e| format!("standard output: {e}"))?,
            }
            offset += n as u64;
        }
    }
    Ok(())
}
