//! How do events of block devices become rows?

use std::io::{self, Write};

use ::parquet::data_type::ByteArray;
use rustc_hash::FxHashMap;

use super::{Table, origin};
use crate::block::{Action, DeviceId, Event, Events, Flags, Op};
use crate::{Format, Process};

const SCHEMA: &str = "message block_events {
    REQUIRED INT64 time_ns (INTEGER(64, false));
    REQUIRED BYTE_ARRAY action (STRING);
    REQUIRED BYTE_ARRAY op (STRING);
    REQUIRED BOOLEAN sync;
    REQUIRED BOOLEAN ahead;
    REQUIRED BOOLEAN meta;
    REQUIRED BOOLEAN fua;
    REQUIRED BOOLEAN preflush;
    REQUIRED INT64 sector (INTEGER(64, false));
    REQUIRED INT64 sectors (INTEGER(64, false));
    REQUIRED INT32 device_major (INTEGER(32, false));
    REQUIRED INT32 device_minor (INTEGER(32, false));
    OPTIONAL BYTE_ARRAY device (STRING);
    REQUIRED INT32 cpu (INTEGER(32, false));
    REQUIRED INT32 pid (INTEGER(32, false));
    REQUIRED BYTE_ARRAY process (STRING);
    OPTIONAL INT64 took_ns (INTEGER(64, false));
    REQUIRED INT32 error (INTEGER(32, false));
}";

/// Writes events: time, blkparse's letter of the action, operation and flags, sectors of 512 bytes, device number and
/// name (if the recording has one), CPU, process, and result.
pub struct Blocks<W: Write + Send> {
    table: Table<W>,
    /// One copy of each repeated word.
    actions: Vec<(Action, ByteArray)>,
    ops: Vec<(Op, ByteArray)>,
    processes: FxHashMap<Process, ByteArray>,
    devices: FxHashMap<DeviceId, Option<ByteArray>>,
}

impl<W: Write + Send> Blocks<W> {
    /// Writes to `out`; `format` is that of the recording.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn new(out: W, format: Format) -> io::Result<Self> {
        Ok(Blocks {
            table: Table::new(out, SCHEMA, &["time_ns"], origin(format))?,
            actions: Action::ALL.iter().map(|a| (*a, a.letter().to_string().as_str().into())).collect(),
            ops: Op::ALL.iter().map(|o| (*o, o.text().into())).collect(),
            processes: FxHashMap::default(),
            devices: FxHashMap::default(),
        })
    }

    /// Writes an event of `recording`.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn event(&mut self, event: &Event, recording: &dyn Events) -> io::Result<()> {
        let table = &mut self.table;
        let word = |of: Option<ByteArray>| Some(of.unwrap_or_default());
        table.long(Some(event.time));
        table.text(word(self.actions.iter().find(|(a, _)| *a == event.action).map(|(_, text)| text.clone())));
        table.text(word(self.ops.iter().find(|(o, _)| *o == event.op).map(|(_, text)| text.clone())));
        for flag in [Flags::SYNC, Flags::AHEAD, Flags::META, Flags::FUA, Flags::PREFLUSH] {
            table.truth(event.flags.contains(flag));
        }
        table.long(Some(event.sector));
        table.long(Some(event.sectors));
        table.short(event.device.major);
        table.short(event.device.minor);
        let device = self.devices.entry(event.device);
        table.text(device.or_insert_with(|| recording.device(event.device).map(|n| n.as_str().into())).clone());
        table.short(event.cpu);
        table.short(event.pid);
        let process = self.processes.entry(event.process);
        table.text(Some(process.or_insert_with(|| recording.names().name(event.process).into()).clone()));
        table.long(event.took);
        table.short(event.error);
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
