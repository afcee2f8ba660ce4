//! How is strace's output read? `strace -f -ttt`, or `-r` (times since the previous line, which are summed up),
//! preferably with `-T` (duration of calls), `-y` (files behind descriptors) and `-o FILE` (keeps strace's own messages
//! out). `-Y`, `-i`, `-n` and `-k` are accepted, and what they add is left out.
//!
//! Calls on files and directories are returned when they complete, with their start time. Descriptors are tracked
//! through `fork`, threads, `dup`, `execve` and exits: a file is closed with its last descriptor. Files in `/dev`,
//! `/proc` and `/sys`, sockets, pipes and all other calls are counted.
//!
//! Not in a recording:
//! * Descriptors that were opened before the recording began, unless `-y` shows them: calls on them are only counted.
//!   Processes that existed when strace attached are treated as threads of one.
//! * The initial directory: it is taken from `-y`, `getcwd` or a shell's check of its directory in the first MiB, or
//!   else it is `/unknown`.
//! * Symbolic links: a path is used as written, without following links.
//! * Reads and writes through `mmap` and io_uring, which are counted (`effects/asynchronous.rs`).

mod arguments;
mod effects;
mod line;
mod processes;

use rustc_hash::FxHashMap;

use self::effects::{Effects, Who};
use self::line::{What as Did, is_notice, is_stack};
use self::processes::What;
use super::decimal::wrong;
use crate::call::{Call, Calls};
use crate::names::count;
use crate::opened::Reader;
use crate::{Format, Input, Opened, OtherCounts, TraceError};

/// Recognised by the first line that is not a message of strace.
pub(crate) const READER: Reader = Reader { knows, open };

/// Bytes searched for the initial directory.
const HEAD: usize = 1 << 20;
const DAY: u64 = 24 * 3600 * 1_000_000_000;

fn knows(head: &[u8]) -> bool {
    let first = head.split(|b| *b == b'\n').find(|l| !is_notice(l)).unwrap_or_default();
    // Numbers and letters are not enough: a call has an opening bracket, other formats have other signs.
    line::line(first.strip_suffix(b"\r").unwrap_or(first)).is_ok()
}

/// True if it would be strace's output with a time before each call.
pub(crate) fn is_without_times(head: &[u8]) -> bool {
    let first = head.split(|b| *b == b'\n').find(|l| !is_notice(l)).unwrap_or_default();
    let first = first.strip_suffix(b"\r").unwrap_or(first);
    let (process, call) = match first.strip_prefix(b"[pid") {
        Some(_) => memchr::memchr(b']', first).map_or((&first[..0], first), |at| first.split_at(at + 1)),
        None => first.split_at(first.iter().take_while(|b| b.is_ascii_digit()).count()),
    };
    let timed = [process, b" 1700000000.000000 ", call.trim_ascii_start()].concat();
    // A bare name with brackets is common in program text; a result is not.
    let returned = memchr::memmem::find(call, b") = ").is_some() || call.ends_with(b"<unfinished ...>");
    returned && line::line(&timed).is_ok()
}

fn open(mut input: Input) -> Result<Opened, TraceError> {
    let directory = first_directory(input.peek(HEAD)?);
    Ok(Opened::Calls(Box::new(Strace {
        input,
        effects: Effects::new(directory),
        unfinished: FxHashMap::default(),
        begun: 0,
        broken: Vec::new(),
        last: 0,
        days: 0,
        relative: None,
        ended: false,
    })))
}

/// The first directory shown before any process changes its directory.
fn first_directory(head: &[u8]) -> Vec<u8> {
    let mut looked_at = None;
    for line in head.split(|b| *b == b'\n') {
        if let Some(at) = memchr::memmem::find(line, b"AT_FDCWD<")
            && let Some(shown) = arguments::descriptor(&line[at..]).and_then(|d| d.shown)
        {
            return super::paths::normal(b"/", shown);
        }
        if let Some(at) = memchr::memmem::find(line, b"getcwd(\"/")
            && let Some(text) = arguments::string(&line[at + b"getcwd(".len()..])
        {
            return super::paths::normal(b"/", &text);
        }
        // A shell compares the inherited `PWD` with `.`.
        let looks = (memchr::memmem::find(line, b"stat")
            .and_then(|at| memchr::memchr(b'"', &line[at..]).map(|n| at + n)))
        .filter(|_| memchr::memmem::find(line, b"st_mode=S_IFDIR").is_some())
        .and_then(|at| arguments::string(&line[at..]));
        match (looks.as_deref(), looked_at.take()) {
            (Some(b"."), Some(directory)) => return directory,
            (Some(path), _) if path.starts_with(b"/") => looked_at = Some(super::paths::normal(b"/", path)),
            _ => {}
        }
        if memchr::memmem::find(line, b"chdir(").is_some() {
            break;
        }
    }
    b"/unknown".to_vec()
}

/// A call that has not returned yet.
struct Unfinished {
    time: u64,
    text: Vec<u8>,
    /// Order of lines.
    order: u64,
    /// What a `close` is closing.
    closing: Option<Option<What>>,
    /// True if its new process has been seen.
    has_child: bool,
}

struct Strace {
    input: Input,
    effects: Effects,
    unfinished: FxHashMap<u32, Unfinished>,
    begun: u64,
    /// The beginning of a line that a message of strace interrupted.
    broken: Vec<u8>,
    last: u64,
    days: u64,
    /// Times are since the previous line; `None` before the first line.
    relative: Option<bool>,
    ended: bool,
}

/// The process of lines without a number, until other lines give it one.
const NAMELESS: u32 = 0;

fn makes_process(text: &[u8]) -> bool {
    matches!(arguments::name(text), b"clone" | b"clone2" | b"clone3" | b"fork" | b"vfork")
}

/// State for handling a line, without the input from which the line is borrowed.
struct State<'a> {
    effects: &'a mut Effects,
    unfinished: &'a mut FxHashMap<u32, Unfinished>,
    begun: &'a mut u64,
    last: &'a mut u64,
    days: &'a mut u64,
    relative: &'a mut Option<bool>,
}

impl State<'_> {
    /// The process of a line.
    fn whose(&mut self, pid: Option<u32>, did: &Did<'_>) -> u32 {
        let Some(pid) = pid else {
            let pid = self.effects.processes.only().unwrap_or(NAMELESS);
            if !self.effects.processes.knows(pid) {
                self.effects.processes.found(pid);
            }
            return pid;
        };
        if self.effects.processes.knows(pid) {
            return pid;
        }
        let resumed = match did {
            Did::Resumed(name, _) => Some(*name),
            _ => None,
        };
        let nameless = self.effects.processes.knows(NAMELESS);
        let goes_on = resumed
            .is_some_and(|name| self.unfinished.get(&NAMELESS).is_some_and(|u| arguments::name(&u.text) == name));
        // Only such a call can have created it.
        let parent = self.unfinished.iter_mut().filter(|(_, u)| makes_process(&u.text) && !u.has_child);
        let parent = parent.min_by_key(|(_, u)| u.order);
        if let Some((parent, call)) = parent.filter(|_| !goes_on && resumed.is_none()) {
            call.has_child = true;
            let has = |flag| memchr::memmem::find(&call.text, flag).is_some();
            let (files, directory) = (has(b"CLONE_FILES"), has(b"CLONE_FS"));
            let parent = *parent;
            self.effects.processes.fork(parent, pid, files, directory);
        } else if nameless {
            self.effects.processes.rename(NAMELESS, pid);
            if let Some(call) = self.unfinished.remove(&NAMELESS) {
                self.unfinished.insert(pid, call);
            }
        } else {
            self.effects.processes.found(pid);
        }
        pid
    }

    fn line(&mut self, text: &[u8]) -> Result<(), String> {
        let line::Line { pid, mut time, of_day, relative, what } = line::line(text)?;
        if *self.relative.get_or_insert(relative) && !of_day {
            *self.last = self.last.saturating_add(time);
            time = *self.last;
        }
        if of_day {
            if time + DAY / 2 < *self.last {
                *self.days += 1;
            }
            *self.last = time;
            time += *self.days * DAY;
        }
        let pid = self.whose(pid, &what);
        let who = Who { pid, time };
        match what {
            Did::Call(text) => self.whole(who, text, None),
            Did::Unfinished(begun) => {
                *self.begun += 1;
                let closing = begun
                    .strip_prefix(b"close(")
                    .and_then(|fd| arguments::descriptor(fd.trim_ascii().trim_ascii_end()))
                    .map(|fd| self.effects.closing(who, fd));
                let text = begun.to_vec();
                let call = Unfinished { time, text, order: *self.begun, closing, has_child: false };
                if self.unfinished.insert(pid, call).is_some() {
                    count(&mut self.effects.others, "calls that did not return");
                }
                Ok(())
            }
            Did::Resumed(name, rest) => {
                let Some(Unfinished { time, mut text, closing, .. }) = self.unfinished.remove(&pid) else {
                    count(&mut self.effects.others, "calls that began before the recording");
                    return Ok(());
                };
                if arguments::name(&text) != name {
                    return Err(wrong("the call that is resumed", name));
                }
                text.extend_from_slice(rest);
                self.whole(Who { pid, time }, &text, closing)
            }
            Did::Signal => {
                count(&mut self.effects.others, "signals");
                Ok(())
            }
            Did::Exit => {
                if self.unfinished.remove(&pid).is_some() {
                    count(&mut self.effects.others, "calls that did not return");
                }
                self.effects.exit(who);
                count(&mut self.effects.others, "ends of processes");
                Ok(())
            }
            Did::Superseded(by) => {
                let gone = self.effects.processes.rename(by, pid);
                self.effects.closed(who, gone);
                if let Some(call) = self.unfinished.remove(&by) {
                    self.unfinished.insert(pid, call);
                }
                count(&mut self.effects.others, "ends of processes");
                Ok(())
            }
        }
    }

    fn whole(&mut self, who: Who, text: &[u8], closing: Option<Option<What>>) -> Result<(), String> {
        let call = arguments::call(text).ok_or_else(|| wrong("a call without end", text))?;
        self.effects
            .call(who, &call, closing)
            .map_err(|effects::Senseless| format!("{} makes no sense", wrong("a call that", text)))
    }
}

impl Strace {
    /// Reads one line, if there is one.
    fn advance(&mut self) -> Result<bool, TraceError> {
        const FORMAT: Format = Format::Strace;
        let Some(text) = self.input.line(FORMAT)? else { return Ok(false) };
        let mut state = State {
            effects: &mut self.effects,
            unfinished: &mut self.unfinished,
            begun: &mut self.begun,
            last: &mut self.last,
            days: &mut self.days,
            relative: &mut self.relative,
        };
        let read = if text.is_empty() && self.broken.is_empty() {
            count(&mut state.effects.others, "empty lines");
            Ok(())
        } else if let Some(at) = message(text) {
            count(&mut state.effects.others, "messages of strace");
            if self.broken.len() + at > crate::input::LONGEST {
                Err("a line that never ends".into())
            } else {
                self.broken.extend_from_slice(&text[..at]);
                Ok(())
            }
        } else if is_stack(text) && self.broken.is_empty() {
            count(&mut state.effects.others, "lines of stack traces");
            Ok(())
        } else if self.broken.is_empty() {
            state.line(text)
        } else {
            self.broken.extend_from_slice(text);
            let whole = std::mem::take(&mut self.broken);
            state.line(&whole)
        };
        let at = self.input.at_line();
        if self.input.ended_without_newline() {
            self.effects.out.clear();
            return Err(self.input.cut_short(FORMAT, at));
        }
        if let Err(what) = read {
            self.effects.out.clear();
            self.input.skip_line(FORMAT, what, &mut self.effects.others)?;
        }
        Ok(true)
    }
}

/// Start of a message of strace that ends the line. Without `-o` it reports attached processes in the middle of a line.
fn message(line: &[u8]) -> Option<usize> {
    if is_notice(line) {
        return Some(0);
    }
    let before = line.strip_suffix(b" attached")?;
    let digits = before.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let before = before[..before.len() - digits].strip_suffix(b"strace: Process ")?;
    Some(before.len())
}

impl Calls for Strace {
    fn format(&self) -> Format {
        Format::Strace
    }

    fn next(&mut self) -> Result<Option<Call>, TraceError> {
        loop {
            if let Some(call) = self.effects.out.pop_front() {
                return Ok(Some(call));
            }
            if self.ended {
                return Ok(None);
            }
            match self.advance() {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    for _ in self.unfinished.drain() {
                        count(&mut self.effects.others, "calls that did not return");
                    }
                }
                Err(e) => {
                    self.ended = true;
                    return Err(e);
                }
            }
        }
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.effects.others
    }

    fn consumed(&self) -> u64 {
        self.input.consumed()
    }
}
