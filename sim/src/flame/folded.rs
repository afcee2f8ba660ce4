//! How is a flame graph written as folded stacks, for flamegraph.pl, inferno and difffolded.pl? One line per stack:
//! frames separated by `;`, then a space and the picojoules.
//!
//! These programs parse the number after the last space, and flamegraph.pl takes a number before it as that of an
//! earlier run. No innermost frame ends with a number, so no name is mistaken for one.

use std::io::{self, Write};

use super::Flame;

/// Writes the stacks in order.
///
/// # Errors
/// Errors of `out`.
pub fn write(flame: &Flame, out: &mut dyn Write) -> io::Result<()> {
    for (frames, energy) in flame.stacks() {
        writeln!(out, "{} {}", frames.join(";"), energy.0)?;
    }
    Ok(())
}
