//! How do rows become a table if their columns are known only at run time? Missing values are null.

use std::io::{self, Write};

use serde_json::Value;
use trace::write::parquet;

/// A row: unique names with their values.
pub type Cells = Vec<(String, Value)>;

/// The type of all values of a column.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Whole,
    Real,
    Truth,
    Text,
}

impl Type {
    /// `None` for null, which any column may contain.
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::Bool(_) => Some(Type::Truth),
            Value::Number(n) if n.is_u64() => Some(Type::Whole),
            Value::Number(_) => Some(Type::Real),
            _ => Some(Type::Text),
        }
    }

    /// The type that holds values of both.
    fn with(self, other: Type) -> Type {
        match (self, other) {
            (a, b) if a == b => a,
            (Type::Whole, Type::Real) | (Type::Real, Type::Whole) => Type::Real,
            _ => Type::Text,
        }
    }

    fn in_schema(self) -> (&'static str, &'static str) {
        match self {
            Type::Whole => ("INT64", " (INTEGER(64, false))"),
            Type::Real => ("DOUBLE", ""),
            Type::Truth => ("BOOLEAN", ""),
            Type::Text => ("BYTE_ARRAY", " (STRING)"),
        }
    }
}

/// Rows, and the union of their columns.
pub struct Table<'a> {
    rows: &'a [Cells],
    columns: Vec<(&'a str, Type)>,
}

impl<'a> Table<'a> {
    /// Columns keep the order in which rows have them. Columns that are null everywhere are dropped.
    pub fn of(rows: &'a [Cells]) -> Self {
        let mut columns: Vec<(&str, Type)> = Vec::new();
        for row in rows {
            let mut last = None;
            for (name, value) in row {
                let Some(of) = Type::of(value) else { continue };
                let there = columns.iter().position(|(n, _)| n == name);
                let place = there.unwrap_or_else(|| {
                    let place = last.map_or(0, |last| last + 1);
                    columns.insert(place, (name, of));
                    place
                });
                columns[place].1 = columns[place].1.with(of);
                last = Some(place);
            }
        }
        Table { rows, columns }
    }

    /// The column as a line of a Parquet schema.
    pub fn schema(&self, name: &str) -> String {
        let column = |(name, of): &(&str, Type)| {
            let (physical, logical) = of.in_schema();
            format!("    OPTIONAL {physical} {name}{logical};\n")
        };
        format!("message {name} {{\n{}}}", self.columns.iter().map(column).collect::<String>())
    }

    /// Writes the rows.
    pub fn write(&self, out: &mut parquet::Table<impl Write + Send>) -> io::Result<()> {
        for row in self.rows {
            for (name, of) in &self.columns {
                let value = row.iter().find(|(n, v)| n == name && !v.is_null()).map(|(_, value)| value);
                match of {
                    Type::Whole => out.long(value.and_then(Value::as_u64)),
                    Type::Real => out.real(value.and_then(Value::as_f64)),
                    Type::Truth => out.truth_if(value.and_then(Value::as_bool)),
                    Type::Text => {
                        let text = value.map(|v| v.as_str().map_or_else(|| v.to_string(), str::to_owned));
                        out.bytes(text.as_deref().map(str::as_bytes));
                    }
                }
            }
            out.end_of_row()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_column_is_of_a_type_that_holds_every_value() {
        let row = |cells: &[(&str, Value)]| cells.iter().map(|(n, v)| ((*n).to_owned(), v.clone())).collect::<Cells>();
        let rows = [
            row(&[("a", json!(1)), ("c", json!("x")), ("d", json!(1)), ("n", json!(null))]),
            row(&[("a", json!(0.5)), ("b", json!(true)), ("c", json!("y")), ("d", json!(true))]),
        ];
        let schema = Table::of(&rows).schema("t");
        let lines: Vec<&str> = schema.lines().map(str::trim).collect();
        assert_eq!(
            lines,
            [
                "message t {",
                "OPTIONAL DOUBLE a;",
                "OPTIONAL BOOLEAN b;",
                "OPTIONAL BYTE_ARRAY c (STRING);",
                "OPTIONAL BYTE_ARRAY d (STRING);",
                "}"
            ]
        );
    }
}
