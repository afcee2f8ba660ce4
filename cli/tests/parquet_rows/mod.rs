//! Reads rows from the files that `--parquet` writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ::parquet::file::reader::{FileReader, SerializedFileReader};
use ::parquet::record::{Field, Row};

pub(crate) fn rows(dir: &Path, name: &str) -> Vec<Row> {
    let reader = SerializedFileReader::new(fs::File::open(dir.join(format!("{name}.parquet"))).unwrap()).unwrap();
    reader.get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

pub(crate) fn cell<'r>(row: &'r Row, name: &str) -> &'r Field {
    row.get_column_iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("no column {name}")).1
}

pub(crate) fn whole(row: &Row, name: &str) -> u64 {
    match cell(row, name) {
        Field::ULong(n) => *n,
        Field::UInt(n) => (*n).into(),
        other => panic!("{name}: {other:?}"),
    }
}

pub(crate) fn text(row: &Row, name: &str) -> String {
    match cell(row, name) {
        Field::Str(text) => text.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

/// Sums of picojoules, grouped by `of`.
pub(crate) fn sums(rows: &[Row], of: impl Fn(&Row) -> String) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    rows.iter().for_each(|row| *sums.entry(of(row)).or_default() += whole(row, "pj"));
    sums
}
