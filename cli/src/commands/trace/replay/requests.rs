//! A CSV table with a line for each request of a replay.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use trace::Names;
use trace::replay::blocks::Made;

use crate::{Failure, whole};

const COLUMNS: [&str; 9] =
    ["process", "operation", "sector", "bytes", "recorded_ns", "came_ns", "given_ns", "done_ns", "failed"];

/// The table being written.
pub struct Table {
    out: csv::Writer<BufWriter<File>>,
    part: Option<whole::Part>,
    failed: Option<csv::Error>,
}

impl Table {
    /// Creates a file; an existing one stays until the table is complete.
    pub fn create(file: &Path) -> Result<Self, Failure> {
        let named = |e: io::Error| Failure::from(format!("--requests {}: {e}", file.display()));
        let (part, open) = if whole::is_plain(file) {
            let (part, open) = whole::Part::create(file, true).map_err(named)?;
            (Some(part), open)
        } else {
            (None, File::options().write(true).open(file).map_err(named)?)
        };
        let mut out = csv::Writer::from_writer(BufWriter::new(open));
        let failed = out.write_record(COLUMNS).err();
        Ok(Table { out, part, failed })
    }

    /// Adds a request.
    pub fn add(&mut self, made: &Made, names: &Names) {
        if self.failed.is_some() {
            return;
        }
        let r = &made.request;
        let (done, why) = match &made.done {
            Ok(at) => (at.to_string(), ""),
            Err(why) => (String::new(), why.as_str()),
        };
        let [sector, bytes, recorded, came, given] =
            [r.sector, r.sectors.saturating_mul(512), r.time, made.came, made.given].map(|n| n.to_string());
        let line: [&str; 9] =
            [names.name(r.process), r.op.text(), &sector, &bytes, &recorded, &came, &given, &done, why];
        self.failed = self.out.write_record(line).err();
    }

    /// Gives the file its name.
    pub fn finish(self, file: &Path) -> Result<(), Failure> {
        let named = |why: String| Failure::from(format!("--requests {}: {why}", file.display()));
        if let Some(e) = self.failed {
            return Err(named(e.to_string()));
        }
        let open = self.out.into_inner().map_err(|e| named(e.error().to_string()))?;
        open.into_inner().map_err(|e| named(e.error().to_string()))?;
        self.part.map_or(Ok(()), whole::Part::finish).map_err(|e| named(e.to_string()))
    }
}
