//! `joulefs rescue`: what can be had back from a broken image.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use format::{BLOCK, Ino};
use rescue::place::Place;
use rescue::{Loose, Options, Progress, Rescue, RescueError, RescuedFile};
use serde_json::{Value, json};
use vfs::{DeviceNumber, FileKind, Timestamp};

use super::cp::{self, Glance, Item, Out, Reader, Source};
use crate::image::open_device;
use crate::interrupt::Interrupt;
use crate::{Failure, output, progress};

/// Copy out of a broken image what can be proved to be there.
///
/// Reads the whole image and needs nothing of it but its nodes and contents: superblock, checkpoints, NAT and summaries
/// may be gone, the volume may begin anywhere in the image, and the image may end early. The image is never written.
///
/// DIR, which must be new or empty, gets the files that are proved alive: a directory that is alive names them, and
/// their blocks are theirs. What a lost directory had held is put below DIR/rescue-unplaced, each under its inode number
/// and name; nothing can tell whether such a file had been deleted, and it is called likely, not proved. Deleted files and files some of whose blocks may have
/// been overwritten are only listed, unless --doubtful asks for them: they are put below DIR/rescue-deleted and
/// DIR/rescue-doubtful, what is missing of them as zeroes.
///
/// Of several versions of a file the newest that was found is taken, by the checkpoint it was written under. Proofs rest
/// on what is found: where nodes were overwritten or zeroed, an older version may pass for the newest. Where the image
/// was cut short, or blocks cannot be read, nothing is proved, since something newer may have been in the missing part: a directory may be an older version
/// of itself and name files that were deleted later, and blocks may be another file's by now. Files that nothing speaks
/// against are then called likely, and copied.
///
/// Exit code 0: every file that was found alive is there. 1: one of them is not, or is in doubt. 2: wrong usage.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  joulefs rescue broken.img found\n  \
    joulefs --json rescue broken.img found --doubtful > report.json\n  joulefs rescue disk.img found --volume-at 1048576")]
pub struct Args {
    /// The image, or a block device.
    image: PathBuf,
    /// Where to put what is found: a directory that is new or empty.
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// Copy deleted and doubtful files too.
    #[arg(long)]
    doubtful: bool,
    /// List what would be copied, and copy nothing.
    #[arg(long)]
    list: bool,
    /// The volume's first byte in the image, where the search finds the wrong one.
    #[arg(long, value_name = "BYTE", allow_negative_numbers = true)]
    volume_at: Option<i64>,
    /// Node numbers to remember, at some 40 bytes each.
    #[arg(long, value_name = "N", default_value_t = 1 << 25)]
    most_nodes: usize,
}

/// Where a file is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    Living,
    Unplaced,
    Deleted,
}

impl Group {
    fn word(self) -> &'static str {
        match self {
            Group::Living => "living",
            Group::Unplaced => "unplaced",
            Group::Deleted => "deleted",
        }
    }
}

const UNPLACED: &str = "rescue-unplaced";
const DELETED: &str = "rescue-deleted";
const DOUBTFUL: &str = "rescue-doubtful";

/// Directories within each other that are followed: no path that a host takes has as many.
const DEEPEST: usize = 2048;

/// One file of the report.
struct Row {
    path: Vec<u8>,
    group: Group,
    ino: Ino,
    kind: u8,
    size: u64,
    doubts: Vec<String>,
    /// The inode itself is gone.
    lost: bool,
    /// Nothing is against it, but something could be that is not there: a newer owner of its blocks.
    unsure: bool,
    version: u32,
    versions: u16,
}

impl Row {
    fn verdict(&self) -> &'static str {
        match (self.lost, self.doubts.is_empty()) {
            (true, _) => "lost",
            (_, false) => "doubtful",
            _ if self.unsure => "likely",
            _ => "proved",
        }
    }
    fn is_directory(&self) -> bool {
        self.kind == 2
    }
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

/// What is at a path of the tree that is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// A directory of this command's own.
    Made,
    File(Ino),
}

type Holding = HashMap<Vec<u8>, Vec<(Vec<u8>, At)>>;

/// What was found, as a tree to copy: every directory's names are known beforehand.
struct Found<'r> {
    rescue: &'r Rescue<'r>,
    holds: Holding,
    /// Directories on the way to what was last looked at, as maps from names.
    open: RefCell<Vec<(Vec<u8>, HashMap<Vec<u8>, At>)>>,
    /// Directories of files that are not whole: what is missing of them is left out.
    lenient: Vec<Vec<u8>>,
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut out = dir.to_vec();
    if !out.ends_with(b"/") {
        out.push(b'/');
    }
    out.extend_from_slice(name);
    out
}

fn say(e: RescueError) -> String {
    e.to_string()
}

impl Found<'_> {
    fn at(&self, path: &[u8]) -> Out<At> {
        let gone = || format!("{}: not found", String::from_utf8_lossy(path));
        if path == b"/" {
            return Ok(self.rescue.root().map_or(At::Made, At::File));
        }
        let cut = path.iter().rposition(|&b| b == b'/').ok_or_else(gone)?;
        let (dir, name) = (&path[..cut.max(1)], &path[cut + 1..]);
        let mut open = self.open.borrow_mut();
        while let Some((last, _)) = open.last()
            && last != dir
            && !(dir.starts_with(last) && (last == b"/" || dir.get(last.len()) == Some(&b'/')))
        {
            open.pop();
        }
        if open.last().is_none_or(|(last, _)| last != dir) {
            let map = self.holds.get(dir).ok_or_else(gone)?.iter().cloned().collect();
            open.push((dir.to_vec(), map));
        }
        open.last().and_then(|(_, map)| map.get(name)).copied().ok_or_else(gone)
    }

    fn is_lenient(&self, path: &[u8]) -> bool {
        self.lenient.iter().any(|dir| path.strip_prefix(&dir[..]).is_some_and(|rest| rest.starts_with(b"/")))
    }

    fn file(&self, ino: Ino) -> Out<RescuedFile<'_>> {
        self.rescue.file(ino).map_err(say)?.ok_or_else(|| format!("inode {ino}: not found"))
    }
}

fn file_kind(number: u8) -> Option<FileKind> {
    Some(match number {
        1 => FileKind::Regular,
        2 => FileKind::Directory,
        3 => FileKind::CharDevice,
        4 => FileKind::BlockDevice,
        5 => FileKind::Fifo,
        6 => FileKind::Socket,
        7 => FileKind::Symlink,
        _ => return None,
    })
}

/// A directory that no inode stands for.
fn made() -> Item {
    Item {
        kind: FileKind::Directory,
        perm: 0o700,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        size: 0,
        atime: Timestamp::default(),
        mtime: Timestamp::default(),
        rdev: DeviceNumber::default(),
        identity: None,
        target: Vec::new(),
        xattrs: Vec::new(),
    }
}

impl Source for Found<'_> {
    fn glance(&self, path: &[u8]) -> Out<Glance> {
        let At::File(ino) = self.at(path)? else {
            // Directories of this command's own are told apart by numbers that no inode has.
            let number = path.iter().fold(1u64 << 40, |n, &b| n.wrapping_mul(31).wrapping_add(b.into()) | 1 << 40);
            return Ok(Glance { kind: FileKind::Directory, size: 0, file: (0, number) });
        };
        let file = self.file(ino)?;
        let kind = file_kind(file.kind()).ok_or("of no known kind")?;
        Ok(Glance { kind, size: file.raw().i_size.get(), file: (0, ino.0.into()) })
    }

    fn item(&self, path: &[u8]) -> Out<Item> {
        let At::File(ino) = self.at(path)? else { return Ok(made()) };
        let place = |what: String| format!("{}: {what}", String::from_utf8_lossy(path));
        let mut file = self.file(ino)?;
        let kind = file_kind(file.kind()).ok_or_else(|| place("of no known kind".into()))?;
        let target = match kind {
            FileKind::Symlink => file.target().map_err(say).map_err(place)?,
            _ => Vec::new(),
        };
        let xattrs = match file.xattrs() {
            Err(_) if self.is_lenient(path) => Vec::new(),
            other => other.map_err(say).map_err(place)?,
        };
        let raw = file.raw();
        let time = |sec: u64, nsec: u32| Timestamp { sec: sec as i64, nsec: nsec.min(999_999_999) };
        let (major, minor) = match kind {
            FileKind::CharDevice | FileKind::BlockDevice => file.device_number(),
            _ => (0, 0),
        };
        Ok(Item {
            kind,
            perm: raw.i_mode.get() & 0o7777,
            uid: raw.i_uid.get(),
            gid: raw.i_gid.get(),
            size: raw.i_size.get(),
            atime: time(raw.i_atime.get(), raw.i_atime_nsec.get()),
            mtime: time(raw.i_mtime.get(), raw.i_mtime_nsec.get()),
            rdev: DeviceNumber { major, minor },
            identity: (raw.i_links.get() > 1 && kind != FileKind::Directory).then_some((0, ino.0.into())),
            target,
            xattrs,
        })
    }

    fn names(&self, path: &[u8]) -> (Vec<Vec<u8>>, Out<()>) {
        let mut out: Vec<_> = self.holds.get(path).into_iter().flatten().map(|(name, _)| name.clone()).collect();
        out.sort();
        (out, Ok(()))
    }

    fn open<'s>(&'s self, path: &[u8]) -> Out<Box<dyn Reader + 's>> {
        let At::File(ino) = self.at(path)? else { return Err("a directory".into()) };
        let mut file = self.file(ino)?;
        file.lenient = self.is_lenient(path);
        let end = file.raw().i_size.get().div_ceil(BLOCK as u64);
        Ok(Box::new(Contents { file, end, place: path.to_vec() }))
    }
}

struct Contents<'r> {
    file: RescuedFile<'r>,
    end: u64,
    place: Vec<u8>,
}

impl Reader for Contents<'_> {
    fn next_data(&mut self, offset: u64) -> Out<Option<(u64, u64)>> {
        let block = BLOCK as u64;
        let Some(start) = self.file.next_data(offset / block, self.end).map_err(say)? else { return Ok(None) };
        let mut end = start + 1;
        while end < self.end && end - start < 256 && self.file.next_data(end, end + 1).map_err(say)?.is_some() {
            end += 1;
        }
        Ok(Some((offset.max(start * block), end * block)))
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Out<usize> {
        let mut block = [0; BLOCK];
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.file.read_block(at / BLOCK as u64, &mut block) {
                Err(RescueError::Contents { .. } | RescueError::Device(_)) if self.file.lenient => block.fill(0),
                other => other.map_err(|e| format!("{}: {e}", String::from_utf8_lossy(&self.place)))?,
            }
            let from = (at % BLOCK as u64) as usize;
            let n = (BLOCK - from).min(buf.len() - done);
            buf[done..done + n].copy_from_slice(&block[from..from + n]);
            done += n;
        }
        Ok(done)
    }
}

/// Goes through all that was found, and decides what is copied and where to.
struct Plan<'r> {
    rescue: &'r Rescue<'r>,
    args: &'r Args,
    holds: Holding,
    rows: Vec<Row>,
    doubtful: Vec<(Vec<u8>, At)>,
    lenient: Vec<Vec<u8>>,
    stop: &'r Interrupt,
}

impl Plan<'_> {
    /// A file, and if it is a directory what it holds. True if it is to be copied where it is.
    fn file(&mut self, path: &[u8], ino: Ino, group: Group, above: &mut Vec<Ino>) -> Result<bool, Failure> {
        if self.stop.came() {
            return Err("interrupted".into());
        }
        let Some(file) = self.rescue.file(ino).map_err(say)? else { return Ok(false) };
        let verdict = self.rescue.verdict(&file).map_err(say)?;
        let mut doubts = verdict.doubts;
        if let Err(e) = file.xattrs() {
            doubts.push(e.to_string());
        }
        let is_dir = file.kind() == 2;
        let size = if is_dir { 0 } else { file.raw().i_size.get() };
        let mut held = Vec::new();
        if is_dir && above.len() >= DEEPEST {
            doubts.push(format!("what is below it is left out: it lies {DEEPEST} directories deep"));
        } else if is_dir && !above.contains(&ino) {
            above.push(ino);
            let names = self.rescue.names(ino).map_err(say)?;
            doubts.extend(names.gaps);
            for entry in names.entries {
                let below = join(path, &entry.name);
                if self.file(&below, entry.ino, group, above)? {
                    held.push((entry.name, At::File(entry.ino)));
                }
            }
            above.pop();
        }
        let row = Row {
            path: path.to_vec(),
            group,
            ino,
            kind: file.kind(),
            size,
            doubts,
            lost: false,
            unsure: self.rescue.is_incomplete() || group != Group::Living,
            version: verdict.version,
            versions: verdict.versions,
        };
        let wanted = match (row.verdict(), group) {
            // A directory holds what was proved, whatever else it had.
            _ if is_dir => group != Group::Deleted || self.args.doubtful,
            (_, Group::Deleted) => self.args.doubtful,
            ("proved" | "likely", _) => true,
            _ => {
                if self.args.doubtful {
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
            self.file(b"/", root, Group::Living, &mut Vec::new())?;
            top = self.holds.remove(&b"/"[..]).unwrap_or_default();
        }
        for (dir, entry) in self.rescue.lost() {
            let path = format!("(inode {dir})/{}", String::from_utf8_lossy(&entry.name)).into_bytes();
            let doubts = vec!["its inode is not there".into()];
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
                if self.file(&join(&path, &name), *ino, group, &mut Vec::new())? {
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

/// An inode's number and name in one: no two are the same.
fn numbered(ino: Ino, name: Option<Vec<u8>>) -> Vec<u8> {
    let mut out = ino.0.to_string().into_bytes();
    if let Some(name) = name.filter(|n| !n.is_empty()) {
        out.push(b'-');
        out.extend_from_slice(&name);
        // With the number it may be longer than a name can be.
        out.truncate(255);
    }
    out
}

/// A name that the root directory does not have.
fn free(top: &[(Vec<u8>, At)], name: &str) -> Vec<u8> {
    let mut out = name.as_bytes().to_vec();
    while top.iter().any(|(known, _)| *known == out) {
        out.push(b'~');
    }
    out
}

fn check_target(to: &Path) -> Result<(), Failure> {
    match std::fs::read_dir(to) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(Failure::usage(format!("{}: not empty; name a new directory", to.display()))),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(format!("{}: {e}", to.display()).into()),
    }
}

/// Runs it.
pub fn run(args: &Args, as_json: bool) -> Result<ExitCode, Failure> {
    if args.volume_at.is_some_and(|at| at % rescue::window::SECTOR as i64 != 0) {
        return Err(Failure::usage("--volume-at: not a whole number of sectors of 512 bytes"));
    }
    if !args.list {
        check_target(&args.to)?;
    }
    let dev = open_device(&args.image, false)?;
    let stop = Interrupt::catch()?;
    // Once to find the volume, at most, and once to find its nodes.
    let bar = progress::steps(dev.blocks() * 2, "searching");
    let mut tell = |blocks| {
        bar.inc(blocks);
        progress::show_if_slow(&bar);
        !stop.came()
    };
    let options = Options { volume_at: args.volume_at, most_nodes: args.most_nodes };
    let found = Rescue::search(&*dev, &options, &mut Progress::new(&mut tell));
    bar.finish_and_clear();
    stop.end();
    let found = found.map_err(|e| format!("{}: {e}", args.image.display()))?;
    let mut plan = Plan {
        rescue: &found,
        args,
        holds: Holding::new(),
        rows: Vec::new(),
        doubtful: Vec::new(),
        lenient: Vec::new(),
        stop: &stop,
    };
    plan.all()?;
    let Plan { holds, rows, lenient, .. } = plan;
    let tree = Found { rescue: &found, holds, open: RefCell::default(), lenient };
    let failed = if args.list { Vec::new() } else { cp::copy_tree(&tree, &args.to, &stop, as_json)? };
    let amiss = rows.iter().any(|r| r.group != Group::Deleted && !r.doubts.is_empty()) || !failed.is_empty();
    let unplaced = found.is_incomplete() || rows.iter().any(|r| r.group == Group::Unplaced);
    if as_json {
        output::print(&report(&found, &rows, &failed));
    } else {
        tell_people(&found, &rows);
    }
    Ok(if amiss || unplaced || found.root().is_none() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report(found: &Rescue<'_>, rows: &[Row], failed: &[String]) -> Value {
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

fn tell_people(found: &Rescue<'_>, rows: &[Row]) {
    output::line(&format!(
        "volume at byte {} of the image; {} nodes and directories agree",
        found.place().volume_at(),
        found.place().votes
    ));
    if found.is_cut_short() {
        output::line(
            "the image ends before the volume: nothing is proved, since something newer may have been in what is missing",
        );
    }
    if found.unreadable_blocks() > 0 {
        output::line(&format!(
            "{} blocks cannot be read: nothing is proved, since something newer may be in them",
            found.unreadable_blocks()
        ));
    }
    if found.root().is_none() {
        output::line("the root directory is not there");
    }
    if found.damaged_inodes() > 0 {
        output::line(&format!(
            "{} inodes have versions with a wrong checksum, which were left out",
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
        "files: {} {}, {} doubtful, {} lost; {} unplaced; {} deleted",
        count(Group::Living, "proved") + count(Group::Living, "likely"),
        if found.is_incomplete() { "likely" } else { "proved" },
        count(Group::Living, "doubtful"),
        count(Group::Living, "lost"),
        all(Group::Unplaced),
        all(Group::Deleted),
    ));
}
