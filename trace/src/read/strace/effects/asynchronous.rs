//! How are requests recorded that a program submits without waiting? libaio's `io_submit`, io_uring, and writes to
//! mapped files.
//!
//! strace shows the arguments of `io_submit`: each request becomes a call at the time of submission. (Its duration is
//! unknown; the call has that of `io_submit`.) io_uring's queues and writes to mapped files are in memory that strace
//! does not read: such calls are counted under names that end with [`NOT_RECORDED`].

use super::{Effects, Fd, SPECIAL, Senseless, UNKNOWN, Who};
use crate::call::{How, Op};
use crate::names::{NOT_RECORDED, count_many};
use crate::read::decimal::number;
use crate::read::strace::arguments::{Call as Made, Descriptor, Returned, descriptor, field, parts};
use crate::read::strace::processes::What;

impl Effects {
    fn count_missing(&mut self, what: &str, n: u64) {
        if n > 0 {
            count_many(&mut self.others, &format!("{what} {NOT_RECORDED}"), n);
        }
    }

    /// `io_submit(0x7f, 1, [{aio_data=0, aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=3, ...}]) = 1`
    pub(super) fn submit(&mut self, who: Who, call: &Made<'_>) -> Result<(), Senseless> {
        let Returned::Value(taken, _) = call.result else {
            self.count_call(call.name);
            return Ok(());
        };
        let taken = u64::try_from(taken).map_err(|_| Senseless)?;
        let list = call.text(2).strip_prefix(b"[").and_then(|t| t.strip_suffix(b"]"));
        let list = parts(list.unwrap_or_default()).ok_or(Senseless)?;
        let mut shown = 0;
        // The requests after these were not accepted; of a long list strace shows only the beginning.
        for request in list.into_iter().take(usize::try_from(taken).unwrap_or(usize::MAX)) {
            let Some(inner) = request.strip_prefix(b"{").and_then(|t| t.strip_suffix(b"}")) else { break };
            let fields = parts(inner).ok_or(Senseless)?;
            shown += 1;
            self.submitted(who, call, &fields)?;
        }
        self.count_missing("requests of io_submit: what they asked for", taken.saturating_sub(shown));
        Ok(())
    }

    fn submitted(&mut self, who: Who, call: &Made<'_>, fields: &[&[u8]]) -> Result<(), Senseless> {
        let opcode = field(fields, b"aio_lio_opcode").ok_or(Senseless)?;
        let how = match opcode {
            b"IOCB_CMD_PWRITE" | b"IOCB_CMD_PWRITEV" => How::WRITE,
            b"IOCB_CMD_PREAD" | b"IOCB_CMD_PREADV" | b"IOCB_CMD_FSYNC" | b"IOCB_CMD_FDSYNC" => How::READ,
            _ => {
                self.count("requests of io_submit that are no reads, writes or syncs");
                return Ok(());
            }
        };
        let fd: Descriptor<'_> = field(fields, b"aio_fildes").and_then(descriptor).ok_or(Senseless)?;
        let handle = match self.fd(who, fd, how) {
            Fd::File(handle) => handle,
            Fd::Other => {
                self.count(SPECIAL);
                return Ok(());
            }
            Fd::Unknown => {
                self.count(UNKNOWN);
                return Ok(());
            }
        };
        let op = match opcode {
            b"IOCB_CMD_FSYNC" => Op::Sync { handle, data_only: false },
            b"IOCB_CMD_FDSYNC" => Op::Sync { handle, data_only: true },
            _ => {
                let at = Some(field(fields, b"aio_offset").and_then(number).ok_or(Senseless)?);
                match asked(fields)? {
                    None => {
                        self.count_missing("requests of io_submit: what they asked for", 1);
                        return Ok(());
                    }
                    Some(bytes) if how == How::WRITE => Op::Write { handle, at, bytes },
                    Some(bytes) => Op::Read { handle, at, bytes },
                }
            }
        };
        self.emit(who, op, call);
        Ok(())
    }

    /// `io_uring_enter(6, 4, 0, 0, NULL, 8) = 4`: with none submitted it waits.
    pub(super) fn enter(&mut self, call: &Made<'_>) {
        match call.result {
            Returned::Value(1.., _) if call.number(1).is_some_and(|n| n > 0) => {
                self.count_missing("io_uring_enter calls: what they asked for", 1);
            }
            _ => self.count_call(call.name),
        }
    }

    pub(super) fn map(&mut self, who: Who, call: &Made<'_>) {
        let fd = call.descriptor(4).filter(|_| !call.has(3, b"MAP_ANONYMOUS"));
        let Some(fd) = fd else { return self.count("mmap") };
        let shared = call.has(3, b"MAP_SHARED") || call.has(3, b"MAP_SHARED_VALIDATE");
        let slot = fd.number.and_then(|n| self.processes.slot(who.pid, n)).map(|slot| slot.what.clone());
        let is_file = match (slot, fd.shown) {
            (Some(What::Open(_)), _) => true,
            (Some(What::Other(_)), _) => false,
            (None, Some(path)) => path.starts_with(b"/") && !self.is_other(path),
            (None, None) => true,
        };
        if is_file && shared && call.has(2, b"PROT_WRITE") && matches!(call.result, Returned::Value(..)) {
            self.count_missing("files mapped to be written: what was written there", 1);
        } else {
            self.count("mmap of files");
        }
    }

    pub(super) fn synced_map(&mut self) {
        self.count_missing("msync calls: what they wrote", 1);
    }
}

/// Bytes of a request; `None` if strace shows only a part of its list.
fn asked(fields: &[&[u8]]) -> Result<Option<u64>, Senseless> {
    if let Some(bytes) = field(fields, b"aio_nbytes") {
        return number(bytes).map(Some).ok_or(Senseless);
    }
    let list = field(fields, b"aio_buf").and_then(|b| b.strip_prefix(b"[")?.strip_suffix(b"]")).ok_or(Senseless)?;
    let mut sum = 0_u64;
    for piece in parts(list).ok_or(Senseless)? {
        let Some(inner) = piece.strip_prefix(b"{").and_then(|t| t.strip_suffix(b"}")) else { return Ok(None) };
        let length = field(&parts(inner).ok_or(Senseless)?, b"iov_len").and_then(number).ok_or(Senseless)?;
        sum = sum.saturating_add(length);
    }
    Ok(Some(sum))
}
