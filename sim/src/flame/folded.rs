//! Folded stacks, as flamegraph.pl, inferno and difffolded.pl read them: a line a stack, frames parted by `;`, behind a space
//! the picojoules.
//!
//! These programs take the number behind the last space, and flamegraph.pl takes a number before it for one of an earlier
//! run. No innermost frame ends with a number, so neither mistakes a name for one.

use std::io::{self, Write};

use super::Flame;

/// Writes it, in order of stacks.
///
/// # Errors
/// Those of `out`.
pub fn write(flame: &Flame, out: &mut dyn Write) -> io::Result<()> {
    for (frames, energy) in flame.stacks() {
        writeln!(out, "{} {}", frames.join(";"), energy.0)?;
    }
    Ok(())
}
