//! Where in an event's bytes is each field? By the format files of the recorded kernel.

use rustc_hash::FxHashMap;
use tracepoint_decode::{PerfEventFormat, PerfFieldFormat};

use super::store::{u16_at, u32_at, u64_at};
use crate::block::{Action, Event};
use crate::letters;
use crate::names::{count, count_many};
use crate::read::decimal::wrong;
use crate::read::tracepoint::{Heard, InodeEvent, Layer, Point, Ufs, blank, device, first_sector, point, ufs_action};
use crate::{Names, OtherCounts, Process};

/// A field.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: usize,
    size: usize,
    /// True if the field holds the position of the data.
    elsewhere: bool,
}

/// Fields of an event of a block device or UFS controller.
#[derive(Debug, Default)]
struct Places {
    dev: Option<Place>,
    sector: Option<Place>,
    sectors: Option<Place>,
    letters: Option<Place>,
    process: Option<Place>,
    error: Option<Place>,
    /// Origin of a remap.
    old_dev: Option<Place>,
    old_sector: Option<Place>,
    lba: Option<Place>,
    opcode: Option<Place>,
    length: Option<Place>,
    what: Option<Place>,
    what_number: Option<Place>,
    name: Option<Place>,
    ino: Option<Place>,
    state: Option<Place>,
    /// The bit for dirty pages in the state.
    dirty_pages: u64,
}

enum What {
    Point(Point, Box<Places>, String),
    /// The name of another event.
    Other(String),
}

/// All event formats, by number.
#[derive(Default)]
pub(crate) struct Formats {
    events: Vec<Option<What>>,
    counts: Vec<u64>,
    /// Numbers counted since the last [`tell`](Self::tell).
    counted: Vec<u16>,
    /// Offset of the thread number in every event.
    pid: usize,
    /// A `long` has 8 bytes.
    pub(crate) long_is_64_bits: bool,
    pub(super) big: bool,
    /// Names of processes by number, from the kernel's cache.
    pub(super) processes: FxHashMap<u32, String>,
}

/// The kernel's text, which the parser of formats requires to be ASCII.
pub(crate) fn ascii(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii())
}

fn place(fields: &[PerfFieldFormat], name: &str) -> Option<Place> {
    let field = fields.iter().find(|f| f.name() == name)?;
    Some(Place {
        offset: usize::from(field.offset()),
        size: usize::from(field.size()),
        elsewhere: field.field().starts_with("__data_loc"),
    })
}

impl Place {
    #[inline(always)]
    fn number(self, data: &[u8], big: bool) -> Option<u64> {
        match self.size {
            1 => data.get(self.offset).map(|b| u64::from(*b)),
            2 => u16_at(data, self.offset, big).map(u64::from),
            4 => u32_at(data, self.offset, big).map(u64::from),
            8 => u64_at(data, self.offset, big),
            _ => None,
        }
    }

    /// Absolute value of a signed number.
    fn magnitude(self, data: &[u8], big: bool) -> Option<u64> {
        let n = self.number(data, big)?;
        Some(if self.size == 4 { u64::from((n as u32 as i32).unsigned_abs()) } else { (n as i64).unsigned_abs() })
    }

    /// Text up to its terminating zero.
    #[inline(always)]
    fn text(self, data: &[u8], big: bool) -> Option<&[u8]> {
        let bytes = if self.elsewhere {
            let at = u32_at(data, self.offset, big)?;
            let (from, length) = ((at & 0xffff) as usize, (at >> 16) as usize);
            data.get(from..from + length)?
        } else {
            data.get(self.offset..self.offset + self.size)?
        };
        // Only a few bytes.
        Some(&bytes[..bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len())])
    }
}

impl Formats {
    pub(crate) fn new(long_is_64_bits: bool, big: bool) -> Self {
        Formats { long_is_64_bits, big, ..Formats::default() }
    }

    /// Learns a format file; an error describes what is wrong.
    pub(crate) fn add(&mut self, system: &str, text: &[u8]) -> Result<(), String> {
        let text = ascii(text).ok_or("a format file that is no text")?;
        let format =
            PerfEventFormat::parse(self.long_is_64_bits, system, text).ok_or("a format file without a number")?;
        let id = u16::try_from(format.id()).map_err(|_| format!("event {} by number", format.id()))?;
        let fields = format.fields();
        match place(fields, "common_pid") {
            Some(Place { offset, size: 4, .. }) => self.pid = offset,
            _ => return Err(format!("{} without a thread", format.name())),
        }
        if !matches!(place(fields, "common_type"), Some(Place { offset: 0, size: 2, .. })) {
            return Err(format!("{} without a number of two bytes at its beginning", format.name()));
        }
        let what = match point(format.name().as_bytes()) {
            Some(point) => match places(point, &format) {
                Ok(places) => What::Point(point, Box::new(places), format.name().to_owned()),
                // If a kernel uses another form, only the files are unknown, not the requests.
                Err(_) if matches!(point, Point::Inode(_)) => What::Other(format.name().to_owned()),
                Err(what) => return Err(what),
            },
            None => What::Other(format.name().to_owned()),
        };
        let id = usize::from(id);
        if self.events.len() <= id {
            self.events.resize_with(id + 1, || None);
            self.counts.resize(id + 1, 0);
        }
        self.events[id] = Some(what);
        Ok(())
    }

    /// The event in `data`; `None` if it is not of a block device, which is counted.
    #[inline]
    pub(crate) fn read(
        &mut self,
        time: u64,
        cpu: u32,
        data: &[u8],
        names: &mut Names,
        others: &mut OtherCounts,
    ) -> Result<Option<Heard>, String> {
        let big = self.big;
        let id = u16_at(data, 0, big).ok_or("an event without a number")?;
        let pid = u32_at(data, self.pid, big).ok_or("an event without a thread")?;
        let event = blank(time, cpu, pid, Process::default());
        let heard = match self.events.get(usize::from(id)) {
            Some(Some(What::Point(point, places, _))) => match point {
                Point::Extent(layer, action) => Some(extent(*layer, *action, places, data, big, event)?),
                Point::Plug => Some(Heard::new(Layer::Block, event)),
                Point::Ufs => ufs(places, data, big, event)?,
                Point::Inode(inode_event) => {
                    note(&mut self.counts, &mut self.counted, id);
                    Some(inode(*inode_event, places, data, big, event, names)?)
                }
            }
            .map(|mut heard| {
                if let Some(process) = places.process.and_then(|p| p.text(data, big)) {
                    heard.event.process = names.number(process);
                } else {
                    let known = self.processes.get(&pid).map_or("", String::as_str);
                    heard.event.process = names.number(known.as_bytes());
                }
                heard
            }),
            Some(Some(What::Other(_))) => None,
            _ => {
                count(others, "events without a format");
                return Ok(None);
            }
        };
        if heard.is_none() {
            note(&mut self.counts, &mut self.counted, id);
        }
        Ok(heard)
    }

    /// Adds the counts to the others.
    pub(super) fn tell(&mut self, others: &mut OtherCounts) {
        for id in self.counted.drain(..) {
            let n = std::mem::take(&mut self.counts[usize::from(id)]);
            let name = match &self.events[usize::from(id)] {
                Some(What::Other(name) | What::Point(Point::Inode(_), _, name)) => name,
                _ => "ufshcd_command",
            };
            count_many(others, name, n);
        }
    }
}

/// Counts another event.
fn note(counts: &mut [u64], counted: &mut Vec<u16>, id: u16) {
    let counter = &mut counts[usize::from(id)];
    if *counter == 0 {
        counted.push(id);
    }
    *counter += 1;
}

/// The value that a format prints as this name, `{(1 << 5), \"I_DIRTY_PAGES\"}` or `{ 0x4, ... }`; 0 if there is none.
fn flag(print: &str, name: &str) -> u64 {
    let before = print.find(&format!("\"{name}\"")).map_or("", |at| &print[..at]);
    let value = before.rsplit_once('{').map_or("", |(_, value)| value.trim_matches([' ', ',', '(', ')']));
    let number = |text: &str| {
        let text = text.trim_matches([' ', '(', ')']).trim_end_matches(['U', 'L', 'u', 'l']);
        text.strip_prefix("0x").map_or_else(|| text.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
    };
    match value.split_once("<<") {
        Some((one, bits)) => {
            number(one).zip(number(bits)).and_then(|(one, bits)| one.checked_shl(u32::try_from(bits).ok()?))
        }
        None => number(value),
    }
    .unwrap_or(0)
}

fn places(point: Point, format: &PerfEventFormat) -> Result<Places, String> {
    let of = |name: &str| place(format.fields(), name);
    let places = Places {
        dev: of("dev"),
        sector: of("sector"),
        sectors: of("nr_sector").or_else(|| of("new_sector")),
        letters: of("rwbs"),
        process: of("comm"),
        error: of("error").or_else(|| of("errors")),
        old_dev: of("old_dev"),
        old_sector: of("old_sector"),
        lba: of("lba"),
        opcode: of("opcode"),
        length: of("transfer_len"),
        what: of("str"),
        what_number: of("str_t"),
        name: of("name"),
        ino: of("ino"),
        state: of("state"),
        dirty_pages: flag(format.print_fmt(), "I_DIRTY_PAGES"),
    };
    let all = |all: &[Option<Place>]| all.iter().all(Option::is_some);
    let there = match point {
        Point::Extent(..) => all(&[places.dev, places.sector, places.sectors, places.letters]),
        Point::Plug => true,
        Point::Inode(_) => places.ino.is_some() && (places.name.is_some() || places.dev.is_some()),
        Point::Ufs => {
            all(&[places.lba, places.opcode, places.length]) && (places.what.is_some() || places.what_number.is_some())
        }
    };
    if there { Ok(places) } else { Err(format!("{} without the fields it has on every kernel", format.name())) }
}

#[inline(always)]
fn extent(
    layer: Layer,
    action: Action,
    places: &Places,
    data: &[u8],
    big: bool,
    mut event: Event,
) -> Result<Heard, String> {
    let number = |place: Option<Place>| place.and_then(|p| p.number(data, big)).ok_or("an event that ends too early");
    event.action = action;
    event.device = device(number(places.dev)?);
    let sector = number(places.sector)?;
    let mut sectors = number(places.sectors)?;
    if action == Action::Split {
        sectors = sectors.checked_sub(sector).ok_or("a bio divided before its beginning")?;
    }
    let said = places.letters.and_then(|p| p.text(data, big)).ok_or("an event that ends too early")?;
    (event.op, event.flags) = letters::read(said, sectors).ok_or_else(|| wrong("rwbs", said))?;
    (event.sector, event.sectors) = (first_sector(sector, sectors), sectors);
    if let Some(error) = places.error {
        let error = error.magnitude(data, big).ok_or("an event that ends too early")?;
        event.error = u32::try_from(error).unwrap_or(u32::MAX);
    }
    if let (Some(dev), Some(sector)) = (places.old_dev, places.old_sector) {
        event.from = Some((device(number(Some(dev))?), number(Some(sector))?));
    }
    Ok(Heard::new(layer, event))
}

fn inode(
    inode_event: InodeEvent,
    places: &Places,
    data: &[u8],
    big: bool,
    event: Event,
    names: &mut Names,
) -> Result<Heard, String> {
    let number = |place: Option<Place>| place.and_then(|p| p.number(data, big)).ok_or("an event that ends too early");
    let ino = number(places.ino)?;
    let place = match places.name {
        Some(name) => names.files.place_named(name.text(data, big).ok_or("an event that ends too early")?),
        None => {
            let device = device(number(places.dev)?);
            names.files.place_of((device.major, device.minor))
        }
    };
    let left = places.state.is_some() && number(places.state)? & places.dirty_pages != 0;
    Ok(Heard { layer: Layer::Writeback, event, notice: Some(inode_event.notice(place, ino, left)) })
}

fn ufs(places: &Places, data: &[u8], big: bool, mut event: Event) -> Result<Option<Heard>, String> {
    let number = |place: Option<Place>| place.and_then(|p| p.number(data, big)).ok_or("an event that ends too early");
    let length = number(places.length)? as u32 as i32;
    let command =
        Ufs { lba: number(places.lba)?, opcode: number(places.opcode)?, length: u64::try_from(length).unwrap_or(0) };
    let action = match places.what_number {
        Some(_) => match number(places.what_number)? {
            0 => Some(Action::Issue),
            1 => Some(Action::Complete),
            _ => None,
        },
        None => ufs_action(places.what.and_then(|p| p.text(data, big)).ok_or("an event that ends too early")?),
    };
    let (Some(action), Some((op, sector, sectors))) = (action, command.extent()) else { return Ok(None) };
    (event.action, event.op, event.sector, event.sectors) = (action, op, sector, sectors);
    Ok(Some(Heard::new(Layer::Controller, event)))
}
