//! How is the text of Linux's tracefs read (`trace`, `trace_pipe`), also as printed by `trace-cmd report`, Android's
//! atrace and systrace (`.html`)?
//!
//! Every line is an event of some tracepoint; those of block devices are read, others are counted by name. Events that
//! the kernel lost are counted as `lost events`. Times use the recording's `trace_clock`, which must count seconds.
//!
//! Left out: `trace-cmd report -l` and the kernel's latency format, which have other columns.

mod fields;
mod line;

use line::line;

use crate::block::Event;
use crate::names::{count, count_many};
use crate::opened::Reader;
use crate::read::decimal::{number, wrong};
use crate::read::tracepoint::layers::{Layered, Source};
use crate::read::tracepoint::{Heard, Layer, Point, blank, point};
use crate::{Format, Input, Names, Opened, OtherCounts, Process, TraceError};

/// Recognised by the kernel's header, or by its first event.
pub(crate) const READER: Reader = Reader { knows, open };

/// Most lines before the first event.
const HEADINGS: usize = 200;
/// Most event names counted individually.
const NAMES: usize = 1 << 12;
/// Start of the text in systrace's page.
const IN_PAGE: &[u8] = br#"class="trace-data""#;
const PAGE_ENDS: &[u8] = b"</script>";

/// Type of a line without an event.
enum Aside {
    /// Comments, titles.
    Heading,
    /// Number of lost events; 0 if unknown.
    Lost(u64),
    /// A line of a stack trace.
    Stack,
}

fn aside(line: &[u8]) -> Option<Aside> {
    let heading = line.iter().all(u8::is_ascii_whitespace)
        || [&b"#"[..], b"cpus=", b"version = ", b"TRACE:", b"capturing trace"].iter().any(|h| line.starts_with(h))
        || line.starts_with(b"CPU ") && line.ends_with(b" is empty");
    if heading {
        return Some(Aside::Heading);
    }
    if line.starts_with(b"CPU:") && line.ends_with(b"]") {
        let inner = &line[memchr::memchr(b'[', line)? + 1..line.len() - 1];
        let words: Vec<&[u8]> = inner.split(|b| *b == b' ').collect();
        return match words[..] {
            [b"LOST", n, b"EVENTS"] | [n, b"EVENTS", b"DROPPED"] => number(n).map(Aside::Lost),
            [b"LOST", b"EVENTS"] | [b"EVENTS", b"DROPPED"] => Some(Aside::Lost(0)),
            _ => None,
        };
    }
    line.trim_ascii_start().starts_with(b"=> ").then_some(Aside::Stack)
}

/// True if this is a systrace page.
fn is_page(head: &[u8]) -> bool {
    let start = head.trim_ascii_start();
    start.get(..9).is_some_and(|s| s.eq_ignore_ascii_case(b"<!doctype") || s.eq_ignore_ascii_case(b"<html>\n<h"))
        && (memchr::memmem::find(head, b"<title>Android System Trace</title>").is_some()
            || memchr::memmem::find(head, IN_PAGE).is_some())
}

fn knows(head: &[u8]) -> bool {
    if is_page(head) || head.starts_with(b"# tracer:") {
        return true;
    }
    head.split(|b| *b == b'\n')
        .take(HEADINGS)
        .map(|l| l.strip_suffix(b"\r").unwrap_or(l))
        .find(|l| aside(l).is_none())
        .is_some_and(|first| line(first).is_ok())
}

fn open(mut input: Input) -> Result<Opened, TraceError> {
    let page = is_page(input.peek(64 << 10)?);
    let text = Text { input, names: Names::default(), others: OtherCounts::new(), page };
    let mut text = text;
    if page {
        text.go_to_data()?;
    }
    Ok(Opened::Blocks(Box::new(Layered::new(text))))
}

struct Text {
    input: Input,
    names: Names,
    others: OtherCounts,
    /// True inside a systrace page.
    page: bool,
}

impl Text {
    /// Skips the part of systrace's page before the text.
    fn go_to_data(&mut self) -> Result<(), TraceError> {
        while let Some(line) = self.input.line(Format::Ftrace)? {
            if line.starts_with(b"# tracer:") || memchr::memmem::find(line, IN_PAGE).is_some() {
                return Ok(());
            }
        }
        Err(self.input.damaged(Format::Ftrace, self.input.at_line(), "the page has no data"))
    }

    /// Skips the rest of the page.
    fn leave_page(&mut self) -> Result<(), TraceError> {
        while self.input.line(Format::Ftrace)?.is_some() {}
        self.page = false;
        Ok(())
    }
}

/// Result of a line.
enum Given {
    Event(Heard),
    Nothing,
    /// End of the page's data.
    PageEnds,
}

/// Parses a line; other events are counted.
fn read(text: &[u8], names: &mut Names, others: &mut OtherCounts, page: bool) -> Result<Given, String> {
    let found = match line(text) {
        Ok(found) => found,
        Err(what) => {
            match aside(text) {
                Some(Aside::Heading) => {}
                Some(Aside::Lost(0)) => count(others, "lost events, how many is not known"),
                Some(Aside::Lost(n)) => count_many(others, "lost events", n),
                Some(Aside::Stack) => count(others, "lines of stack traces"),
                None if page && text.trim_ascii_start().starts_with(PAGE_ENDS) => return Ok(Given::PageEnds),
                None => return Err(what),
            }
            return Ok(Given::Nothing);
        }
    };
    let known = found.name.and_then(point);
    let mut event = blank(found.time, found.cpu, found.pid, Process::default());
    let heard = match known {
        Some(Point::Extent(layer, action)) => {
            event.action = action;
            let Some(process) = fields::extent(found.arguments, layer, &mut event) else {
                return Err(wrong("what happened", found.arguments));
            };
            name(names, &mut event, process.unwrap_or(found.process), found.process);
            Heard::new(layer, event)
        }
        Some(Point::Plug) => {
            let process = fields::plug(found.arguments).ok_or_else(|| wrong("what happened", found.arguments))?;
            name(names, &mut event, process, found.process);
            Heard::new(Layer::Block, event)
        }
        Some(Point::Ufs) => {
            if !fields::ufs(found.arguments, &mut event).ok_or_else(|| wrong("the command", found.arguments))? {
                count(others, "ufshcd_command");
                return Ok(Given::Nothing);
            }
            name(names, &mut event, found.process, found.process);
            Heard::new(Layer::Controller, event)
        }
        Some(Point::Inode(inode_event)) => {
            let text = found.name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or_default();
            count(others, text);
            // If a kernel uses another form, only the files are unknown, not the requests.
            let Some((place, ino, left)) = fields::inode(found.arguments) else { return Ok(Given::Nothing) };
            let place = match place {
                fields::Place::Named(name) => names.files.place_named(name),
                fields::Place::Device(device) => names.files.place_of(device),
            };
            name(names, &mut event, found.process, found.process);
            Heard { layer: Layer::Writeback, event, notice: Some(inode_event.notice(place, ino, left)) }
        }
        None => {
            let name = found.name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or("calls of functions");
            let room = others.len() < NAMES || others.contains_key(name);
            count(others, if room { name } else { "others" });
            return Ok(Given::Nothing);
        }
    };
    Ok(Given::Event(heard))
}

/// The process: the event's name is better than the line's, which has `<...>` for an ended process.
fn name(names: &mut Names, event: &mut Event, said: &[u8], line: &[u8]) {
    let process = if said.is_empty() { line } else { said };
    event.process = if process == b"<...>" { Process::default() } else { names.number(process) };
}

impl Source for Text {
    fn format(&self) -> Format {
        Format::Ftrace
    }

    fn pull(&mut self) -> Result<Option<Heard>, TraceError> {
        while let Some(line) = self.input.line(Format::Ftrace)? {
            let given = read(line, &mut self.names, &mut self.others, self.page);
            if self.input.ended_without_newline() && !matches!(given, Ok(Given::PageEnds)) {
                return Err(self.input.cut_short(Format::Ftrace, self.input.at_line()));
            }
            match given {
                Ok(Given::Event(heard)) => return Ok(Some(heard)),
                Ok(Given::Nothing) => {}
                Ok(Given::PageEnds) => self.leave_page()?,
                Err(what) => self.input.skip_line(Format::Ftrace, what, &mut self.others)?,
            }
        }
        if self.page {
            return Err(self.input.cut_short(Format::Ftrace, self.input.at_line()));
        }
        Ok(None)
    }

    fn names(&self) -> &Names {
        &self.names
    }

    fn names_mut(&mut self) -> &mut Names {
        &mut self.names
    }

    fn other_counts(&self) -> &OtherCounts {
        &self.others
    }

    fn other_counts_mut(&mut self) -> &mut OtherCounts {
        &mut self.others
    }

    fn consumed(&self) -> u64 {
        self.input.consumed()
    }
}
