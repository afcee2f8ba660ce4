//! `joulefs info`: what is this volume, and how full is it? Of a mounted one: with which options?
//!
//! Mounts an image read-only; a mount answers by itself. `joulefs fsck` checks whether the volume is sound.

use std::path::{Path, PathBuf};

use format::superblock::Features;
use scherlfs::Placement;
use serde_json::{Map, Value, json};
use vfs::StatFs;
use volume::Mounted;

use super::ctl;
use crate::image::Image;
use crate::reading::Reading;
use crate::{Failure, fragments, output};

/// Show a volume's type, size and state, or a mount's size and options.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs info disk.img\n  joulefs info /mnt")]
pub struct Args {
    /// The image or block device, or the mount point.
    image: PathBuf,
    #[command(flatten)]
    reading: Reading,
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<(), Failure> {
    if args.image.is_dir() {
        return of_mount(&args.image, as_json);
    }
    let image = Image::open_to_read(&args.image, args.reading)?;
    let st = image.vol.statfs().map_err(|e| e.to_string())?;
    match image.mounted() {
        Mounted::F2fs(vol) => of_f2fs(args, vol, &st, as_json),
        Mounted::ScherlFs(vol) => {
            of_scherlfs(args, vol, &st, as_json);
            Ok(())
        }
    }
}

/// Options of a mount that are worth a line; `joulefs ctl` prints all of its state. Most are F2FS's.
const SHOWN: [&str; 10] = [
    "fsync_mode",
    "discard_unit",
    "in_place",
    "wear",
    "delta",
    "gc",
    "background_gc",
    "power",
    "commit_seconds",
    "strategy",
];

/// A mount answers by itself: its image is in use.
fn of_mount(dir: &Path, as_json: bool) -> Result<(), Failure> {
    let reported = ctl::report(dir)?;
    let st = rustix::fs::statvfs(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let shown: Vec<_> = SHOWN.iter().filter_map(|name| reported.iter().find(|(n, _)| n == name)).collect();
    let [all, free] = [st.f_blocks, st.f_bavail].map(|n| n * st.f_frsize);
    if as_json {
        let options: Map<String, Value> = shown.into_iter().map(|(n, v)| (n.clone(), json!(v))).collect();
        output::print(&json!({
            "mount_point": dir.display().to_string(),
            "user_bytes": all,
            "free_bytes": free,
            "options": options,
        }));
        return Ok(());
    }
    output::line(&format!("mounted at         {}", dir.display()));
    output::line(&format!("for files          {}, {} free", output::bytes(all), output::bytes(free)));
    for (name, value) in shown {
        output::line(&format!("{name:<18} {}", output::plain(value)));
    }
    Ok(())
}

fn hexadecimal(uuid: &[u8]) -> String {
    uuid.iter().map(|b| format!("{b:02x}")).collect()
}

/// A label for people.
fn label(label: &str) -> String {
    if label.is_empty() { "none".to_owned() } else { output::plain(label) }
}

/// Where new inodes are placed, in words.
fn placed(placement: Placement) -> &'static str {
    match placement {
        Placement::Before => "before their contents",
        Placement::After => "behind their contents",
        Placement::InPlace => "in one of two places before their contents",
        Placement::Delayed => "in one of two places before their contents, and written after them",
    }
}

fn of_scherlfs(args: &Args, vol: &scherlfs::Volume, st: &StatFs, as_json: bool) {
    let (sb, uuid) = (vol.superblock(), hexadecimal(&vol.superblock().uuid));
    let (runs, largest) = vol.free_runs();
    if as_json {
        output::print(&json!({
            "image": args.image.display().to_string(),
            "file_system": "ScherlFS",
            "label": sb.label,
            "uuid": uuid,
            "bytes": sb.blocks * 4096,
            "user_bytes": st.blocks * 4096,
            "free_bytes": st.blocks_free * 4096,
            "inodes": sb.inodes,
            "placement": sb.placement.name(),
            "checkpoint_version": sb.checkpoint,
            "transaction": sb.seq.0,
            "clean_unmount": sb.clean,
            "free_runs": runs,
            "largest_free_run_bytes": largest * 4096,
        }));
        return;
    }
    output::line(&format!("image              {}", args.image.display()));
    output::line("file system        ScherlFS");
    output::line(&format!("label              {}", label(&sb.label)));
    output::line(&format!("uuid               {uuid}"));
    output::line(&format!("size               {}", output::bytes(sb.blocks * 4096)));
    let [all, free] = [st.blocks, st.blocks_free].map(|n| output::bytes(n * 4096));
    output::line(&format!("for files          {all}, {free} free"));
    output::line(&format!("inodes             {}, put {}", sb.inodes, placed(sb.placement)));
    output::line(&format!(
        "checkpoint         {}, {}; the next transaction is {}",
        sb.checkpoint,
        if sb.clean { "written by an unmount" } else { "not unmounted cleanly" },
        sb.seq.0 + 1
    ));
    output::line(&format!("free space         in {runs} runs, the largest of {}", output::bytes(largest * 4096)));
}

fn of_f2fs(args: &Args, vol: &f2fs::Volume, st: &StatFs, as_json: bool) -> Result<(), Failure> {
    let (sb, state, free) = (vol.superblock(), vol.state(), vol.free_fragments());
    let uuid = hexadecimal(&sb.uuid);
    let deltas = match sb.features.contains(Features::DELTA) {
        true => Some(vol.count_deltas().map_err(|e| format!("{}: {e}", args.image.display()))?),
        false => None,
    };
    let compressed = match sb.features.contains(Features::COMPRESSION) {
        true => Some(vol.count_compressed().map_err(|e| format!("{}: {e}", args.image.display()))?),
        false => None,
    };
    let quotas = sb.quota_inos.iter().any(|ino| ino.0 != 0).then_some(match state.quotas_need_fsck {
        true => "unknown",
        false => "known",
    });
    if as_json {
        output::print(&json!({
            "image": args.image.display().to_string(),
            "file_system": "F2FS",
            "label": sb.label,
            "uuid": uuid,
            "features": sb.features.names(),
            "bytes": sb.block_count * 4096,
            "user_bytes": st.blocks * 4096,
            "free_bytes": st.blocks_free * 4096,
            "inodes": state.inodes,
            "nodes": state.nodes,
            "main_segments": sb.main_segs,
            "segments_per_section": sb.segs_per_sec,
            "free_segments": state.free_segments,
            "dirty_segments": state.dirty_segments,
            "reserved_segments": state.reserved_segments,
            "checkpoint_version": state.checkpoint_version,
            "clean_unmount": state.clean_unmount,
            "quota_usage": quotas,
            "deltas": deltas.map(|d| json!({ "count": d.deltas, "files": d.inodes, "bytes": d.bytes })),
            "compressed": compressed.map(|c| json!({
                "files": c.files, "saved_bytes": c.saved * 4096, "released_files": c.released,
            })),
            "logs": state.logs.iter().map(|l| json!({
                "log": format!("{:?}", l.0), "segment": l.1, "next": l.2, "threaded": l.3,
            })).collect::<Vec<_>>(),
            "free_fragments": fragments::json(&free),
        }));
        return Ok(());
    }
    let label = label(&sb.label);
    output::line(&format!("image              {}", args.image.display()));
    output::line("file system        F2FS");
    output::line(&format!("label              {label}"));
    output::line(&format!("uuid               {uuid}"));
    output::line(&format!(
        "features           {}",
        match sb.features.names() {
            n if n.is_empty() => "none".to_owned(),
            n => n.join(", "),
        }
    ));
    output::line(&format!("size               {}", output::bytes(sb.block_count * 4096)));
    output::line(&format!(
        "for files          {}, {} free",
        output::bytes(st.blocks * 4096),
        output::bytes(st.blocks_free * 4096)
    ));
    output::line(&format!("inodes             {} ({} nodes)", state.inodes, state.nodes));
    output::line(&format!(
        "segments           {} of 2 MiB: {} free, {} partly used, {} reserved",
        sb.main_segs, state.free_segments, state.dirty_segments, state.reserved_segments
    ));
    output::line(&format!(
        "checkpoint         version {}, {}",
        state.checkpoint_version,
        if state.clean_unmount { "written by an unmount" } else { "not unmounted cleanly" }
    ));
    if let Some(d) = deltas {
        output::line(&format!(
            "deltas             {} in {} files, {} instead of {}",
            d.deltas,
            d.inodes,
            output::bytes(d.bytes),
            output::bytes(d.deltas * 4096)
        ));
    }
    if let Some(c) = compressed {
        output::line(&format!(
            "compressed files   {}, {} saved and still reserved for them; the saved space of {} is released",
            c.files,
            output::bytes(c.saved * 4096),
            c.released
        ));
    }
    if let Some(usage) = quotas {
        let more = match usage {
            "known" => "until JouleFS writes to the volume",
            _ => "until fsck.f2fs recounts it; Linux mounts without quotas",
        };
        output::line(&format!("quotas             usage by owner is {usage} {more}"));
    }
    for (log, seg, next, threaded) in &state.logs {
        let how = if *threaded { ", filling holes" } else { "" };
        output::line(&format!("log {:<14} segment {seg}, block {next}{how}", format!("{log:?}")));
    }
    output::line(&format!("free space         in {} pieces:", free.total()));
    output::lines(&fragments::table(&free));
    Ok(())
}
