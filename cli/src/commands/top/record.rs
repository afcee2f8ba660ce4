//! Writes the requests to a file that `joulefs trace replay` can replay.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;

use trace::Names;
use trace::block::{DeviceId, Event};
use trace::write::blkparse::Writer;

use super::view::About;
use crate::{Failure, output, whole};

/// A file being written.
pub struct Record {
    out: Writer<BufWriter<File>>,
    part: Option<whole::Part>,
    failed: Option<io::Error>,
}

fn named(file: &Path) -> impl Fn(io::Error) -> Failure {
    move |e| format!("--record {}: {e}", file.display()).into()
}

impl Record {
    /// Creates a file; an existing one stays until this one is complete.
    pub fn create(file: &Path) -> Result<Self, Failure> {
        let (part, open) = if whole::is_plain(file) {
            let (part, open) = whole::Part::create(file, false).map_err(named(file))?;
            (Some(part), open)
        } else {
            (None, File::options().write(true).open(file).map_err(named(file))?)
        };
        Ok(Record { out: Writer::new(BufWriter::new(open)), part, failed: None })
    }

    /// Adds a request.
    pub fn add(&mut self, made: &Event, names: &Names) {
        if self.failed.is_none() {
            self.failed = self.out.event(made, names).err();
        }
    }

    /// Gives the file its name, and prints how to replay it.
    pub fn finish(self, file: &Path, about: &BTreeMap<DeviceId, About>) -> Result<(), Failure> {
        if let Some(e) = self.failed {
            return Err(named(file)(e));
        }
        self.out.finish().map_err(named(file))?;
        self.part.map_or(Ok(()), whole::Part::finish).map_err(named(file))?;
        for (id, about) in about {
            output::warn(&format!(
                "{}: joulefs trace replay {} --of {id} --profile {} --full --size {}",
                about.name,
                file.display(),
                about.profile,
                about.bytes
            ));
        }
        Ok(())
    }
}
