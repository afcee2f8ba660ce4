//! Which tables of requests are known, and how are they recognised?
//!
//! | table | documentation |
//! |---|---|
//! | MSR Cambridge | Narayanan et al., FAST'08; SNIA IOTTA 388: times in units of 100 ns since 1601, bytes |
//! | SYSTOR'17 | Lee et al., SYSTOR'17; SNIA IOTTA 4964: seconds; no operation if the answer was not seen |
//! | Alibaba | Li et al., IISWC'20; github.com/alibaba/block-traces: bytes, microseconds |
//! | Tencent CBS | Zhang et al., ATC'20; SNIA IOTTA 27917: seconds, sectors, 0 is read |
//! | SPC | UMass Trace Repository, "SPC trace file format specification", 1.0.1: sectors, bytes, seconds |
//! | FIU | Koller and Rangaswami, FAST'10; SNIA IOTTA 390 and 391: nanoseconds, sectors |
//! | DiskSim | Bucy et al., "The DiskSim simulation environment", 4.0, "ASCII": milliseconds, sectors, 1 is read |
//! | MQSim | Tavakkol et al., FAST'18; its README: nanoseconds, sectors, 1 is read |
//! | fio's logs | fio's manual, "Log File Formats": milliseconds at the request's end, bytes |
//! | biosnoop | bcc, `tools/biosnoop_example.txt`: seconds at the request's end, sectors, bytes |
//! | iosnoop | perf-tools, `examples/iosnoop_example.txt`: seconds with `-s` or `-t`, sectors, bytes |
//!
//! A table without a header is recognised if four fifths of its first lines fit. DiskSim's and MQSim's have the same
//! columns: times with a point are DiskSim's.

use std::ops::RangeInclusive;

use super::{Delimiter, Fields, Form, open_form};
use crate::columns::Columns;
use crate::opened::Reader;
use crate::{Format, Input, Opened, OtherCounts, TraceError};

/// Lines looked at.
const FIRST: usize = 50;
/// Lines before a header: what the tool prints, the command.
const BEFORE: usize = 5;

const COMMA: Delimiter = Delimiter::Byte(b',');

/// A known table.
struct Known {
    format: Format,
    /// In the language of [`Columns`]; `None` if the header names them.
    columns: Option<&'static str>,
    delimiter: Delimiter,
    width: RangeInclusive<usize>,
    header: &'static [u8],
    /// Whether a line that fits is of this table and not of a similar one.
    fits: fn(&[u8], &Fields) -> bool,
    /// Columns by their name in the header, best first.
    names: &'static [(&'static str, &'static str)],
    notices: &'static [&'static [u8]],
}

const PLAIN: Known = Known {
    format: Format::Columns,
    columns: None,
    delimiter: COMMA,
    width: 0..=0,
    header: b"",
    fits: |_, _| true,
    names: &[],
    notices: &[],
};

static MSR: Known = Known {
    format: Format::MsrCsv,
    columns: Some("time=1:100ns,host=2,device=3,op=4,offset=5,bytes=6,took=7:100ns"),
    width: 7..=7,
    header: b"Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime",
    ..PLAIN
};
static SYSTOR: Known = Known {
    format: Format::SystorCsv,
    columns: Some("time=1:s,took=2:s,op=3:=skip,device=4,offset=5,bytes=6"),
    width: 6..=6,
    header: b"Timestamp,Response,IOType,LUN,Offset,Size",
    fits: |line, fields| has_letter(fields.text(line, 2), b"RW") || fields.text(line, 2).is_empty(),
    ..PLAIN
};
static ALIBABA: Known = Known {
    format: Format::Alibaba,
    columns: Some("device=1,op=2,offset=3,bytes=4,time=5:us"),
    width: 5..=5,
    header: b"device_id,opcode,offset,length,timestamp",
    fits: |line, fields| has_letter(fields.text(line, 1), b"RW"),
    ..PLAIN
};
static TENCENT: Known = Known {
    format: Format::Tencent,
    columns: Some("time=1:s,offset=2:sector,bytes=3:sector,op=4:0=read:1=write,device=5"),
    width: 5..=5,
    header: b"Timestamp,Offset,Size,IOType,VolumeID",
    fits: |line, fields| {
        has_letter(fields.text(line, 3), b"01") && fields.text(line, 0).len() == 10 && !line.contains(&b' ')
    },
    ..PLAIN
};
static SPC: Known = Known {
    format: Format::Spc,
    columns: Some("device=1,offset=2:sector,bytes=3,op=4,time=5:s"),
    width: 5..=31,
    fits: |line, fields| has_letter(fields.text(line, 3), b"rRwW") && fields.text(line, 4).contains(&b'.'),
    ..PLAIN
};
static FIU: Known = Known {
    format: Format::Fiu,
    columns: Some("time=1:ns,pid=2,process=3,offset=4:sector,bytes=5:sector,op=6,host=7,device=8"),
    delimiter: Delimiter::Spaces,
    width: 9..=9,
    fits: |line, fields| {
        let digest = fields.text(line, 8);
        has_letter(fields.text(line, 5), b"RW") && digest.len() >= 8 && digest.iter().all(u8::is_ascii_hexdigit)
    },
    ..PLAIN
};
/// Flags are hexadecimal; the lowest bit is a read.
static DISKSIM: Known = Known {
    format: Format::DiskSim,
    columns: Some(
        "time=1:ms,device=2,offset=3:sector,bytes=4:sector,op=5:0=write:1=read:2=write:3=read:4=write:5=read:6=write:7=read:\
         8=write:9=read",
    ),
    delimiter: Delimiter::Spaces,
    width: 5..=5,
    fits: |line, fields| fields.text(line, 0).contains(&b'.'),
    ..PLAIN
};
static MQSIM: Known = Known {
    format: Format::MqSim,
    columns: Some("time=1:ns,device=2,offset=3:sector,bytes=4:sector,op=5:0=write:1=read"),
    delimiter: Delimiter::Spaces,
    width: 5..=5,
    fits: |line, fields| !fields.text(line, 0).contains(&b'.'),
    ..PLAIN
};
/// With `log_offset`; without it newer versions have a fifth column, too, which is 0 or 1.
static FIO_LOG: Known = Known {
    format: Format::FioLog,
    columns: Some("time=1:ms,op=3:0=read:1=write:2=discard,bytes=4,offset=5"),
    width: 5..=7,
    fits: |line, fields| {
        line.windows(2).any(|two| two == b", ") && (fields.count > 5 || !has_letter(fields.text(line, 4), b"01"))
    },
    ..PLAIN
};
static BIOSNOOP: Known = Known {
    format: Format::Biosnoop,
    delimiter: Delimiter::Spaces,
    names: &[
        ("TIME(s)", "end=N:s"),
        ("COMM", "process=N"),
        ("PID", "pid=N"),
        ("DISK", "device=N"),
        ("T", "op=N"),
        ("SECTOR", "offset=N:sector"),
        ("BYTES", "bytes=N"),
        ("LAT(ms)", "took=N:ms"),
    ],
    ..PLAIN
};
static IOSNOOP: Known = Known {
    format: Format::Iosnoop,
    delimiter: Delimiter::Spaces,
    names: &[
        ("STARTs", "time=N:s"),
        ("ENDs", "end=N:s"),
        ("COMM", "process=N"),
        ("PID", "pid=N"),
        ("TYPE", "op=N"),
        ("DEV", "device=N"),
        ("BLOCK", "offset=N:sector"),
        ("BYTES", "bytes=N"),
        ("LATms", "took=N:ms"),
    ],
    notices: &[b"Tracing block I/O", b"Ending tracing", b"^C"],
    ..PLAIN
};

macro_rules! readers {
    ($($known:ident),+) => {
        /// Those with unmistakable columns first.
        pub(crate) const READERS: &[Reader] =
            &[$(Reader { knows: |head| $known.knows(head), open: |input| $known.open(input) }),+];
    };
}

readers!(BIOSNOOP, IOSNOOP, MSR, SYSTOR, ALIBABA, SPC, FIU, TENCENT, DISKSIM, MQSIM, FIO_LOG);

/// True for a single one of these letters.
fn has_letter(text: &[u8], letters: &[u8]) -> bool {
    matches!(text, [letter] if letters.contains(letter))
}

fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split(|b| *b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

impl Known {
    fn form(&self) -> Form {
        Form {
            format: self.format,
            delimiter: Some(self.delimiter),
            width: Some(self.width.clone()),
            header: self.header.to_vec(),
            notices: self.notices,
            known: true,
        }
    }

    /// The columns that a header names, and their number.
    fn named(&self, header: &[u8]) -> Option<(Columns, usize)> {
        let fields = Fields::new(header, self.delimiter);
        let at = |name: &str| (0..fields.count).find(|at| fields.text(header, *at) == name.as_bytes());
        let mut found: Vec<String> = Vec::new();
        for (name, column) in self.names {
            // The start is better than the end.
            let known = column.starts_with("end=") && found.first().is_some_and(|first| first.starts_with("time="));
            if let Some(at) = at(name).filter(|_| !known) {
                found.push(column.replace('N', &(at + 1).to_string()));
            }
        }
        Some((found.join(",").parse().ok()?, fields.count))
    }

    /// The header of a table whose columns it names: its line, the columns, their number.
    fn header<'a>(&self, head: &'a [u8]) -> Option<(usize, &'a [u8], (Columns, usize))> {
        lines(head).take(BEFORE).enumerate().find_map(|(n, line)| Some((n, line, self.named(line)?)))
    }

    fn knows(&self, head: &[u8]) -> bool {
        let Some(columns) = self.columns else { return self.header(head).is_some() };
        let Ok(columns) = columns.parse::<Columns>() else { return false };
        if !self.header.is_empty() && lines(head).next() == Some(self.header) {
            return true;
        }
        let mut table = super::Table { form: self.form(), columns, names: Default::default(), begun: false };
        let whole = memchr::memrchr(b'\n', head).map_or(head, |end| &head[..end]);
        let (mut good, mut all) = (0, 0);
        for line in lines(whole).filter(|line| !line.is_empty() && !line.starts_with(b"#")).take(FIRST) {
            all += 1;
            let fits = table.request(line, &mut OtherCounts::new()).is_ok()
                && (self.fits)(line, &Fields::new(line, self.delimiter));
            good += usize::from(fits);
        }
        good > 0 && good * 5 >= all * 4
    }

    fn open(&self, mut input: Input) -> Result<Opened, TraceError> {
        let mut form = self.form();
        let columns = match self.columns {
            Some(columns) => columns.parse().ok(),
            None => {
                let found =
                    self.header(input.peek(crate::input::HEAD)?).map(|(n, line, named)| (n, line.to_vec(), named));
                found
                    .map(|(n, line, (columns, width))| {
                        form.header = line;
                        form.width = Some(width..=width);
                        (n, columns)
                    })
                    .map(|(before, columns)| -> Result<Columns, TraceError> {
                        for _ in 0..before {
                            input.line(self.format)?;
                        }
                        Ok(columns)
                    })
                    .transpose()?
            }
        };
        let Some(columns) = columns else {
            return Err(input.damaged(self.format, input.at_line(), "the header does not name the columns"));
        };
        Ok(open_form(input, form, columns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_table_has_columns() {
        for known in [&MSR, &SYSTOR, &ALIBABA, &TENCENT, &SPC, &FIU, &DISKSIM, &MQSIM, &FIO_LOG] {
            let columns: Columns = known.columns.unwrap().parse().unwrap();
            assert!(known.width.start() >= &columns.least(), "{}", known.format);
        }
        let (columns, width) = IOSNOOP.named(b"STARTs ENDs COMM PID TYPE DEV BLOCK BYTES LATms").unwrap();
        assert!(!columns.at_end && columns.time.map(|time| time.0) == Some(0) && width == 9);
        assert!(IOSNOOP.named(b"ENDs COMM PID TYPE DEV BLOCK BYTES LATms").unwrap().0.at_end);
    }
}
