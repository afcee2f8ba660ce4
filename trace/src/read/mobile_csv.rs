//! How are mobile block traces read (Marcus et al., SYSTOR'24)? One line per request to a phone's flash, with the name
//! of the running process.
//!
//! `proces,device,rw_flag,sector,size,timestamp`: process as `name-pid`, device in the kernel's encoding (`major << 20
//! | minor`), letter, sectors of 512 bytes, seconds since boot.
//!
//! The meaning of a line is not documented. The recordings show that it is the issue of a request to the device
//! ([`Action::Issue`]): sectors count from the beginning of the disk, and the requests of one process do not wait for
//! each other. A sleeping host controller returns a request, and about a millisecond later a kernel worker issues it
//! again: such a request has two lines, which differ only in process and time. Both are returned here.
//!
//! The probe distinguishes only `R` from `W`, and discards are recorded as reads (requests of the discard thread appear
//! as `R`). Other letters of blkparse have their usual meaning.

use super::decimal::{nanoseconds, number, wrong};
use super::rows::{Read, Row, Rows};
use crate::block::{Action, DeviceId, Event};
use crate::letters;
use crate::opened::Reader;
use crate::{Format, Input, Opened, OtherCounts, Process, TraceError};

/// Possible first lines.
const HEADERS: [&[u8]; 2] =
    [b"proces,device,rw_flag,sector,size,timestamp", b"process,device,rw_flag,sector,size,timestamp"];

/// Recognised by its header.
pub(crate) const READER: Reader = Reader { knows, open };

fn knows(head: &[u8]) -> bool {
    HEADERS.iter().any(|h| head.strip_prefix(*h).is_some_and(|rest| rest.first().is_none_or(|b| b"\r\n".contains(b))))
}

fn open(mut input: Input) -> Result<Opened, TraceError> {
    // Skip the header, which was checked.
    input.line(Format::MobileCsv)?;
    Ok(Opened::Blocks(Box::new(Rows::new(input, Mobile))))
}

struct Mobile;

/// The last fields, and the text before them: names of processes may contain commas.
fn fields(line: &[u8]) -> Option<[&[u8]; 6]> {
    let mut out = [&[][..]; 6];
    let mut rest = line;
    for field in out[1..].iter_mut().rev() {
        let comma = memchr::memrchr(b',', rest)?;
        *field = &rest[comma + 1..];
        rest = &rest[..comma];
    }
    out[0] = rest;
    Some(out)
}

/// `name-pid`; a name alone has no process number, and `<...>` means no name.
fn process(text: &[u8]) -> (&[u8], u32) {
    let (name, pid) = match memchr::memrchr(b'-', text) {
        Some(dash) => match number(&text[dash + 1..]).and_then(|n| u32::try_from(n).ok()) {
            Some(pid) => (&text[..dash], pid),
            None => (text, 0),
        },
        None => (text, 0),
    };
    (if name == b"<...>" { b"" } else { name }, pid)
}

impl Row for Mobile {
    fn format(&self) -> Format {
        Format::MobileCsv
    }

    fn read<'a>(&mut self, line: &'a [u8], _: &mut OtherCounts) -> Result<Read<'a>, String> {
        let Some([who, device, flags, sector, size, time]) = fields(line) else {
            return Err("it has fewer than 6 columns".into());
        };
        let (name, pid) = process(who);
        let device = number(device).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong("device", device))?;
        let sectors = number(size).ok_or_else(|| wrong("size", size))?;
        let (op, flags) = letters::read(flags, sectors).ok_or_else(|| wrong("rw_flag", flags))?;
        let event = Event {
            time: nanoseconds(time).ok_or_else(|| wrong("timestamp", time))?,
            action: Action::Issue,
            op,
            flags,
            sector: number(sector).ok_or_else(|| wrong("sector", sector))?,
            sectors,
            device: DeviceId { major: device >> 20, minor: device & 0xf_ffff },
            cpu: 0,
            pid,
            process: Process::default(),
            took: None,
            error: 0,
            writing: Default::default(),
            from: None,
        };
        Ok(Read::Event(event, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_split_at_the_last_dash_before_a_number() {
        assert_eq!(process(b"kworker/u17:0-21515"), (&b"kworker/u17:0"[..], 21515));
        assert_eq!(process(b"f2fs_ckpt-254:4-437"), (&b"f2fs_ckpt-254:4"[..], 437));
        assert_eq!(process(b"<...>-7"), (&b""[..], 7));
        assert_eq!(process(b"queued-work-loo"), (&b"queued-work-loo"[..], 0));
        assert_eq!(process(b""), (&b""[..], 0));
    }
}
