//! The specification matches the code: the offset and size of every field are taken from the structures, and
//! numbers from the constants. `JOULEFS_RENEW=1 cargo test -p joulefs-scherlfs-format --test together layout::`
//! regenerates it.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::Path;

use format::archive::{self, RawIndexEntry, RawIndexHead, RawMark, RawStageHead, RawStageRecord};
use format::chain::{self, RawGone, RawHeader, RawRuns};
use format::extent::{self, RawExtent};
use format::history::{RawChange, RawPast};
use format::ifile::{self, RawEntry};
use format::inode::{self, RawInode, RawTime};
use format::keep::{self, RawKeepEntry, RawKeepHead};
use format::superblock::{self, RawSuperblock};

type Field = (usize, usize, &'static str, &'static str);

struct Structure {
    title: &'static str,
    name: &'static str,
    size: usize,
    fields: Vec<Field>,
}

fn bytes_of<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// A structure's fields with their offsets. A missing field does not compile.
macro_rules! structure {
    ($title:literal, $raw:ident { $($field:ident: $meaning:literal),* $(,)? }) => {{
        let _every_field_is_named = |raw: &$raw| {
            let $raw { $($field: _),* } = raw;
        };
        Structure {
            title: $title,
            name: stringify!($raw),
            size: size_of::<$raw>(),
            fields: vec![$((
                offset_of!($raw, $field),
                bytes_of::<$raw, _>(|raw| &raw.$field),
                stringify!($field),
                $meaning,
            )),*],
        }
    }};
}

fn structures() -> Vec<Structure> {
    vec![
        structure!(
            "Superblock, blocks 0 and 1 by turns",
            RawSuperblock {
                magic: "\"ScherlFS\"",
                version: "1",
                block_log: "12",
                placement: "where inodes are put, see below: 0 before their contents, 1 after them, 2 in one of two places, 3 so, and later",
                spare_a: "0",
                compat: "features that who does not know them may ignore; none yet",
                read_only: "features that who does not know them may read, not write; 1: blocks are kept so that transactions can be undone",
                incompat: "features that who does not know them cannot read; none yet",
                uuid: "the volume",
                label: "its name, UTF-8, filled with zeroes",
                blocks: "blocks of the volume",
                segment_blocks: "blocks of a segment, a power of two from 8 to 2^20",
                flags: "1: unmounted, nothing follows in the log",
                checkpoint: "number of the checkpoint; its copy is written to block `checkpoint mod 2`",
                seq: "the last transaction in it",
                epoch: "the mount that wrote it",
                spare_f: "0",
                path_runs: "runs of `path` that count",
                spare_b: "0",
                ifile: "the block of inode 1",
                free_list: "the block of inode 3",
                orphans: "the block of inode 4; 0: there are no orphans",
                undo_floor: "the oldest transaction whose blocks are all kept",
                free: "free blocks",
                inodes: "inodes in use, inode 1 among them",
                promised: "blocks that files were promised and that are not stored",
                history: "the block of inode 5; 0: nothing can be undone",
                begun: "when the mount that wrote it began",
                spare_c: "0",
                path: "where the log goes on: extents of kind 0, in their order, all free",
                secret: "from which `mark` follows; 0: marks are 0",
                spare_d: "0",
                full: "a bit for each block of the inode map: it has no free place; a hint",
                spare_e: "0",
                crc: "of the block with this field as 0",
            }
        ),
        structure!(
            "How every block of the log but contents begins",
            RawHeader {
                magic: "the kind, see below",
                crc: "of the block with this field as 0",
                epoch: "the mount that wrote it",
                attempt: "how often its transaction had been written before",
                mark: "the first 24 bits of BLAKE3 of `epoch`, keyed with the superblock's `secret` and 24 zero bytes",
                seq: "the transaction",
                ino: "the inode; 0 of a path block and of a list",
                piece: "which piece of the transaction it is, from 0; of a continuation or an index: which of its inode's",
                pieces: "how many there are",
            }
        ),
        structure!(
            "Inode, `SINO`",
            RawInode {
                header: "as above",
                follow: "blocks of the log that belong to it, where `form` says: index blocks, continuations, contents",
                follow_crc: "of their bytes",
                generation: "distinguishes two lives of one number",
                extents: "extents in all",
                xattr_bytes: "bytes of extended attributes",
                continuations: "continuation blocks",
                mode: "kind and permissions, as `st_mode`",
                form: "where they stand: 0 behind it; 1 before it; 2 it is the first of two blocks for it, and they stand behind the second; 3 it is the second",
                previous: "where it was before; 0: nowhere",
                nlink: "names; of a directory 2 and one for each directory in it",
                uid: "owner",
                gid: "group",
                parent: "the directory it was made in or moved to; of a directory the one above it",
                size: "bytes",
                blocks: "blocks in its extents that are stored or reserved",
                times: "last access, change of contents, change of anything, birth",
                rdev: "of a device: major in the upper half, minor in the lower",
                flags: "as `chattr` sets them",
                project: "the project",
                runs: "where its continuations are; where there are more than 6, where its index blocks are",
                spare_b: "0",
                area: "extents from the front, attributes at the end",
            }
        ),
        structure!("Time", RawTime { secs: "seconds since 1970, may be negative", nanos: "below 10^9" }),
        structure!(
            "Extent",
            RawExtent {
                start: "the first block; of a hole the upper bits of its length",
                blocks: "how many; of a hole the lower 32 bits",
                kind: "0 stored, 1 hole, 2 reserved: room that was promised, without a place",
            }
        ),
        structure!(
            "Continuation `SEXT`, index `SIDX`, path `SPTH`",
            RawRuns {
                header: "as above",
                count: "entries that count",
                runs: "a continuation's extents; runs of continuations; runs of free blocks (extents of kind 0)",
                first: "of a continuation: the number of the file's block with which it begins, lower half; else 0",
            }
        ),
        structure!(
            "Inodes that are gone, `SDEL`",
            RawGone { header: "as above", count: "entries that count", inodes: "their numbers" }
        ),
        structure!(
            "Entry of the inode map",
            RawEntry {
                addr: "the block of the inode; 0: the number is free",
                generation: "lower half of the inode's; of a free number that of its next life",
            }
        ),
        structure!(
            "Transaction that can be undone",
            RawPast {
                seq: "its number",
                secs: "when it was written: seconds since 1970",
                changes: "changes that follow",
                runs: "runs behind them: blocks that it replaced, as extents of kind 0; nobody else has them",
                flags: "1: it moved blocks and changed nothing else",
                spare: "0",
            }
        ),
        structure!(
            "Change of an inode in it",
            RawChange {
                ino: "which",
                was: "where it was before, lower half; 0 with the upper one: it was not",
                was_upper: "upper half",
                is_upper: "upper half of where it is since",
                is: "lower half; 0 with the upper one: it is gone",
            }
        ),
    ]
}

/// Structures of index, keep and stage.
fn beside() -> Vec<Structure> {
    vec![
        structure!(
            "Which superblock",
            RawMark {
                checkpoint: "its checkpoint",
                seq: "its transaction",
                epoch: "its epoch",
                begun: "when the mount that wrote it began",
                crc: "of all of its block",
            }
        ),
        structure!(
            "Head of an index, blocks 0 and 1 of the file by turns as the superblocks",
            RawIndexHead {
                magic: "\"ScherlIX\"",
                version: "1",
                crc: "of the block with this field as 0",
                uuid: "the volume",
                blocks: "its blocks",
                life: "which of the lives of this file; entries of others do not count",
                mark: "the superblock for which the index holds",
                filled: "inodes below this number were looked through for what the index does not have; all ones: all were",
                spare: "0",
            }
        ),
        structure!(
            "Entry of an index, from block 2 on, one for each block of the volume",
            RawIndexEntry {
                life: "in which life the copy was made; 0: there is none",
                crc: "of the block's place (8 bytes) and its copy",
                spare: "0",
            }
        ),
        structure!(
            "Head of a keep, blocks 0 and 1 of the file by turns as the superblocks",
            RawKeepHead {
                magic: "\"ScherlKP\"",
                version: "1",
                crc: "of the block with this field as 0",
                uuid: "the volume",
                blocks: "its blocks",
                slots: "slots of the file",
                life: "which of the lives of this file; entries of others do not count",
                mark: "the superblock for which the keep holds",
                filled: "inodes below this number were looked through for small files; all ones: all were, or it was full",
                spare: "0",
            }
        ),
        structure!(
            "Entry of a keep, from block 2 on, one for each slot",
            RawKeepEntry {
                life: "in which life the slot was filled; 0: it is empty",
                addr: "the block of the volume that is in it",
                crc: "of the block's place (8 bytes) and its copy",
                ino: "the file",
                spare: "0",
            }
        ),
        structure!(
            "Head of a stage, block 0",
            RawStageHead {
                magic: "\"ScherlST\"",
                version: "1",
                crc: "of the block with this field as 0",
                uuid: "the volume",
                life: "which of the lives of this file; records of others do not count",
                mark: "the superblock behind which the records belong",
                spare: "0",
            }
        ),
        structure!(
            "Record of a stage, the first in block 1, each behind the blocks of the one before",
            RawStageRecord {
                magic: "\"ScherlRE\"",
                blocks: "blocks that follow",
                crc: "of this block with this field as 0",
                life: "the life of the file",
                number: "which record, from 0",
                addr: "where the blocks belong in the volume",
                contents: "checksum of the blocks",
                spare: "0",
            }
        ),
    ]
}

const BESIDE: &str = "
## Files on other disks

None of these is part of the volume, which is complete without them. [archive.md](archive.md) says what they are for.

**An index** is a file with a copy of each block of metadata: inodes, their continuations and index blocks, the blocks
of directories and symlinks, the inode map and the lists. Two heads are followed by a table with an entry for each
block of the volume, rounded up to whole blocks; then each copy, at the block's offset in the volume. All other places
are holes in the file. A copy counts if its entry is of the head's life and has its checksum, and an index counts if
one of its heads names the volume's superblock, to the last bit.

**A keep** is a file with copies of contents blocks, in as many slots as fit. Two heads are followed by a table with
an entry for each slot, rounded up to whole blocks; then the slots. A copy counts by the same rules as an index's. If
two entries have the same block, neither counts.

**A stage** is a file of records, each a run of blocks of the log that were made durable there first. Records count up
to the first incomplete one, and only after the superblock that the head names. They are copied to their places, in
order, before the log is followed.
";

const BEGIN: &str = "# ScherlFS on disk

`scherlfs/format/tests/layout.rs` generates this file from the structures in `scherlfs/format/src` and fails if they
differ.

A log-structured file system for disks, after Holger Scherl, *Design and Implementation of an Energy-Aware File
System* (Studienarbeit, Erlangen 2004). The thesis describes an idea and a prototype but no disk format: this format
is ours. Blocks have 4,096 bytes, numbers are little-endian, nothing is aligned, the checksum is CRC-32 (IEEE 802.3).
An address is the number of a block from the start of the volume.

## The log

The volume is one log. Data that is written together is adjacent, in this order: a file's inode, the extents that did
not fit into it, and the changed blocks of its contents. That is a *piece*. All pieces that become durable together
are a *transaction*: they have the same number `seq`, which increases over the volume's life, and each has the number
of pieces. A transaction counts if all its pieces are there, all of one `attempt`, and all checksums are valid. So an
fsync needs one flush, and nothing is written twice.

**The path.** The log goes through free blocks in address order, from its current position to the end of the volume
and on from its beginning. The *path* is the list of runs of free blocks that come next. Its first runs are in the
superblock. The last block of the known path is always a path block, which names the runs that follow. A free block
that the last checkpoint lists is on the path or after it; a block that became free since waits for the next
checkpoint.

**Continuing a transaction.** A file that grows call by call would be cut into small extents by its inodes. So the
last transaction may be written again, with `attempt` increased by one, if it is a single piece of a regular file
without continuations. New contents are added at the end of the log, and the inode proves all contents, old and new.
The superblock's `placement` selects where the writer puts that inode, and tells the reader where to look in addition
to the usual place (Scherl, Fig. 5.1 a to d):

* 0: no transaction is continued.
* 1: the inode is the last block of its piece, and the next attempt's contents overwrite it. A reader searches the
  next 1,025 blocks for it: the first inode of this transaction with `form` 1 whose number of preceding blocks is
  right. Contents that could be mistaken for one are written in form 0.
* 2: two blocks are reserved for the inode, and the contents follow them. Each attempt uses one of the two, never the
  one with the durable attempt. A reader looks at both.
* 3: as 2, but contents are written before any inode that proves them. The inode follows at an fsync, after some time,
  or as the first piece of a transaction of several.

Of all complete attempts the one with the highest number counts. The other of the two blocks for an inode has no
owner.

**Reading the log after a checkpoint.** Follow the path. The next transaction must have the number `seq + 1` and the
superblock's `epoch`, with the `mark` that follows from the secret: without it a user could store blocks that look
like the log, delete them, and wait for a power cut that leaves the end of the log there. An inode replaces the one in
the map; a list (`SDEL`) removes inodes from the map. The log ends at the first block that is not as expected. A
transaction that writes inodes 1, 3, 4 or 5 is a checkpoint whose superblock was not written: the log ends before it.
Every mount that writes has a new epoch, so that blocks of an older mount after the end of the log are never taken for
its continuation.

**A checkpoint** writes the changed blocks of the inode map, the list of free blocks and the list of orphans, as a
transaction of its own; flushes; writes the superblock copy that does not hold the last checkpoint; and flushes. The
copy with the higher `checkpoint` counts. A torn copy is no damage: the next checkpoint writes it again.

## Inodes by number

| number | what |
|---|---|
| 1 | `.ifile`, the inode map: a regular file that everybody may read, named in the root directory |
| 2 | the root directory |
| 3 | the list of free blocks, without a name |
| 4 | the list of orphans, without a name: inodes without names that were in use |
| 5 | the history, without a name: transactions that can be undone, if there are any |
| 8 and above | files |

Inodes 1, 3, 4 and 5 are named by the superblock, all others by the inode map.
";

const END: &str = "
## Extended attributes

At the end of an inode's area, sorted by name: a byte with the length of the name, two with that of the value, the
name with its prefix (`user.x`), the value. Access lists are `system.posix_acl_access` and `system.posix_acl_default`
in the form that user space sees. Attributes have precedence over extents in the area.

## Extents

They list a file from its beginning: stored blocks, promised blocks, or a hole. The inode lists as many as fit next to
its attributes; the others are in continuations, in order, at least one in each. A continuation is written with an
inode, or stays from an earlier version that listed the same there. One that was written with the inode has its `seq`
and `epoch`, and its index and the count. One that stays has a lower `seq` or `epoch`, the same inode, and in `first`
the block of the file with which it begins: that must be the next one after the preceding extents.

## Contents

Of a regular file: the blocks in its extents. A symlink's target is its only block, filled with zeroes. Of a
directory: blocks of entries like ext2's, which fill the first 4,084 bytes:

| offset | bytes | field | |
|---|---|---|---|
| 0 | 4 | ino | where it leads; 0: room alone |
| 4 | 2 | length | of the entry with the room behind it; a multiple of 4 |
| 6 | 1 | name_length | 1 to 255 |
| 7 | 1 | kind | 1 regular, 2 directory, 3 character device, 4 block device, 5 fifo, 6 socket, 7 symlink |
| 8 | | name | |

The last 12 bytes are `00 00 00 00 0c 00 00 de` and the checksum of the directory's number (4 bytes), the block's
place in it (8 bytes) and the block without the checksum. `.` and `..` are not stored: a directory's inode has its
parent. Only the last block of a directory is ever freed.

## Hidden files

| offset | bytes | of a list |
|---|---|---|
| 0 | 4 | magic: `SFRE` free blocks, `SORP` orphans, `SUND` history |
| 4 | 4 | checksum of all that follows |
| 8 | 8 | entries |
| 16 | | entries: extents of kind 0 in the order of their addresses, none of which touches the next; numbers of 4 bytes; transactions in their order, each with its changes and runs behind it |

A volume of over 16 TiB leaves one block unused after each 2^32 - 1 others, so that no free run is longer than an
extent.
";

fn write_structures(out: &mut String, structures: Vec<Structure>) {
    for s in structures {
        writeln!(out, "\n## {}\n\n`{}`, {} bytes\n", s.title, s.name, s.size).unwrap();
        writeln!(out, "| offset | bytes | field | |\n|---|---|---|---|").unwrap();
        for (at, len, name, meaning) in s.fields {
            writeln!(out, "| {at} | {len} | {name} | {meaning} |").unwrap();
        }
    }
}

fn render() -> String {
    let mut out = String::from(BEGIN);
    writeln!(out, "\n## Counts\n\n| what | how many |\n|---|---|").unwrap();
    for (what, n) in [
        ("extents in an inode without attributes", inode::EXTENTS_MAX),
        ("extents in a continuation, runs in an index or path block", chain::RUNS_MAX),
        ("runs that an inode names", inode::RUNS),
        ("extents of a file at most", inode::EXTENTS_LIMIT),
        ("bytes of attributes at most", inode::XATTRS_MAX),
        ("numbers in a list of inodes that are gone", chain::GONE_MAX),
        ("entries in a block of the inode map", ifile::ENTRIES),
        ("runs of the path in the superblock", superblock::PATH_MAX),
        ("bytes of an extent", extent::EXTENT_BYTES),
        ("blocks of the smallest volume", superblock::BLOCKS_MIN as usize),
        ("bytes of the longest name", format::NAME_MAX),
    ] {
        writeln!(out, "| {what} | {n} |").unwrap();
    }
    write_structures(&mut out, structures());
    out.push_str(END);
    out.push_str(BESIDE);
    for (what, n) in [
        ("Entries in a block of the table", archive::ENTRIES),
        ("Entries in a block of a keep's table", keep::ENTRIES),
        ("Blocks of a record at most", archive::RECORD_MAX.into()),
    ] {
        writeln!(out, "\n{what}: {n}.").unwrap();
    }
    write_structures(&mut out, beside());
    out
}

#[test]
fn the_specification_is_what_the_structures_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/scherlfs-format.md");
    let ours = render();
    if std::env::var_os("JOULEFS_RENEW").is_some() {
        std::fs::write(&path, &ours).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap();
    for (n, (stored, ours)) in stored.lines().zip(ours.lines()).enumerate() {
        assert_eq!(stored, ours, "docs/scherlfs-format.md, line {}", n + 1);
    }
    assert!(stored == ours, "docs/scherlfs-format.md has more or fewer lines than it should");
}

#[test]
fn no_structure_has_a_gap_or_an_overlap() {
    for s in structures().into_iter().chain(beside()) {
        let mut end = 0;
        for (at, len, name, _) in s.fields {
            assert_eq!(at, end, "{}.{name}", s.name);
            end += len;
        }
        assert_eq!(end, s.size, "{}", s.name);
    }
}
