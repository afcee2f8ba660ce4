//! How free-space fragments are shown.

use serde_json::{Value, json};
use vfs::{FreeFragments, LEVELS};

use crate::output;
use crate::table::{self, Table};

/// For machines: fragments and bytes, L1 first.
pub fn json(free: &FreeFragments) -> Value {
    json!({
        "count": free.count,
        "bytes": free.blocks.map(|b| b * 4096),
        "total": free.total(),
        "small": free.small().0,
        "small_bytes": free.small().1 * 4096,
    })
}

/// The size limit of level `n`.
fn upto(level: usize) -> String {
    match 4096u64 << level {
        _ if level == LEVELS - 1 => "above".to_owned(),
        bytes => output::bytes(bytes),
    }
}

/// For people: a row for each level.
pub fn table(free: &FreeFragments) -> String {
    let columns =
        [table::word(""), table::number("").least(8), table::number("").least(18), table::number("").least(13)];
    let mut table = Table::new(columns);
    for n in 0..LEVELS {
        let pieces = format!("{} pieces", free.count[n]);
        table.row(&[
            &format!("  {}", FreeFragments::name(n)),
            &upto(n),
            &pieces,
            &output::bytes(free.blocks[n] * 4096),
        ]);
    }
    table.text()
}

/// For people: the fragments of several states, one column each.
pub fn side_by_side(states: &[(&str, FreeFragments)]) -> String {
    let names = [table::word("").least(16)];
    let counts = states.iter().map(|(name, _)| table::number(*name).least(16));
    let mut table = Table::new(names.into_iter().chain(counts)).between(1);
    let mut row = |head: String, count: &dyn Fn(&FreeFragments) -> String| {
        table.cells([head].into_iter().chain(states.iter().map(|(_, f)| count(f))));
    };
    for n in 0..LEVELS {
        row(format!("  {} {:>10}", FreeFragments::name(n), upto(n)), &|f| f.count[n].to_string());
    }
    row("  all".into(), &|f| f.total().to_string());
    table.text()
}
