//! Which block device events does a bundle of kernel events (`FtraceEventBundle`) contain?
//!
//! Field numbers are those of protos/perfetto/trace/ftrace/*.proto of Perfetto.

use rustc_hash::FxHashMap;

use super::names;
use super::order::Order;
use super::wire::{Fields, Value};
use crate::block::{Action, DeviceId, Event};
use crate::letters;
use crate::names::{count, count_many};
use crate::read::tracepoint::{self, Heard, Layer, Point, Ufs, blank, first_sector, point, ufs_action};
use crate::{Names, OtherCounts, Process};

/// `GenericFtraceEvent`: an event with its name.
const GENERIC: u32 = 327;
/// `UfshcdCommandFtraceEvent`.
const UFS: u32 = 406;
/// Fields of a remap's origin.
const OLD_DEVICE: u32 = 4;
const OLD_SECTOR: u32 = 5;
/// Events with lower numbers are counted in a table.
const TABLE: usize = 1024;
/// Most remembered process names, and most event types named by the trace itself.
const MOST: usize = 1 << 16;

/// Field numbers of an event; 0 if absent. Device and sector are always 1 and 2.
struct Layout {
    point: Point,
    /// Sectors; for a split bio, the start of the rest.
    sectors: u32,
    letters: u32,
    process: u32,
    errors: [u32; 2],
}

/// The layout of a block device event; UFS commands have none.
fn layout(number: u32) -> Option<Layout> {
    let (letters, process, errors) = match number {
        // block_rq_issue, block_rq_insert.
        45 | 126 => (5, 6, [0, 0]),
        // block_bio_backmerge, _bounce, _frontmerge, _queue; block_getrq, block_sleeprq; block_split.
        115 | 116 | 118 | 119 | 122 | 130 | 131 => (4, 5, [0, 0]),
        // block_bio_complete; block_rq_abort and block_rq_requeue; block_rq_complete.
        117 => (5, 0, [4, 0]),
        124 | 129 => (5, 0, [4, 0]),
        125 => (5, 0, [4, 7]),
        // block_bio_remap, block_rq_remap.
        120 => (6, 0, [0, 0]),
        128 => (7, 0, [0, 0]),
        // block_io_start, block_io_done.
        546 | 547 => (6, 7, [0, 0]),
        // block_plug, block_unplug.
        123 => (0, 1, [0, 0]),
        133 => (0, 2, [0, 0]),
        _ => return None,
    };
    let point = point(names::name(number)?.as_bytes())?;
    Some(Layout { point, sectors: 3, letters, process, errors })
}

/// Decodes a device number in user-space encoding (`st_dev`): low 8 bits of minor, 12 of major, then the rest of minor.
fn device(dev: u64) -> DeviceId {
    DeviceId {
        major: ((dev >> 8) & 0xfff | (dev >> 32) & 0xffff_f000) as u32,
        minor: (dev & 0xff | (dev >> 12) & 0xffff_ff00) as u32,
    }
}

/// An errno, negative or not.
fn errno(value: u64) -> u32 {
    u32::try_from((value as i64).unsigned_abs()).unwrap_or(u32::MAX)
}

/// Reads bundles one after the other.
pub(super) struct Bundles {
    pub(super) names: Names,
    pub(super) others: OtherCounts,
    pub(super) order: Order<Heard>,
    /// Number of block device events so far.
    pub(super) heard: u64,
    /// By number.
    layouts: Vec<Option<Layout>>,
    processes: Processes,
    /// Counts of other events by number, and the numbers with a count.
    counts: Vec<u64>,
    counted: Vec<u32>,
    /// Event names given by the trace itself.
    given: FxHashMap<u32, String>,
}

/// An undecoded event.
struct Lying<'a> {
    time: u64,
    pid: u32,
    number: u32,
    fields: &'a [u8],
}

impl Bundles {
    pub(super) fn new() -> Self {
        Bundles {
            names: Names::default(),
            others: OtherCounts::new(),
            order: Order::new(),
            heard: 0,
            layouts: (0..TABLE as u32).map(layout).collect(),
            processes: Processes::default(),
            counts: vec![0; TABLE],
            counted: Vec::new(),
            given: FxHashMap::default(),
        }
    }

    /// Reads a bundle; an error describes what is wrong in it.
    pub(super) fn read(&mut self, bundle: &[u8]) -> Result<(), String> {
        let mut fields = Fields(bundle);
        let mut cpu = 0;
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Value::Number(n)) => {
                    cpu = u32::try_from(n).map_err(|_| format!("processor {n}"))?;
                    break;
                }
                // Names for later events.
                (11, Value::Bytes(described)) => self.describe(described)?,
                _ => {}
            }
        }
        self.order.bundle(cpu);
        let mut fields = Fields(bundle);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (2, Value::Bytes(event)) => self.event(cpu, event)?,
                (3, Value::Number(1)) => count(&mut self.others, "lost events, how many is not known"),
                (4, Value::Bytes(_)) => count(&mut self.others, "bundles of compact sched_switch"),
                (8, Value::Bytes(_)) => count(&mut self.others, "pages that the recorder could not read"),
                (11, Value::Bytes(described)) => self.describe(described)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the counts to the others.
    pub(super) fn tell(&mut self) {
        for number in self.counted.drain(..) {
            let seen = std::mem::take(&mut self.counts[number as usize]);
            match names::name(number) {
                Some(name) => count_many(&mut self.others, name, seen),
                None => count_many(&mut self.others, &format!("kernel event {number}"), seen),
            }
        }
    }

    /// `GenericEventDescriptor`: the name of an event that the proto files lack.
    fn describe(&mut self, described: &[u8]) -> Result<(), String> {
        let mut fields = Fields(described);
        let (mut id, mut name) = (None, None);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Value::Number(n)) => id = u32::try_from(n).ok(),
                (2, Value::Bytes(proto)) => {
                    let mut proto = Fields(proto);
                    while let Some((number, value)) = proto.next()? {
                        if let (1, Value::Bytes(text)) = (number, value) {
                            name = Some(String::from_utf8_lossy(text).into_owned());
                        }
                    }
                }
                _ => {}
            }
        }
        if let (Some(id), Some(name)) = (id, name)
            && self.given.len() < MOST
        {
            self.given.insert(id, name);
        }
        Ok(())
    }

    #[inline]
    fn event(&mut self, cpu: u32, event: &[u8]) -> Result<(), String> {
        let mut lying = Lying { time: 0, pid: 0, number: 0, fields: &[] };
        let mut fields = Fields(event);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Value::Number(n)) => lying.time = n,
                // A kernel's thread number is positive and fits.
                (2, Value::Number(n)) => lying.pid = n as u32,
                (_, Value::Bytes(fields)) => (lying.number, lying.fields) = (number, fields),
                _ => {}
            }
        }
        self.order.seen(lying.time);
        if let Some(Some(layout)) = self.layouts.get(lying.number as usize) {
            let (layer, event) = extent(&lying, cpu, layout, &mut self.names, &mut self.processes)?;
            self.heard += 1;
            self.order.push(Heard::new(layer, event));
        } else if lying.number == UFS
            && let Some(mut event) = ufs(&lying, cpu)?
        {
            event.process = self.processes.lookup(lying.pid);
            self.heard += 1;
            self.order.push(Heard::new(Layer::Controller, event));
        } else {
            if lying.number == GENERIC {
                self.inode(cpu, &lying)?;
            }
            self.other(&lying);
        }
        Ok(())
    }

    /// Reads the inode of an event with named fields, if it has one.
    fn inode(&mut self, cpu: u32, lying: &Lying<'_>) -> Result<(), String> {
        let mut fields = Fields(lying.fields);
        let (mut inode_event, mut place, mut ino) = (None, None, None);
        while let Some((number, value)) = fields.next()? {
            match (number, value) {
                (1, Value::Bytes(name)) => match point(name) {
                    Some(Point::Inode(what)) => inode_event = Some(what),
                    _ => return Ok(()),
                },
                (2, Value::Bytes(field)) => match generic(field)? {
                    (b"name", Said::Text(name)) => place = Some(self.names.files.place_named(name)),
                    (b"dev", Said::Number(dev)) => {
                        let device = tracepoint::device(dev);
                        place = Some(self.names.files.place_of((device.major, device.minor)));
                    }
                    (b"ino", Said::Number(n)) => ino = Some(n),
                    _ => {}
                },
                _ => {}
            }
        }
        if let (Some(inode_event), Some(place), Some(ino)) = (inode_event, place, ino) {
            let event = blank(lying.time, cpu, lying.pid, self.processes.lookup(lying.pid));
            // The trace does not define the bit for dirty pages in an inode's state.
            let notice = Some(inode_event.notice(place, ino, false));
            self.order.push(Heard { layer: Layer::Writeback, event, notice });
        }
        Ok(())
    }

    fn other(&mut self, lying: &Lying<'_>) {
        let room = self.others.len() < MOST;
        if lying.number == GENERIC {
            let name = match Fields(lying.fields).next() {
                Ok(Some((1, Value::Bytes(name)))) if room => String::from_utf8_lossy(name),
                _ => "generic".into(),
            };
            count(&mut self.others, &name);
        } else if let Some(counter) = self.counts.get_mut(lying.number as usize) {
            if *counter == 0 {
                self.counted.push(lying.number);
            }
            *counter += 1;
        } else {
            let name = self.given.get(&lying.number).filter(|_| room).map_or("unnamed kernel events", String::as_str);
            count(&mut self.others, name);
        }
    }
}

/// A value of an event with named fields.
enum Said<'a> {
    Text(&'a [u8]),
    Number(u64),
}

/// `GenericFtraceEvent.Field`: a name, and a text or number.
fn generic(field: &[u8]) -> Result<(&[u8], Said<'_>), String> {
    let mut fields = Fields(field);
    let (mut name, mut said) = (&[][..], Said::Number(0));
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (1, Value::Bytes(text)) => name = text,
            (3, Value::Bytes(text)) => said = Said::Text(text),
            (4 | 5, Value::Number(n)) => said = Said::Number(n),
            _ => {}
        }
    }
    Ok((name, said))
}

/// Names of process numbers, from the events that have them.
struct Processes {
    known: FxHashMap<u32, Process>,
    /// A cache of recent lookups, indexed by number.
    recent: [(u32, Process); 64],
}

impl Default for Processes {
    fn default() -> Self {
        // Number 0 is valid only in the first entry, where it has no name.
        Processes { known: FxHashMap::default(), recent: [(0, Process::default()); 64] }
    }
}

impl Processes {
    /// Remembers a name for the thread's other events.
    #[inline]
    fn learn(&mut self, pid: u32, process: Process) {
        let recent = &mut self.recent[pid as usize % 64];
        if *recent == (pid, process) {
            return;
        }
        if let Some(known) = self.known.get_mut(&pid) {
            *known = process;
        } else if self.known.len() < MOST {
            self.known.insert(pid, process);
        } else {
            return;
        }
        *recent = (pid, process);
    }

    #[inline]
    fn lookup(&self, pid: u32) -> Process {
        match self.recent[pid as usize % 64] {
            (known, process) if known == pid => process,
            _ => self.known.get(&pid).copied().unwrap_or_default(),
        }
    }
}

#[inline(always)]
fn extent(
    lying: &Lying<'_>,
    cpu: u32,
    layout: &Layout,
    names: &mut Names,
    processes: &mut Processes,
) -> Result<(Layer, Event), String> {
    let (mut dev, mut sector, mut sectors, mut error) = (0, 0, 0, 0);
    let (mut old_dev, mut old_sector) = (0, 0);
    let remaps = layout.point == Point::Extent(Layer::Block, Action::Remap);
    let (mut said, mut name) = (&[][..], None);
    let mut fields = Fields(lying.fields);
    while let Some((number, value)) = fields.next()? {
        match value {
            Value::Number(n) => match number {
                1 if layout.letters > 0 => dev = n,
                2 if layout.letters > 0 => sector = n,
                _ if number == layout.sectors => sectors = n,
                OLD_DEVICE if remaps => old_dev = n,
                OLD_SECTOR if remaps => old_sector = n,
                _ if layout.errors.contains(&number) => error = error.max(errno(n)),
                _ => {}
            },
            Value::Bytes(text) if number == layout.letters => said = text,
            Value::Bytes(text) if number == layout.process => name = Some(text),
            Value::Bytes(_) => {}
        }
    }
    let process = match name {
        Some(name) => {
            let process = names.number(name);
            processes.learn(lying.pid, process);
            process
        }
        None => processes.lookup(lying.pid),
    };
    let blank = blank(lying.time, cpu, lying.pid, process);
    let Point::Extent(layer, action) = layout.point else {
        return Ok((Layer::Block, blank));
    };
    if action == Action::Split {
        sectors = sectors.checked_sub(sector).ok_or("a bio divided before its beginning")?;
    }
    let (op, flags) = letters::read(said, sectors).ok_or_else(|| crate::read::decimal::wrong("rwbs", said))?;
    let (device, sector) = (device(dev), first_sector(sector, sectors));
    let from = remaps.then(|| (self::device(old_dev), old_sector));
    Ok((layer, Event { action, op, flags, sector, sectors, device, error, from, ..blank }))
}

fn ufs(lying: &Lying<'_>, cpu: u32) -> Result<Option<Event>, String> {
    let mut fields = Fields(lying.fields);
    let mut command = Ufs::default();
    let mut action = None;
    while let Some((number, value)) = fields.next()? {
        match (number, value) {
            (4, Value::Number(n)) => command.lba = n,
            (5, Value::Number(n)) => command.opcode = n,
            (6, Value::Bytes(text)) => action = ufs_action(text),
            (8, Value::Number(n)) => command.length = u64::try_from(n as i64).unwrap_or(0),
            // Newer kernels use numbers, older ones text.
            (10, Value::Number(0)) => action = Some(Action::Issue),
            (10, Value::Number(1)) => action = Some(Action::Complete),
            _ => {}
        }
    }
    let (Some(action), Some((op, sector, sectors))) = (action, command.extent()) else { return Ok(None) };
    Ok(Some(Event { action, op, sector, sectors, ..blank(lying.time, cpu, lying.pid, Process::default()) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_has_the_user_space_encoding() {
        // Of a phone with eMMC, and of one with UFS.
        assert_eq!(device(45824), DeviceId { major: 179, minor: 0 });
        assert_eq!(device(259 << 8 | 5), DeviceId { major: 259, minor: 5 });
        assert_eq!(device((300 & 0xffff_ff00) << 12 | (8 << 8) | (300 & 0xff)), DeviceId { major: 8, minor: 300 });
    }

    #[test]
    fn every_event_of_a_block_device_has_a_layout_that_fits_its_name() {
        let of = |n| layout(n).map(|l| l.point);
        assert_eq!(of(45), Some(Point::Extent(Layer::Block, Action::Issue)));
        assert_eq!(of(125), Some(Point::Extent(Layer::Block, Action::Complete)));
        assert_eq!(of(546), Some(Point::Extent(Layer::Accounting, Action::Issue)));
        assert_eq!(of(133), Some(Point::Plug));
        let block = (0..TABLE as u32).filter(|n| names::name(*n).is_some_and(|n| point(n.as_bytes()).is_some()));
        assert!(block.clone().all(|n| layout(n).is_some() || n == UFS), "{:?}", block.collect::<Vec<_>>());
    }
}
