//! How is an event's text after its name parsed, for every kernel version?
//!
//! ```text
//! 254,0 WS 4096 () 8208 + 8 [dd]            a request: bytes, command, sectors
//! 254,0 WS 4096 () 8208 + 8 be,0,4 [dd]     with its priority (6.4 and later)
//! 254,0 WS () 8208 + 8 [0]                  a completion: error
//! 254,0 WS 8208 + 8 [dd]                    a bio
//! 254,0 WS 8208 / 8216 [dd]                 a split bio: start of the rest
//! 254,0 WS 8208 + 8 <- (254,1) 16           a bio of a partition: original location
//! bdi 254:0: ino=12 index=0                 a page of an inode became dirty
//! bdi 254:0: ino=12 state=I_DIRTY_PAGES ... an inode is written
//! dev 254,1 ino 12 dirtied 4294937513 ...   an inode became dirty
//! ```

use crate::block::{Action, DeviceId, Event};
use crate::letters;
use crate::read::decimal::number;
use crate::read::tracepoint::{Layer, Ufs, first_sector, ufs_action};

/// Text parsed word by word.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn literal(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// The text up to the next space, which is consumed too.
    fn word(&mut self) -> Option<&'a [u8]> {
        let space = memchr::memchr(b' ', self.0)?;
        let word = &self.0[..space];
        self.0 = &self.0[space + 1..];
        Some(word)
    }

    fn number(&mut self) -> Option<u64> {
        let digits = self.0.iter().position(|b| !b.is_ascii_digit()).unwrap_or(self.0.len());
        let n = number(&self.0[..digits])?;
        self.0 = &self.0[digits..];
        Some(n)
    }

    /// ` <- (254,1) 16`: a device and a sector; the rest stays.
    fn from(&mut self) -> Option<(DeviceId, u64)> {
        self.literal(b" <- (")?;
        let major = u32::try_from(self.number()?).ok()?;
        self.literal(b",")?;
        let minor = u32::try_from(self.number()?).ok()?;
        self.literal(b") ")?;
        Some((DeviceId { major, minor }, self.number()?))
    }

    /// `(...) `: a command's bytes.
    fn command(&mut self) -> Option<()> {
        self.literal(b"(")?;
        let end = memchr::memchr(b')', self.0)?;
        self.0 = &self.0[end + 1..];
        self.literal(b" ")
    }
}

/// Fills in device, operation and extent of `event`, whose action is known; returns the process if present.
pub(super) fn extent<'a>(text: &'a [u8], layer: Layer, event: &mut Event) -> Option<Option<&'a [u8]>> {
    let mut rest = Words(text);
    let major = u32::try_from(rest.number()?).ok()?;
    rest.literal(b",")?;
    let minor = u32::try_from(rest.number()?).ok()?;
    rest.literal(b" ")?;
    let said = rest.word()?;
    let mut ends_with_error = layer == Layer::Block && event.action == Action::Complete;
    let sector = if rest.0.starts_with(b"(") {
        ends_with_error = true;
        rest.command()?;
        rest.number()?
    } else {
        let first = rest.number()?;
        if rest.0.starts_with(b" (") {
            rest.literal(b" ")?;
            rest.command()?;
            rest.number()?
        } else {
            first
        }
    };
    let sectors = if event.action == Action::Split {
        rest.literal(b" / ")?;
        rest.number()?.checked_sub(sector)?
    } else {
        rest.literal(b" + ")?;
        rest.number()?
    };
    let (op, flags) = letters::read(said, sectors)?;
    event.device = DeviceId { major, minor };
    (event.op, event.flags) = (op, flags);
    (event.sector, event.sectors) = (first_sector(sector, sectors), sectors);
    if rest.0.starts_with(b" <- (") {
        event.from = Some(rest.from()?);
        return Some(None);
    }
    rest.literal(b" ")?;
    if !rest.0.starts_with(b"[") {
        // A priority: class, hint, level.
        let priority = rest.word()?;
        if priority.iter().filter(|b| **b == b',').count() != 2 {
            return None;
        }
    }
    let last = rest.0.strip_prefix(b"[")?.strip_suffix(b"]")?;
    if ends_with_error {
        event.error = u32::try_from(number(last.strip_prefix(b"-").unwrap_or(last))?).ok()?;
        return Some(None);
    }
    Some(Some(last))
}

/// Place of an inode.
pub(super) enum Place<'a> {
    Named(&'a [u8]),
    Device((u32, u32)),
}

/// The inode of an event, and whether pages of it are dirty.
pub(super) fn inode(text: &[u8]) -> Option<(Place<'_>, u64, bool)> {
    if let Some(rest) = text.strip_prefix(b"bdi ") {
        // A name may contain anything.
        let end = memchr::memmem::find(rest, b": ino=")?;
        let mut words = Words(&rest[end + 6..]);
        let ino = words.number()?;
        let left = memchr::memmem::find(words.0, b"I_DIRTY_PAGES").is_some();
        return Some((Place::Named(&rest[..end]), ino, left));
    }
    let mut words = Words(text);
    words.literal(b"dev ")?;
    let major = u32::try_from(words.number()?).ok()?;
    words.literal(b",")?;
    let minor = u32::try_from(words.number()?).ok()?;
    words.literal(b" ino ")?;
    Some((Place::Device((major, minor)), words.number()?, false))
}

/// `[dd]`, `[dd] 2`: the process.
pub(super) fn plug(text: &[u8]) -> Option<&[u8]> {
    let inner = text.strip_prefix(b"[")?;
    let end = memchr::memrchr(b']', inner)?;
    let rest = &inner[end + 1..];
    (rest.is_empty() || number(rest.strip_prefix(b" ")?).is_some()).then_some(&inner[..end])
}

/// Fills in a UFS command; false if it transfers no contents. Labels differ in number and order between kernels.
pub(super) fn ufs(text: &[u8], event: &mut Event) -> Option<bool> {
    let value = |label: &[u8]| {
        let at = memchr::memmem::find(text, label)? + label.len();
        let end = text[at..].iter().position(|b| b", (".contains(b)).map_or(text.len(), |end| at + end);
        Some(&text[at..end])
    };
    let signed = |label: &[u8]| match value(label)? {
        [b'-', rest @ ..] => number(rest).map(|_| 0),
        digits => number(digits),
    };
    let mut words = text.splitn(3, |b| *b == b':').map(<[u8]>::trim_ascii);
    let (first, second) = (words.next()?, words.next()?);
    let command = Ufs {
        opcode: u64::from_str_radix(std::str::from_utf8(value(b"opcode: 0x")?).ok()?, 16).ok()?,
        lba: signed(b"LBA: ")?,
        length: signed(b"size: ")?,
    };
    let Some(action) = ufs_action(first).or_else(|| ufs_action(second)) else { return Some(false) };
    let Some((op, sector, sectors)) = command.extent() else { return Some(false) };
    (event.action, event.op, event.sector, event.sectors) = (action, op, sector, sectors);
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;
    use crate::block::{Flags, Op};
    use crate::read::tracepoint::blank;

    fn read(action: Action, layer: Layer, text: &str) -> Option<(Event, Option<String>)> {
        let mut event = Event { action, ..blank(0, 0, 0, Process::default()) };
        let who = extent(text.as_bytes(), layer, &mut event)?;
        Some((event, who.map(|w| String::from_utf8(w.to_vec()).unwrap())))
    }

    #[test]
    fn texts_of_old_and_new_kernels_give_the_same_events() {
        let expected = Event {
            action: Action::Issue,
            op: Op::Write,
            flags: Flags::SYNC,
            sector: 8208,
            sectors: 8,
            device: DeviceId { major: 254, minor: 3 },
            ..blank(0, 0, 0, Process::default())
        };
        for (action, layer, text, error, who) in [
            (Action::Issue, Layer::Block, "254,3 WS 4096 () 8208 + 8 [a [b]]", 0, Some("a [b]")),
            (Action::Issue, Layer::Block, "254,3 WS 4096 () 8208 + 8 be,0,4 [dd]", 0, Some("dd")),
            (Action::Issue, Layer::Block, "254,3 WS 0 (1a 00 3f ) 8208 + 8 [dd]", 0, Some("dd")),
            (Action::Complete, Layer::Block, "254,3 WS () 8208 + 8 [0]", 0, None),
            (Action::Complete, Layer::Block, "254,3 WS () 8208 + 8 none,0,0 [-5]", 5, None),
            (Action::Complete, Layer::Block, "254,3 WS 8208 + 8 [-28]", 28, None),
            (Action::Complete, Layer::Accounting, "254,3 WS 4096 () 8208 + 8 be,0,4 [0]", 0, Some("0")),
            (Action::Requeue, Layer::Block, "254,3 WS () 8208 + 8 [0]", 0, None),
            (Action::Queue, Layer::Block, "254,3 WS 8208 + 8 [dd]", 0, Some("dd")),
            (Action::Split, Layer::Block, "254,3 WS 8208 / 8216 [dd]", 0, Some("dd")),
            (Action::Remap, Layer::Block, "254,3 WS 8208 + 8 <- (254,1) 16", 0, None),
            (Action::Remap, Layer::Block, "254,3 WS 8208 + 8 <- (254,1) 16 1", 0, None),
        ] {
            let from = (action == Action::Remap).then_some((DeviceId { major: 254, minor: 1 }, 16));
            let event = Event { action, error, from, ..expected };
            assert_eq!(read(action, layer, text), Some((event, who.map(String::from))), "{text}");
        }
    }

    #[test]
    fn an_incomplete_event_is_refused() {
        let whole = "254,3 WS 4096 () 8208 + 8 be,0,4 [dd]";
        for end in 0..whole.len() {
            assert_eq!(read(Action::Issue, Layer::Block, &whole[..end]), None, "{}", &whole[..end]);
        }
        for text in ["254,3 XX 4096 () 8208 + 8 [dd]", "254 WS 8208 + 8 [dd]", "254,3 WS 8216 / 8208 [dd]"] {
            assert_eq!(read(Action::Split, Layer::Block, text), None, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_flush_has_no_sector() {
        let (event, _) = read(Action::Complete, Layer::Block, "254,0 FF () 18446744073709551615 + 0 [0]").unwrap();
        assert_eq!((event.op, event.sector, event.sectors), (Op::Flush, 0, 0));
    }

    #[test]
    fn commands_of_ufs_have_their_labels_in_any_order() {
        for text in [
            "send_req: 1d84000.ufshc: tag: 5, DB: 0x20, size: 4096, IS: 0, LBA: 100, opcode: 0x2a (WRITE_10), group_id: 0x0",
            "send: 1d84000.ufshc: tag: 5, DB: 0x20, size: 4096, IS: 0, LBA: 100, opcode: 0x2a",
            "1d84000.ufshc: send_req: LBA: 100, size: 4096, opcode: 0x2a (WRITE_10), hwq_id: 1",
        ] {
            let mut event = blank(0, 0, 0, Process::default());
            assert_eq!(ufs(text.as_bytes(), &mut event), Some(true), "{text}");
            assert_eq!((event.action, event.op, event.sector, event.sectors), (Action::Issue, Op::Write, 800, 8));
        }
        let mut event = blank(0, 0, 0, Process::default());
        let other = b"dev_complete: u: tag: 5, DB: 0x20, size: -1, IS: 0, LBA: 100, opcode: 0x2a";
        assert_eq!(ufs(other, &mut event), Some(false));
        assert_eq!(ufs(b"send_req: u: tag: 5", &mut event), None);
    }

    #[test]
    fn the_process_of_a_plug_is_read_with_or_without_a_number() {
        assert_eq!(plug(b"[dd]"), Some(&b"dd"[..]));
        assert_eq!(plug(b"[a [b]] 2"), Some(&b"a [b]"[..]));
        assert_eq!(plug(b"[dd"), None);
        assert_eq!(plug(b"[dd] x"), None);
    }
}
