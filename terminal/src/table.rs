//! How is a table laid out to fit the terminal?
//!
//! Numbers are right-aligned and names left-aligned, in columns as wide as their widest cell on the screen: a Chinese
//! character takes two columns, a combining accent none. If the terminal is too narrow, columns first shrink to their
//! cells, then texts are wrapped; if the numbers alone are too wide, the table continues below and repeats the names.
//! If the output is not a terminal, every row is one line, however long.
//!
//! Left out: the contents of rows; lists printed as results arrive (`ls`, `du`) or with extra lines between rows
//! (`clean`); and pages of a fixed size (`inspect`, and the screen of `top`, whose columns must not move between
//! refreshes).

use std::fmt::Display;
use std::io::IsTerminal;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};
use unicode_width::UnicodeWidthStr;

use crate::output::plain;

/// Minimum width of a text column with enough text.
const NARROWEST: usize = 12;

/// Width of the terminal on standard output; `None` if it is not a terminal. `COLUMNS` overrides it.
pub fn columns() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let said = std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|c| *c > 0);
    said.or_else(|| terminal_size::terminal_size().map(|(width, _)| width.0.into()))
}

/// The contents of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Word,
    Text,
}

/// A column: its head and its kind.
#[derive(Debug, Clone)]
pub struct Column {
    head: String,
    kind: Kind,
    least: usize,
}

/// A right-aligned column of numbers with their units.
pub fn number(head: impl Into<String>) -> Column {
    Column { head: plain(&head.into()), kind: Kind::Number, least: 0 }
}

/// A left-aligned column of short words, never wrapped.
pub fn word(head: impl Into<String>) -> Column {
    Column { head: plain(&head.into()), kind: Kind::Word, least: 0 }
}

/// A left-aligned column of names, paths or sentences, wrapped if the terminal is too narrow.
pub fn text(head: impl Into<String>) -> Column {
    Column { head: plain(&head.into()), kind: Kind::Text, least: 0 }
}

impl Column {
    /// Sets a minimum width, used if there is room, so that consecutive tables look alike.
    pub fn least(self, least: usize) -> Column {
        Column { least, ..self }
    }
}

/// Rows under heads.
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
    between: usize,
}

impl Table {
    /// A table without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Table { columns: columns.into_iter().collect(), rows: Vec::new(), between: 2 }
    }

    /// Sets the number of blanks between columns; the default is two.
    pub fn between(self, between: usize) -> Self {
        Table { between, ..self }
    }

    /// Appends a row; missing cells are empty.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.cells(cells.iter().map(ToString::to_string));
    }

    /// Appends a row of cells, one per column.
    pub fn cells(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut row: Vec<String> = cells.into_iter().map(|cell| plain(&cell)).collect();
        row.resize(self.columns.len(), String::new());
        self.rows.push(row);
    }

    /// The text, at most as wide as the terminal.
    pub fn text(&self) -> String {
        self.within(columns())
    }

    /// The text, at most `width` wide.
    pub fn within(&self, width: Option<usize>) -> String {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let Some(width) = width else { return self.set(&all, None, true) };
        let roomy = |n: &usize| self.content(*n).max(self.columns[*n].least);
        if self.sum(&all, &roomy) <= width {
            return self.set(&all, Some(width), true);
        }
        let parts = self.parts(width);
        parts.iter().map(|part| self.set(part, Some(width), false)).collect::<Vec<_>>().join("\n\n")
    }

    /// The widest cell of a column.
    fn content(&self, n: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[n].width());
        cells.chain([self.columns[n].head.width()]).max().unwrap_or(0)
    }

    fn sum(&self, columns: &[usize], width: &dyn Fn(&usize) -> usize) -> usize {
        columns.iter().map(width).sum::<usize>() + self.between * columns.len().saturating_sub(1)
    }

    /// The columns of each part of the table: at least one of numbers, with the names repeated in every part.
    fn parts(&self, width: usize) -> Vec<Vec<usize>> {
        let narrow = |n: &usize| match self.columns[*n].kind {
            Kind::Text => self.content(*n).min(NARROWEST),
            Kind::Number | Kind::Word => self.content(*n),
        };
        // A row's names are the columns before its numbers, or a text after them.
        let leading = self.columns.iter().take_while(|c| c.kind != Kind::Number).count();
        let names: Vec<usize> = match leading {
            0 => vec![self.columns.iter().position(|c| c.kind == Kind::Text).unwrap_or(0)],
            leading => (0..leading).collect(),
        };
        let mut parts: Vec<Vec<usize>> = Vec::new();
        let mut part = names.clone();
        for n in (0..self.columns.len()).filter(|n| !names.contains(n)) {
            let mut more = part.clone();
            more.push(n);
            if part.len() > names.len() && self.sum(&more, &narrow) > width {
                parts.push(part);
                more = names.clone();
                more.push(n);
            }
            part = more;
        }
        parts.push(part);
        parts.iter_mut().for_each(|part| part.sort_unstable());
        parts
    }

    /// Lays out these columns side by side.
    fn set(&self, columns: &[usize], width: Option<usize>, roomy: bool) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        let heads = columns.iter().any(|n| !self.columns[*n].head.is_empty());
        if heads {
            table.add_row(columns.iter().map(|n| &self.columns[*n].head));
        }
        for row in &self.rows {
            table.add_row(columns.iter().map(|n| &row[*n]));
        }
        let fixed = |n: usize| Width::Fixed(u16::try_from(n).unwrap_or(u16::MAX));
        let places = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        for (at, (column, n)) in table.column_iter_mut().zip(columns).enumerate() {
            let Column { kind, least, .. } = &self.columns[*n];
            let is_last = at + 1 == columns.len();
            let padding = if is_last { 0 } else { self.between };
            column.set_padding((0, places(padding)));
            let is_number = *kind == Kind::Number;
            column.set_cell_alignment(if is_number { CellAlignment::Right } else { CellAlignment::Left });
            let content = self.content(*n);
            let least = if roomy { content.max(*least) } else { content };
            column.set_constraint(match kind {
                Kind::Text if !roomy => ColumnConstraint::LowerBoundary(fixed(content.min(NARROWEST) + padding)),
                _ => ColumnConstraint::Absolute(fixed(least.max(1) + padding)),
            });
        }
        match width {
            Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(places(width)),
            None => table.set_content_arrangement(ContentArrangement::Disabled),
        };
        table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: &str = "/media/0/a very long name of a picture/相片 of a summer.jpg";

    fn table() -> Table {
        let mut table = Table::new([text("file").least(20), number("read").least(14), word("as")]);
        table.row(&[&LONG, &"1.25 mJ", &"photo"]);
        table.row(&[&"相片.jpg", &"912.00 uJ", &"photo"]);
        table.row(&[&"e\u{301}.jpg", &2, &"photo"]);
        table
    }

    #[test]
    fn where_nobody_looks_each_row_is_a_line_and_columns_stand_below_each_other() {
        let text = table().within(None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        // `photo` begins at the same screen column in every row.
        let begins: Vec<usize> = lines[1..].iter().map(|l| l.split("photo").next().unwrap().width()).collect();
        assert!(begins.iter().all(|b| *b == LONG.width() + 2 + 14 + 2), "{text}");
        assert!(
            lines[2].ends_with("       912.00 uJ  photo") && lines[3].ends_with("               2  photo"),
            "{text}"
        );
    }

    #[test]
    fn in_a_narrow_terminal_texts_are_wrapped_and_numbers_are_not() {
        for width in [40, 60, 80, 120] {
            let text = table().within(Some(width));
            assert!(text.lines().all(|l| l.width() <= width), "{width}:\n{text}");
            assert_eq!(text.matches("912.00 uJ  photo").count(), 1, "{width}:\n{text}");
            assert_eq!(text.lines().count() > 4, width < 80, "{width}:\n{text}");
            // No text is lost.
            let glue = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            let names: String = text.lines().map(|l| l.get(..l.len().min(24)).unwrap_or(l)).collect();
            assert!(width < 120 || glue(&names).contains("/media/0/avery"), "{text}");
        }
    }

    #[test]
    fn numbers_that_are_too_wide_together_go_on_below_with_their_names() {
        let heads = ["CPU", "DRAM", "storage", "board", "all"];
        let mut table = Table::new([text("cause")].into_iter().chain(heads.map(|h| number(h).least(10))));
        for cause in ["user data", "nodes"] {
            table.cells([cause].into_iter().chain(["123.45 mJ"; 5]).map(str::to_owned));
        }
        assert_eq!(table.within(Some(80)).lines().count(), 3);
        let narrow = table.within(Some(40));
        assert!(narrow.lines().all(|l| l.width() <= 40), "{narrow}");
        assert_eq!(narrow.matches("user data").count(), 3, "{narrow}");
        assert_eq!(narrow.matches("123.45 mJ").count(), 10, "{narrow}");
        assert!(heads.iter().all(|h| narrow.contains(h)), "{narrow}");
        // Two name columns appear in every part.
        let mut table = Table::new([word("variant"), word("phase"), number("energy"), number("time")]);
        table.row(&[&"plain", &"random-read", &"13.78 J", &"22.229 s"]);
        let narrow = table.within(Some(30));
        assert_eq!((narrow.matches("plain    random-read").count(), narrow.lines().count()), (2, 5), "{narrow}");
    }

    #[test]
    fn what_cannot_fit_is_not_cut() {
        let mut table = Table::new([text("cause"), number("all")]);
        table.row(&[&"nodes", &"123.45 mJ"]);
        assert!(table.within(Some(5)).contains("123.45 mJ"));
    }

    #[test]
    fn a_table_may_have_no_heads_and_names_at_its_end() {
        let mut table = Table::new([number("").least(4), text("")]).between(1);
        table.row(&[&1, &"a"]);
        table.row(&[&22222, &"bb"]);
        assert_eq!(table.within(None), "    1 a\n22222 bb");
    }
}
