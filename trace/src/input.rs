//! How are the bytes and lines of a recording read, decompressed, and located?

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::names::{INVALID, count_many};
use crate::{At, Format, OtherCounts, TraceError};

mod text;

/// Bytes per read.
const STEP: usize = 256 << 10;
/// Bytes by which the format is recognised.
pub(crate) const HEAD: usize = 64 << 10;
/// Longest line or record; longer ones are damage.
pub(crate) const LONGEST: usize = 16 << 20;
/// Invalid lines that are skipped in any recording; in a long one, every hundredth line may be.
const FEW: u64 = 5;
/// Invalid lines that an error names.
const NAMED: usize = 3;
/// Bytes of an invalid line that are shown.
const SHOWN: usize = 60;

/// What happens to lines that a reader cannot parse?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Invalid {
    /// They are skipped and counted, up to a limit.
    #[default]
    Skipped,
    /// The first is an error.
    Refused,
    /// They are skipped without a limit, to find out how many there are.
    Tried,
}

/// Invalid lines so far.
#[derive(Debug, Default)]
struct Skipped {
    count: u64,
    /// The first ones, and what is wrong with them.
    first: Vec<(u64, String)>,
    /// The name under which they are counted.
    name: String,
}

/// Counts the bytes read.
struct Counted<R> {
    inner: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buf)?;
        self.bytes.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

/// How much of a file has been read.
pub(crate) struct Consumption(Arc<AtomicU64>);

impl Consumption {
    /// Bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A recording being read. Gzip and zstd (one or several concatenated streams) are decompressed, and text in UTF-16 with a
/// byte order mark is read as UTF-8. It holds [a
/// part](Self::peek) of the recording, which grows only for a long line or record.
pub struct Input {
    path: PathBuf,
    inner: Box<dyn Read + Send>,
    /// Bytes read from the file.
    consumed: Arc<AtomicU64>,
    buf: Vec<u8>,
    /// The part of `buf` that was read from `inner` and not taken yet.
    from: usize,
    to: usize,
    /// Offset of `buf[from]` in the recording.
    offset: u64,
    /// Lines taken.
    lines: u64,
    ended: bool,
    /// True if its bytes are not those of the file.
    changed: bool,
    /// The file, if it is read as it is.
    plain: Option<File>,
    /// The last line taken, in `buf`.
    line: Range<usize>,
    invalid: Invalid,
    skipped: Skipped,
}

/// Bytes with random access.
pub(crate) trait Anywhere: Read + Seek + Send {}

impl<T: Read + Seek + Send> Anywhere for T {}

impl Input {
    /// Opens a file; `-` is standard input.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        let io = |source| TraceError::Io { path: path.to_owned(), source };
        if path.as_os_str() == "-" {
            return Self::new(Path::new("standard input"), io::stdin());
        }
        let file = File::open(path).map_err(io)?;
        if file.metadata().map_err(io)?.is_dir() {
            return Err(io(io::ErrorKind::IsADirectory.into()));
        }
        let again = file.metadata().map_err(io)?.is_file().then(|| file.try_clone()).transpose().map_err(io)?;
        let mut input = Self::new(path, file)?;
        input.plain = again.filter(|_| !input.changed);
        Ok(input)
    }

    /// Reads from `inner`; errors refer to it as `path`.
    pub fn new(path: &Path, inner: impl Read + Send + 'static) -> Result<Self, TraceError> {
        let consumed = Arc::new(AtomicU64::new(0));
        let mut raw = BufReader::with_capacity(STEP, Counted { inner, bytes: consumed.clone() });
        let io = |source| TraceError::Io { path: path.to_owned(), source };
        let mut magic = Vec::new();
        (&mut raw).take(4).read_to_end(&mut magic).map_err(io)?;
        let gzip = magic.starts_with(&[0x1f, 0x8b]);
        let zstd = magic == [0x28, 0xb5, 0x2f, 0xfd] || (magic.len() == 4 && magic[1..] == [0x2a, 0x4d, 0x18]);
        let marked = text::is_marked(&magic);
        let all = io::Cursor::new(magic).chain(raw);
        let inner: Box<dyn Read + Send> = if gzip {
            Box::new(flate2::read::MultiGzDecoder::new(all))
        } else if zstd {
            Box::new(zstd::stream::read::Decoder::new(all).map_err(io)?)
        } else {
            Box::new(all)
        };
        Ok(Input {
            path: path.to_owned(),
            inner: Box::new(text::Utf8::new(inner)),
            consumed,
            buf: Vec::new(),
            from: 0,
            to: 0,
            offset: 0,
            lines: 0,
            ended: false,
            changed: gzip || zstd || marked,
            plain: None,
            line: 0..0,
            invalid: Invalid::default(),
            skipped: Skipped::default(),
        })
    }

    /// With `strict`, the first invalid line of a recording of requests or calls is an error. Otherwise up to 5 invalid
    /// lines are skipped, and in recordings of over 500 lines up to 1 % of those read so far; they are counted. (An
    /// invalid line of a meter's recording is always an error: energy would be missing.)
    #[must_use]
    pub fn strict(mut self, strict: bool) -> Self {
        self.invalid = if strict { Invalid::Refused } else { Invalid::Skipped };
        self
    }

    /// Skips all invalid lines.
    pub(crate) fn trial(mut self) -> Self {
        self.invalid = Invalid::Tried;
        self
    }

    /// Skips the line taken last, which is invalid, and counts it in `others`. An error if the recording is read
    /// strictly, or if too many lines are invalid.
    pub(crate) fn skip_line(
        &mut self,
        format: Format,
        what: impl Into<String>,
        others: &mut OtherCounts,
    ) -> Result<(), TraceError> {
        let what = what.into();
        if self.invalid == Invalid::Refused {
            return Err(self.damaged(format, self.at_line(), what));
        }
        let text = self.buf.get(self.line.clone()).unwrap_or_default();
        let skipped = &mut self.skipped;
        skipped.count += 1;
        if skipped.name.is_empty() {
            let end = if text.len() > SHOWN { "…" } else { "" };
            let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]);
            skipped.name = format!("{INVALID}, the first is line {}, {text:?}{end}: {what}", self.lines);
        }
        if skipped.first.len() < NAMED {
            skipped.first.push((self.lines, what));
        }
        count_many(others, &skipped.name, 1);
        if self.invalid == Invalid::Skipped && skipped.count > FEW.max(self.lines / 100) {
            return Err(self.too_many(format));
        }
        Ok(())
    }

    /// An error that names the first invalid lines.
    fn too_many(&self, format: Format) -> TraceError {
        let Skipped { count, first, .. } = &self.skipped;
        let mut named = first.iter().map(|(line, what)| format!("line {line}: {what}"));
        let (at, what) = (first.first().map_or(self.lines, |(line, _)| *line), named.next().unwrap_or_default());
        let further: String = named.map(|text| format!("; {text}")).collect();
        let what = format!("{what}{further}; {count} of the first {} lines are invalid", self.lines);
        self.damaged(format, At::Line(at), what)
    }

    /// The recording from its beginning, for formats that need random access: the file itself, or a copy of compressed
    /// or piped input, in memory or, above 16 MiB, in a temporary file.
    pub(crate) fn anywhere(mut self) -> Result<Box<dyn Anywhere>, TraceError> {
        assert_eq!(self.offset, 0, "not at its beginning");
        let path = std::mem::take(&mut self.path);
        let io = |source| TraceError::Io { path: path.clone(), source };
        if let Some(mut file) = self.plain {
            file.rewind().map_err(io)?;
            return Ok(Box::new(file));
        }
        let mut copy = tempfile::spooled_tempfile(LONGEST);
        io::copy(&mut (&self.buf[self.from..self.to]).chain(self.inner), &mut copy).map_err(io)?;
        copy.rewind().map_err(io)?;
        Ok(Box::new(copy))
    }

    /// The recordings one after the other, as one. Nothing may have been read of them.
    pub(crate) fn chain(inputs: Vec<Input>) -> Result<Self, TraceError> {
        let path = inputs.first().map(|first| first.path.clone()).unwrap_or_default();
        let empty: Box<dyn Read + Send> = Box::new(io::empty());
        let all = inputs.into_iter().fold(empty, |all, input| Box::new(all.chain(input.inner)));
        Self::new(&path, all)
    }

    /// Its name in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file read so far.
    pub fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Relaxed)
    }

    /// A counter that works after the input has been moved.
    pub(crate) fn consumption(&self) -> Consumption {
        Consumption(self.consumed.clone())
    }

    /// Offset of the next byte, after decompression.
    pub fn at_byte(&self) -> At {
        At::Byte(self.offset)
    }

    /// The last line taken.
    pub fn at_line(&self) -> At {
        At::Line(self.lines)
    }

    /// Reads once more, after making room.
    fn more(&mut self) -> Result<(), TraceError> {
        if self.from > 0 {
            self.buf.copy_within(self.from..self.to, 0);
            self.to -= self.from;
            self.from = 0;
        }
        if self.buf.len() - self.to < STEP / 2 {
            self.buf.resize(self.to + STEP, 0);
        }
        loop {
            match self.inner.read(&mut self.buf[self.to..]) {
                Ok(0) => self.ended = true,
                Ok(got) => self.to += got,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => {
                    // For a broken compressed stream, the offset in its decompressed contents.
                    let at = self.offset + (self.to - self.from) as u64;
                    let source = match e.kind() {
                        io::ErrorKind::InvalidData
                        | io::ErrorKind::UnexpectedEof
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::Other => io::Error::new(e.kind(), format!("byte {at}, unpacked: {e}")),
                        _ => e,
                    };
                    return Err(TraceError::Io { path: self.path.clone(), source });
                }
            }
            return Ok(());
        }
    }

    /// The next `n` bytes, or fewer at the end.
    pub fn peek(&mut self, n: usize) -> Result<&[u8], TraceError> {
        while self.to - self.from < n && !self.ended {
            self.more()?;
        }
        Ok(&self.buf[self.from..self.to.min(self.from.saturating_add(n))])
    }

    /// Advances by `n` bytes, which must have been [peeked](Self::peek).
    ///
    /// # Panics
    /// If they were not.
    pub fn take(&mut self, n: usize) {
        assert!(n <= self.to - self.from, "taken without a look");
        self.from += n;
        self.offset += n as u64;
    }

    /// Skips `n` bytes; returns how many there were.
    pub fn skip(&mut self, n: u64) -> Result<u64, TraceError> {
        let mut left = n;
        while left > 0 {
            let step = self.peek(usize::try_from(left).unwrap_or(STEP).min(STEP))?.len();
            if step == 0 {
                break;
            }
            self.take(step);
            left -= step as u64;
        }
        Ok(n - left)
    }

    /// The next line without its line end (LF or CRLF); `None` at the end. A last line without a line end is returned
    /// too; [`ended_without_newline`](Self::ended_without_newline) detects it.
    pub fn line(&mut self, format: Format) -> Result<Option<&[u8]>, TraceError> {
        let mut looked = 0;
        let length = loop {
            if let Some(at) = memchr::memchr(b'\n', &self.buf[self.from + looked..self.to]) {
                break looked + at;
            }
            looked = self.to - self.from;
            if self.ended {
                if looked == 0 {
                    // Mostly invalid lines: too few to reach the limit, too many to be read.
                    if self.invalid == Invalid::Skipped && self.skipped.count > self.lines / 2 {
                        let error = self.too_many(format);
                        self.skipped = Skipped::default();
                        return Err(error);
                    }
                    return Ok(None);
                }
                break looked;
            }
            if looked > LONGEST {
                self.lines += 1;
                return Err(self.damaged(format, self.at_line(), format!("a line of over {LONGEST} bytes")));
            }
            self.more()?;
        };
        let start = self.from;
        self.take((length + 1).min(self.to - self.from));
        self.lines += 1;
        let line = &self.buf[start..start + length];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.line = start..start + line.len();
        Ok(Some(line))
    }

    /// True if everything was taken and the last byte was not a line end.
    pub fn ended_without_newline(&self) -> bool {
        self.ended && self.from == self.to && self.from > 0 && self.buf[self.from - 1] != b'\n'
    }

    /// An error at this place.
    pub fn damaged(&self, format: Format, at: At, what: impl Into<String>) -> TraceError {
        TraceError::Damaged { path: self.path.clone(), format, at, what: what.into() }
    }

    /// An error: the recording ends within the record that begins here.
    pub fn cut_short(&self, format: Format, at: At) -> TraceError {
        TraceError::CutShort { path: self.path.clone(), format, at }
    }

    /// An error: valid, but not supported.
    pub fn unsupported(&self, format: Format, at: At, what: impl Into<String>) -> TraceError {
        TraceError::Unsupported { path: self.path.clone(), format, at, what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn input(bytes: &[u8]) -> Input {
        Input::new(Path::new("t"), io::Cursor::new(bytes.to_vec())).unwrap()
    }

    fn lines(mut input: Input) -> Vec<String> {
        let mut out = Vec::new();
        while let Some(line) = input.line(Format::MsrCsv).unwrap() {
            out.push(String::from_utf8(line.to_vec()).unwrap());
        }
        out
    }

    fn text(n: usize) -> String {
        (0..n).map(|k| format!("line {k} {}\n", "x".repeat(k % 3000))).collect()
    }

    #[test]
    fn lines_come_whole_whatever_their_length_and_their_last_end() {
        let text = text(1000);
        let expected: Vec<&str> = text.lines().collect();
        assert_eq!(lines(input(text.as_bytes())), expected);
        assert_eq!(lines(input(text.trim_end().as_bytes())), expected);
        assert_eq!(lines(input(text.replace('\n', "\r\n").as_bytes())), expected);
        assert!(lines(input(b"")).is_empty());
        assert_eq!(lines(input(b"\n\na")), ["", "", "a"]);
        let long = "y".repeat(3 * STEP);
        assert_eq!(lines(input(long.as_bytes())), [long]);
    }

    #[test]
    fn compressed_streams_one_after_the_other_are_one_recording() {
        let (a, b) = (text(700), text(300));
        let gzip = |t: &str| {
            let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            e.write_all(t.as_bytes()).unwrap();
            e.finish().unwrap()
        };
        let zstd = |t: &str| zstd::stream::encode_all(t.as_bytes(), 1).unwrap();
        let both = format!("{a}{b}");
        let expected: Vec<&str> = both.lines().collect();
        assert_eq!(lines(input(&[gzip(&a), gzip(&b)].concat())), expected);
        assert_eq!(lines(input(&[zstd(&a), zstd(&b)].concat())), expected);
    }

    #[test]
    fn a_compressed_stream_that_ends_early_is_an_error_and_not_an_end() {
        for whole in [
            {
                let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                e.write_all(text(500).as_bytes()).unwrap();
                e.finish().unwrap()
            },
            zstd::stream::encode_all(text(500).as_bytes(), 1).unwrap(),
        ] {
            let mut input = input(&whole[..whole.len() / 2]);
            let end = loop {
                match input.line(Format::MsrCsv) {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("a cut stream ended well"),
                    Err(e) => break e,
                }
            };
            assert!(matches!(end, TraceError::Io { .. }), "{end}");
        }
    }

    #[test]
    fn bytes_are_at_the_reported_offsets() {
        let mut input = input(&(0..=255).cycle().take(1_000_000).collect::<Vec<u8>>());
        assert_eq!(input.peek(3).unwrap(), [0, 1, 2]);
        Input::take(&mut input, 2);
        assert_eq!(input.at_byte(), At::Byte(2));
        assert_eq!(input.skip(700_000).unwrap(), 700_000);
        assert_eq!(input.peek(1).unwrap(), [(700_002 % 256) as u8]);
        assert_eq!(input.peek(usize::MAX).unwrap().len(), 1_000_000 - 700_002);
        assert_eq!(input.skip(u64::MAX).unwrap(), 1_000_000 - 700_002);
        assert!(input.peek(1).unwrap().is_empty());
    }

    #[test]
    fn a_line_without_end_is_refused_before_it_fills_memory() {
        struct Endless;
        impl Read for Endless {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                buf.fill(b'a');
                Ok(buf.len())
            }
        }
        let mut input = Input::new(Path::new("t"), Endless).unwrap();
        let e = input.line(Format::MsrCsv).unwrap_err();
        assert!(matches!(e, TraceError::Damaged { at: At::Line(1), .. }), "{e}");
    }
}
