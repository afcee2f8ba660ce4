//! How fast are external recordings read, and replayed on the simulated flash?
//!
//! The input is in memory: recordings made by the real tools (`trace/fixtures`), repeated (those of several processors,
//! whose events are merged by time, shifted in time at each repetition), and generated text for line-based formats.
//! Reading means parsing to events, which are dropped.

use std::fmt::Write as _;
use std::io::{Cursor, Read};
use std::path::Path;

use device::Rng;
use device::energy::profile::Profile;
use sim::traces::Speed;
use sim::traces::blocks::{Options, run};
use trace::replay::blocks::How;
use trace::requests::Requests;
use trace::{Input, Opened, TraceError, open, open_input};

use super::in_process::Measured;
use super::{Outcome, Stopwatch, median};
use crate::recordings;

/// Bytes of input.
const BYTES: usize = 256 << 20;
/// Requests that are replayed.
const REQUESTS: u64 = 2_000_000;

/// The row for a format read at several positions: from a file, not from a copy of a stream.
const TRACE_DAT: &str = "trace.dat's block events read";

const TEXT: &str = "≥ 200";
const BINARY: &str = "≥ 1,000";

/// A recording of the real tools, decompressed.
fn fixture(name: &str) -> Outcome<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/fixtures").join(name);
    let mut input = Input::open(&path)?;
    let mut bytes = Vec::new();
    input.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Repeats the input until it is long enough.
fn repeated(once: &[u8]) -> Vec<u8> {
    once.repeat(BYTES.div_ceil(once.len().max(1)))
}

/// Repeats the input, each time a second later, until it is long enough.
fn later<R: Read>(once: Vec<u8>, copies: impl Fn(Vec<u8>, u64, u64) -> R) -> Outcome<Vec<u8>> {
    let (mut bytes, times) = (Vec::new(), BYTES.div_ceil(once.len().max(1)) as u64);
    copies(once, times, 1_000_000_000).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Lines of a mobile block trace.
fn mobile() -> Vec<u8> {
    let mut rng = Rng::new(1);
    let mut text = String::from("proces,device,rw_flag,sector,size,timestamp\n");
    let mut micros = 653_406_907_265_u64;
    while text.len() < BYTES {
        micros += rng.below(3000);
        let (kind, sector, sectors) = (if rng.chance(1, 5) { 'R' } else { 'W' }, rng.below(1 << 28), 8 << rng.below(4));
        let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
        let pid = rng.below(30_000);
        // OK to ignore: writing to a string does not fail.
        let _ = writeln!(text, "kworker/u16:{}-{pid},8388608,{kind},{sector},{sectors},{seconds}.{rest:06}", pid % 5);
    }
    text.into_bytes()
}

/// Lines of a Microsoft Research trace: `requests` requests of 4 KB within one GiB, `apart` times 100 ns apart.
fn server(requests: u64, apart: u64) -> Vec<u8> {
    let mut rng = Rng::new(2);
    let mut text = String::new();
    for n in 0..requests {
        let kind = if rng.chance(1, 2) { "Read" } else { "Write" };
        let (time, at) = (128_166_372_003_061_629 + n * apart, rng.below(1 << 18) * 4096);
        let _ = writeln!(text, "{time},usr,0,{kind},{at},4096,41286");
    }
    text.into_bytes()
}

/// A directory in memory, if possible.
fn memory() -> std::io::Result<tempfile::TempDir> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("joulefs-bench-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir())
}

fn opened(bytes: Vec<u8>) -> Result<Opened, TraceError> {
    open_input(Input::new(Path::new("recording"), Cursor::new(bytes))?)
}

/// Reads to the end; returns the number of records.
fn read(opened: Opened) -> Result<u64, TraceError> {
    let mut records = 0;
    match opened {
        Opened::Blocks(mut r) => {
            while r.next()?.is_some() {
                records += 1
            }
        }
        Opened::Calls(mut r) => {
            while r.next()?.is_some() {
                records += 1
            }
        }
        Opened::Power(mut r) => {
            while r.next()?.is_some() {
                records += 1
            }
        }
    }
    Ok(records)
}

/// The rows, each as the median of `passes` passes.
///
/// # Errors
/// A recording that cannot be read, a device that cannot be simulated.
pub fn all(passes: usize) -> Outcome<Vec<Measured>> {
    let inputs: [(&str, &'static str, Vec<u8>); 9] = [
        ("blktrace's records read", BINARY, repeated(&fixture("blktrace/vda.blktrace.1.zst")?)),
        ("the same with a scheduler's messages among them", BINARY, repeated(&fixture("blktrace/vdb.blktrace.zst")?)),
        ("Perfetto's block events read", BINARY, later(fixture("perfetto/events.pftrace.zst")?, recordings::perfetto)?),
        (TRACE_DAT, BINARY, later(fixture("ftrace/v6.dat.zst")?, recordings::trace_dat)?),
        ("blkparse's text read", TEXT, repeated(&fixture("blktrace/vdb.blkparse.zst")?)),
        ("ftrace's text read", TEXT, repeated(&fixture("ftrace/trace.txt.zst")?)),
        ("CSV of mobile block traces read", TEXT, mobile()),
        ("CSV of Microsoft Research read", TEXT, server(BYTES as u64 / 60, 1000)),
        ("strace's text read", TEXT, repeated(&fixture("strace/programs.y.strace.gz")?)),
    ];
    let mut rows = Vec::new();
    let place = memory()?;
    for (name, aim, bytes) in inputs {
        let length = bytes.len() as f64 / 1e6;
        let mut rates = Vec::new();
        let mut records = 0;
        let file = place.path().join("trace.dat");
        if name == TRACE_DAT {
            std::fs::write(&file, &bytes)?;
        }
        for _ in 0..passes.max(1) {
            let bytes = if name == TRACE_DAT { None } else { Some(bytes.clone()) };
            let since = Stopwatch::start();
            records = read(match bytes {
                Some(bytes) => opened(bytes)?,
                None => open(&file)?,
            })?;
            rates.push(length / since.elapsed().as_secs_f64());
        }
        let rate = median(&rates);
        let name = format!("{name}; {:.1} million records a second", records as f64 / length * rate / 1e6);
        rows.push(Measured { name, value: rate, unit: "MB/s", aim });
    }
    let text = server(REQUESTS, 10_000);
    let profile = Profile::find("kirin9000-ufs31")?;
    let requests = || match opened(text.clone())? {
        Opened::Blocks(events) => Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Requests::new(events)),
        _ => Err("not of a block device".into()),
    };
    let plan = Options::default().plan(requests()?, |_| {})?;
    let mut rates = Vec::new();
    for _ in 0..passes.max(1) {
        let mut requests = requests()?;
        let since = Stopwatch::start();
        let done = run(&mut requests, &profile, &plan, Speed::Virtual, How::RECORDED, |_, _, _| {}, |_| {})?;
        rates.push(done.done.requests as f64 / since.elapsed().as_secs_f64());
    }
    rows.push(Measured {
        name: "text read and its random reads and writes within 1 GiB replayed on the simulated flash".into(),
        value: median(&rates),
        unit: "op/s",
        aim: "≥ 500,000",
    });
    Ok(rows)
}
