//! What a fuzzer calls, too: any bytes read as a recording.

use std::io::Cursor;

use record::{Kind, Reader, blocks, calls};

/// Reads any bytes to their end or first error, which must name a place inside them, and replays what is whole.
pub fn recordings(bytes: &[u8]) {
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
