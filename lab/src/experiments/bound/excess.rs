//! Where do the joules go that a policy spends above the bound of [`super::joules`]?
//!
//! Every joule of a phase is booked under a cause and a part; each belongs to one row here, and the rows add up to what was
//! spent less the bound. The board's power is divided by time: transfers go with their bytes, requests with requests, and
//! what remains is waiting for the flash. Left out: devices whose controller draws power while a request is active, for
//! which [`above`] has no answer, and disks, which have no bound.

use device::energy::profile::{DeviceSpec, Profile};
use device::energy::{Energy, Nanos, Operation, Part};
use f2fs::cause::Cause;
use sim::result::{Phase, Traffic};

use super::joules::Work;

/// The rows: a name for the measure, and its joules.
pub(super) type Rows = [(&'static str, f64); 8];

/// What a cause's bytes are.
#[derive(Clone, Copy, PartialEq)]
enum Bytes {
    /// Of files.
    Contents,
    /// Of files, moved.
    Moved,
    /// Of nodes, tables and checkpoint packs, moved or not.
    Tables,
}

fn bytes_of(cause: u8) -> Bytes {
    match Cause::from_number(cause) {
        Some(Cause::BackgroundGcData | Cause::ForegroundGcData) => Bytes::Moved,
        Some(Cause::UserData | Cause::Directory | Cause::Other) | None => Bytes::Contents,
        Some(_) => Bytes::Tables,
    }
}

/// The rows of a phase whose bound is that of `work`. `None`: the profile has no division.
pub(super) fn above(profile: &Profile, phase: &Phase, work: Work) -> Option<Rows> {
    let DeviceSpec::Flash(flash) = &profile.device else { return None };
    if flash.busy.is_some() {
        return None;
    }
    let (host, link, nand) = (profile.host.prices(), &flash.link, &flash.nand);
    let size = device::BLOCK as u64;
    let joules = |energy: Energy, times: f64| energy.joules() * times;
    let moving = |read: u64, written: u64| {
        joules(host.board.over(link.read.value.of(size)), read as f64)
            + joules(host.board.over(link.write.value.of(size)), written as f64)
    };
    let program = nand.program_energy.value.of(size);
    let both = host.cpu_byte.of(size) + host.dram_byte.of(size);
    let write = both + link.write_energy.value.of(size) + program + host.board.over(link.write.value.of(size));
    let read = both + link.read_energy.value.of(size) + host.board.over(link.read.value.of(size));

    let parts = |wanted: &[Part], cause: &dyn Fn(u8) -> bool| {
        let some = phase.spent.iter().filter(|s| wanted.contains(&s.part) && cause(s.cause));
        some.map(|s| s.energy).sum::<Energy>().joules()
    };
    let all = |wanted: &[Part]| parts(wanted, &|_| true);
    let count = |of: &dyn Fn(&Traffic) -> u64, cause: &dyn Fn(u8) -> bool| -> u64 {
        phase.traffic.iter().filter(|t| cause(t.cause)).map(of).sum()
    };
    let bytes = |what: Bytes| {
        let of = |cause: u8| bytes_of(cause) == what;
        let (r, w) = (count(&|t| t.blocks_read, &of), count(&|t| t.blocks_written, &of));
        parts(&[Part::CpuBytes, Part::Dram, Part::Link, Part::FlashRead], &of)
            + joules(program, w as f64)
            + moving(r, w)
    };
    let any = |_| true;
    let (r, w) = (count(&|t| t.blocks_read, &any), count(&|t| t.blocks_written, &any));
    let requests = |o: Operation| phase.operations.iter().find(|c| c.operation == o).map_or(0, |c| c.count) as f64;
    let write_request = link.write_request.as_ref().unwrap_or(&link.request).value;
    let asked = |time: Nanos, times: f64| joules(host.board.over(time), times);
    let asking = asked(write_request, requests(Operation::Write))
        + asked(link.request.value, requests(Operation::Read) + requests(Operation::Discard));
    let syncs = work.syncs as f64;
    let request = host.cpu_request + link.request_energy.value + host.board.over(write_request);
    let counted = [
        Part::CpuBytes,
        Part::Dram,
        Part::Link,
        Part::FlashRead,
        Part::FlashProgram,
        Part::CpuRequest,
        Part::Controller,
        Part::Flush,
        Part::FlashMap,
        Part::FlashClean,
        Part::FlashErase,
        Part::Board,
    ];
    Some([
        ("contents", bytes(Bytes::Contents) - joules(write, (work.written - work.nodes) as f64)),
        ("moves", bytes(Bytes::Moved) - joules(read + write, work.moved)),
        ("tables", bytes(Bytes::Tables) - joules(write, work.nodes as f64)),
        ("requests", all(&[Part::CpuRequest, Part::Controller]) + asking - joules(request, syncs)),
        ("flushes", all(&[Part::Flush]) - joules(flash.flush_energy.value, syncs)),
        (
            "inside",
            all(&[Part::FlashMap, Part::FlashClean, Part::FlashErase, Part::FlashProgram]) - joules(program, w as f64),
        ),
        ("waiting", all(&[Part::Board]) - moving(r, w) - asking),
        ("rest", phase.total().joules() - all(&counted)),
    ])
}

#[cfg(test)]
mod tests {
    use device::{BlockDevice, Lba};
    use sim::bench::{Bench, blocks_of_mib};
    use sim::progress::Progress;

    use super::super::joules;
    use super::*;

    /// Requests whose prices are known one by one.
    #[test]
    fn each_joule_is_in_the_row_that_caused_it() {
        let profile = Profile::find("kirin9000-ufs31").unwrap();
        let bench = Bench::new(&profile, blocks_of_mib(64)).unwrap();
        let phase = bench.measure("overwriting", 1, &Progress::new(&|_| ()), |_| {
            let dev = bench.device();
            let write = |at, blocks: usize, cause: Cause| {
                dev.write(Lba(at), &vec![7; blocks * device::BLOCK], cause.tag()).map_err(vfs::Error::device)
            };
            (0..10).try_for_each(|n| write(n * 8, 8, Cause::UserData))?;
            write(1000, 16, Cause::Node)?;
            write(2000, 5, Cause::Sit)?;
            dev.read(Lba(0), &mut vec![0; 8 * device::BLOCK], Cause::BackgroundGcData.tag())
                .map_err(vfs::Error::device)?;
            write(3000, 8, Cause::BackgroundGcData)?;
            dev.flush(Cause::Checkpoint.tag()).map_err(vfs::Error::device)?;
            dev.flush(Cause::Checkpoint.tag()).map_err(vfs::Error::device)?;
            Ok(0)
        });
        let phase = phase.unwrap();
        let work = Work { written: 96, nodes: 16, moved: 6.0, syncs: 1 };
        let least = |work| joules::least(&profile, work).unwrap();
        let none = Work { written: 0, nodes: 0, moved: 0.0, syncs: 0 };
        let rows = above(&profile, &phase, work).unwrap();
        let row = |name: &str| rows.iter().find(|r| r.0 == name).unwrap().1;
        let is =
            |name: &str, joules: f64| assert!((row(name) - joules).abs() < 1e-9, "{name}: {} not {joules}", row(name));
        let block = least(Work { written: 1, ..none });
        let both = least(Work { moved: 1.0, ..none });
        is("contents", 0.0);
        is("tables", 5.0 * block);
        let DeviceSpec::Flash(flash) = &profile.device else { unreachable!() };
        // The bound leaves out what the flash spends to read a block that moves.
        is("moves", 2.0 * both + 8.0 * flash.nand.read_energy.value.of(device::BLOCK as u64).joules());
        is("flushes", flash.flush_energy.value.joules());
        // Twelve writes beyond the bound's one, and a read, which takes less time.
        let one = least(Work { syncs: 1, ..none }) - flash.flush_energy.value.joules();
        let board = |time: Nanos| profile.host.prices().board.over(time).joules();
        let shorter = board(flash.link.write_request.as_ref().unwrap().value) - board(flash.link.request.value);
        // The processor's price of making the two flushes.
        let flushes = 2.0 * profile.host.prices().cpu_request.joules();
        is("requests", 13.0 * one - shorter + flushes);
        is("rest", 0.0);
        assert!(row("inside") > 0.0 && row("waiting") > 0.0, "{rows:?}");
        let sum: f64 = rows.iter().map(|r| r.1).sum();
        assert!((sum - (phase.total().joules() - least(work))).abs() < 1e-9);
    }
}
