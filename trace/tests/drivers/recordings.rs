//! How are long recordings made from short ones? By repeating them, each time later.
//!
//! They are generated while they are read, so their length does not matter. The copies have the same requests; tests
//! that need many different ones generate text.

use std::io::{self, Read};

/// Bytes generated piece by piece.
struct Made<F> {
    next: F,
    piece: Vec<u8>,
    at: usize,
}

impl<F: FnMut(&mut Vec<u8>) -> bool> Read for Made<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            self.at = 0;
            self.piece.clear();
            if !(self.next)(&mut self.piece) {
                return Ok(0);
            }
        }
        let n = buf.len().min(self.piece.len() - self.at);
        buf[..n].copy_from_slice(&self.piece[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

/// Reads what `next` puts into its buffer, piece by piece, until it returns false.
pub fn generated(next: impl FnMut(&mut Vec<u8>) -> bool + Send) -> impl Read + Send {
    Made { next, piece: Vec::new(), at: 0 }
}

fn varint(bytes: &[u8]) -> (u64, &[u8]) {
    let length = bytes.iter().position(|b| *b < 0x80).map_or(bytes.len(), |at| at + 1);
    let n = bytes[..length].iter().rev().fold(0, |n, b| n << 7 | u64::from(b & 0x7f));
    (n, &bytes[length..])
}

fn put_varint(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Copies a message of a Perfetto trace and adds `later` to the times of kernel events, which are at `path` in it.
fn perfetto_later(message: &[u8], path: &[u64], later: u64, out: &mut Vec<u8>) {
    let mut rest = message;
    while !rest.is_empty() {
        let (tag, after) = varint(rest);
        let (n, behind) = varint(after);
        let wanted = path.first() == Some(&(tag >> 3));
        let (plain, behind) = match tag & 7 {
            0 if wanted => {
                put_varint(tag, out);
                put_varint(n + later, out);
                (false, behind)
            }
            0 => (true, behind),
            1 => (true, &after[8..]),
            2 if wanted => {
                let mut inner = Vec::new();
                perfetto_later(&behind[..n as usize], &path[1..], later, &mut inner);
                put_varint(tag, out);
                put_varint(inner.len() as u64, out);
                out.extend(inner);
                (false, &behind[n as usize..])
            }
            2 => (true, &behind[n as usize..]),
            _ => (true, &after[4..]),
        };
        if plain {
            out.extend_from_slice(&rest[..rest.len() - behind.len()]);
        }
        rest = behind;
    }
}

/// A Perfetto trace repeated `copies` times, `span` nanoseconds apart.
pub fn perfetto(once: Vec<u8>, copies: u64, span: u64) -> impl Read + Send {
    let mut copy = 0..copies;
    generated(move |out| match copy.next() {
        Some(n) => {
            // Trace.packet, TracePacket.ftrace_events, FtraceEventBundle.event, FtraceEvent.timestamp.
            perfetto_later(&once, &[1, 1, 2, 1], n * span, out);
            true
        }
        None => false,
    })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// A little-endian trace.dat of version 6, with every CPU's pages repeated `copies` times, `span` nanoseconds apart.
///
/// # Panics
/// If it is something else.
pub fn trace_dat(once: Vec<u8>, copies: u64, span: u64) -> impl Read + Send {
    let place = |what: &[u8]| once.windows(what.len()).position(|w| w == what).expect("a trace.dat of version 6");
    assert!(once.starts_with(b"\x17\x08Dtracing6\0\0"), "not of version 6, or not with low bytes first");
    let page = u64::from(once[14]) | u64::from(once[15]) << 8;
    let processors = usize::from(once[place(b"options  \0") - 4]);
    let table = place(b"flyrecord\0") + 10;
    let begin = (table + 16 * processors).next_multiple_of(page as usize) as u64;
    let mut head = once[..table].to_vec();
    let (mut stretches, mut at) = (Vec::new(), begin);
    for processor in 0..processors {
        let (from, length) = (u64_at(&once, table + 16 * processor), u64_at(&once, table + 16 * processor + 8));
        head.extend(at.to_le_bytes());
        head.extend((length * copies).to_le_bytes());
        at += length * copies;
        stretches.push(once[from as usize..][..length as usize].to_vec());
    }
    head.resize(begin as usize, 0);
    let mut head = Some(head);
    let mut steps = stretches.into_iter().flat_map(move |pages| (0..copies).map(move |n| (pages.clone(), n)));
    generated(move |out| {
        if let Some(head) = head.take() {
            *out = head;
            return true;
        }
        let Some((pages, n)) = steps.next() else { return false };
        for one in pages.chunks(page as usize) {
            out.extend((u64_at(one, 0) + n * span).to_le_bytes());
            out.extend_from_slice(&one[8..]);
        }
        true
    })
}

/// Little-endian blktrace records of version 7, repeated `copies` times, `span` nanoseconds apart.
pub fn blktrace(once: Vec<u8>, copies: u64, span: u64) -> impl Read + Send {
    let mut copy = 0..copies;
    generated(move |out| {
        let Some(n) = copy.next() else { return false };
        let mut rest = &once[..];
        // Magic, number, time at 8; at 46 the length of the data after the 48 bytes.
        while let Some((record, after)) = rest.split_at_checked(48) {
            let behind = usize::from(record[46]) | usize::from(record[47]) << 8;
            out.extend_from_slice(&record[..8]);
            out.extend((u64_at(record, 8) + n * span).to_le_bytes());
            out.extend_from_slice(&record[16..]);
            out.extend_from_slice(&after[..behind]);
            rest = &after[behind..];
        }
        true
    })
}
