//! Mounts an empty in-memory file system and serves it in the foreground until it is unmounted or interrupted: the
//! upper limit of what FUSE allows, and a test of the adapter alone.
//!
//!     memfs_mount DIR [bytes=N] [threads=N] [writeback=no]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use judges::memfs::MemFs;

const USAGE: &str = "usage: memfs_mount DIR [bytes=N] [threads=N] [writeback=no]";

fn main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memfs_mount: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or(USAGE)?;
    let mut bytes = 8 << 30;
    let mut options = fuse::MountOptions {
        fsname: "memfs".to_owned(),
        subtype: "memfs".to_owned(),
        dev: true,
        suid: true,
        ..fuse::MountOptions::default()
    };
    for argument in arguments {
        match argument.split_once('=').ok_or(USAGE)? {
            ("bytes", n) => bytes = n.parse()?,
            ("threads", n) => options.threads = n.parse()?,
            ("writeback", "no") => options.caching = fuse::Caching::Through,
            _ => return Err(USAGE.into()),
        }
    }
    let fs = Arc::new(MemFs::new(bytes));
    fuse::run_until_unmounted(fs, Path::new(&dir), &options, || println!("mounted on {dir}"))?;
    Ok(())
}
