//! What do applications do to files other than databases?
//!
//! Temporary files with small changes, key-value stores that append and update a count in their header, preferences
//! that are rewritten and renamed, text logs, and media that are written once (the kinds in MedFS FAST'25, section 3).

use device::Rng;

use super::tape::Tape;
use super::text::Writer;

/// Writes whole blocks of random bytes in pieces, like a download.
fn noise(tape: &Tape, file: usize, bytes: usize, rng: &mut Rng) {
    let mut piece = vec![0; 64 << 10];
    for at in (0..bytes).step_by(piece.len()) {
        let n = piece.len().min(bytes - at);
        rng.fill(&mut piece[..n]);
        tape.put(file, at as u64, &piece[..n]);
    }
}

/// A picture or sound: written once, seldom synced.
pub fn media(tape: &Tape, number: u64, kib: u64, rng: &mut Rng) {
    let file = tape.open(&format!("cache-{number}.media"));
    noise(tape, file, (kib << 10) as usize + rng.index(4096), rng);
    if rng.chance(1, 4) {
        tape.durable(file);
    }
}

/// An editor's intermediate state: a temporary file, a few places of which change at each step.
pub fn temporary(tape: &Tape, number: u64, kib: u64, steps: u64, rng: &mut Rng) {
    let name = format!("todelete_{number}");
    let file = tape.open(&name);
    // Pixels: neighbours are similar.
    let mut pixels = vec![0; (kib << 10) as usize];
    pixels.chunks_mut(64).for_each(|c| rng.fill(&mut c[..22]));
    tape.put(file, 0, &pixels);
    tape.durable(file);
    for _ in 0..steps {
        for _ in 0..8 {
            let mut change = vec![0; 20 + rng.index(160)];
            rng.fill(&mut change);
            let at = rng.below((kib << 10) - change.len() as u64);
            tape.put(file, at, &change);
        }
        tape.durable(file);
    }
    tape.remove(&name);
}

/// Preferences: all are written to a new file that replaces the old one.
pub fn preferences(tape: &Tape, entries: u64, writer: &Writer, rng: &mut Rng) {
    let mut text = String::from("<?xml version='1.0' encoding='utf-8' standalone='yes' ?>\n<map>\n");
    for n in 0..entries {
        text += &format!("    <string name=\"{}_{n}\">{}</string>\n", writer.word(rng), writer.words(rng, 4));
    }
    text += "</map>\n";
    let file = tape.open("preferences.xml.new");
    tape.put(file, 0, text.as_bytes());
    tape.durable(file);
    tape.rename("preferences.xml.new", "preferences.xml");
}

/// Appends a line to a text log.
pub fn line(tape: &Tape, writer: &Writer, rng: &mut Rng) {
    let file = tape.open("events.log");
    let text = format!("{} I {}: {}\n", 1_700_000_000 + rng.below(1 << 20), writer.word(rng), writer.words(rng, 9));
    let end = tape.contents(file).len() as u64;
    tape.put(file, end, text.as_bytes());
    tape.durable(file);
}

/// A state file that is always rewritten whole although only a few values on each page change.
pub fn state(tape: &Tape, kib: u64, changes: usize, rng: &mut Rng) {
    let file = tape.open("state.dat");
    let mut contents = tape.contents(file);
    if contents.is_empty() {
        contents = vec![0; (kib << 10) as usize];
        // Values separated by zeroes.
        contents.chunks_mut(16).for_each(|c| rng.fill(&mut c[..10]));
    }
    for page in contents.chunks_mut(4096) {
        for _ in 0..changes {
            let at = rng.index(page.len() - 24);
            rng.fill(&mut page[at..at + 24]);
        }
    }
    tape.put(file, 0, &contents);
    tape.durable(file);
}

/// A key-value store: appends each new value, updates the count in its header, and is rewritten when full.
pub fn store(tape: &Tape, kib: u64, writer: &Writer, rng: &mut Rng) {
    let file = tape.open("values.store");
    let contents = tape.contents(file);
    let size = (kib << 10) as usize;
    let used = contents.get(..4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    let value = format!("{}={};", writer.word(rng), writer.words(rng, 5));
    let mut used = used.max(16);
    if contents.len() < size {
        tape.put(file, 0, &vec![0; size]);
    } else if used + value.len() > size {
        // Valid values fill a third.
        let kept = (0..size / 3).step_by(64).map(|_| format!("{}={};", writer.word(rng), writer.words(rng, 9)));
        let mut kept: Vec<u8> = kept.collect::<String>().into_bytes();
        kept.truncate(size / 3);
        used = 16 + kept.len();
        kept.resize(size - 16, 0);
        tape.put(file, 16, &kept);
    }
    tape.put(file, used as u64, value.as_bytes());
    let mut header = ((used + value.len()) as u32).to_le_bytes().to_vec();
    header.extend_from_slice(&(rng.next_u64() as u32).to_le_bytes());
    tape.put(file, 0, &header);
    tape.durable(file);
}
