//! How is one line of blkparse read?

use crate::Process;
use crate::block::{Action, DeviceId, Event, Flags, Op, SECTOR};
use crate::letters;

/// A line.
pub(super) enum Line<'a> {
    /// An event.
    Event(Event, Who<'a>),
    /// A message from the kernel or a user.
    Message,
}

/// The process of an event.
pub(super) enum Who<'a> {
    /// By name.
    Name(&'a [u8]),
    /// Only its number is known.
    Untold,
}

/// The rest of a line.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn spaces(&mut self) {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    fn skip(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    /// Parses digits; `None` without any, or with too many.
    fn number(&mut self) -> Option<u64> {
        let mut n = 0u64;
        let mut digits = 0;
        for b in self.0 {
            let digit = b.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            digits += 1;
            // 19 digits always fit.
            n = match digits {
                ..20 => n * 10 + u64::from(digit),
                _ => n.checked_mul(10)?.checked_add(u64::from(digit))?,
            };
        }
        self.0 = &self.0[digits..];
        (digits > 0).then_some(n)
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn word(&mut self) -> &'a [u8] {
        let end = self.0.iter().position(|b| *b == b' ').unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        word
    }

    /// Skips `(...)` if it comes next; false if it is not closed.
    fn parentheses(&mut self) -> bool {
        self.spaces();
        if self.0.first() != Some(&b'(') {
            return true;
        }
        let Some(end) = self.0.iter().position(|b| *b == b')') else { return false };
        self.0 = &self.0[end + 1..];
        self.spaces();
        true
    }

    /// The text between this bracket and the last one; the rest stays.
    fn brackets(&mut self) -> Option<&'a [u8]> {
        self.spaces();
        let inside = self.0.strip_prefix(b"[")?;
        let end = inside.iter().rposition(|b| *b == b']')?;
        self.0 = &inside[end + 1..];
        Some(&inside[..end])
    }
}

/// The fields common to all actions.
struct Head<'a> {
    time: u64,
    device: DeviceId,
    cpu: u32,
    pid: u32,
    action: &'a [u8],
    letters: &'a [u8],
}

/// True if a line begins with device, CPU, number and time.
pub(super) fn looks_like(line: &[u8]) -> bool {
    times_and_places(&mut Rest(line)).is_ok()
}

/// Parses device, CPU and time.
#[inline]
fn times_and_places(rest: &mut Rest) -> Result<(DeviceId, u32, u64), &'static str> {
    rest.spaces();
    let major = rest.small().ok_or("no device's major number")?;
    if !rest.skip(b',') {
        return Err("no comma in a device's numbers");
    }
    let minor = rest.small().ok_or("no device's minor number")?;
    rest.spaces();
    let cpu = rest.small().ok_or("no processor's number")?;
    rest.spaces();
    // It is printed as a signed number.
    rest.skip(b'-');
    rest.number().ok_or("no number in the sequence")?;
    rest.spaces();
    let seconds = rest.number().ok_or("no time in seconds")?;
    let before = rest.0.len();
    if !rest.skip(b'.') {
        return Err("a time without nanoseconds");
    }
    let nanoseconds = rest.number().ok_or("a time without nanoseconds")?;
    if before - rest.0.len() != 10 {
        return Err("a time whose nanoseconds are not nine digits");
    }
    let time = seconds.checked_mul(1_000_000_000).and_then(|t| t.checked_add(nanoseconds));
    Ok((DeviceId { major, minor }, cpu, time.ok_or("a time past all clocks")?))
}

#[inline]
fn head<'a>(rest: &mut Rest<'a>) -> Result<Head<'a>, &'static str> {
    let (device, cpu, time) = times_and_places(rest)?;
    rest.spaces();
    let pid = rest.small().ok_or("no process's number")?;
    rest.spaces();
    let action = rest.word();
    rest.spaces();
    let letters = rest.word();
    if action.is_empty() || letters.is_empty() {
        return Err("no action, or no letters of what is asked");
    }
    rest.spaces();
    Ok(Head { time, device, cpu, pid, action, letters })
}

/// The fields of an action.
#[derive(Clone, Copy)]
enum Form {
    /// An optional extent, and the process.
    Extent,
    /// The same, or the bytes of a command.
    ExtentOrCommand,
    /// A completion, with its error.
    End,
    /// `8 + 8 <- (8,1) 0`.
    Remap,
    /// `8 / 16`.
    Split,
    /// The process.
    Who,
    /// The process, and a number.
    WhoAndNumber,
    /// The process, and data of a zone.
    Zone,
}

fn form(action: &[u8]) -> Option<(Action, Form)> {
    Some(match action {
        b"Q" => (Action::Queue, Form::ExtentOrCommand),
        b"G" => (Action::Get, Form::Extent),
        b"I" => (Action::Insert, Form::ExtentOrCommand),
        b"D" => (Action::Issue, Form::ExtentOrCommand),
        b"C" => (Action::Complete, Form::End),
        b"R" => (Action::Requeue, Form::End),
        b"M" => (Action::BackMerge, Form::Extent),
        b"F" => (Action::FrontMerge, Form::Extent),
        b"A" => (Action::Remap, Form::Remap),
        b"X" => (Action::Split, Form::Split),
        b"B" => (Action::Other, Form::ExtentOrCommand),
        b"S" | b"?" => (Action::Other, Form::Extent),
        b"P" => (Action::Other, Form::Who),
        b"U" | b"UT" | b"T" => (Action::Other, Form::WhoAndNumber),
        b"ZP" | b"ZU" => (Action::Other, Form::Zone),
        _ => return None,
    })
}

/// Parses a line that [`looks_like`] one.
pub(super) fn read(line: &[u8]) -> Result<Line<'_>, &'static str> {
    let mut rest = Rest(line);
    let head = head(&mut rest)?;
    if head.action == b"m" {
        return Ok(Line::Message);
    }
    let (action, form) = form(head.action).ok_or("an unknown action")?;
    let had = match form {
        Form::Extent => extent(&mut rest, false)?,
        Form::ExtentOrCommand => extent(&mut rest, true)?,
        Form::End => end(&mut rest)?,
        Form::Remap => remap(&mut rest)?,
        Form::Split => split(&mut rest)?,
        Form::Who => who(&mut rest)?,
        Form::WhoAndNumber => {
            let had = who(&mut rest)?;
            rest.spaces();
            rest.number().ok_or("an unplug that does not say how many")?;
            had
        }
        Form::Zone => {
            let had = who(&mut rest)?;
            rest.0 = &[];
            had
        }
    };
    rest.spaces();
    if !rest.0.is_empty() {
        return Err("more than its action has");
    }
    let (op, flags) = letters::read(head.letters, had.sectors).ok_or("letters that ask for nothing known")?;
    let event = Event {
        time: head.time,
        action,
        op: if had.command { Op::Other } else { op },
        flags: if had.command { flags & !Flags::PREFLUSH } else { flags },
        sector: if had.sectors == 0 { 0 } else { had.sector },
        sectors: had.sectors,
        device: head.device,
        cpu: head.cpu,
        pid: head.pid,
        process: Process::default(),
        took: None,
        error: had.error,
        writing: Default::default(),
        from: had.from,
    };
    Ok(Line::Event(event, had.who.map_or(Who::Untold, Who::Name)))
}

/// The fields after the letters.
#[derive(Default)]
struct Had<'a> {
    sector: u64,
    sectors: u64,
    command: bool,
    error: u32,
    from: Option<(DeviceId, u64)>,
    who: Option<&'a [u8]>,
}

/// `8 + 8`, or a single number.
enum Place {
    Extent(u64, u64),
    Alone(u64),
    None,
}

#[inline]
fn place(rest: &mut Rest) -> Result<Place, &'static str> {
    if !rest.0.first().is_some_and(u8::is_ascii_digit) {
        return Ok(Place::None);
    }
    let sector = rest.number().ok_or("a sector past all devices")?;
    rest.spaces();
    if !rest.skip(b'+') {
        return Ok(Place::Alone(sector));
    }
    rest.spaces();
    Ok(Place::Extent(sector, rest.number().ok_or("an extent without a length")?))
}

const NOBODY: &str = "no name in brackets";

#[inline]
fn extent<'a>(rest: &mut Rest<'a>, or_command: bool) -> Result<Had<'a>, &'static str> {
    let place = place(rest)?;
    if !rest.parentheses() {
        return Err("a parenthesis without end");
    }
    let who = Some(rest.brackets().ok_or(NOBODY)?);
    Ok(match place {
        Place::Extent(sector, sectors) => Had { sector, sectors, who, ..Had::default() },
        Place::Alone(bytes) if or_command => Had { sectors: bytes / SECTOR, command: true, who, ..Had::default() },
        Place::Alone(_) => return Err("a sector without a length"),
        Place::None => Had { who, ..Had::default() },
    })
}

fn end<'a>(rest: &mut Rest<'a>) -> Result<Had<'a>, &'static str> {
    let place = place(rest)?;
    if !rest.parentheses() {
        return Err("a parenthesis without end");
    }
    let mut number = Rest(rest.brackets().ok_or("no error in brackets")?);
    number.skip(b'-');
    let error = number.number().filter(|n| number.0.is_empty() && *n <= 0xffff).ok_or("an error that is no number")?;
    // A negative errno, printed as an unsigned 16-bit number.
    let error = u32::from((error as u16 as i16).unsigned_abs());
    Ok(match place {
        Place::Extent(sector, sectors) => Had { sector, sectors, error, ..Had::default() },
        Place::Alone(_) => Had { error, ..Had::default() },
        Place::None => Had { error, command: true, ..Had::default() },
    })
}

fn remap<'a>(rest: &mut Rest<'a>) -> Result<Had<'a>, &'static str> {
    const WRONG: &str = "a remap that does not say from where";
    let Place::Extent(sector, sectors) = place(rest)? else { return Err("a remap without an extent") };
    rest.spaces();
    if !(rest.skip(b'<') && rest.skip(b'-')) {
        return Err(WRONG);
    }
    rest.spaces();
    let from = from(rest).ok_or(WRONG)?;
    // Older versions add the process.
    let who = rest.brackets();
    // Converted old recordings have zeroes if it is unknown.
    let from = Some(from).filter(|(device, _)| *device != DeviceId::default());
    Ok(Had { sector, sectors, from, who, ..Had::default() })
}

/// `(8,1) 0`.
fn from(rest: &mut Rest) -> Option<(DeviceId, u64)> {
    let major = rest.skip(b'(').then(|| rest.small())??;
    let minor = rest.skip(b',').then(|| rest.small())??;
    if !rest.skip(b')') {
        return None;
    }
    rest.spaces();
    Some((DeviceId { major, minor }, rest.number()?))
}

fn split<'a>(rest: &mut Rest<'a>) -> Result<Had<'a>, &'static str> {
    const WRONG: &str = "a split that does not say where";
    let sector = rest.number().ok_or(WRONG)?;
    rest.spaces();
    if !rest.skip(b'/') {
        return Err(WRONG);
    }
    rest.spaces();
    let second = rest.number().ok_or(WRONG)?;
    let who = Some(rest.brackets().ok_or(NOBODY)?);
    // The lower 32 bits of the second sector are printed.
    let sectors = second.wrapping_sub(sector) & 0xffff_ffff;
    Ok(Had { sector, sectors, who, ..Had::default() })
}

fn who<'a>(rest: &mut Rest<'a>) -> Result<Had<'a>, &'static str> {
    Ok(Had { who: Some(rest.brackets().ok_or(NOBODY)?), ..Had::default() })
}
