//! How is a table read, with one request per line and its fields in columns?
//!
//! [`Columns`] says which column is what. Columns are separated by commas, semicolons, tabs or spaces, whichever gives
//! enough of them. A field may be in quotation marks. A header and lines that begin with `#` are counted. A line is a
//! request from its issue to its completion, if the table has one. Ranges that are not aligned to sectors are widened,
//! and counted. Tables of known formats: `known.rs`.

mod known;
mod ordered;

use std::ops::{Range, RangeInclusive};

pub(crate) use known::READERS;

use super::decimal::{date, number, scaled, whole, wrong};
use super::extent::sectors;
use super::rows::{Read, Row, Rows};
use crate::block::{Action, DeviceId, Event, Flags, Op};
use crate::columns::{Columns, MOST, Operation, Unit};
use crate::names::count;
use crate::{Format, Input, Names, Opened, OtherCounts, Process, letters};

/// What is between two columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Delimiter {
    Byte(u8),
    /// Any number of spaces and tabs.
    Spaces,
}

/// Where the fields of a line are.
struct Fields {
    places: [Range<usize>; MOST],
    /// Their number, also of those beyond the last place.
    count: usize,
}

const SPACES: &[u8] = b" \t";

/// Without spaces around it.
fn trimmed(line: &[u8], mut place: Range<usize>) -> Range<usize> {
    while place.start < place.end && SPACES.contains(&line[place.start]) {
        place.start += 1;
    }
    while place.start < place.end && SPACES.contains(&line[place.end - 1]) {
        place.end -= 1;
    }
    place
}

impl Fields {
    fn new(line: &[u8], delimiter: Delimiter) -> Self {
        let mut fields = Fields { places: [const { 0..0 }; MOST], count: 0 };
        match delimiter {
            Delimiter::Spaces => {
                let mut at = 0;
                while let Some(skipped) = line[at..].iter().position(|b| !SPACES.contains(b)) {
                    let from = at + skipped;
                    at = line[from..].iter().position(|b| SPACES.contains(b)).map_or(line.len(), |n| from + n);
                    fields.push(from..at);
                }
            }
            Delimiter::Byte(delimiter) => {
                let mut from = 0;
                loop {
                    let start = trimmed(line, from..line.len()).start;
                    let quoted = (line.get(start) == Some(&b'"'))
                        .then(|| memchr::memchr(b'"', &line[start + 1..]).map(|n| start + 1 + n))
                        .flatten();
                    let search = quoted.map_or(from, |end| end + 1);
                    let end = memchr::memchr(delimiter, &line[search..]).map(|n| search + n);
                    fields.push(match quoted {
                        Some(close) => start + 1..close,
                        None => trimmed(line, from..end.unwrap_or(line.len())),
                    });
                    match end {
                        Some(end) => from = end + 1,
                        None => break,
                    }
                }
            }
        }
        fields
    }

    fn push(&mut self, place: Range<usize>) {
        if let Some(next) = self.places.get_mut(self.count) {
            *next = place;
        }
        self.count += 1;
    }

    fn text<'a>(&self, line: &'a [u8], at: usize) -> &'a [u8] {
        self.places.get(at).filter(|_| at < self.count).map_or(&[], |place| &line[place.clone()])
    }

    /// Joins the fields of a name with spaces, so that the line has `width` fields.
    fn join(&mut self, at: usize, width: usize) {
        let more = self.count.saturating_sub(width);
        if more == 0 || self.count > MOST || at >= width {
            return;
        }
        self.places[at].end = self.places[at + more].end;
        self.places[at + 1..self.count].rotate_left(more);
        self.count = width;
    }
}

/// What a table is, apart from its columns.
#[derive(Debug, Clone)]
struct Form {
    format: Format,
    delimiter: Option<Delimiter>,
    /// Possible numbers of columns.
    width: Option<RangeInclusive<usize>>,
    /// The header, which may be repeated.
    header: Vec<u8>,
    /// Beginnings of lines that its tool prints around the table.
    notices: &'static [&'static [u8]],
    /// False if columns are given by a user, who does not say whether there is a header.
    known: bool,
}

/// Parses the lines of a table.
struct Table {
    form: Form,
    columns: Columns,
    /// Hosts, and devices with names.
    names: Names,
    /// True after a line with a request or a header.
    begun: bool,
}

/// Opens any table.
pub(crate) fn open(input: Input, columns: Columns) -> Opened {
    let form =
        Form { format: Format::Columns, delimiter: None, width: None, header: Vec::new(), notices: &[], known: false };
    open_form(input, form, columns)
}

fn open_form(input: Input, form: Form, columns: Columns) -> Opened {
    let at_end = columns.at_end;
    let rows = Rows::new(input, Table { form, columns, names: Names::default(), begun: false });
    if at_end { Opened::Blocks(Box::new(ordered::Ordered::new(rows))) } else { Opened::Blocks(Box::new(rows)) }
}

impl Table {
    /// The fields of a line.
    fn fields(&mut self, line: &[u8]) -> Result<Fields, String> {
        let least = self.columns.least();
        let mut fields = match self.form.delimiter {
            Some(delimiter) => Fields::new(line, delimiter),
            None => {
                let all = [Delimiter::Byte(b'\t'), Delimiter::Byte(b';'), Delimiter::Byte(b','), Delimiter::Spaces];
                let found =
                    all.into_iter().map(|d| (d, Fields::new(line, d))).find(|(_, fields)| fields.count >= least);
                let Some((delimiter, fields)) = found else {
                    return Err(format!("it has fewer than {least} columns"));
                };
                self.form.delimiter = Some(delimiter);
                fields
            }
        };
        if self.form.delimiter == Some(Delimiter::Spaces)
            && let Some(process) = self.columns.process
        {
            let width = *self.form.width.get_or_insert(fields.count..=fields.count).end();
            fields.join(process, width);
        }
        match &self.form.width {
            Some(width) if !width.contains(&fields.count) => {
                let least = width.start();
                let wanted =
                    if least == width.end() { least.to_string() } else { format!("{least} to {}", width.end()) };
                Err(format!("it has not {wanted} columns, but {}", fields.count))
            }
            _ if fields.count < least => Err(format!("it has not {least} columns, but {}", fields.count)),
            _ => Ok(fields),
        }
    }

    fn request<'a>(&mut self, line: &'a [u8], others: &mut OtherCounts) -> Result<Read<'a>, String> {
        let fields = self.fields(line)?;
        let text = |at: usize| fields.text(line, at);
        let columns = &self.columns;
        let stamp = |name, (at, unit): (usize, Unit)| {
            let read = match unit {
                Unit::Of(unit) => scaled(text(at), unit),
                Unit::Date => date(text(at)),
            };
            read.ok_or_else(|| wrong(name, text(at)))
        };
        let mut time = columns.time.map_or(Ok(0), |column| stamp("time", column))?;
        let in_bytes = |name, (at, unit): (usize, u64)| {
            whole(text(at)).and_then(|n| n.checked_mul(unit)).ok_or_else(|| wrong(name, text(at)))
        };
        let bytes = in_bytes("bytes", columns.bytes)?;
        let offset = match in_bytes("offset", columns.offset) {
            Ok(offset) => offset,
            // Flushes have -1.
            Err(_) if bytes == 0 => 0,
            Err(what) => return Err(what),
        };
        let (sector, count_of) = sectors(offset, bytes, others)
            .ok_or_else(|| format!("offset and bytes have no sum: {offset} and {bytes}"))?;
        let (op, flags) = match &columns.op {
            Operation::All(op) => (*op, Flags::empty()),
            Operation::In(at, words) => match words.iter().find(|(word, _)| word == text(*at)) {
                Some((_, Some(op))) => (*op, Flags::empty()),
                Some((_, None)) => return Ok(Read::Other("requests without an operation")),
                None => operation(text(*at), count_of).ok_or_else(|| wrong("op", text(*at)))?,
            },
        };
        let mut took = None;
        if let Some((at, unit)) = columns.took {
            took = stamp("took", (at, unit)).ok();
            if took.is_none() {
                // "Irregular" times of SYSTOR'17: packets were lost.
                let below = text(at).strip_prefix(b"-").is_some_and(|below| scaled(below, 1).is_some());
                if !(text(at).is_empty() || below) {
                    return Err(wrong("took", text(at)));
                }
                count(others, "impossible times of response");
            }
        }
        if columns.at_end {
            time = time.saturating_sub(took.unwrap_or(0));
        }
        let small =
            |name, at: usize| number(text(at)).and_then(|n| u32::try_from(n).ok()).ok_or_else(|| wrong(name, text(at)));
        let pid = columns.pid.map_or(Ok(0), |at| small("pid", at))?;
        let process = columns.process.map_or(&[][..], text);
        let device = match (columns.host, columns.device) {
            (Some(host), device) => {
                let minor = device.map_or(Ok(0), |at| small("device", at))?;
                let major = small("host", host).unwrap_or_else(|_| self.names.number(text(host)).0);
                DeviceId { major, minor }
            }
            (None, Some(at)) => {
                numbers(text(at)).unwrap_or_else(|| DeviceId { major: self.names.number(text(at)).0, minor: 0 })
            }
            (None, None) => DeviceId::default(),
        };
        let (sector, count_of) = if op == Op::Flush { (0, 0) } else { (sector, count_of) };
        let event = Event {
            time,
            action: Action::Issue,
            op,
            flags,
            sector,
            sectors: count_of,
            device,
            cpu: 0,
            pid,
            process: Process::default(),
            took,
            error: 0,
            writing: Default::default(),
            from: None,
        };
        Ok(Read::Event(event, process))
    }

    /// True if a first line that is no request names the columns.
    fn is_header(&self, line: &[u8]) -> bool {
        let Some(delimiter) = self.form.delimiter else { return false };
        let fields = Fields::new(line, delimiter);
        let name = |at: usize| fields.text(line, at).first().is_some_and(|b| !b.is_ascii_digit() && *b != b'-');
        fields.count >= self.columns.least() && name(self.columns.offset.0) && name(self.columns.bytes.0)
    }
}

/// `8`, `8,1` or `8:1`.
fn numbers(text: &[u8]) -> Option<DeviceId> {
    let number = |text| number(text).and_then(|n| u32::try_from(n).ok());
    match memchr::memchr2(b',', b':', text) {
        Some(at) => Some(DeviceId { major: number(&text[..at])?, minor: number(&text[at + 1..])? }),
        None => Some(DeviceId { major: 0, minor: number(text)? }),
    }
}

/// Words and digits for an operation; otherwise the kernel's letters.
fn operation(text: &[u8], sectors: u64) -> Option<(Op, Flags)> {
    let words: [(&[&str], Op); 4] = [
        (&["r", "read", "rd", "0"], Op::Read),
        (&["w", "write", "wr", "1"], Op::Write),
        (&["d", "discard", "trim", "unmap"], Op::Discard),
        (&["f", "flush", "sync", "fsync"], Op::Flush),
    ];
    let is = |word: &&str| text.eq_ignore_ascii_case(word.as_bytes());
    match words.iter().find(|(all, _)| all.iter().any(is)) {
        Some((_, op)) => Some((*op, Flags::empty())),
        None => letters::read(text, sectors),
    }
}

impl Row for Table {
    fn format(&self) -> Format {
        self.form.format
    }

    fn read<'a>(&mut self, line: &'a [u8], others: &mut OtherCounts) -> Result<Read<'a>, String> {
        if !self.form.header.is_empty() && line == self.form.header {
            return Ok(Read::Other("headers"));
        }
        if line.starts_with(b"#") {
            return Ok(Read::Other("comments"));
        }
        if self.form.notices.iter().any(|notice| line.starts_with(notice)) {
            return Ok(Read::Other("messages"));
        }
        let had_width = self.form.width.is_some();
        let read = self.request(line, others);
        if read.is_err() && !self.begun && !self.form.known && self.is_header(line) {
            self.begun = true;
            self.form.header = line.to_vec();
            return Ok(Read::Other("headers"));
        }
        if read.is_err() && !had_width && !self.begun {
            // The width of an invalid line is not that of the table.
            (self.form.width, self.form.delimiter) = (None, None);
        }
        self.begun |= read.is_ok();
        read
    }

    fn may_end_without_newline(&self) -> bool {
        !self.form.known
    }

    fn timed(&self) -> bool {
        self.columns.time.is_some()
    }

    fn device(&self, id: DeviceId) -> Option<String> {
        let name = Some(self.names.name(Process(id.major))).filter(|name| !name.is_empty())?;
        match (self.columns.host, self.columns.device) {
            (Some(_), Some(_)) => Some(format!("{name} {}", id.minor)),
            _ => Some(name.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str, delimiter: Delimiter) -> Vec<String> {
        let fields = Fields::new(line.as_bytes(), delimiter);
        (0..fields.count).map(|at| String::from_utf8_lossy(fields.text(line.as_bytes(), at)).into_owned()).collect()
    }

    #[test]
    fn fields_are_split_at_delimiters_outside_quotation_marks() {
        assert_eq!(fields("1, 2 ,,\"a,b\" , x", Delimiter::Byte(b',')), ["1", "2", "", "a,b", "x"]);
        assert_eq!(fields("\"a,b", Delimiter::Byte(b',')), ["\"a", "b"]);
        assert_eq!(fields("", Delimiter::Byte(b',')), [""]);
        assert_eq!(fields("  1 \t 2  ", Delimiter::Spaces), ["1", "2"]);
        assert_eq!(fields(&"1,".repeat(100), Delimiter::Byte(b',')).len(), 101);
    }

    #[test]
    fn a_name_with_spaces_is_one_field() {
        let line = b"0.1 Web Content 2 7 8";
        let mut fields = Fields::new(line, Delimiter::Spaces);
        fields.join(1, 5);
        let all: Vec<&[u8]> = (0..fields.count).map(|at| fields.text(line, at)).collect();
        assert_eq!(all, [&b"0.1"[..], b"Web Content", b"2", b"7", b"8"]);
    }

    #[test]
    fn operations_are_words_digits_or_letters() {
        assert_eq!(operation(b"READ", 8), Some((Op::Read, Flags::empty())));
        assert_eq!(operation(b"1", 8), Some((Op::Write, Flags::empty())));
        assert_eq!(operation(b"WSM", 8), Some((Op::Write, Flags::SYNC | Flags::META)));
        assert_eq!(operation(b"FF", 0).map(|(op, _)| op), Some(Op::Flush));
        assert_eq!((operation(b"2", 8), operation(b"", 8)), (None, None));
    }
}
