//! `joulefs df`: how full are volumes, in images or mounted?
//!
//! The numbers equal those of df(1) on the mounted volume.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::image::Image;
use crate::reading::Reading;
use crate::table::{self, Table};
use crate::{Failure, output};

/// Report free space of volumes.
///
/// Accepts images and mount points. "Used", "available" and the space reserved for cleaning add up to the size. "Files
/// left" is how many files could still be created: F2FS has no fixed number of inodes, so what df -i shows as used are
/// blocks. `joulefs info` shows the number of files and the fragmentation of the free space, `joulefs inspect` what
/// reading the files costs.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs df disk.img archive.img\n  joulefs df --json /mnt")]
pub struct Args {
    /// Images, block devices, or JouleFS mount points.
    #[arg(required = true, value_name = "IMAGE|DIR")]
    volumes: Vec<PathBuf>,
    #[command(flatten)]
    reading: Reading,
}

struct Row {
    volume: String,
    mounted: Option<String>,
    bytes: u64,
    free: u64,
    available: u64,
    inodes: u64,
    inodes_free: u64,
}

impl Row {
    fn used(&self) -> u64 {
        self.bytes.saturating_sub(self.free)
    }

    /// The used share of the space available to an ordinary user, rounded up, as in df(1).
    fn percent(&self) -> Option<u64> {
        let all = self.used().checked_add(self.available).filter(|all| *all > 0)?;
        Some((u128::from(self.used()) * 100).div_ceil(u128::from(all)) as u64)
    }
}

fn of_image(path: &Path, reading: Reading) -> Result<Row, Failure> {
    let image = Image::open_to_read(path, reading)?;
    let st = image.vol.statfs().map_err(|e| format!("{}: {e}", path.display()))?;
    let bytes = |blocks: u64| blocks * u64::from(st.block_size);
    Ok(Row {
        volume: path.display().to_string(),
        mounted: None,
        bytes: bytes(st.blocks),
        free: bytes(st.blocks_free),
        available: bytes(st.blocks_available),
        inodes: st.files,
        inodes_free: st.files_free,
    })
}

/// For the JouleFS volume that contains a directory.
fn of_mount(dir: &Path) -> Result<Row, Failure> {
    let named = |e: &dyn std::fmt::Display| format!("{}: {e}", dir.display());
    let inside = std::fs::canonicalize(dir).map_err(|e| named(&e))?;
    let mounts = fuse::unmount::mounts().map_err(|e| named(&e))?;
    let mount =
        mounts.into_iter().rev().filter(|m| inside.starts_with(&m.dir)).max_by_key(|m| m.dir.components().count());
    let mount = mount
        .filter(|m| m.kind == "fuse.joulefs")
        .ok_or_else(|| format!("{}: not a JouleFS mount point; use df for other file systems", dir.display()))?;
    let st = rustix::fs::statvfs(dir).map_err(|e| named(&e))?;
    Ok(Row {
        volume: mount.source.display().to_string(),
        mounted: Some(mount.dir.display().to_string()),
        bytes: st.f_blocks * st.f_frsize,
        free: st.f_bfree * st.f_frsize,
        available: st.f_bavail * st.f_frsize,
        inodes: st.f_files,
        inodes_free: st.f_ffree,
    })
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    let of = |path: &PathBuf| if path.is_dir() { of_mount(path) } else { of_image(path, args.reading) };
    let rows = args.volumes.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    if as_json {
        let row = |r: &Row| {
            json!({
                "volume": r.volume, "mounted": r.mounted, "bytes": r.bytes, "used_bytes": r.used(), "free_bytes": r.free,
                "available_bytes": r.available, "inodes": r.inodes, "inodes_used": r.inodes.saturating_sub(r.inodes_free),
            })
        };
        output::print(&rows.iter().map(row).collect::<Vec<_>>().into());
        return Ok(());
    }
    let sizes = ["size", "used", "available"].map(|head| table::number(head).least(11));
    let more = [table::number("use%").least(4), table::number("files left").least(10), table::text(" volume")];
    let mut table = Table::new(sizes.into_iter().chain(more)).between(1);
    for r in &rows {
        let [size, used, available] = [r.bytes, r.used(), r.available].map(output::bytes);
        let percent = r.percent().map_or("-".to_owned(), |p| format!("{p}%"));
        let at = r.mounted.as_ref().map_or(String::new(), |dir| format!(" on {dir}"));
        table.row(&[&size, &used, &available, &percent, &r.inodes_free, &format!(" {}{at}", r.volume)]);
    }
    output::lines(&table.text());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_in_use_is_rounded_up_and_of_what_users_can_use() {
        let row = |bytes, free, available| Row {
            volume: String::new(),
            mounted: None,
            bytes,
            free,
            available,
            inodes: 0,
            inodes_free: 0,
        };
        assert_eq!(row(1000, 1000, 900).percent(), Some(0));
        assert_eq!(row(1000, 999, 899).percent(), Some(1));
        assert_eq!(row(1000, 100, 0).percent(), Some(100));
        assert_eq!(row(0, 0, 0).percent(), None);
    }
}
