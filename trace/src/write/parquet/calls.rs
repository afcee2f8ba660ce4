//! How do calls to a file system become rows?

use std::io::{self, Write};

use ::parquet::data_type::ByteArray;

use super::{Table, origin};
use crate::Format;
use crate::call::{Call, Handle, How, Op, Target};
use crate::stat::calls::name;

const SCHEMA: &str = "message calls {
    REQUIRED INT64 time_ns (INTEGER(64, false));
    REQUIRED INT32 thread (INTEGER(32, false));
    REQUIRED BYTE_ARRAY op (STRING);
    OPTIONAL INT64 handle (INTEGER(64, false));
    OPTIONAL BYTE_ARRAY path (STRING);
    OPTIONAL BYTE_ARRAY other_path (STRING);
    OPTIONAL INT64 offset (INTEGER(64, false));
    OPTIONAL INT64 bytes (INTEGER(64, false));
    OPTIONAL BYTE_ARRAY flags (STRING);
    OPTIONAL INT64 took_ns (INTEGER(64, false));
    OPTIONAL BYTE_ARRAY failed (STRING);
}";

/// Writes calls: time, thread, operation (`open`, `read`...), handle, path, for `rename` and `link` the new path and
/// for `symlink` the target, offset (null: where the last call ended), bytes (for `truncate`: the new length), flags of
/// open or allocation, duration and error.
pub struct Calls<W: Write + Send> {
    table: Table<W>,
}

/// The part of a row that depends on the call.
#[derive(Default)]
struct Row<'a> {
    handle: Option<Handle>,
    path: Option<&'a [u8]>,
    other: Option<&'a [u8]>,
    at: Option<u64>,
    bytes: Option<u64>,
    flags: Option<String>,
}

fn text(bytes: &[u8]) -> ByteArray {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.to_vec().into(),
        Err(_) => String::from_utf8_lossy(bytes).into_owned().into_bytes().into(),
    }
}

fn how(how: How) -> String {
    let mut out = String::new();
    for (flag, word) in [
        (How::READ, "read"),
        (How::WRITE, "write"),
        (How::CREATE, "create"),
        (How::EXCLUSIVE, "exclusive"),
        (How::TRUNCATE, "truncate"),
        (How::APPEND, "append"),
        (How::SYNC, "sync"),
        (How::DATA_SYNC, "dsync"),
        (How::DIRECTORY, "directory"),
    ] {
        if how.contains(flag) {
            if !out.is_empty() {
                out.push('|');
            }
            out.push_str(word);
        }
    }
    out
}

fn row(op: &Op) -> Row<'_> {
    let none = Row::default;
    let target = |file| match file {
        &Target::Open(handle) => Row { handle: Some(handle), ..none() },
        Target::Path(path) => Row { path: Some(path), ..none() },
    };
    match op {
        Op::Open { handle, path, how: flags } => {
            Row { handle: Some(*handle), path: Some(path), flags: Some(how(*flags)), ..none() }
        }
        Op::Close { handle } | Op::Sync { handle, .. } | Op::List { handle } => Row { handle: Some(*handle), ..none() },
        Op::Read { handle, at, bytes } | Op::Write { handle, at, bytes } => {
            Row { handle: Some(*handle), at: *at, bytes: Some(*bytes), ..none() }
        }
        Op::Seek { handle, to } => Row { handle: Some(*handle), at: *to, ..none() },
        Op::SyncAll => none(),
        Op::Truncate { file, length } => Row { bytes: Some(*length), ..target(file) },
        Op::Allocate { handle, at, bytes, punch, keep_size } => {
            let flags = [(*punch, "punch"), (*keep_size, "keep_size")];
            let flags: Vec<&str> = flags.into_iter().filter(|(is, _)| *is).map(|(_, word)| word).collect();
            let flags = Some(flags.join("|"));
            Row { handle: Some(*handle), at: Some(*at), bytes: Some(*bytes), flags, ..none() }
        }
        Op::Unlink { path } | Op::RemoveDir { path } | Op::MakeDir { path } => Row { path: Some(path), ..none() },
        Op::Rename { from, to } | Op::Link { from, to } => Row { path: Some(from), other: Some(to), ..none() },
        Op::Symlink { path, target } => Row { path: Some(path), other: Some(target), ..none() },
        Op::Stat { file } => target(file),
    }
}

impl<W: Write + Send> Calls<W> {
    /// Writes to `out`; `format` is that of the recording.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn new(out: W, format: Format) -> io::Result<Self> {
        Ok(Calls { table: Table::new(out, SCHEMA, &["time_ns"], origin(format))? })
    }

    /// Writes a call.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn call(&mut self, call: &Call) -> io::Result<()> {
        let Row { handle, path, other, at, bytes, flags } = row(&call.op);
        let table = &mut self.table;
        table.long(Some(call.time));
        table.short(call.thread);
        table.text(Some(name(&call.op).into()));
        table.long(handle.map(|h| h.0));
        table.text(path.map(text));
        table.text(other.map(text));
        table.long(at);
        table.long(bytes);
        table.text(flags.map(|f| f.into_bytes().into()));
        table.long(call.took);
        table.text(call.failed.as_deref().map(ByteArray::from));
        table.end_of_row()
    }

    /// Flushes and returns the output; without this it is not a valid Parquet file.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(self) -> io::Result<W> {
        self.table.finish()
    }
}
