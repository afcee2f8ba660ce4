//! How are contents removed from a recording, so that it can be shared?

use std::io::{self, Write};

use super::call::{Call, Contents};
use super::event::{Event, Events};
use super::recorder::{meaningless, subject};
use crate::{Kind, RecordError, Writer};

/// Why a recording could not be stripped.
#[derive(Debug, thiserror::Error)]
pub enum StripError {
    /// The input is damaged; the calls before the damage were written.
    #[error(transparent)]
    Recording(#[from] RecordError),
    /// The output cannot be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Writes the calls of a recording to `out` as if recorded without contents: only length and checksum of written data,
/// and no state from before. Returns the number of calls.
///
/// # Errors
/// Damage in the input: `out` then has the calls before it, and is complete; the caller decides whether that is enough.
pub fn without_contents(events: Events, out: impl Write + Send + 'static) -> Result<u64, StripError> {
    let mut writer = Writer::new(Box::new(out), Kind::Calls, &subject(events.root(), events.bytes()))?;
    let (mut before, mut damage) = (0, None);
    for event in events {
        let mut event = match event {
            Ok(event) => event,
            Err(e) => {
                damage = Some(e);
                break;
            }
        };
        if event.call.is_of_before() {
            continue;
        }
        strip(&mut event);
        writer.add(|bytes, first| {
            if first {
                before = 0;
            }
            event.encode(bytes, &mut before);
        });
    }
    writer.finish()?;
    match damage {
        Some(e) => Err(e.into()),
        None => Ok(writer.records()),
    }
}

fn strip(event: &mut Event) {
    let contents = match &mut event.call {
        Call::Write { contents, .. } => contents,
        Call::Setxattr { name, value, .. } if meaningless(name) => value,
        _ => return,
    };
    if let Contents::Given(bytes) = contents {
        *contents = Contents::fingerprint(bytes);
    }
}
