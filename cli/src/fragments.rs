//! How the pieces of free space are shown.

use serde_json::{Value, json};
use vfs::{FreeFragments, LEVELS};

use crate::output;

/// For machines: pieces and bytes, L1 first.
pub fn json(free: &FreeFragments) -> Value {
    json!({
        "count": free.count,
        "bytes": free.blocks.map(|b| b * 4096),
        "total": free.total(),
        "small": free.small().0,
        "small_bytes": free.small().1 * 4096,
    })
}

/// What level `n` holds: pieces up to so many bytes.
fn upto(level: usize) -> String {
    match 4096u64 << level {
        _ if level == LEVELS - 1 => "above".to_owned(),
        bytes => output::bytes(bytes),
    }
}

/// For people: a row for each level.
pub fn table(free: &FreeFragments) -> Vec<String> {
    (0..LEVELS)
        .map(|n| {
            let bytes = output::bytes(free.blocks[n] * 4096);
            format!("  {} {:>9}   {:>10} pieces   {bytes:>12}", FreeFragments::name(n), upto(n), free.count[n])
        })
        .collect()
}

/// For people: the pieces of several states, a column each.
pub fn side_by_side(states: &[(&str, FreeFragments)]) -> Vec<String> {
    let row = |head: &str, cells: &mut dyn Iterator<Item = String>| {
        cells.fold(format!("  {head:<14}"), |line, cell| format!("{line} {cell:>16}"))
    };
    let mut out = vec![row("", &mut states.iter().map(|(name, _)| (*name).to_owned()))];
    for n in 0..LEVELS {
        let head = format!("{} {:>10}", FreeFragments::name(n), upto(n));
        out.push(row(&head, &mut states.iter().map(|(_, f)| f.count[n].to_string())));
    }
    out.push(row("all", &mut states.iter().map(|(_, f)| f.total().to_string())));
    out
}
