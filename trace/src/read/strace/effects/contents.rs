//! How are the longer calls on contents of files and directories handled?

use super::{Effects, Fd, SPECIAL, Senseless, Who, has};
use crate::call::{Call, How, Op, Target};
use crate::read::strace::arguments::{Call as Made, Returned};

impl Effects {
    pub(super) fn stat_open(&mut self, who: Who, call: &Made<'_>) -> Result<(), Senseless> {
        let Some(handle) = self.file(who, call, 0, How::READ)? else { return Ok(()) };
        let is = |kind| (1..6).any(|n| call.has(n, kind));
        if [&b"S_IFCHR"[..], b"S_IFBLK", b"S_IFIFO", b"S_IFSOCK"].into_iter().any(is) {
            self.count(SPECIAL);
            if let Some(file) = self.processes.file(handle) {
                file.is_other = true;
            }
            self.closed(who, [handle]);
        } else {
            self.emit(who, Op::Stat { file: Target::Open(handle) }, call);
        }
        Ok(())
    }

    /// One listing takes several calls; here it is one.
    pub(super) fn list(&mut self, who: Who, call: &Made<'_>, bytes: u64) -> Result<(), Senseless> {
        let Some(handle) = self.file(who, call, 0, How::READ | How::DIRECTORY)? else { return Ok(()) };
        let before = match self.processes.file(handle) {
            Some(file) => std::mem::replace(&mut file.listing, bytes > 0),
            None => false,
        };
        if before {
            self.count("further parts of lists");
        } else {
            self.emit(who, Op::List { handle }, call);
        }
        Ok(())
    }

    pub(super) fn allocate(&mut self, who: Who, call: &Made<'_>) -> Result<(), Senseless> {
        let mode = call.text(1);
        let other = [&b"FALLOC_FL_COLLAPSE_RANGE"[..], b"FALLOC_FL_ZERO_RANGE", b"FALLOC_FL_INSERT_RANGE"];
        if other.into_iter().any(|flag| has(mode, flag)) {
            self.count("fallocate of other kinds");
            return Ok(());
        }
        let (punch, keep_size) = (has(mode, b"FALLOC_FL_PUNCH_HOLE"), has(mode, b"FALLOC_FL_KEEP_SIZE"));
        let (at, bytes) = (self.length(call, 2)?, self.length(call, 3)?);
        self.emit_on_handle(who, call, How::WRITE, |handle| Op::Allocate { handle, at, bytes, punch, keep_size })
    }

    /// From one descriptor to another, each with an optional offset: a read and a write, if the descriptors are files.
    /// The duration counts for the first.
    pub(super) fn copy(
        &mut self,
        who: Who,
        call: &Made<'_>,
        from: (usize, Option<u64>),
        to: (usize, Option<u64>),
    ) -> Result<(), Senseless> {
        let bytes = match call.result {
            Returned::Value(value, _) => u64::try_from(value).map_err(|_| Senseless)?,
            _ => 0,
        };
        let (source, sink) = (call.descriptor(from.0), call.descriptor(to.0));
        let (Some(source), Some(sink)) = (source, sink) else { return Err(Senseless) };
        let source = self.fd(who, source, How::READ);
        let sink = self.fd(who, sink, How::WRITE);
        if !matches!(source, Fd::File(_)) && !matches!(sink, Fd::File(_)) {
            self.count(SPECIAL);
            return Ok(());
        }
        let mut took = call.took;
        let failed = match call.result {
            Returned::Failed(error) => Some(String::from_utf8_lossy(error).into_owned()),
            _ => None,
        };
        let mut parts = Vec::new();
        if let Fd::File(handle) = source {
            parts.push(Op::Read { handle, at: from.1, bytes });
        }
        if let Fd::File(handle) = sink {
            parts.push(Op::Write { handle, at: to.1, bytes });
        }
        for op in parts {
            let (took, failed) = (took.take(), failed.clone());
            self.out.push_back(Call { time: who.time, thread: who.pid, op, took, failed });
        }
        Ok(())
    }
}
