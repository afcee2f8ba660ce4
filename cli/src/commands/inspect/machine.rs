//! What does `joulefs inspect --json` print? Energies in picojoules, times in nanoseconds, addresses and lengths in
//! blocks of 4 KiB.
//!
//! Within a version of the schema the meaning of a name does not change; names may be added.

use device::energy::Nanos;
use format::checkpoint::CpFlags;
use inspect::Volume;
use inspect::inode::Kind;
use inspect::price::Cost;
use inspect::space::{LEVELS, MAX_FRAGMENTATION, Space};
use inspect::verdict::{Priced, Sum};
use serde_json::{Map, Value, json};

use super::mounted::Mounted;
use super::text::log_name;
use super::{Args, By, Found, Seen, WORST, groups};

/// The schema's name and version.
pub const SCHEMA: (&str, u32) = ("joulefs-inspect", 2);

/// The changes since an earlier report.
pub fn compared(source: &str, diff: Value) -> Value {
    json!({ "schema": SCHEMA.0, "schema_version": SCHEMA.1, "source": source, "diff": diff })
}

/// The whole report.
pub fn report(seen: &Seen<'_>, args: &Args, read_ahead: u64) -> Value {
    let verdict = &seen.verdict;
    let worst = verdict.worst.iter().take(args.worst.unwrap_or(WORST));
    let by = match args.by {
        By::Class => "class",
        By::App => "app",
        By::Dir => "dir",
    };
    let named = |mut row: Map<String, Value>, name: String| {
        row.insert("name".into(), name.into());
        Value::Object(row)
    };
    let few = &verdict.few_priced;
    let mut out = json!({
        "schema": SCHEMA.0,
        "schema_version": SCHEMA.1,
        "source": seen.source,
        "profile": seen.profile.name,
        "damage": seen.found.damage(),
        "read_ahead_bytes": read_ahead,
        "verdict": {
            "worst_files": verdict.few,
            "excess_extents": verdict.few_excess,
            "excess_extents_of_all": verdict.all.excess(),
            "treatment": cost(few.treatment),
            "saved_per_read_pj": few.saved().0,
            "pays_after_reads": few.pays_after(),
        },
        "advice": seen.advice.iter().map(|a| json!({ "what": a.what(), "text": a.to_string() })).collect::<Vec<_>>(),
        "all": sum(&verdict.all),
        "by": by,
        "groups": groups::of(seen, args.by).into_iter().map(|(n, s)| named(sum(&s), n)).collect::<Vec<_>>(),
        "worst": worst.map(|&i| file(seen, i, args.extents)).collect::<Vec<_>>(),
    });
    let more = match seen.found {
        Found::Volume(v) => of_volume(v),
        Found::Mounted(m) => of_directory(m),
    };
    if let (Value::Object(out), Value::Object(more)) = (&mut out, more) {
        out.extend(more);
    }
    out
}

fn of_volume(volume: &Volume) -> Value {
    let sb = &volume.superblock;
    let uuid: String = sb.uuid.iter().map(|b| format!("{b:02x}")).collect();
    let cp = volume.checkpoint.as_ref();
    json!({
        "file_system": "f2fs",
        "volume": {
            "bytes": sb.block_count * 4096,
            "label": sb.label,
            "uuid": uuid,
            "features": sb.features.names(),
            "main_segments": sb.main_segs,
            "main_address": sb.main.0,
            "segments_per_section": sb.segs_per_sec,
            "checkpoint_version": cp.map(|c| c.version),
            "clean_unmount": cp.map(|c| c.flags.contains(CpFlags::UMOUNT)),
            "user_blocks": cp.map(|c| c.user_blocks),
            "mounted_ns": cp.map(|c| nanoseconds(c.elapsed)),
        },
        "counts": {
            "directories": volume.counts.dirs,
            "files": volume.counts.files,
            "nodes": volume.counts.nodes,
            "blocks": volume.counts.blocks,
        },
        "space": space(&volume.space, true, true),
    })
}

fn of_directory(m: &Mounted) -> Value {
    json!({
        "file_system": m.file_system,
        "volume": { "bytes": m.bytes, "free_bytes": m.free_bytes, "inodes": m.inodes },
        "counts": { "directories": m.dirs, "files": m.files.len() },
        "space": m.known.as_ref().map(|k| space(&k.space, k.has_logs, k.now.is_some())),
        "sample": {
            "is_whole": m.left == 0,
            "directories_left": m.left,
            "unreadable": m.closed,
            "files_without_answer": m.silent,
            "blocks_without_address": m.waiting,
        },
    })
}

fn cost(c: Cost) -> Value {
    json!({ "pj": c.energy.0, "ns": c.time.0 })
}

fn priced(p: &Priced, row: &mut Map<String, Value>) {
    for (name, c) in [("read", p.read), ("ideal_read", p.ideal), ("treatment", p.treatment)] {
        row.insert(format!("{name}_pj"), c.energy.0.into());
        row.insert(format!("{name}_ns"), c.time.0.into());
    }
    row.insert("pays_after_reads".into(), p.pays_after().into());
}

fn sum(s: &Sum) -> Map<String, Value> {
    let mut row = Map::new();
    for (name, n) in [
        ("files", s.files),
        ("fragmented_files", s.fragmented),
        ("inline_files", s.inline),
        ("size_bytes", s.bytes),
        ("blocks", s.blocks),
        ("extents", s.extents),
        ("min_extents", s.min_extents),
        ("deltas", s.deltas),
        ("delta_room_bytes", s.delta_room),
    ] {
        row.insert(name.into(), n.into());
    }
    row.insert("dof".into(), s.dof().into());
    priced(&s.priced, &mut row);
    row
}

fn nanoseconds(seconds: u64) -> u64 {
    seconds.saturating_mul(1_000_000_000)
}

/// Segment counts. Logs and ages are null if the file system has none or does not report them.
fn space(space: &Space, has_logs: bool, has_ages: bool) -> Value {
    let names = format::sit::LogType::ALL.map(log_name).into_iter().chain(["of no type"]);
    let logs = names.zip(&space.logs).map(|(name, l)| {
        let mean = |sum: f64| if l.segments == 0 { 0.0 } else { sum / l.segments as f64 };
        json!({
            "log": name,
            "segments": l.segments,
            "full_segments": l.full,
            "valid_blocks": l.valid,
            "mean_f": mean(l.fragmentation),
            "mean_age_ns": has_ages.then(|| Nanos::from_seconds(mean(l.age as f64))),
        })
    });
    json!({
        "segments": space.segments,
        "free_segments": space.free_segments,
        "valid_blocks": space.valid(),
        "partly_valid_segments_by_tenth": space.tenths,
        "mean_f": space.mean_fragmentation(),
        "most_f": MAX_FRAGMENTATION,
        "age_quartiles_ns": has_ages.then(|| space.ages.map(nanoseconds)),
        "logs": has_logs.then(|| logs.collect::<Vec<_>>()),
        "free_pieces": (0..LEVELS).map(|n| json!({
            "level": format!("L{}", n + 1), "pieces": space.pieces[n], "blocks": space.piece_blocks[n],
        })).collect::<Vec<_>>(),
    })
}

/// A kind's name.
pub fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Link => "link",
        Kind::Special => "special",
        Kind::Unknown => "unknown",
    }
}

fn file(seen: &Seen<'_>, i: usize, extents: bool) -> Value {
    let (f, p) = (&seen.files()[i], &seen.verdict.priced[i]);
    let l = &f.layout;
    let path = seen.path(i);
    let text = path.text();
    let mut row = json!({
        "ino": seen.ino(i),
        "path": text,
        "path_is_sure": path.is_sure,
        "path_is_utf8": std::str::from_utf8(&path.bytes).is_ok(),
        "kind": kind(f.kind),
        "class": f.class.text(),
        "app": inspect::class::application(&seen.path_inside(i)),
        "temperature": l.log.map(log_name),
        "size_bytes": f.size,
        "links": f.links,
        "blocks": l.blocks,
        "reserved_blocks": l.reserved,
        "nodes": l.nodes,
        "holes": l.holes,
        "inline": f.inline,
        "compressed": f.compressed,
        "extents": l.extents,
        "min_extents": l.min_extents,
        "dof": f.dof(),
        "first_addr": l.first_addr,
        "span_bytes": l.span.saturating_mul(4096),
        "segments": l.segments,
        "map_pages": l.map_pages,
        "requests": l.requests,
        "ideal_requests": l.min_requests,
        "mtime_ns": f.mtime_ns,
        "delta_room_bytes": f.delta_room,
        "deltas": f.deltas,
        "damaged": !f.lawful,
    });
    if let Value::Object(map) = &mut row {
        priced(p, map);
        if extents {
            let all = f.extents.iter().map(|e| json!([e.from, e.addr, e.blocks])).collect::<Vec<_>>();
            map.insert("extent_list".into(), all.into());
        }
    }
    row
}
