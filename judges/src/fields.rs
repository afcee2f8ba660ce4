//! Which fields does F2FS have, and at which offsets? Read from the format's own document.
//!
//! `docs/format.md` is generated from the structures and compared with them by a test, so tests generated from it
//! follow the format.

/// A field, or one element of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its on-disk name; for an array element, with its index.
    pub name: String,
    /// Its offset in the structure.
    pub at: usize,
    /// Its size in bytes.
    pub width: usize,
}

const DOCUMENT: &str = include_str!("../../docs/format.md");

/// Element size of arrays whose elements are not four bytes.
fn element(name: &str, bytes: usize) -> usize {
    match (name, bytes) {
        (_, 1 | 2 | 4 | 8) => bytes,
        ("cur_node_blkoff" | "cur_data_blkoff" | "volume_name", _) => 2,
        ("alloc_type" | "i_name" | "valid_map" | "version" | "init_version", _) => 1,
        (_, bytes) if bytes % 4 == 0 => 4,
        _ => 1,
    }
}

/// The fields of a structure, given by its name in the code, such as `RawInode`; arrays as their elements.
///
/// # Panics
/// If the document has no such structure.
pub fn of(structure: &str) -> Vec<Field> {
    let heading = format!("\n`{structure}`, ");
    let (_, rest) = DOCUMENT.split_once(&heading).unwrap_or_else(|| panic!("no structure {structure}"));
    let rows =
        rest.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    let mut out = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, at, bytes, name, ..] = cells[..] else { panic!("{row}") };
        let (at, bytes): (usize, usize) = (at.parse().expect("an offset"), bytes.parse().expect("a length"));
        let width = element(name, bytes);
        out.extend((0..bytes / width).map(|i| Field {
            name: if bytes == width { name.to_owned() } else { format!("{name}[{i}]") },
            at: at + i * width,
            width,
        }));
    }
    out
}

/// Values that are often handled wrongly in a field of `width` bytes with the value `now`.
pub fn values(width: usize, now: u64) -> Vec<u64> {
    let most = u64::MAX >> (64 - 8 * width as u32);
    let sign = 1 << (8 * width - 1);
    let mut out = vec![0, 1, most, most - 1, sign, sign - 1, now.wrapping_add(1) & most, now.wrapping_sub(1) & most];
    out.sort_unstable();
    out.dedup();
    out.retain(|value| *value != now);
    out
}

/// The value of a field.
pub fn get(bytes: &[u8], field: &Field) -> u64 {
    bytes[field.at..][..field.width].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

/// Sets a field to a value, truncated to its width.
pub fn put(bytes: &mut [u8], field: &Field, value: u64) {
    bytes[field.at..][..field.width].copy_from_slice(&value.to_le_bytes()[..field.width]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_listed_by_their_elements_and_at_their_places() {
        let checkpoint = of("RawCheckpoint");
        let find = |name: &str| checkpoint.iter().find(|f| f.name == name).map(|f| (f.at, f.width));
        assert_eq!(find("valid_block_count"), Some((16, 8)));
        assert_eq!(find("cur_node_segno[1]"), Some((40, 4)));
        assert_eq!(find("cur_data_blkoff[7]"), Some((130, 2)));
        assert_eq!(find("alloc_type[15]"), Some((191, 1)));
        assert_eq!(checkpoint.iter().map(|f| f.width).sum::<usize>(), 192);
        assert!(values(2, 7).contains(&0x8000) && !values(1, 0).contains(&0));
    }
}
