//! How do rows become a Parquet file?
//!
//! Columns are collected for [`GROUP`] rows, then written and dropped: memory does not grow with the rows. A schema in
//! Parquet's syntax defines the columns; the callers define the rows.

use std::io::{self, Write};
use std::sync::Arc;

use ::parquet::basic::{Compression, Encoding, Type, ZstdLevel};
use ::parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use ::parquet::schema::parser::parse_message_type;
use ::parquet::schema::types::ColumnPath;

/// Rows per row group.
pub const GROUP: usize = 1 << 17;
/// Bytes of text that end a row group early.
const TEXT: usize = 64 << 20;

/// An error of the output, or of Parquet itself.
fn io(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(e) => match e.downcast::<io::Error>() {
            Ok(e) => *e,
            Err(e) => io::Error::other(e),
        },
        e => io::Error::other(e),
    }
}

/// A column of one row group; an optional value has a level for every row, 0 or 1.
enum Column {
    Long(Vec<i64>, Vec<i16>),
    Short(Vec<i32>),
    Real(Vec<f64>, Vec<i16>),
    Truth(Vec<bool>, Vec<i16>),
    Text(Vec<ByteArray>, Vec<i16>),
}

/// A file with rows of one kind. A row is one call per column, in order, followed by [`end_of_row`](Self::end_of_row).
pub struct Table<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    columns: Vec<Column>,
    /// Index of the next column.
    next: usize,
    rows: usize,
    text: usize,
}

impl<W: Write + Send> Table<W> {
    /// `schema` is in Parquet's syntax; columns in `counting` grow steadily, which compresses well. `origin` is a name
    /// and a value for the file's metadata.
    ///
    /// # Errors
    /// Errors of the output, or an invalid schema.
    pub fn new(out: W, schema: &str, counting: &[&str], origin: (&str, &str)) -> io::Result<Self> {
        let schema = Arc::new(parse_message_type(schema).map_err(io)?);
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(3).map_err(io)?))
            .set_created_by(concat!("joulefs ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(vec![KeyValue::new(origin.0.to_owned(), origin.1.to_owned())]));
        for name in counting {
            properties = properties
                .set_column_dictionary_enabled(ColumnPath::from(*name), false)
                .set_column_encoding(ColumnPath::from(*name), Encoding::DELTA_BINARY_PACKED);
        }
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties.build())).map_err(io)?;
        let columns = writer.schema_descr().columns().iter().map(|c| match c.physical_type() {
            Type::INT64 => Column::Long(Vec::new(), Vec::new()),
            Type::INT32 => Column::Short(Vec::new()),
            Type::DOUBLE => Column::Real(Vec::new(), Vec::new()),
            Type::BOOLEAN => Column::Truth(Vec::new(), Vec::new()),
            _ => Column::Text(Vec::new(), Vec::new()),
        });
        let columns = columns.collect();
        Ok(Table { writer, columns, next: 0, rows: 0, text: 0 })
    }

    /// The next column of the row.
    ///
    /// # Panics
    /// If the row is full.
    fn column(&mut self) -> &mut Column {
        self.next += 1;
        &mut self.columns[self.next - 1]
    }

    /// A 64-bit number, or null.
    pub fn long(&mut self, value: Option<u64>) {
        if let Column::Long(values, levels) = self.column() {
            // Parquet stores unsigned numbers as signed ones.
            values.extend(value.map(u64::cast_signed));
            levels.push(i16::from(value.is_some()));
        }
    }

    /// A signed 64-bit number.
    pub fn signed(&mut self, value: i64) {
        self.long(Some(value.cast_unsigned()));
    }

    /// A required 32-bit number.
    pub fn short(&mut self, value: u32) {
        if let Column::Short(values) = self.column() {
            values.push(value.cast_signed());
        }
    }

    /// A floating-point number, or null.
    pub fn real(&mut self, value: Option<f64>) {
        if let Column::Real(values, levels) = self.column() {
            values.extend(value);
            levels.push(i16::from(value.is_some()));
        }
    }

    /// A boolean.
    pub fn truth(&mut self, value: bool) {
        self.truth_if(Some(value));
    }

    /// A boolean, or null.
    pub fn truth_if(&mut self, value: Option<bool>) {
        if let Column::Truth(values, levels) = self.column() {
            values.extend(value);
            levels.push(i16::from(value.is_some()));
        }
    }

    /// Bytes, or null.
    pub fn bytes(&mut self, value: Option<&[u8]>) {
        self.text(value.map(|v| v.to_vec().into()));
    }

    /// Text, or null.
    pub fn text(&mut self, value: Option<ByteArray>) {
        self.text += value.as_ref().map_or(0, ByteArray::len);
        if let Column::Text(values, levels) = self.column() {
            levels.push(i16::from(value.is_some()));
            values.extend(value);
        }
    }

    /// Ends a row with all columns.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn end_of_row(&mut self) -> io::Result<()> {
        debug_assert_eq!(self.next, self.columns.len(), "every column has a value, or none that is told");
        self.next = 0;
        self.rows += 1;
        if self.rows == GROUP || self.text >= TEXT { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> io::Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let mut group = self.writer.next_row_group().map_err(io)?;
        for column in &mut self.columns {
            let Some(mut writer) = group.next_column().map_err(io)? else { break };
            let of = &mut writer;
            match column {
                Column::Long(values, levels) => write::<Int64Type>(of, values, levels),
                Column::Short(values) => write::<Int32Type>(of, values, &mut Vec::new()),
                Column::Real(values, levels) => write::<DoubleType>(of, values, levels),
                Column::Truth(values, levels) => write::<BoolType>(of, values, levels),
                Column::Text(values, levels) => write::<ByteArrayType>(of, values, levels),
            }
            .and_then(|()| writer.close())
            .map_err(io)?;
        }
        group.close().map_err(io)?;
        (self.rows, self.text) = (0, 0);
        Ok(())
    }

    /// Writes the last rows and the index.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.write_group()?;
        let mut out = self.writer.into_inner().map_err(io)?;
        out.flush()?;
        Ok(out)
    }
}

/// Writes a column, and clears it. Levels are ignored for a required column.
fn write<T: DataType>(
    to: &mut SerializedColumnWriter<'_>,
    values: &mut Vec<T::T>,
    levels: &mut Vec<i16>,
) -> Result<(), ParquetError> {
    let column = to.typed::<T>();
    let levels_if_optional = (column.get_descriptor().max_def_level() > 0).then_some(levels.as_slice());
    column.write_batch(values, levels_if_optional, None)?;
    values.clear();
    levels.clear();
    Ok(())
}
