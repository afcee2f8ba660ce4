//! Reports each file, to people and to machines.

use format::Ino;
use rescue::Rescue;
use rescue::place::Place;
use serde_json::{Value, json};

use crate::output;

/// The group in which a file is placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Living,
    Unplaced,
    Deleted,
}

impl Group {
    /// Its name in reports.
    pub fn word(self) -> &'static str {
        match self {
            Group::Living => "living",
            Group::Unplaced => "unplaced",
            Group::Deleted => "deleted",
        }
    }
}

/// One file of the report.
pub struct Row {
    pub path: Vec<u8>,
    pub group: Group,
    pub ino: Ino,
    pub kind: u8,
    pub size: u64,
    pub doubts: Vec<String>,
    /// The inode itself is gone.
    pub lost: bool,
    /// No evidence against the file was found. But such evidence may have been lost: a newer version of a directory, or
    /// a newer owner of its blocks.
    pub unsure: bool,
    pub version: u32,
    pub versions: u16,
}

impl Row {
    /// How far to trust the file, in one word.
    pub fn verdict(&self) -> &'static str {
        match (self.lost, self.doubts.is_empty()) {
            (true, _) => "lost",
            (_, false) => "doubtful",
            _ if self.unsure => "likely",
            _ => "proved",
        }
    }
    /// True for directories.
    pub fn is_directory(&self) -> bool {
        self.kind == 2
    }
    /// For machines.
    fn json(&self) -> Value {
        json!({
            "path": String::from_utf8_lossy(&self.path),
            "state": self.group.word(),
            "verdict": self.verdict(),
            "doubts": self.doubts,
            "inode": self.ino.0,
            "directory": self.is_directory(),
            "size": self.size,
            "version": self.version,
            "versions": self.versions,
        })
    }
}

/// The report for machines.
pub fn report(found: &Rescue<'_>, rows: &[Row], failed: &[String]) -> Value {
    let place: &Place = found.place();
    json!({
        "volume_at": place.volume_at(),
        "agreeing": place.votes,
        "superblock": place.superblock.is_some(),
        "cut_short": found.is_cut_short(),
        "unreadable_blocks": found.unreadable_blocks(),
        "damaged_inodes": found.damaged_inodes(),
        "files": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "failed": failed,
    })
}

/// The report for people.
pub fn tell_people(found: &Rescue<'_>, rows: &[Row]) {
    output::line(&format!(
        "volume at byte {} of the image; {} nodes and directories agree",
        found.place().volume_at(),
        found.place().votes
    ));
    if found.is_cut_short() {
        output::line(
            "the image ends before the volume: nothing is proved, since the missing part may hold newer versions",
        );
    }
    if found.unreadable_blocks() > 0 {
        output::line(&format!(
            "{} blocks cannot be read: nothing is proved, since they may hold newer versions",
            found.unreadable_blocks()
        ));
    }
    if found.root().is_none() {
        output::line("the root directory is missing");
    }
    if found.damaged_inodes() > 0 {
        output::line(&format!(
            "{} inodes have versions with a wrong checksum, which were ignored",
            found.damaged_inodes()
        ));
    }
    for row in rows.iter().filter(|r| r.group != Group::Living || !r.doubts.is_empty()) {
        let why = if row.doubts.is_empty() { String::new() } else { format!(": {}", row.doubts.join("; ")) };
        let path = output::plain(&String::from_utf8_lossy(&row.path));
        output::line(&format!("{} {} {path}{why}", row.group.word(), row.verdict()));
    }
    let count = |group, verdict: &str| {
        rows.iter().filter(|r| r.group == group && r.verdict() == verdict && !r.is_directory()).count()
    };
    let all = |group| rows.iter().filter(|r| r.group == group && !r.is_directory()).count();
    output::line(&format!(
        "files: {} proved, {} likely, {} doubtful, {} lost; {} unplaced; {} deleted",
        count(Group::Living, "proved"),
        count(Group::Living, "likely"),
        count(Group::Living, "doubtful"),
        count(Group::Living, "lost"),
        all(Group::Unplaced),
        all(Group::Deleted),
    ));
}
