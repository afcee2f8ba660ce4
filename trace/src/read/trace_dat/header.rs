//! What does the file contain besides events: formats, processes, the location of each CPU's pages?
//!
//! Version 6 has its parts one after the other; version 7 has sections, whose locations are given by options.

use tracepoint_decode::PerfFieldFormat;

use super::formats::{Formats, ascii};
use super::pages::{Compression, Stretch};
use super::ring::Layout;
use super::store::{Bytes, Store, Taker};
use crate::names::count;
use crate::{OtherCounts, TraceError};

/// First bytes of every file.
pub(super) const MARK: &[u8] = b"\x17\x08Dtracing";
/// Valid page sizes.
const PAGES: std::ops::RangeInclusive<u32> = 64..=16 << 20;
/// Most formats, systems, CPUs: more are damage.
const MOST: u32 = 1 << 16;
/// Most option sections: likewise.
const SECTIONS: u32 = 256;

/// Numbers of options and of their sections.
mod option {
    pub(super) const DONE: u16 = 0;
    pub(super) const BUFFER: u16 = 3;
    pub(super) const CLOCK: u16 = 4;
    pub(super) const HEADER: u16 = 16;
    pub(super) const OWN_EVENTS: u16 = 17;
    pub(super) const EVENTS: u16 = 18;
    pub(super) const PROCESSES: u16 = 21;
    pub(super) const TEXT: u16 = 22;
}

/// The contents of the header.
pub(super) struct Header {
    pub(super) formats: Formats,
    pub(super) stretches: Vec<Stretch>,
    pub(super) layout: Layout,
}

/// Reads the header.
pub(super) fn read(store: &mut Store, others: &mut OtherCounts) -> Result<Header, TraceError> {
    let mut taker = Taker::new(Bytes::File(store), MARK.len() as u64);
    let version = taker.string()?;
    let big = taker.bytes(1)?[0];
    let long = taker.bytes(1)?[0];
    let at = taker.at;
    drop(taker);
    if big > 1 || !matches!(long, 4 | 8) {
        return Err(store.damaged(at - 2, format!("an order of bytes {big}, a `long` of {long} bytes")));
    }
    store.big = big == 1;
    let mut header = Header {
        formats: Formats::new(long == 8, big == 1),
        stretches: Vec::new(),
        layout: Layout { header: 16, long: 8 },
    };
    let mut taker = Taker::new(Bytes::File(store), at);
    let page = taker.u32()?;
    if !PAGES.contains(&page) || !page.is_multiple_of(4) {
        return Err(taker.damaged(format!("pages of {page} bytes")));
    }
    match version.as_str() {
        "6" => six(taker, page, &mut header, others)?,
        "7" => seven(taker, &mut header, others)?,
        _ => return Err(store.unsupported(MARK.len() as u64, format!("version {version:?}"))),
    }
    Ok(header)
}

fn six(mut taker: Taker<'_>, page: u32, header: &mut Header, others: &mut OtherCounts) -> Result<(), TraceError> {
    pages(&mut taker, header)?;
    own_events(&mut taker, &mut header.formats)?;
    events(&mut taker, &mut header.formats)?;
    // Skip addresses of functions, and message formats.
    for _ in 0..2 {
        let length = taker.u32()?;
        taker.skip(u64::from(length))?;
    }
    processes(&mut taker, &mut header.formats)?;
    let processors = few(&mut taker)?;
    let mut places = Vec::new();
    let mut instances = vec![stretches(&mut taker, processors, page, &mut places)?];
    let store = taker.into_store();
    for place in places {
        let mut taker = Taker::new(Bytes::File(store), place);
        // Nested instances do not exist.
        instances.push(stretches(&mut taker, processors, page, &mut Vec::new())?);
    }
    choose(instances, header, others);
    Ok(())
}

/// Selects the first instance with data: others may contain the same requests.
fn choose(instances: Vec<Vec<Stretch>>, header: &mut Header, others: &mut OtherCounts) {
    let mut recorded = instances.into_iter().filter(|stretches| stretches.iter().any(|s| s.length > 0));
    header.stretches = recorded.next().unwrap_or_default();
    for _ in recorded {
        count(others, "instances that are not read");
    }
}

/// Location of an instance's pages in a version 6 file, and of further instances.
fn stretches(
    taker: &mut Taker<'_>,
    processors: u32,
    page: u32,
    places: &mut Vec<u64>,
) -> Result<Vec<Stretch>, TraceError> {
    loop {
        let tag = taker.bytes(10)?;
        match &tag[..9] {
            b"options  " => loop {
                let id = taker.u16()?;
                if id == 0 {
                    break;
                }
                let length = taker.u32()?;
                let bytes = taker.bytes(u64::from(length))?;
                match id {
                    option::CLOCK => clock_counts_seconds(taker, &chosen(&bytes))?,
                    option::BUFFER => {
                        let place =
                            taker.number_in(&bytes).ok_or_else(|| taker.damaged("an instance without a place"))?;
                        places.push(place);
                    }
                    _ => {}
                }
            },
            b"flyrecord" => break,
            b"latency  " => return Err(taker.unsupported("the text of a latency tracer")),
            _ => return Err(taker.damaged("no data where they should be")),
        }
    }
    let mut out = Vec::new();
    for processor in 0..processors {
        let (at, length) = (taker.u64()?, taker.u64()?);
        out.push(Stretch { processor, at, length, page: page as usize, compression: None });
    }
    Ok(out)
}

fn seven(mut taker: Taker<'_>, header: &mut Header, others: &mut OtherCounts) -> Result<(), TraceError> {
    let (name, _version) = (taker.string()?, taker.string()?);
    let compression = match name.as_str() {
        "none" => None,
        name => match Compression::named(name) {
            Some(known) => Some(known),
            None => return Err(taker.unsupported(format!("compressed by {name}"))),
        },
    };
    let mut next = taker.u64()?;
    let store = taker.into_store();
    let (mut sections, mut buffers) = (Vec::new(), Vec::new());
    let mut left = SECTIONS;
    loop {
        if left == 0 {
            return Err(store.damaged(next, "sections of options without an end"));
        }
        left -= 1;
        let mut options = section(store, next, option::DONE, compression)?;
        next = 0;
        while !options.is_empty() {
            let (id, length) = (options.u16()?, options.u32()?);
            let bytes = options.bytes(u64::from(length))?;
            let place = options.place();
            match id {
                option::DONE => {
                    next = super::store::u64_at(&bytes, 0, header.formats.big)
                        .ok_or_else(|| options.damaged("options without an end"))?;
                    break;
                }
                option::CLOCK => {}
                option::HEADER | option::OWN_EVENTS | option::EVENTS | option::PROCESSES => {
                    let at = super::store::u64_at(&bytes, 0, header.formats.big)
                        .ok_or_else(|| options.damaged("an option without a place"))?;
                    sections.push((id, at));
                }
                option::BUFFER => buffers.push((bytes, place)),
                option::TEXT => return Err(options.unsupported("the text of a latency tracer")),
                _ => {}
            }
        }
        if next == 0 {
            break;
        }
    }
    // The page header must come first, because formats depend on its size of a `long`.
    sections.sort_by_key(|section| section.0);
    for (id, at) in sections {
        let mut taker = section(store, at, id, compression)?;
        match id {
            option::HEADER => pages(&mut taker, header)?,
            option::OWN_EVENTS => own_events(&mut taker, &mut header.formats)?,
            option::EVENTS => events(&mut taker, &mut header.formats)?,
            _ => processes(&mut taker, &mut header.formats)?,
        }
    }
    let mut instances = Vec::new();
    for (bytes, place) in buffers {
        instances.push(buffer(Taker::new(Bytes::Part(store, bytes, place), 0), compression)?);
    }
    choose(instances, header, others);
    Ok(())
}

/// Reads a section.
fn section(
    store: &mut Store,
    at: u64,
    expected: u16,
    compression: Option<Compression>,
) -> Result<Taker<'_>, TraceError> {
    let mut head = Taker::new(Bytes::File(store), at);
    let (id, flags) = (head.u16()?, head.u16()?);
    let _description = head.u32()?;
    let length = head.u64()?;
    if id != expected {
        return Err(head.damaged(format!("section {id} where {expected} belongs")));
    }
    let bytes = if flags & 1 != 0 {
        let Some(compression) = compression else {
            return Err(head.damaged("a compressed section in a file without compression"));
        };
        let (packed, unpacked) = (head.u32()?, head.u32()?);
        let raw = head.bytes(u64::from(packed))?;
        let mut out = Vec::new();
        compression.undo(&raw, unpacked, &mut out).map_err(|what| head.damaged(what))?;
        out
    } else {
        head.bytes(length)?
    };
    Ok(Taker::new(Bytes::Part(head.into_store(), bytes, at), 0))
}

/// Location of an instance's pages.
fn buffer(mut taker: Taker<'_>, compression: Option<Compression>) -> Result<Vec<Stretch>, TraceError> {
    let at = taker.u64()?;
    let _name = taker.string()?;
    let clock = taker.string()?;
    clock_counts_seconds(&taker, &clock)?;
    let page = taker.u32()?;
    if !PAGES.contains(&page) || !page.is_multiple_of(4) {
        return Err(taker.damaged(format!("pages of {page} bytes")));
    }
    let mut stretches = Vec::new();
    for _ in 0..few(&mut taker)? {
        let (processor, at, length) = (taker.u32()?, taker.u64()?, taker.u64()?);
        stretches.push(Stretch { processor, at, length, page: page as usize, compression });
    }
    // The section's own header tells whether its pages are compressed.
    let mut head = Taker::new(Bytes::File(taker.into_store()), at);
    let (id, flags) = (head.u16()?, head.u16()?);
    if id != option::BUFFER {
        return Err(head.damaged(format!("section {id} where pages belong")));
    }
    let compression = compression.filter(|_| flags & 1 != 0);
    Ok(stretches.into_iter().map(|s| Stretch { compression, ..s }).collect())
}

/// The page layout from the text of `header_page`; `None` if unknown.
pub(crate) fn layout(text: &str, long_is_64_bits: bool) -> Option<Layout> {
    let fields: Vec<PerfFieldFormat> =
        text.lines().filter_map(|line| PerfFieldFormat::parse(long_is_64_bits, line)).collect();
    let of = |name: &str| fields.iter().find(|f| f.name() == name);
    let (time, commit, data) = (of("timestamp")?, of("commit")?, of("data")?);
    let known = (time.offset(), time.size(), commit.offset()) == (0, 8, 8)
        && matches!(commit.size(), 4 | 8)
        && data.offset() >= 8 + commit.size();
    known.then(|| Layout { header: usize::from(data.offset()), long: usize::from(commit.size()) })
}

/// Reads `header_page` and `header_event`.
fn pages(taker: &mut Taker<'_>, header: &mut Header) -> Result<(), TraceError> {
    taker.literal("header_page")?;
    let length = taker.u64()?;
    let text = taker.bytes(length)?;
    let text = ascii(&text).ok_or_else(|| taker.damaged("a page's format that is no text"))?;
    header.layout = layout(text, header.formats.long_is_64_bits)
        .ok_or_else(|| taker.damaged("pages that begin in no known way"))?;
    // The kernel's `long` may be longer than the recording program's.
    header.formats.long_is_64_bits = header.layout.long == 8;
    taker.literal("header_event")?;
    let length = taker.u64()?;
    let text = taker.bytes(length)?;
    let text = String::from_utf8_lossy(&text);
    let says = |line: &str| text.lines().any(|l| l.split_whitespace().collect::<Vec<_>>().join(" ") == line);
    if !(says("type_len : 5 bits") && says("time_delta : 27 bits") && says("padding : type == 29")) {
        return Err(taker.damaged("events that begin in no known way"));
    }
    Ok(())
}

fn few(taker: &mut Taker<'_>) -> Result<u32, TraceError> {
    let n = taker.u32()?;
    if n > MOST {
        return Err(taker.damaged(format!("{n} parts where there are a few")));
    }
    Ok(n)
}

fn own_events(taker: &mut Taker<'_>, formats: &mut Formats) -> Result<(), TraceError> {
    for _ in 0..few(taker)? {
        format(taker, "ftrace", formats)?;
    }
    Ok(())
}

fn events(taker: &mut Taker<'_>, formats: &mut Formats) -> Result<(), TraceError> {
    for _ in 0..few(taker)? {
        let system = taker.string()?;
        for _ in 0..few(taker)? {
            format(taker, &system, formats)?;
        }
    }
    Ok(())
}

fn format(taker: &mut Taker<'_>, system: &str, formats: &mut Formats) -> Result<(), TraceError> {
    let length = taker.u64()?;
    let text = taker.bytes(length)?;
    formats.add(system, &text).map_err(|what| taker.damaged(what))
}

fn processes(taker: &mut Taker<'_>, formats: &mut Formats) -> Result<(), TraceError> {
    let length = taker.u64()?;
    let text = taker.bytes(length)?;
    for line in String::from_utf8_lossy(&text).lines() {
        if let Some((pid, name)) = line.trim_start().split_once(' ')
            && let Ok(pid) = pid.parse()
        {
            formats.processes.insert(pid, name.to_owned());
        }
    }
    formats.processes.insert(0, "<idle>".to_owned());
    Ok(())
}

/// The clock in brackets in the file `trace_clock`.
fn chosen(clocks: &[u8]) -> String {
    let text = String::from_utf8_lossy(clocks);
    let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name.to_owned());
    inner.unwrap_or_default()
}

fn clock_counts_seconds(taker: &Taker<'_>, clock: &str) -> Result<(), TraceError> {
    match clock {
        "x86-tsc" | "counter" | "ppc-tb" => {
            Err(taker.unsupported(format!("times by the clock {clock}, which counts no seconds")))
        }
        _ => Ok(()),
    }
}
