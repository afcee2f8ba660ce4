//! `joulefs cat`: how are files inside an image printed?
//!
//! Contents go to standard output in chunks of 1 MiB as they are read. With --json the whole file is kept in memory,
//! because JSON output is complete only with its last byte.

use std::fs::File;
use std::io::{self, ErrorKind, Seek as _, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderStringWriter;
use rustix::fs::OFlags;
use serde_json::json;
use vfs::{Attr, FileKind, FileSystem, Seek, path};

use crate::bounded::{Allowance, HostReserve};
use crate::image::Image;
use crate::place::Place;
use crate::reading::Reading;
use crate::{Failure, output};

/// Print files inside an image.
///
/// With --json: a list of objects, one per file, with the path as given, the size in bytes and the contents in Base64;
/// the files must fit in memory.
///
/// If standard output is a new file, holes stay holes. Otherwise they are written as zeros, and a file longer than its
/// volume is refused unless --really is given. Output to a file stops when only 1 % of its file system (at most 256
/// MiB) is free.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs cat disk.img:/etc/fstab\n  \
    joulefs --json cat disk.img:/photo.jpg | jq -r .[0].base64 | base64 -d > photo.jpg")]
pub struct Args {
    /// IMAGE:/path, one or more.
    #[arg(required = true, value_parser = clap::value_parser!(Place))]
    places: Vec<Place>,
    #[command(flatten)]
    reading: Reading,
    /// Write more than the volume can hold; for sparse files, compressed files and files that share blocks.
    #[arg(long)]
    really: bool,
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let out = Out::new().map_err(|e| format!("standard output: {e}"))?;
    let mut list = Vec::new();
    for place in &args.places {
        let fail = |e: vfs::Error| format!("{}: {e}", place.text());
        let (image, at) = place.inside()?;
        let image = Image::open_to_read(image, args.reading)?;
        let fs = &*image.vol;
        let found = path::walk(fs, at).map_err(fail)?;
        let attr = fs.getattr(found.ino()).map_err(fail)?;
        if attr.kind == FileKind::Directory {
            return Err(fail(vfs::Error::IsDirectory).into());
        }
        let mut allowance = Allowance::new(Some(image.bytes()), args.really);
        let begin = if as_json { None } else { out.end() };
        if begin.is_none() && allowance.left().is_some_and(|left| attr.size > left) {
            return Err(format!(
                "{0}: is {1} long, more than its volume ({2}), and its holes would be written as zeros; write to a new \
                 file, which keeps holes (joulefs cat {0} > FILE), or give --really",
                place.text(),
                output::bytes(attr.size),
                output::bytes(image.bytes()),
            )
            .into());
        }
        let written = match (as_json, begin) {
            (true, _) => {
                let mut text = EncoderStringWriter::new(&STANDARD);
                // Writing into memory does not fail.
                let size = read_all(fs, &attr, |bytes| Ok(text.write_all(bytes)?));
                size.map(|size| list.push(json!({ "path": place.raw(), "size": size, "base64": text.into_inner() })))
            }
            (false, Some(begin)) => out.write_data(fs, &attr, begin, &mut allowance),
            (false, None) => read_all(fs, &attr, |bytes| out.write(bytes)).map(drop),
        };
        match written {
            Ok(()) => {}
            // The reader closed the pipe, as `head` does: no failure.
            Err(Stopped::Write(e)) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(Stopped::Write(e)) => return Err(format!("standard output: {e}").into()),
            Err(Stopped::Read(e)) => return Err(fail(e).into()),
            Err(Stopped::Refused(why)) => return Err(format!("{}: {why}", place.text()).into()),
        }
    }
    if as_json {
        output::print(&list.into());
    }
    Ok(())
}

/// Why a file was not written completely.
enum Stopped {
    Read(vfs::Error),
    Write(io::Error),
    /// It exceeds the limit.
    Refused(String),
}

impl From<vfs::Error> for Stopped {
    fn from(e: vfs::Error) -> Self {
        Stopped::Read(e)
    }
}

impl From<io::Error> for Stopped {
    fn from(e: io::Error) -> Self {
        Stopped::Write(e)
    }
}

/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// Passes a file's bytes in order to `take`, holes as zeros; returns their number.
fn read_all(
    fs: &dyn FileSystem,
    attr: &Attr,
    mut take: impl FnMut(&[u8]) -> Result<(), Stopped>,
) -> Result<u64, Stopped> {
    let mut buf = vec![0; CHUNK];
    let mut offset = 0;
    loop {
        let n = fs.read(attr.ino, offset, &mut buf)?;
        if n == 0 {
            return Ok(offset);
        }
        take(&buf[..n])?;
        offset += n as u64;
    }
}

/// Standard output.
struct Out {
    file: File,
    /// It is a regular file of the host.
    regular: bool,
    reserve: HostReserve,
}

impl Out {
    fn new() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let regular = file.metadata()?.is_file();
        Ok(Out { file, regular, reserve: HostReserve::default() })
    }

    fn check_room(&self, bytes: usize) -> Result<(), Stopped> {
        match self.regular {
            true => self.reserve.check(&self.file, bytes as u64).map_err(Stopped::Refused),
            false => Ok(()),
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Stopped> {
        self.check_room(bytes.len())?;
        Ok((&self.file).write_all(bytes)?)
    }

    /// The position of the next byte, if holes can be skipped there: at the end of a regular file that is not in append
    /// mode.
    fn end(&self) -> Option<u64> {
        let appends = rustix::fs::fcntl_getfl(&self.file).map_or(true, |flags| flags.contains(OFlags::APPEND));
        if !self.regular || appends {
            return None;
        }
        let at = (&self.file).stream_position().ok()?;
        (self.file.metadata().ok()?.len() <= at).then_some(at)
    }

    /// Writes a file without its holes, from `begin`. If it exceeds the limit, truncates what was written.
    fn write_data(
        &self,
        fs: &dyn FileSystem,
        attr: &Attr,
        begin: u64,
        allowance: &mut Allowance,
    ) -> Result<(), Stopped> {
        let written = self.data(fs, attr, begin, allowance);
        let end = match &written {
            Ok(size) => {
                self.file.set_len(begin + size)?;
                begin + size
            }
            Err(Stopped::Refused(_)) => {
                self.file.set_len(begin)?;
                begin
            }
            Err(_) => self.file.metadata()?.len(),
        };
        // Further writers to the same file continue there.
        (&self.file).seek(SeekFrom::Start(end))?;
        written.map(drop)
    }

    fn data(&self, fs: &dyn FileSystem, attr: &Attr, begin: u64, allowance: &mut Allowance) -> Result<u64, Stopped> {
        let mut buf = vec![0; CHUNK];
        let mut at = 0;
        loop {
            let mut end = attr.size;
            if attr.kind == FileKind::Regular {
                at = match fs.seek(attr.ino, at, Seek::Data) {
                    Err(vfs::Error::PastEnd) => return Ok(attr.size),
                    found => found?,
                };
                end = fs.seek(attr.ino, at, Seek::Hole)?;
            }
            while at < end {
                let want = (end - at).min(CHUNK as u64) as usize;
                let n = fs.read(attr.ino, at, &mut buf[..want])?;
                if n == 0 {
                    return Ok(at);
                }
                allowance.take(n as u64).map_err(Stopped::Refused)?;
                self.check_room(n)?;
                self.file.write_all_at(&buf[..n], begin + at)?;
                at += n as u64;
            }
            if at >= attr.size {
                return Ok(attr.size);
            }
        }
    }
}
