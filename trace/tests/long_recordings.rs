//! Recordings of any length are read, counted, converted and scanned for a replay in constant memory.
//!
//! Each is generated while it is read, in a separate process (this program again), whose peak memory is compared.
//! LONG_RECORDINGS sets the length of the recordings in megabytes.

#[path = "drivers/recordings.rs"]
mod recordings;

use std::fmt::Write as _;
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use recordings::generated;
use trace::requests::{Requests, Seen};
use trace::write::{blkparse, fio_iolog, parquet};
use trace::{Input, Kind, Opened, open_input, open_input_as, replay, stat};

/// Megabytes of a recording, and the memory limit while it is read: a large part of that are sets of fixed size.
const LONG: u64 = 160;
const MOST: f64 = 100.0;

/// The task of the separate process.
const TASK: &str = "LONG_RECORDINGS_TASK";

/// Peak memory of this process, in megabytes.
fn peak() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<f64>().unwrap() * 1024.0 / 1e6
}

fn megabytes() -> u64 {
    std::env::var("LONG_RECORDINGS").ok().and_then(|n| n.parse().ok()).unwrap_or(LONG)
}

fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name);
    let mut bytes = Vec::new();
    Input::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

/// A head, followed by numbered lines until there are enough bytes.
fn lines(head: &str, line: impl Fn(u64, &mut String) + Send + 'static) -> Box<dyn Read + Send> {
    let (mut n, mut left, mut text) = (0, megabytes() * 1_000_000, head.to_owned());
    Box::new(generated(move |out| {
        while text.len() < 1 << 16 {
            line(n, &mut text);
            n += 1;
        }
        out.extend_from_slice(text.as_bytes());
        let go_on = left > 0;
        left = left.saturating_sub(text.len() as u64);
        text.clear();
        go_on
    }))
}

/// A block of 4 KiB within a gibibyte, by the number of a request; consecutive ones are never adjacent.
fn place(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 46
}

/// Number of copies: whole ones, so that no request is cut at the end.
fn copies(once: &[u8]) -> u64 {
    (megabytes() * 1_000_000).div_ceil(once.len() as u64)
}

/// Programs that each open some files, read, write and rename them, create temporary ones, and exit.
fn strace() -> Box<dyn Read + Send> {
    lines("", |n, out| {
        let (pid, fd) = (100 + n % 3, 3 + n % 3);
        let time = |step: u64| format!("{pid} {}.{:06}", 1_700_000_000 + n / 1000, n % 1000 * 1000 + step);
        let (a, b) = (format!("/data/{}.db", n % 50), format!("/data/{}.db-journal", n % 50));
        for (step, call) in [
            (0, format!("openat(AT_FDCWD, \"{a}\", O_RDWR|O_CREAT, 0600) = {fd} <0.000010>")),
            (1, format!("pread64({fd}, \"\"..., 4096, {}) = 4096 <0.000010>", place(n) % 64 * 4096)),
            (2, format!("close({fd}) = 0 <0.000010>")),
            (3, format!("openat(AT_FDCWD, \"{b}\", O_RDWR|O_CREAT|O_EXCL, 0600) = {fd} <0.000010>")),
            (4, format!("write({fd}, \"\"..., 8192) = 8192 <0.000010>")),
            (5, format!("fsync({fd}) = 0 <0.000010>")),
            (6, format!("close({fd}) = 0 <0.000010>")),
            (
                7,
                match n % 2 {
                    0 => format!("unlink(\"{b}\") = 0 <0.000010>"),
                    _ => format!("rename(\"{b}\", \"{a}\") = 0 <0.000010>"),
                },
            ),
        ] {
            let _ = writeln!(out, "{} {call}", time(step));
        }
    })
}

/// Threads one after the other.
fn mobibench() -> Box<dyn Read + Send> {
    let each = megabytes() * 1_000_000 / 35 / 8;
    lines("", move |n, out| {
        let (thread, time, fd) = (1 + n / each.max(1), n % each.max(1) * 40, 30 + n / each.max(1) % 8);
        let _ = match n % 4 {
            0 => writeln!(out, "{thread} {time} open \"/data/data/app/{}.db\" O_RDWR|O_CREAT {fd}", n % 40),
            1 => writeln!(out, "{thread} {time} pwrite64 {fd} {} 4096", place(n) % 64 * 4096),
            2 => writeln!(out, "{thread} {time} fsync {fd} 0"),
            _ => writeln!(out, "{thread} {time} close {fd} 0"),
        };
    })
}

fn server(n: u64, out: &mut String) {
    let kind = if n.is_multiple_of(2) { "Read" } else { "Write" };
    let _ = writeln!(out, "{},usr,0,{kind},{},4096,41286", 128_166_372_003_061_629 + n * 1000, place(n) * 4096);
}

fn recording(name: &str) -> Box<dyn Read + Send> {
    let second = 1_000_000_000;
    match name {
        "blktrace" => {
            let once = fixture("blktrace/vda.blktrace.1.zst");
            let copies = copies(&once);
            Box::new(recordings::blktrace(once, copies, second))
        }
        "Perfetto" | "rails" => {
            let once = fixture("perfetto/events.pftrace.zst");
            let copies = copies(&once);
            Box::new(recordings::perfetto(once, copies, second))
        }
        "trace.dat" => {
            let once = fixture("ftrace/v6.dat.zst");
            let copies = copies(&once);
            Box::new(recordings::trace_dat(once, copies, second))
        }
        "blkparse" => lines("", |n, out| {
            let (s, ns, at, cpu) = (n / 10_000, n % 10_000 * 100_000, place(n) * 8, n % 4);
            let _ = writeln!(out, "  8,0    {cpu} {n:>8} {s:>5}.{ns:09}  697  D  WS {at} + 8 [dd]");
            let _ = writeln!(out, "  8,0    {cpu} {n:>8} {s:>5}.{:09}  697  C  WS {at} + 8 [0]", ns + 50_000);
        }),
        "ftrace" => lines("# tracer: nop\n#\n", |n, out| {
            let (s, us, at, pid) = (n / 10_000, n % 10_000 * 100, place(n) * 8, n % 30_000);
            let _ = writeln!(
                out,
                "  app{}-{pid} [00{}] ..... {s}.{us:06}: block_rq_issue: 8,0 WS 4096 () {at} + 8 [app]",
                n % 90,
                n % 4
            );
            let _ = writeln!(
                out,
                "  <idle>-0 [00{}] ..... {s}.{:06}: block_rq_complete: 8,0 WS () {at} + 8 [0]",
                n % 4,
                us + 50
            );
        }),
        "fio 2" => lines("fio version 2 iolog\n/f add\n/f open\n", |n, out| {
            let _ = writeln!(out, "/f write {} 4096", place(n) * 4096);
        }),
        "fio 3" => lines("fio version 3 iolog\n0 /f add\n0 /f open\n", |n, out| {
            let _ = writeln!(out, "{} /f write {} 4096", n * 10, place(n) * 4096);
        }),
        "Microsoft Research" => lines("", server),
        "SYSTOR'17" => lines("Timestamp,Response,IOType,LUN,Offset,Size\n", |n, out| {
            let _ = writeln!(
                out,
                "{}.{:06},0.000100,W,1,{},4096",
                1_456_000_000 + n / 1000,
                n % 1000 * 1000,
                place(n) * 4096
            );
        }),
        "mobile" => lines("proces,device,rw_flag,sector,size,timestamp\n", |n, out| {
            let _ = writeln!(
                out,
                "app{}-7,8388608,W,{},8,{}.{:06}",
                n % 90,
                place(n) * 8,
                600_000 + n / 1000,
                n % 1000 * 1000
            );
        }),
        "strace" => strace(),
        "MobiBench" => mobibench(),
        "Monsoon" => lines("Time(ms),Main(mA),Main Voltage(V),\n", |n, out| {
            let _ = writeln!(out, "{}.{:06},{}.5,4.009,", n / 5000, n % 5000 * 200, 1000 + n % 700);
        }),
        other => panic!("{other}"),
    }
}

/// Runs one task with one recording; returns its number of records.
fn done(task: &str, name: &str) -> u64 {
    let input = Input::new(Path::new(name), recording(name)).unwrap();
    let opened = if name == "rails" { open_input_as(input, Kind::Power) } else { open_input(input) }.unwrap();
    let mut records = 0;
    match (opened, task) {
        (Opened::Blocks(events), "stat") => {
            let (stat, whole) = stat::blocks::count(&mut Requests::new(events), |_| {});
            whole.unwrap();
            records = stat.requests;
        }
        (Opened::Blocks(events), "needs") => {
            let (all, whole) = replay::extent::scan(&mut Requests::new(events), |_| {});
            whole.unwrap();
            all.values().for_each(|extent| records += extent.requests + extent.held().len() as u64);
        }
        (Opened::Blocks(events), "fio") => {
            let mut out = fio_iolog::Writer::new(io::sink(), fio_iolog::Version::V3).unwrap();
            let mut requests = Requests::new(events);
            while let Some(seen) = requests.seen().unwrap() {
                if let Seen::Asked(request) = seen {
                    out.request(&request, |_| None).unwrap();
                    records += 1;
                }
            }
        }
        (Opened::Blocks(mut events), "blkparse") => {
            let mut out = blkparse::Writer::new(io::sink());
            while let Some(event) = events.next().unwrap() {
                out.event(&event, events.names()).unwrap();
                records += 1;
            }
        }
        (Opened::Blocks(mut events), "parquet") => {
            let mut out = parquet::Blocks::new(io::sink(), events.format()).unwrap();
            while let Some(event) = events.next().unwrap() {
                out.event(&event, &*events).unwrap();
                records += 1;
            }
            out.finish().unwrap();
        }
        (Opened::Calls(mut calls), "stat") => {
            let (stat, whole) = stat::calls::count(&mut *calls, |_| {});
            whole.unwrap();
            records = stat.calls;
        }
        (Opened::Calls(mut calls), "needs") => {
            let (needs, whole) = replay::needs::scan(&mut *calls, |consumed| records = consumed);
            whole.unwrap();
            assert!(needs.files.len() < 200, "{} files", needs.files.len());
        }
        (Opened::Calls(mut calls), "parquet") => {
            let mut out = parquet::Calls::new(io::sink(), calls.format()).unwrap();
            while let Some(call) = calls.next().unwrap() {
                out.call(&call).unwrap();
                records += 1;
            }
            out.finish().unwrap();
        }
        (Opened::Power(mut readings), "stat") => {
            let (stat, whole) = stat::power::count(&mut *readings, |_| {});
            whole.unwrap();
            records = stat.readings;
        }
        _ => panic!("{task} of {name}"),
    }
    records
}

#[test]
fn no_recording_is_held_however_long_it_is() {
    if let Ok(task) = std::env::var(TASK) {
        let (what, name) = task.split_once(' ').unwrap();
        let records = done(what, name);
        println!("\npeak {} {records}", peak());
        return;
    }
    let blocks = [
        "blktrace",
        "Perfetto",
        "trace.dat",
        "blkparse",
        "ftrace",
        "fio 2",
        "fio 3",
        "Microsoft Research",
        "SYSTOR'17",
        "mobile",
    ];
    let all = blocks.iter().chain(&["strace", "MobiBench", "rails", "Monsoon"]).map(|name| ("stat", *name));
    let others = ["strace", "MobiBench", "mobile"].map(|name| ("needs", name));
    let written = ["fio", "blkparse", "parquet"].map(|what| (what, "mobile"));
    let tasks = Mutex::new(all.chain(others).chain(written).chain([("parquet", "strace")]));
    let work = || {
        let next = || tasks.lock().unwrap().next();
        std::iter::from_fn(next).for_each(|(what, name)| in_constant_memory(what, name));
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
}

/// Runs a task in a process of its own.
fn in_constant_memory(what: &str, name: &str) {
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "long_recordings::no_recording_is_held_however_long_it_is", "--nocapture"];
    let out = Command::new(program).args(args).env(TASK, format!("{what} {name}")).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let numbers = text.lines().find_map(|line| line.strip_prefix("peak ")?.split_once(' '));
    let Some((peak, records)) = numbers else { panic!("{what} of {name}: {out:?}") };
    println!("{what} of {name}: {peak} MB held at most, {records} records");
    assert!(peak.parse::<f64>().unwrap() < MOST, "{what} of {name}: {peak} MB");
    assert!(records.parse::<u64>().unwrap() > megabytes() * 500, "{what} of {name}: {records} records");
}
