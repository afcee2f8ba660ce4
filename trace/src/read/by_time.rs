//! How are lines sorted by time?
//!
//! If they do not fit into memory, parts are sorted and stored in a temporary file, then merged. Lines with equal times
//! keep their order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

/// Most bytes of lines, and most lines, held in memory.
const MOST: usize = 16 << 20;
const LINES: usize = 1 << 19;
/// Parts merged at once, and bytes read of one at a time.
const PARTS: usize = 128;
const STEP: usize = 64 << 10;
/// Size of a line's time and length.
const HEAD: usize = 12;

/// Collects the lines.
pub(super) struct Gathered {
    /// Most bytes held, and most parts merged at once.
    most: usize,
    most_parts: usize,
    text: Vec<u8>,
    /// Times, and positions of the lines in `text`.
    order: Vec<(u64, usize, usize)>,
    parts: Vec<Part>,
    file: Option<File>,
}

impl Default for Gathered {
    fn default() -> Self {
        Gathered::with_limits(MOST, PARTS)
    }
}

/// Sorted lines in the temporary file.
struct Part {
    from: u64,
    to: u64,
}

impl Gathered {
    fn with_limits(most: usize, most_parts: usize) -> Self {
        Gathered { most, most_parts, text: Vec::new(), order: Vec::new(), parts: Vec::new(), file: None }
    }

    pub(super) fn push(&mut self, time: u64, line: &[u8]) -> io::Result<()> {
        let from = self.text.len();
        self.text.extend_from_slice(line);
        self.order.push((time, from, self.text.len()));
        if self.text.len() >= self.most || self.order.len() >= LINES {
            self.spill()?;
            if self.parts.len() == self.most_parts {
                self.merge()?;
            }
        }
        Ok(())
    }

    /// Writes the held lines to the file, as a sorted part.
    fn spill(&mut self) -> io::Result<()> {
        self.order.sort_by_key(|(time, ..)| *time);
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile()?),
        };
        let from = file.seek(SeekFrom::End(0))?;
        let mut out = BufWriter::with_capacity(STEP, file);
        let mut to = from;
        for (time, from, until) in self.order.drain(..) {
            to += write_line(&mut out, time, &self.text[from..until])?;
        }
        out.flush()?;
        self.text.clear();
        self.parts.push(Part { from, to });
        Ok(())
    }

    /// Merges all parts into one, in a new file.
    fn merge(&mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else { return Ok(()) };
        let mut merged = Merged::new(file, std::mem::take(&mut self.parts))?;
        let mut out = BufWriter::with_capacity(STEP, tempfile::tempfile()?);
        let (mut to, mut line) = (0, Vec::new());
        while let Some(time) = merged.next(&mut line)? {
            to += write_line(&mut out, time, &line)?;
        }
        self.file = Some(out.into_inner().map_err(io::IntoInnerError::into_error)?);
        self.parts = vec![Part { from: 0, to }];
        Ok(())
    }

    /// Ends the input and returns the sorted lines.
    pub(super) fn in_order(mut self) -> io::Result<InOrder> {
        if self.file.is_some() {
            self.spill()?;
        }
        match self.file {
            Some(file) => Ok(InOrder::Merged(Merged::new(file, self.parts)?)),
            None => {
                self.order.sort_by_key(|(time, ..)| *time);
                Ok(InOrder::Held { text: self.text, order: self.order.into_iter() })
            }
        }
    }
}

fn write_line(out: &mut impl Write, time: u64, line: &[u8]) -> io::Result<u64> {
    let length = u32::try_from(line.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    out.write_all(&time.to_le_bytes())?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(line)?;
    Ok((HEAD + line.len()) as u64)
}

/// Lines in order of time.
pub(super) enum InOrder {
    Held { text: Vec<u8>, order: std::vec::IntoIter<(u64, usize, usize)> },
    Merged(Merged),
}

impl InOrder {
    /// No lines.
    pub(super) fn none() -> Self {
        InOrder::Held { text: Vec::new(), order: Vec::new().into_iter() }
    }

    /// Reads the next line into `out`; returns its time.
    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> io::Result<Option<u64>> {
        match self {
            InOrder::Merged(merged) => merged.next(out),
            InOrder::Held { text, order } => Ok(order.next().map(|(time, from, to)| {
                out.clear();
                out.extend_from_slice(&text[from..to]);
                time
            })),
        }
    }
}

/// Parts being merged.
pub(super) struct Merged {
    file: File,
    parts: Vec<Reading>,
    /// Time of each part's next line, and its index.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

/// A part being read.
struct Reading {
    part: Part,
    held: Vec<u8>,
    at: usize,
}

impl Reading {
    /// Makes sure that this many bytes are held; false at the end.
    fn hold(&mut self, bytes: usize, file: &mut File) -> io::Result<bool> {
        if self.held.len() - self.at < bytes {
            self.held.drain(..std::mem::take(&mut self.at));
            let there = self.held.len();
            let more = bytes.max(STEP).saturating_sub(there) as u64;
            let more = more.min(self.part.to - self.part.from);
            file.seek(SeekFrom::Start(self.part.from))?;
            self.held.resize(there + more as usize, 0);
            file.read_exact(&mut self.held[there..])?;
            self.part.from += more;
        }
        Ok(self.held.len() - self.at >= bytes)
    }

    /// The next line's time and length.
    fn head(&mut self, file: &mut File) -> io::Result<Option<(u64, usize)>> {
        if !self.hold(HEAD, file)? {
            return Ok(None);
        }
        let head = &self.held[self.at..];
        let (Some(time), Some(length)) = (head.first_chunk(), head[8..].first_chunk()) else { return Ok(None) };
        Ok(Some((u64::from_le_bytes(*time), u32::from_le_bytes(*length) as usize)))
    }
}

impl Merged {
    fn new(file: File, parts: Vec<Part>) -> io::Result<Self> {
        let parts = parts.into_iter().map(|part| Reading { part, held: Vec::new(), at: 0 }).collect();
        let mut merged = Merged { file, parts, next: BinaryHeap::new() };
        for (n, part) in merged.parts.iter_mut().enumerate() {
            merged.next.extend(part.head(&mut merged.file)?.map(|(time, _)| Reverse((time, n))));
        }
        Ok(merged)
    }

    fn next(&mut self, out: &mut Vec<u8>) -> io::Result<Option<u64>> {
        let Some(Reverse((time, n))) = self.next.pop() else { return Ok(None) };
        let (part, file) = (&mut self.parts[n], &mut self.file);
        out.clear();
        if let Some((_, length)) = part.head(file)? {
            part.hold(HEAD + length, file)?;
            out.extend_from_slice(&part.held[part.at + HEAD..][..length]);
            part.at += HEAD + length;
        }
        self.next.extend(part.head(file)?.map(|(time, _)| Reverse((time, n))));
        Ok(Some(time))
    }
}

#[cfg(test)]
mod tests {
    use device::Rng;

    use super::*;

    #[test]
    fn lines_come_in_order_of_time_and_those_of_one_moment_in_their_own() {
        // In memory; in parts; in more parts than are merged at once; with lines longer than a read.
        for (count, most, longest, parts) in
            [(1000, 1 << 20, 9, 0), (2000, 5000, 9, 4), (20_000, 3000, 99, 400), (500, 70_000, STEP + 99, 200)]
        {
            let mut rng = Rng::new(count);
            let mut gathered = Gathered::with_limits(most, 7);
            let (mut expected, mut merged) = (Vec::new(), 0);
            for n in 0..count {
                let (time, length) = (rng.below(count / 3), rng.below(longest as u64) as usize);
                let line = format!("{n} {}", "x".repeat(length));
                let before = gathered.parts.len();
                gathered.push(time, line.as_bytes()).unwrap();
                assert!(gathered.text.len() < most && gathered.parts.len() < 7);
                merged += u32::from(gathered.parts.len() < before);
                expected.push((time, line));
            }
            assert_eq!((gathered.file.is_some(), merged > 1), (parts > 0, parts > 7), "{count} lines");
            expected.sort_by_key(|e| e.0);
            let mut lines = gathered.in_order().unwrap();
            let (mut out, mut all) = (Vec::new(), Vec::new());
            while let Some(time) = lines.next(&mut out).unwrap() {
                all.push((time, String::from_utf8(out.clone()).unwrap()));
            }
            assert!(all == expected, "{count} lines");
        }
    }
}
