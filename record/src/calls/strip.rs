//! How does a recording lose its contents, so that it can be given away?

use std::io::{self, Write};

use super::call::{Call, Contents};
use super::event::{Event, Events};
use super::recorder::{meaningless, subject};
use crate::{Kind, RecordError, Writer};

/// Why a recording without contents was not made.
#[derive(Debug, thiserror::Error)]
pub enum StripError {
    /// The recording, up to the damage, was written.
    #[error(transparent)]
    Recording(#[from] RecordError),
    /// The new one cannot be written.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Writes to `out` the calls of a recording as if contents had not been asked for: of what is written length and checksum, of
/// what was there before nothing. Returns how many calls there are.
///
/// # Errors
/// Damage, after the calls before it were written and the end was: it is the caller who knows whether half is enough.
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
            event.put(bytes, &mut before);
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
        *contents = Contents::of(bytes);
    }
}
