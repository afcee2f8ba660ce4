//! Code shared with a fuzzer: reads any bytes as a recording.

use std::io::Cursor;

use record::{Kind, Reader, blocks, calls};

/// Reads the bytes to their end or first error, whose offset must be inside them; then again with valid checksums, so
/// that decoding is reached.
pub fn recordings(bytes: &[u8]) {
    read(bytes);
    read(&sealed(bytes.to_vec()));
}

fn read(bytes: &[u8]) {
    let open = || Reader::new(Cursor::new(bytes.to_vec()));
    let place = |error: record::RecordError| {
        use record::RecordError::{CutShort, Damaged};
        if let Damaged { at, .. } | CutShort { at, .. } = error {
            assert!(at <= bytes.len() as u64, "{error}");
        }
    };
    let reader = match open() {
        Ok(reader) => reader,
        Err(error) => return place(error),
    };
    match reader.kind() {
        Kind::Blocks => match blocks::Events::new(reader) {
            Ok(events) => {
                for event in events {
                    if let Err(error) = event {
                        place(error);
                    }
                }
            }
            Err(error) => place(error),
        },
        Kind::Calls => match calls::Events::new(reader) {
            Ok(events) => {
                for event in events {
                    if let Err(error) = event {
                        place(error);
                    }
                }
            }
            Err(error) => place(error),
        },
    }
}

/// Fixes the checksums, so that decoding is reached, as a hostile writer could.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() < 16 {
        return bytes;
    }
    let subject = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    let mut at = 16 + subject;
    if at + 4 > bytes.len() {
        return bytes;
    }
    let crc = crc32fast::hash(&bytes[..at]);
    bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    at += 4;
    while at + 20 <= bytes.len() {
        let length = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize;
        let Some(end) = (at + 20).checked_add(length).filter(|end| *end <= bytes.len()) else { break };
        let mut crc = crc32fast::Hasher::new();
        crc.update(&bytes[at..at + 16]);
        crc.update(&bytes[at + 20..end]);
        let crc = crc.finalize();
        bytes[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
    bytes
}
