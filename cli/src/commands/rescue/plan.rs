//! Which of the found files are copied, and where to?

use format::Ino;
use rescue::{Loose, Rescue};

use super::found::{At, Holding, say};
use super::tell::{Group, Row};
use crate::Failure;
use crate::commands::cp::join;
use crate::interrupt::Interrupt;

const UNPLACED: &str = "rescue-unplaced";
const DELETED: &str = "rescue-deleted";
const DOUBTFUL: &str = "rescue-doubtful";

/// Maximum directory depth: no host accepts longer paths.
const DEEPEST: usize = 2048;

/// Examines everything found, and decides what is copied where.
pub struct Plan<'r> {
    rescue: &'r Rescue<'r>,
    /// Copy deleted and doubtful files too.
    all_asked: bool,
    stop: &'r Interrupt,
    /// Entries to copy, by directory.
    pub holds: Holding,
    /// A report row for each file.
    pub rows: Vec<Row>,
    /// Directories below which missing parts of files are skipped.
    pub lenient: Vec<Vec<u8>>,
    doubtful: Vec<(Vec<u8>, At)>,
}

/// The state of a file's ancestors.
struct Above {
    group: Group,
    /// The ancestor directories.
    dirs: Vec<Ino>,
    /// One of them is not verified to be complete and current: its entries may have been renamed or deleted since.
    unsure: bool,
}

impl Above {
    fn of(group: Group) -> Self {
        Above { group, dirs: Vec::new(), unsure: false }
    }
}

impl<'r> Plan<'r> {
    /// Plans a copy.
    ///
    /// # Errors
    /// If the device fails, or the user interrupts.
    pub fn make(rescue: &'r Rescue<'r>, all_asked: bool, stop: &'r Interrupt) -> Result<Self, Failure> {
        let (holds, rows, lenient, doubtful) = (Holding::new(), Vec::new(), Vec::new(), Vec::new());
        let mut plan = Plan { rescue, all_asked, stop, holds, rows, lenient, doubtful };
        plan.all()?;
        Ok(plan)
    }

    /// Decides about a file, and for a directory about its entries. True if it is to be copied in place.
    fn file(&mut self, path: &[u8], ino: Ino, above: &mut Above) -> Result<bool, Failure> {
        if self.stop.came() {
            return Err("interrupted".into());
        }
        let Some(file) = self.rescue.file(ino).map_err(say)? else { return Ok(false) };
        let group = above.group;
        let verdict = self.rescue.verdict(&file).map_err(say)?;
        let mut doubts = verdict.doubts;
        let unsure = above.unsure || verdict.unsure || self.rescue.is_incomplete() || group != Group::Living;
        let is_dir = file.kind() == 2;
        let size = if is_dir { 0 } else { file.raw().i_size.get() };
        let mut held = Vec::new();
        if is_dir && above.dirs.len() >= DEEPEST {
            doubts.push(format!("the files below it are skipped: it lies {DEEPEST} directories deep"));
        } else if is_dir && !above.dirs.contains(&ino) {
            let names = self.rescue.names(ino).map_err(say)?;
            doubts.extend(names.gaps);
            above.dirs.push(ino);
            let was = above.unsure;
            above.unsure |= verdict.unsure || !doubts.is_empty();
            for entry in names.entries {
                let below = join(path, &entry.name);
                if self.file(&below, entry.ino, above)? {
                    held.push((entry.name, At::File(entry.ino)));
                }
            }
            above.unsure = was;
            above.dirs.pop();
        }
        if let Err(e) = file.xattrs() {
            doubts.push(e.to_string());
        }
        let row = Row {
            path: path.to_vec(),
            group,
            ino,
            kind: file.kind(),
            size,
            doubts,
            lost: false,
            unsure,
            version: verdict.version,
            versions: verdict.versions,
        };
        let wanted = match (row.verdict(), group) {
            // A directory contains its verified entries, whatever else it had.
            _ if is_dir => group != Group::Deleted || self.all_asked,
            (_, Group::Deleted) => self.all_asked,
            ("proved" | "likely", _) => true,
            _ => {
                if self.all_asked {
                    let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
                    self.doubtful.push((numbered(ino, Some(name.to_vec())), At::File(ino)));
                }
                false
            }
        };
        self.rows.push(row);
        if wanted && is_dir {
            self.holds.insert(path.to_vec(), held);
        }
        Ok(wanted)
    }

    fn all(&mut self) -> Result<(), Failure> {
        let mut top = Vec::new();
        if let Some(root) = self.rescue.root() {
            self.file(b"/", root, &mut Above::of(Group::Living))?;
            top = self.holds.remove(&b"/"[..]).unwrap_or_default();
        }
        for (dir, entry) in self.rescue.lost() {
            let path = format!("(inode {dir})/{}", String::from_utf8_lossy(&entry.name)).into_bytes();
            let doubts = vec!["its inode is missing".into()];
            self.rows.push(Row {
                path,
                group: Group::Living,
                ino: entry.ino,
                kind: entry.kind,
                size: 0,
                doubts,
                lost: true,
                unsure: false,
                version: 0,
                versions: 0,
            });
        }
        for (which, group, dir) in
            [(Loose::Unplaced, Group::Unplaced, UNPLACED), (Loose::Deleted, Group::Deleted, DELETED)]
        {
            let dir = free(&top, dir);
            let path = join(b"/", &dir);
            let mut held = Vec::new();
            for (ino, _) in self.rescue.loose().iter().filter(|(_, loose)| *loose == which) {
                let Some(file) = self.rescue.file(*ino).map_err(say)? else { continue };
                let name = numbered(*ino, rescue::tree::own_name(file.raw()));
                if self.file(&join(&path, &name), *ino, &mut Above::of(group))? {
                    held.push((name, At::File(*ino)));
                }
            }
            if which == Loose::Deleted {
                self.lenient.push(path.clone());
            }
            if !held.is_empty() {
                self.holds.insert(path, held);
                top.push((dir, At::Made));
            }
        }
        if !self.doubtful.is_empty() {
            let dir = free(&top, DOUBTFUL);
            let path = join(b"/", &dir);
            self.lenient.push(path.clone());
            self.holds.insert(path, std::mem::take(&mut self.doubtful));
            top.push((dir, At::Made));
        }
        self.holds.insert(b"/".to_vec(), top);
        Ok(())
    }
}

/// A unique name made from an inode's number and name.
fn numbered(ino: Ino, name: Option<Vec<u8>>) -> Vec<u8> {
    let mut out = ino.0.to_string().into_bytes();
    if let Some(name) = name.filter(|n| !n.is_empty()) {
        out.push(b'-');
        out.extend_from_slice(&name);
        // With the number it may exceed the maximum length of a name.
        out.truncate(255);
    }
    out
}

/// A name that is unused in the root directory.
fn free(top: &[(Vec<u8>, At)], name: &str) -> Vec<u8> {
    let mut out = name.as_bytes().to_vec();
    while top.iter().any(|(known, _)| *known == out) {
        out.push(b'~');
    }
    out
}
