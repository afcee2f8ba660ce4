//! How is a table set, so that it fits where it is read?
//!
//! Numbers stand to the right and names to the left, in columns as wide as their widest cell on the screen: a letter of Chinese
//! takes two places, an accent none. In a terminal that is too narrow, columns of words are wrapped; numbers never are, and
//! neither is a name where nothing else follows it. Where nobody looks (a pipe, a file), every row is a line, however long.
//!
//! Left out: what the rows say, and lists in which each line stands for itself as it comes (`top`'s screen fits itself).

use std::io::IsTerminal;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Row, Width, presets};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// Numbers, with their units: to the right.
    Number,
    /// A short word: to the left, and never wrapped.
    Word,
    /// Names, paths, sentences: to the left, wrapped where the terminal is too narrow.
    Text,
}

/// Places that a column of text has at the least.
const NARROWEST: u16 = 12;
/// Places between two columns.
const BETWEEN: u16 = 2;

/// Columns of the terminal that standard output is; none if it is none. `COLUMNS` says otherwise.
pub fn columns() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let said = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|c| *c > 0);
    said.or_else(|| terminal_size::terminal_size().map(|(width, _)| width.0.into()))
}

/// Rows under heads.
pub struct Table {
    kinds: Vec<Column>,
    indent: u16,
    table: comfy_table::Table,
}

impl Table {
    /// A table without rows. A head that is empty stands over a column that needs none.
    pub fn new<'a>(heads: impl IntoIterator<Item = (&'a str, Column)>) -> Self {
        let (heads, kinds): (Vec<&str>, Vec<Column>) = heads.into_iter().unzip();
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        if heads.iter().any(|head| !head.is_empty()) {
            table.add_row(cells(heads));
        }
        Table { kinds, indent: 0, table }
    }

    /// The same, so many places from the left.
    pub fn indented(self, indent: u16) -> Self {
        Table { indent, ..self }
    }

    /// One more row.
    pub fn row<S: Into<String>>(&mut self, row: impl IntoIterator<Item = S>) {
        self.table.add_row(cells(row));
    }

    /// The text, as wide as the terminal at most.
    pub fn text(self) -> String {
        self.within(columns())
    }

    /// The text, so wide at most if numbers leave room for it.
    pub fn within(mut self, columns: Option<usize>) -> String {
        let last = self.kinds.len().saturating_sub(1);
        let widest = self.table.column_max_content_widths();
        for (n, ((column, kind), widest)) in self.table.column_iter_mut().zip(&self.kinds).zip(widest).enumerate() {
            column.set_padding((if n == 0 { self.indent } else { 0 }, if n == last { 0 } else { BETWEEN }));
            column.set_cell_alignment(match kind {
                Column::Number => CellAlignment::Right,
                Column::Word | Column::Text => CellAlignment::Left,
            });
            column.set_constraint(match kind {
                Column::Number | Column::Word => ColumnConstraint::ContentWidth,
                Column::Text => {
                    ColumnConstraint::LowerBoundary(Width::Fixed(widest.min(NARROWEST) + column.padding_width()))
                }
            });
        }
        match columns.and_then(|c| u16::try_from(c).ok()) {
            Some(width) => self.table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
            None => self.table.set_content_arrangement(ContentArrangement::Disabled),
        };
        self.table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

fn cells<S: Into<String>>(row: impl IntoIterator<Item = S>) -> Row {
    row.into_iter().map(Into::into).collect::<Vec<String>>().into()
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    fn table() -> Table {
        let mut table = Table::new([("file", Column::Text), ("read", Column::Number), ("as", Column::Word)]);
        table.row(["/media/0/a very long name of a picture/相片 of a summer.jpg", "1.25 mJ", "photo"]);
        table.row(["相片.jpg", "912.00 uJ", "photo"]);
        table.row(["e\u{301}.jpg", "2 J", "photo"]);
        table
    }

    #[test]
    fn where_nobody_looks_each_row_is_a_line_and_columns_stand_below_each_other() {
        let text = table().within(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        // Where `photo` begins is one place on the screen.
        let begins: Vec<usize> = lines[1..].iter().map(|l| l.split("photo").next().unwrap().width()).collect();
        assert!(begins.iter().all(|b| *b == begins[0]), "{text}");
        assert!(lines[2].ends_with("  912.00 uJ  photo") && lines[3].ends_with("        2 J  photo"), "{text}");
    }

    #[test]
    fn in_a_narrow_terminal_words_are_wrapped_and_numbers_are_not() {
        for width in [40, 60, 80, 120] {
            let text = table().within(Some(width));
            assert!(text.lines().all(|l| l.width() <= width), "{width}:\n{text}");
            assert_eq!(text.matches("912.00 uJ  photo").count(), 1, "{width}:\n{text}");
            assert_eq!(text.lines().count() > 4, width < 80, "{width}:\n{text}");
        }
        // What cannot fit is not cut.
        let text = table().within(Some(10));
        assert!(text.contains("912.00 uJ  photo"), "{text}");
    }

    #[test]
    fn rows_without_heads_may_stand_further_right() {
        let mut table = Table::new([("", Column::Word), ("", Column::Number)]).indented(2);
        table.row(["a", "1"]);
        table.row(["bb", "22"]);
        assert_eq!(table.within(None), "  a    1\n  bb  22");
    }
}
