//! `joulefs cat`: what is in a file inside an image?
//!
//! Contents go to standard output as they are read, a mebibyte at a time. With --json a file is held whole, since JSON has
//! no end before its last byte.

use std::io::Write;

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderStringWriter;
use serde_json::json;
use vfs::{FileKind, FileSystem, Ino, path};

use crate::image::Image;
use crate::place::Place;
use crate::reading::Reading;
use crate::{Failure, output};

/// Print files inside an image.
///
/// With --json: a list of objects, one for each file, with its path as given, its size in bytes and its
/// contents in Base64; the files should then fit in memory.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs cat disk.img:/etc/fstab\n  \
    joulefs --json cat disk.img:/photo.jpg | jq -r .[0].base64 | base64 -d > photo.jpg")]
pub struct Args {
    /// IMAGE:/path, one or more.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    places: Vec<Place>,
    #[command(flatten)]
    reading: Reading,
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    let mut list = Vec::new();
    for place in &args.places {
        let fail = |e: vfs::Error| format!("{}: {e}", place.text());
        let (image, at) = place.inside()?;
        let image = Image::open_to_read(image, args.reading)?;
        let fs = &*image.vol;
        let found = path::walk(fs, at).map_err(fail)?;
        if fs.getattr(found.ino()).map_err(fail)?.kind == FileKind::Directory {
            return Err(fail(vfs::Error::IsDirectory).into());
        }
        if as_json {
            let mut text = EncoderStringWriter::new(&STANDARD);
            // Writing into memory does not fail.
            let size = contents(fs, found.ino(), |bytes| text.write_all(bytes).is_ok()).map_err(fail)?;
            list.push(json!({ "path": place.text(), "size": size, "base64": text.into_inner() }));
            continue;
        }
        let mut failed = None;
        contents(fs, found.ino(), |bytes| out.write_all(bytes).map_err(|e| failed = Some(e)).is_ok()).map_err(fail)?;
        match failed {
            None => {}
            // Whoever reads our output has closed it, as `head` does: no failure.
            Some(e) if e.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            Some(e) => return Err(format!("standard output: {e}").into()),
        }
    }
    if as_json {
        output::print(&list.into());
    }
    Ok(())
}

/// Passes a file's bytes in order to `take`, until there are no more or `take` returns false; returns how many it passed.
fn contents(fs: &dyn FileSystem, ino: Ino, mut take: impl FnMut(&[u8]) -> bool) -> vfs::Result<u64> {
    let mut buf = vec![0; 1 << 20];
    let mut offset = 0;
    loop {
        let n = fs.read(ino, offset, &mut buf)?;
        offset += n as u64;
        if n == 0 || !take(&buf[..n]) {
            return Ok(offset);
        }
    }
}
