//! How are settings and counters of a running mount accessed through a directory, and a file's extents through the
//! file?
//!
//! As extended attributes that are not listed and never reach the file system. On the root, [`REPORT`] and [`SOCKET`]
//! are read, [`SETTING`] is written as `name=value`. On every file, [`EXTENTS`] is read, [`DEFRAGMENT`] is read and
//! written. Only root and the user who mounted may change a setting, move blocks, or read their addresses.
//!
//! Left out on purpose: which settings exist ([`FileSystem::tune`]), and which blocks are worth moving.

use std::ops::Range;

use fuser::Request;
use vfs::{Error, FileSystem, Ino, Moving, Result};

/// Reading returns a line `name value` for each counter and setting.
pub const REPORT: &str = "system.joulefs.report";
/// Writing `name=value` changes a setting.
pub const SETTING: &str = "system.joulefs.setting";
/// Followed by a dot and a block of the file: reading returns a line `from address blocks begins` for each run of
/// blocks from there on, at most [`MOST`]; the last word is 1 if a hole precedes it, else 0.
pub const EXTENTS: &str = "system.joulefs.extents";
/// Writing `FROM TO copy` or `FROM TO share` defragments these blocks, at most [`STEP`]; reading returns why a file's
/// blocks cannot be moved, and nothing if they can.
pub const DEFRAGMENT: &str = "system.joulefs.defragment";
/// On the root, followed by a dot and a number of blocks: reading returns `short moves`, as in [`vfs::Room`]; writing
/// `clean` cleans one section for them if space is short.
pub const ROOM: &str = "system.joulefs.room";
/// On the root, followed by a dot, a number of files, a dot and a token: reading returns as JSON the energy spent, in
/// total and since the answer with this token (0: in total), by cause and by file ([`FileSystem::account`]). Empty
/// without accounting.
pub const ACCOUNT: &str = "system.joulefs.account";
/// On the root: reading returns the name of the mount's socket ([`crate::socket`]).
pub const SOCKET: &str = "system.joulefs.socket";
/// Runs in one answer: they fit the kernel's limit on attribute values.
pub const MOST: usize = 1000;
/// Blocks per defragmentation request: one step of the file system.
pub const STEP: u64 = 256;

fn check_user(req: &Request, what: &'static str) -> Result<()> {
    // This process runs as the user who mounted.
    match req.uid() == 0 || req.uid() == rustix::process::getuid().as_raw() {
        true => Ok(()),
        false => Err(Error::NotPermitted(what)),
    }
}

const SPENT: &str = "only root and the user who mounted the volume may read the energy of files";
const OTHERS: &str = "only root and the user who mounted the volume may read the layout of files";

/// Handles reading an attribute, if it is one of these.
pub(crate) fn read(
    fs: &dyn FileSystem,
    socket: Option<&str>,
    req: &Request,
    ino: Ino,
    name: &[u8],
) -> Option<Result<Vec<u8>>> {
    if ino == fs.root() && name == SOCKET.as_bytes() {
        return Some(socket.map(|name| name.as_bytes().to_vec()).ok_or(Error::NoAttribute));
    }
    if ino == fs.root() && name == REPORT.as_bytes() {
        let lines = fs.report().into_iter().map(|(name, value)| format!("{name} {value}\n"));
        return Some(Ok(lines.collect::<String>().into_bytes()));
    }
    if let Some(asked) = asked_account(fs, ino, name) {
        return Some(check_user(req, SPENT).and_then(|()| {
            let (files, since) = asked?;
            Ok(fs.account(files, since).unwrap_or_default().into_bytes())
        }));
    }
    if let Some(blocks) = asked_room(fs, ino, name) {
        return Some(check_user(req, OTHERS).and_then(|()| {
            let room = fs.room(blocks?, false)?;
            Ok(format!("{} {}", room.short, room.moves).into_bytes())
        }));
    }
    if name == DEFRAGMENT.as_bytes() {
        return Some(check_user(req, OTHERS).and_then(|()| match fs.defragment(ino, 0..0, Moving::Copy) {
            Ok(_) => Ok(Vec::new()),
            Err(Error::NotPermitted(why) | Error::Invalid(why) | Error::Busy(why)) => Ok(why.into()),
            Err(e) => Err(e),
        }));
    }
    let from = name.strip_prefix(EXTENTS.as_bytes())?.strip_prefix(b".")?;
    let from = std::str::from_utf8(from).ok().and_then(|n| n.parse().ok());
    Some(check_user(req, OTHERS).and_then(|()| {
        let from = from.ok_or(Error::Invalid("a block of the file follows the dot"))?;
        let line = |e: vfs::Extent| format!("{} {} {} {}\n", e.from, e.addr, e.blocks, u8::from(e.begins));
        Ok(fs.extents(ino, from, MOST)?.into_iter().map(line).collect::<String>().into_bytes())
    }))
}

/// Handles writing an attribute, if it is one of these.
pub(crate) fn write(fs: &dyn FileSystem, req: &Request, ino: Ino, name: &[u8], value: &[u8]) -> Option<Result<()>> {
    if name == DEFRAGMENT.as_bytes() {
        return Some(check_user(req, OTHERS).and_then(|()| {
            let (blocks, how) = asked(value).ok_or(Error::Invalid("FROM TO copy, or share"))?;
            let mut at = blocks.start;
            while at < blocks.end {
                at = fs.defragment(ino, at..blocks.end, how)?.0;
            }
            Ok(())
        }));
    }
    if let Some(blocks) = asked_room(fs, ino, name) {
        return Some(check_user(req, OTHERS).and_then(|()| match value {
            b"clean" => fs.room(blocks?, true).map(drop),
            _ => Err(Error::Invalid("clean")),
        }));
    }
    (ino == fs.root() && name == SETTING.as_bytes()).then(|| {
        check_user(req, "only root and the user who mounted the volume may change settings")?;
        let text = std::str::from_utf8(value).map_err(|_| Error::Invalid("a setting is text"))?;
        let (name, value) = text.trim().split_once('=').ok_or(Error::Invalid("a setting is written name=value"))?;
        fs.tune(name, value).map_err(|why| {
            log::warn!("{name} {why}, not {value:?}");
            Error::Invalid("no such setting, or no such value for it")
        })
    })
}

/// The number of blocks in the name, if it is [`ROOM`].
fn asked_room(fs: &dyn FileSystem, ino: Ino, name: &[u8]) -> Option<Result<u64>> {
    let blocks = name.strip_prefix(ROOM.as_bytes()).filter(|_| ino == fs.root())?.strip_prefix(b".")?;
    let blocks = std::str::from_utf8(blocks).ok().and_then(|n| n.parse().ok());
    Some(blocks.ok_or(Error::Invalid("a number of blocks follows the dot")))
}

/// The number of files and the token in the name, if it is [`ACCOUNT`].
fn asked_account(fs: &dyn FileSystem, ino: Ino, name: &[u8]) -> Option<Result<(usize, u64)>> {
    let rest = name.strip_prefix(ACCOUNT.as_bytes()).filter(|_| ino == fs.root())?.strip_prefix(b".")?;
    let numbers = std::str::from_utf8(rest).ok().and_then(|text| text.split_once('.'));
    let numbers = numbers.and_then(|(files, since)| Some((files.parse().ok()?, since.parse().ok()?)));
    Some(numbers.ok_or(Error::Invalid("a number of files and a token follow, each after a dot")))
}

/// Parses the blocks to move, at most one request's, and the method.
fn asked(value: &[u8]) -> Option<(Range<u64>, Moving)> {
    let mut words = std::str::from_utf8(value).ok()?.split_whitespace();
    let (from, to): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let how = match words.next()? {
        "copy" => Moving::Copy,
        "share" => Moving::Share,
        _ => return None,
    };
    (words.next().is_none() && from < to && to - from <= STEP).then_some((from..to, how))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_to_move_are_few_and_in_order() {
        assert_eq!(asked(b"3 9 copy"), Some((3..9, Moving::Copy)));
        assert_eq!(asked(b"0 256 share\n"), Some((0..256, Moving::Share)));
        for wrong in
            ["", "3", "3 9", "9 3 copy", "3 3 copy", "0 257 copy", "0 9 move", "-1 9 copy", "0 9 copy x", "\u{fffd}"]
        {
            assert_eq!(asked(wrong.as_bytes()), None, "{wrong:?}");
        }
        assert_eq!(asked(b"0 18446744073709551615 copy"), None);
    }
}
