//! How fragmented are the files of a bench's volume, by class and by application?
//!
//! Uses `inspect`, which reads the device after a checkpoint, independent of the mounted volume.

use std::collections::BTreeSet;

use inspect::class::{Class, application};
use inspect::file::Extent;
use inspect::inode::Kind;
use inspect::{File, Options, Progress, Volume};
use trace::stat::map_cache::Migration;

use crate::error::LabError;
use sim::bench::Bench;
use sim::result::Phase;

/// Blocks per GiB.
const GIB: u64 = 1 << 18;

/// The files of a volume.
pub(super) struct Layout {
    volume: Volume,
    paths: Vec<String>,
}

/// Totals of several files.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sum {
    /// Files with blocks of their own.
    pub files: u64,
    pub extents: u64,
    pub fewest: u64,
    pub blocks: u64,
    /// Sum over files of extents divided by fewest possible extents.
    dofs: f64,
    /// Files whose first and last blocks are at least 1 GiB apart.
    pub dispersed: u64,
    /// Maximum distance in blocks from a file's lowest to its highest address.
    pub span: u64,
}

impl Sum {
    fn add(&mut self, f: &File) {
        // A file inside its inode has no extents.
        let Some(dof) = f.dof() else { return };
        self.files += 1;
        self.extents += u64::from(f.layout.extents);
        self.fewest += u64::from(f.layout.min_extents);
        self.blocks += f.layout.blocks;
        self.dofs += dof;
        self.dispersed += u64::from(f.layout.span >= GIB);
        self.span = self.span.max(f.layout.span);
    }

    /// Extents divided by fewest possible extents, for all files together.
    pub fn dof(&self) -> f64 {
        self.extents as f64 / self.fewest as f64
    }

    /// Notes the totals.
    pub fn note(&self, phase: &mut Phase) {
        phase.note("files", self.files as f64, "files");
        phase.note("fragments", self.extents as f64, "pieces");
        phase.note("degree_of_fragmentation", self.dof(), "x");
        phase.note("degree_of_fragmentation_by_file", self.dofs / self.files as f64, "x");
        phase.note("fragments_per_file", self.extents as f64 / self.files as f64, "pieces");
        phase.note("size_of_fragments", self.blocks as f64 * 4.0 / self.extents as f64, "KB");
        phase.note("size_of_files", self.blocks as f64 * 4.0 / self.files as f64, "KB");
        phase.note("dispersed_files", self.dispersed as f64, "files");
        phase.note("widest", self.span as f64 / GIB as f64, "GB");
    }
}

impl Layout {
    /// The current layout: the volume writes a checkpoint first.
    pub fn of(bench: &Bench) -> Result<Self, LabError> {
        bench.volume()?.sync()?;
        let mut go_on = |_| true;
        let options = Options { extents: true, ..Options::default() };
        let volume = Volume::read(&*bench.contents(), &options, &mut Progress::new(&mut go_on))
            .map_err(|e| LabError::parameters(format!("the volume cannot be inspected: {e}")))?;
        if let Some(finding) = volume.findings.first() {
            return Err(LabError::parameters(format!("the volume is damaged: {finding}")));
        }
        let paths = volume.files.iter().map(|f| volume.path(f).text().trim_start_matches('~').to_owned()).collect();
        Ok(Layout { volume, paths })
    }

    /// The existing files, with their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &File)> {
        let all = self.paths.iter().map(String::as_str).zip(&self.volume.files);
        all.filter(|(_, f)| f.kind == Kind::File)
    }

    /// A file by inode number.
    pub fn file(&self, ino: u64) -> Option<&File> {
        let all = &self.volume.files;
        all.binary_search_by_key(&ino, |f| u64::from(f.ino.0)).ok().map(|i| &all[i])
    }

    /// Totals of the files that `wanted` accepts.
    pub fn sum(&self, wanted: impl Fn(&str, &File) -> bool) -> Sum {
        let mut sum = Sum::default();
        self.files().filter(|(path, f)| wanted(path, f)).for_each(|(_, f)| sum.add(f));
        sum
    }

    /// Databases and their journals, of one application or of all.
    pub fn databases(&self, app: Option<&str>) -> Sum {
        self.sum(|path, f| {
            f.class == Class::Database && application(path).is_some_and(|of| app.is_none_or(|app| app == of))
        })
    }

    /// Inode numbers of all applications' databases and journals.
    pub fn database_inodes(&self) -> Vec<u64> {
        let all = self.files().filter(|(path, f)| f.class == Class::Database && application(path).is_some());
        all.map(|(_, f)| u64::from(f.ino.0)).collect()
    }
}

impl Layout {
    /// Inode numbers of an application's databases and journals.
    pub fn inodes_of(&self, app: &str) -> BTreeSet<u64> {
        let all = self.files().filter(|(path, f)| f.class == Class::Database && application(path) == Some(app));
        all.map(|(_, f)| u64::from(f.ino.0)).collect()
    }
}

/// How blocks of files moved from one layout to a later one.
pub(super) fn moved(before: &Layout, after: &Layout) -> Migration {
    let mut migration = Migration::default();
    for (_, was) in before.files() {
        let Some(is) = after.file(was.ino.0.into()) else { continue };
        for e in &was.extents {
            for (from, to, blocks) in overlaps(*e, &is.extents).filter(|(from, to, _)| from != to) {
                migration.add(from, to, blocks);
            }
        }
    }
    migration
}

/// The overlaps of an extent with others: both addresses, and the number of blocks.
fn overlaps(e: Extent, others: &[Extent]) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
    others.iter().filter_map(move |o| {
        let from = e.from.max(o.from);
        let blocks = (e.from + e.blocks).min(o.from + o.blocks).checked_sub(from).filter(|n| *n > 0)?;
        Some((e.addr + (from - e.from), o.addr + (from - o.from), blocks))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_extents_are_found_where_they_went() {
        let at = |from, addr, blocks| Extent { from, addr, blocks };
        let after = [at(0, 900, 4), at(4, 500, 10)];
        let parts: Vec<_> = overlaps(at(2, 100, 6), &after).collect();
        assert_eq!(parts, [(100, 902, 2), (102, 500, 4)]);
        assert_eq!(overlaps(at(14, 7, 3), &after).count(), 0);
    }
}
