//! Which recordings do experiments have, and how is one opened repeatedly?
//!
//! Shipped ones are built in and identified by file name; others by a path (with a slash), or by the name of an
//! external file ([`theirs`]).

use std::borrow::Cow;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use trace::block::{Event, Events};
use trace::call::{Call, Calls};
use trace::{Format, Input, Opened, OtherCounts, TraceError, open_input};

use crate::error::LabError;
use crate::theirs;

macro_rules! shipped {
    ($($experiment:literal: $($name:literal),+;)+) => {
        &[$($(($name, include_bytes!(concat!("../../../experiments/", $experiment, "/", $name)))),+),+]
    };
}

/// Recordings by name.
const SHIPPED: &[(&str, &[u8])] = shipped![
    "nexus-apps": "browser.strace.zst", "chat.strace.zst", "install.strace.zst", "mail.strace.zst", "photos.strace.zst",
        "browser.ext4.rec.zst", "chat.ext4.rec.zst", "install.ext4.rec.zst", "mail.ext4.blkparse.zst",
        "photos.ext4.rec.zst";
    "nexus-kernel": "ext4.sequential-write.blkparse.zst", "ext4.random-write.blkparse.zst",
        "ext4.sequential-read.blkparse.zst", "ext4.random-read.blkparse.zst", "ext4.random-read-anywhere.blkparse.zst",
        "ext4.random-read-mapped.blkparse.zst", "ext4.random-write-anywhere.blkparse.zst",
        "ext4-holes.random-write.blkparse.zst", "ext4-data-journal.random-write.blkparse.zst",
        "f2fs.sequential-read.blkparse.zst", "f2fs.random-read.blkparse.zst", "f2fs.random-read-anywhere.blkparse.zst",
        "f2fs-forgotten.random-read.blkparse.zst", "f2fs-holes.random-write.blkparse.zst",
        "f2fs-not-in-place.random-write.blkparse.zst";
    "nexus-sqlite-ext4": "sqlite-insert.strace.zst", "sqlite-update.strace.zst", "sqlite-delete.strace.zst",
        "sqlite-insert.ext4.rec.zst", "sqlite-update.ext4.rec.zst", "sqlite-delete.ext4.rec.zst";
    "fagc-fig11": "chat.rec", "clone.rec", "download.rec", "unpack.rec";
    "scherl-fig6-1-10": "ext2.files-4k.rec.zst", "ext2.files-8k.rec.zst", "ext2.files-12k.rec.zst",
        "ext2.files-16k.rec.zst", "ext2.files-32k.rec.zst", "ext2.files-64k.rec.zst",
        "ext2.files-128k.rec.zst", "ext2.files-256k.rec.zst", "ext2.files-512k.rec.zst",
        "ext2.files-1024k.rec.zst", "ext3.files-4k.rec.zst", "ext3.files-8k.rec.zst", "ext3.files-12k.rec.zst",
        "ext3.files-16k.rec.zst", "ext3.files-32k.rec.zst", "ext3.files-64k.rec.zst",
        "ext3.files-128k.rec.zst", "ext3.files-256k.rec.zst", "ext3.files-512k.rec.zst",
        "ext3.files-1024k.rec.zst", "reiserfs.files-4k.rec.zst", "reiserfs.files-8k.rec.zst",
        "reiserfs.files-12k.rec.zst", "reiserfs.files-16k.rec.zst", "reiserfs.files-32k.rec.zst",
        "reiserfs.files-64k.rec.zst", "reiserfs.files-128k.rec.zst", "reiserfs.files-256k.rec.zst",
        "reiserfs.files-512k.rec.zst", "reiserfs.files-1024k.rec.zst", "fat32.files-4k.rec.zst",
        "fat32.files-8k.rec.zst", "fat32.files-12k.rec.zst", "fat32.files-16k.rec.zst",
        "fat32.files-32k.rec.zst", "fat32.files-64k.rec.zst", "fat32.files-128k.rec.zst",
        "fat32.files-256k.rec.zst", "fat32.files-512k.rec.zst", "fat32.files-1024k.rec.zst",
        "nilfs2.files-4k.rec.zst", "nilfs2.files-8k.rec.zst", "nilfs2.files-12k.rec.zst",
        "nilfs2.files-16k.rec.zst", "nilfs2.files-32k.rec.zst", "nilfs2.files-64k.rec.zst",
        "nilfs2.files-128k.rec.zst", "nilfs2.files-256k.rec.zst", "nilfs2.files-512k.rec.zst",
        "nilfs2.files-1024k.rec.zst";
    "scherl-fig6-11": "ext2.updates.rec.zst", "ext3.updates.rec.zst", "reiserfs.updates.rec.zst",
        "fat32.updates.rec.zst", "nilfs2.updates.rec.zst";
    "scherl-fig6-12-13": "ext2.pictures.rec.zst", "ext2.music.rec.zst", "ext3.pictures.rec.zst",
        "ext3.music.rec.zst", "reiserfs.pictures.rec.zst", "reiserfs.music.rec.zst", "fat32.pictures.rec.zst",
        "fat32.music.rec.zst", "nilfs2.pictures.rec.zst", "nilfs2.music.rec.zst";
    "scherl-fig6-14-15": "ext2.pictures-0.rec.zst", "ext2.pictures-20.rec.zst", "ext2.pictures-40.rec.zst",
        "ext2.pictures-60.rec.zst", "ext2.pictures-80.rec.zst", "ext2.music-0.rec.zst",
        "ext2.music-20.rec.zst", "ext2.music-40.rec.zst", "ext2.music-60.rec.zst", "ext2.music-80.rec.zst",
        "ext3.pictures-0.rec.zst", "ext3.pictures-20.rec.zst", "ext3.pictures-40.rec.zst",
        "ext3.pictures-60.rec.zst", "ext3.pictures-80.rec.zst", "ext3.music-0.rec.zst",
        "ext3.music-20.rec.zst", "ext3.music-40.rec.zst", "ext3.music-60.rec.zst", "ext3.music-80.rec.zst",
        "reiserfs.pictures-0.rec.zst", "reiserfs.pictures-20.rec.zst", "reiserfs.pictures-40.rec.zst",
        "reiserfs.pictures-60.rec.zst", "reiserfs.pictures-80.rec.zst", "reiserfs.music-0.rec.zst",
        "reiserfs.music-20.rec.zst", "reiserfs.music-40.rec.zst", "reiserfs.music-60.rec.zst",
        "reiserfs.music-80.rec.zst", "fat32.pictures-0.rec.zst", "fat32.pictures-20.rec.zst",
        "fat32.pictures-40.rec.zst", "fat32.pictures-60.rec.zst", "fat32.pictures-80.rec.zst",
        "fat32.music-0.rec.zst", "fat32.music-20.rec.zst", "fat32.music-40.rec.zst", "fat32.music-60.rec.zst",
        "fat32.music-80.rec.zst";
    "scherl-sleep": "ext4-64m.nothing.csv.zst", "ext4-64m.indexer.csv.zst", "ext4-64m.media-server.csv.zst", "ext4-64m.file-server.csv.zst", "ext4-64m.household.csv.zst", "ext4-128m.nothing.csv.zst", "ext4-128m.indexer.csv.zst", "ext4-128m.media-server.csv.zst", "ext4-128m.file-server.csv.zst", "ext4-128m.file-server-2.csv.zst", "ext4-128m.household.csv.zst", "btrfs-128m.nothing.csv.zst", "btrfs-128m.indexer.csv.zst", "btrfs-128m.media-server.csv.zst", "btrfs-128m.file-server.csv.zst", "btrfs-128m.file-server-2.csv.zst", "btrfs-128m.household.csv.zst", "scherlfs.nothing.csv.zst", "scherlfs.indexer.csv.zst", "scherlfs.media-server.csv.zst", "scherlfs.file-server.csv.zst", "scherlfs.file-server-2.csv.zst", "scherlfs.household.csv.zst", "scherlfs-stage.nothing.csv.zst", "scherlfs-stage.indexer.csv.zst", "scherlfs-stage.media-server.csv.zst", "scherlfs-stage.file-server.csv.zst", "scherlfs-stage.file-server-2.csv.zst", "scherlfs-stage.household.csv.zst", "scherlfs-index.nothing.csv.zst", "scherlfs-index.indexer.csv.zst", "scherlfs-index.media-server.csv.zst", "scherlfs-index.file-server.csv.zst", "scherlfs-index.file-server-2.csv.zst", "scherlfs-index.household.csv.zst", "scherlfs-burst.nothing.csv.zst", "scherlfs-burst.indexer.csv.zst", "scherlfs-burst.media-server.csv.zst", "scherlfs-burst.file-server.csv.zst", "scherlfs-burst.file-server-2.csv.zst", "scherlfs-burst.household.csv.zst", "scherlfs-keep.nothing.csv.zst", "scherlfs-keep.indexer.csv.zst", "scherlfs-keep.media-server.csv.zst", "scherlfs-keep.file-server.csv.zst", "scherlfs-keep.file-server-2.csv.zst", "scherlfs-keep.household.csv.zst", "scherlfs-keep-burst.nothing.csv.zst", "scherlfs-keep-burst.indexer.csv.zst", "scherlfs-keep-burst.media-server.csv.zst", "scherlfs-keep-burst.file-server.csv.zst", "scherlfs-keep-burst.file-server-2.csv.zst", "scherlfs-keep-burst.household.csv.zst", "scherlfs-keep-16m.nothing.csv.zst", "scherlfs-keep-16m.indexer.csv.zst", "scherlfs-keep-16m.media-server.csv.zst", "scherlfs-keep-16m.file-server.csv.zst", "scherlfs-keep-16m.file-server-2.csv.zst", "scherlfs-keep-16m.household.csv.zst", "scherlfs-keep-new.nothing.csv.zst", "scherlfs-keep-new.indexer.csv.zst", "scherlfs-keep-new.media-server.csv.zst", "scherlfs-keep-new.file-server.csv.zst", "scherlfs-keep-new.file-server-2.csv.zst", "scherlfs-keep-new.household.csv.zst";
];

/// A recording that can be opened repeatedly.
pub(super) enum Source {
    Shipped(&'static str, &'static [u8]),
    File(PathBuf),
}

impl Source {
    /// Finds a recording by name.
    pub fn find(name: &str) -> Result<Self, LabError> {
        if let Some((name, bytes)) = SHIPPED.iter().find(|(n, _)| *n == name) {
            return Ok(Source::Shipped(name, bytes));
        }
        if name.contains('/') {
            return Ok(Source::File(name.into()));
        }
        theirs::find(name).map(Source::File).ok_or_else(|| {
            let known: Vec<_> = SHIPPED.iter().map(|(n, _)| *n).collect();
            let why = theirs::missing(name);
            LabError::parameters(format!("{why}; choose {}, or give the path of a file", known.join(", ")))
        })
    }

    /// Opens it at its beginning.
    pub fn open(&self) -> Result<Opened, TraceError> {
        match self {
            Source::Shipped(name, bytes) => open_input(Input::new(Path::new(name), Cursor::new(*bytes))?),
            Source::File(path) => trace::open(path),
        }
    }

    /// All bytes of the file.
    pub fn bytes(&self) -> std::io::Result<Cow<'static, [u8]>> {
        match self {
            Source::Shipped(_, bytes) => Ok(Cow::Borrowed(bytes)),
            Source::File(path) => std::fs::read(path).map(Cow::Owned),
        }
    }

    /// Length of the file in bytes, for progress.
    pub fn length(&self) -> u64 {
        match self {
            Source::Shipped(_, bytes) => bytes.len() as u64,
            Source::File(path) => std::fs::metadata(path).map_or(0, |m| m.len()),
        }
    }
}

/// The first calls or events of a recording.
pub(super) struct Beginning<T: ?Sized> {
    left: u64,
    inner: Box<T>,
}

impl<T: ?Sized> Beginning<T> {
    /// At most `left` calls or events of `inner`.
    pub fn new(left: u64, inner: Box<T>) -> Self {
        Beginning { left, inner }
    }
}

impl Calls for Beginning<dyn Calls> {
    fn format(&self) -> Format {
        self.inner.format()
    }
    fn next(&mut self) -> Result<Option<Call>, TraceError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.inner.next()
    }
    fn other_counts(&self) -> &OtherCounts {
        self.inner.other_counts()
    }
    fn consumed(&self) -> u64 {
        self.inner.consumed()
    }
}

impl Events for Beginning<dyn Events> {
    trace::passes_on!(inner: all);

    fn next(&mut self) -> Result<Option<Event>, TraceError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.inner.next()
    }
}
