//! The inspection as Parquet: a row for each file, each segment, and each extent.
//!
//! `files.parquet` has everything with an inode, `segments.parquet` the known segments, `extents.parquet` (only with
//! `--extents`) each extent of each file. Names and units are those of the JSON report; unknown values are null. The
//! files' metadata has `joulefs.inspect`: the version of the schema.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use inspect::space::{Look, MAX_FRAGMENTATION};
use trace::write::parquet::Table;

use super::ground::{Ground, Shows};
use super::machine::{SCHEMA, kind};
use super::text::log_name;
use super::{Found, Seen};
use crate::Failure;
use crate::whole::Part;

const FILES: &str = "message files {
    OPTIONAL INT64 ino (INTEGER(64, false));
    REQUIRED BYTE_ARRAY path (STRING);
    OPTIONAL BYTE_ARRAY path_raw;
    REQUIRED BOOLEAN path_is_sure;
    REQUIRED BYTE_ARRAY kind (STRING);
    REQUIRED BYTE_ARRAY class (STRING);
    OPTIONAL BYTE_ARRAY app (STRING);
    OPTIONAL BYTE_ARRAY temperature (STRING);
    REQUIRED INT64 size_bytes (INTEGER(64, false));
    REQUIRED INT64 blocks (INTEGER(64, false));
    REQUIRED INT64 reserved_blocks (INTEGER(64, false));
    REQUIRED INT64 holes (INTEGER(64, false));
    REQUIRED BOOLEAN inline;
    REQUIRED BOOLEAN compressed;
    REQUIRED INT64 extents (INTEGER(64, false));
    REQUIRED INT64 min_extents (INTEGER(64, false));
    OPTIONAL DOUBLE dof;
    OPTIONAL INT64 first_addr (INTEGER(64, false));
    REQUIRED INT64 span_bytes (INTEGER(64, false));
    OPTIONAL INT64 segments (INTEGER(64, false));
    REQUIRED INT64 mtime_ns (INTEGER(64, true));
    REQUIRED INT64 read_pj (INTEGER(64, false));
    REQUIRED INT64 read_ns (INTEGER(64, false));
    REQUIRED INT64 ideal_read_pj (INTEGER(64, false));
    REQUIRED INT64 ideal_read_ns (INTEGER(64, false));
    REQUIRED INT64 treatment_pj (INTEGER(64, false));
    OPTIONAL INT64 pays_after_reads (INTEGER(64, false));
    OPTIONAL INT64 delta_room_bytes (INTEGER(64, false));
    REQUIRED BOOLEAN damaged;
}";

const SEGMENTS: &str = "message segments {
    REQUIRED INT64 segno (INTEGER(64, false));
    REQUIRED INT64 section (INTEGER(64, false));
    OPTIONAL BYTE_ARRAY log (STRING);
    REQUIRED INT64 valid (INTEGER(64, false));
    OPTIONAL DOUBLE f;
    OPTIONAL INT64 loose (INTEGER(64, false));
    OPTIONAL INT64 runs (INTEGER(64, false));
    OPTIONAL INT64 longest_run (INTEGER(64, false));
    OPTIONAL INT64 mtime_s (INTEGER(64, false));
    REQUIRED BYTE_ARRAY bitmap;
}";

const EXTENTS: &str = "message extents {
    OPTIONAL INT64 ino (INTEGER(64, false));
    REQUIRED INT64 from_block (INTEGER(64, false));
    REQUIRED INT64 addr (INTEGER(64, false));
    REQUIRED INT64 blocks (INTEGER(64, false));
}";

type Out = Table<BufWriter<fs::File>>;

/// Writes the files into a directory, creating it if needed.
pub fn write(seen: &Seen<'_>, ground: &Ground<'_>, extents: bool, dir: &Path) -> Result<(), Failure> {
    let named = |what: &Path, e: io::Error| Failure::from(format!("{}: {e}", what.display()));
    fs::create_dir_all(dir).map_err(|e| named(dir, e))?;
    let one = |name: &str, schema: &str, rows: &dyn Fn(&mut Out) -> io::Result<()>| {
        let path = dir.join(name);
        let made = || {
            let (part, open) = Part::create(&path, true)?;
            let version = SCHEMA.1.to_string();
            let mut table = Table::new(BufWriter::new(open), schema, &[], ("joulefs.inspect", &version))?;
            rows(&mut table)?;
            table.finish()?.flush()?;
            part.finish()
        };
        made().map_err(|e| named(&path, e))
    };
    one("files.parquet", FILES, &|out| (0..seen.files().len()).try_for_each(|i| file(seen, i, out)))?;
    one("segments.parquet", SEGMENTS, &|out| segments(ground, out))?;
    if extents {
        one("extents.parquet", EXTENTS, &|out| all_extents(seen, out))?;
    }
    Ok(())
}

fn file(seen: &Seen<'_>, i: usize, out: &mut Out) -> io::Result<()> {
    let (f, p) = (&seen.files()[i], &seen.verdict.priced[i]);
    let (l, path) = (&f.layout, seen.path(i));
    let of_volume = matches!(seen.found, Found::Volume(_));
    let text = path.text();
    out.long(seen.ino(i));
    out.bytes(Some(text.as_bytes()));
    out.bytes(std::str::from_utf8(&path.bytes).is_err().then_some(&path.bytes));
    out.truth(path.is_sure);
    out.bytes(Some(kind(f.kind).as_bytes()));
    out.bytes(Some(f.class.text().as_bytes()));
    out.bytes(inspect::class::application(&seen.path_inside(i)).map(str::as_bytes));
    out.bytes(l.log.map(|log| log_name(log).as_bytes()));
    for n in [f.size, l.blocks, l.reserved, l.holes.into()] {
        out.long(Some(n));
    }
    out.truth(f.inline);
    out.truth(f.compressed);
    out.long(Some(l.extents.into()));
    out.long(Some(l.min_extents.into()));
    out.real(f.dof());
    out.long((l.blocks > 0).then_some(l.first_addr));
    out.long(Some(l.span.saturating_mul(4096)));
    out.long(of_volume.then_some(l.segments.into()));
    out.signed(f.mtime_ns);
    for n in [p.read.energy.0, p.read.time.0, p.ideal.energy.0, p.ideal.time.0, p.treatment.energy.0] {
        out.long(Some(n));
    }
    out.long(p.pays_after());
    out.long(of_volume.then_some(f.delta_room.into()));
    out.truth(!f.lawful);
    out.end_of_row()
}

fn segments(ground: &Ground<'_>, out: &mut Out) -> io::Result<()> {
    for (n, s) in ground.segments.iter() {
        // Runs of free blocks are known only if free blocks are.
        let look = (ground.shows == Shows::Valid).then(|| Look::examine(s));
        out.long(Some(n.0.into()));
        out.long(Some((n.0 / ground.per_section.max(1)).into()));
        out.bytes(s.log.filter(|_| ground.has_logs && s.valid > 0).map(|log| log_name(log).as_bytes()));
        out.long(Some(s.valid.into()));
        out.real(look.map(|l| l.fragmentation / MAX_FRAGMENTATION));
        for n in [look.map(|l| l.loose), look.map(|l| l.runs), look.map(|l| l.longest)] {
            out.long(n.map(u64::from));
        }
        out.long(ground.now.filter(|_| s.valid > 0).map(|_| s.mtime));
        out.bytes(Some(&s.map));
        out.end_of_row()?;
    }
    Ok(())
}

fn all_extents(seen: &Seen<'_>, out: &mut Out) -> io::Result<()> {
    for (i, f) in seen.files().iter().enumerate() {
        for e in &f.extents {
            out.long(seen.ino(i));
            for n in [e.from, e.addr, e.blocks] {
                out.long(Some(n));
            }
            out.end_of_row()?;
        }
    }
    Ok(())
}
