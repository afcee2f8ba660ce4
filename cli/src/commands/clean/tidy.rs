//! `joulefs clean --all`: does at once the maintenance that a ScherlFS volume otherwise does while charging.

use std::path::Path;

use serde_json::json;
use volume::{MountOptions, Mounted};

use crate::image::Image;
use crate::{Failure, output};

/// Frees long runs and defragments files.
pub(super) fn run(source: &Path, as_json: bool) -> Result<(), Failure> {
    let shown = source.display();
    if source.is_dir() {
        let why = "a mounted volume does this by itself when idle on external power: mount it with -o power=powered, \
            or set power=powered with joulefs ctl";
        return Err(format!("{shown}: {why}").into());
    }
    let mut options = MountOptions::default();
    options.set("power", Some("powered")).map_err(|e| e.to_string())?;
    let image = Image::open_with(source, options)?;
    let Mounted::ScherlFs(volume) = image.mounted() else {
        return Err(
            format!("{shown}: an F2FS volume; --all is for ScherlFS; choose files with --defrag or --worst").into()
        );
    };
    let before = volume.free_runs();
    let done = volume.tidy().map_err(|e| format!("{shown}: {e}"));
    let after = volume.free_runs();
    image.close()?;
    let done = done?;
    if as_json {
        output::print(&json!({
            "image": shown.to_string(),
            "passes": done.passes,
            "cleared_segments": done.segments,
            "moved_bytes": done.moved * 4096,
            "gathered_files": done.files,
            "gathered_bytes": done.gathered * 4096,
            "free_runs": { "before": before.0, "after": after.0 },
            "largest_free_run_bytes": { "before": before.1 * 4096, "after": after.1 * 4096 },
        }));
        return Ok(());
    }
    output::line(&format!(
        "{shown}: {} segments cleared by moving {} blocks; {} files defragmented, {} blocks",
        done.segments, done.moved, done.files, done.gathered
    ));
    output::line(&format!(
        "free space: {} runs, the largest of {} blocks; before: {} runs, the largest of {}",
        after.0, after.1, before.0, before.1
    ));
    Ok(())
}
