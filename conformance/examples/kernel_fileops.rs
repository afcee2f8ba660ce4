//! Runs the experiment `nexus-fileops` on the host kernel's own file systems, on a metered device with realistic
//! latency: ext4, and F2FS if the kernel has it. Otherwise Debian's kernel runs F2FS in an emulator
//! (`scripts/install-tools emulator`), whose slowness is not on the device's ledger. The volume is remounted for each
//! phase, with cold caches; the cost of mounting and unmounting alone is measured first and subtracted.
//!
//! Not part of `joulefs lab`: it needs root (loop devices), fio and minutes of real time, and does not repeat to the
//! picojoule.
//!
//!     cargo run -p joulefs-conformance --example kernel_fileops -- galaxy-nexus-emmc

use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use device::energy::profile::Profile;
use device::energy::{Energy, Ledger, Operation};
use device::gauge::{Gauge, Setup, Speed};
use device::{Memory, model};
use fuse::gauge::Files;
use fuse::{Caching, MountOptions};
use judges::oracle::qemu::{KernelPackage, Machine};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// MiB of the device, of the file, and of random reads and writes.
const DEVICE: u64 = 1024;
const FILE: u64 = 128;
const RANDOM: u64 = 10;

/// fio's arguments for each phase.
const PHASES: [(&str, &str, u64); 4] = [
    ("sequential-write", "--rw=write --bs=512k --fsync=1", FILE),
    ("random-write", "--rw=randwrite --bs=4k --fsync=1", RANDOM),
    ("sequential-read", "--rw=read --bs=512k", FILE),
    ("random-read", "--rw=randread --bs=4k", RANDOM),
];

/// The same phases for a guest without fio: `work PHASE KIB COUNT MIB` makes COUNT calls of KIB KiB on a file of MIB
/// MiB.
const GUEST: &str = r#"
work() {
    perl -e '
        my ($how, $kib, $count, $mib) = @ARGV; my $size = $kib * 1024;
        my @at = (0 .. $mib * 1024 / $kib - 1); srand 1;
        if ($how =~ /random/) { for my $i (reverse 1 .. $#at) { my $j = int rand($i + 1); @at[$i, $j] = @at[$j, $i] } }
        open F, $how eq "sequential-write" ? "+>" : "+<", "/mnt/file" or die "open: $!";
        my $data = join "", map { chr int rand 256 } 1 .. $size;
        for my $at (@at[0 .. $count - 1]) {
            sysseek F, $at * $size, 0 or die "seek: $!";
            if ($how =~ /write/) {
                syswrite(F, $data) == $size or die "write: $!";
                syscall(74, fileno F) == 0 or die "fsync: $!";
            } else { sysread(F, my $got, $size) == $size or die "read: $!" }
        }' $1 $2 $3 $4
}
"#;

/// Energy spent, bytes read and written.
#[derive(Clone, Copy)]
struct Reading {
    energy: Energy,
    read: u64,
    written: u64,
    requests: u64,
    flushes: u64,
}

fn reading(gauge: &Gauge) -> Reading {
    let report = gauge.report();
    let ledger: &Ledger = &report.ledger;
    // Idle time is not part of the work.
    let idle = ledger.operation(Operation::Idle).energy;
    let blocks = |o: Operation| report.times.work[o as usize].blocks * 4096;
    let count = |o: Operation| ledger.operation(o).operations;
    Reading {
        energy: ledger.total() - idle,
        read: blocks(Operation::Read),
        written: blocks(Operation::Write),
        requests: count(Operation::Read) + count(Operation::Write),
        flushes: count(Operation::Flush),
    }
}

/// Runs a program and returns its output, or its error message if it fails.
fn tell(program: &str, args: &[&str]) -> Outcome<String> {
    let out = Command::new(program).args(args).output().map_err(|e| format!("{program}: {e}"))?;
    match out.status.success() {
        true => Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned()),
        false => Err(format!("{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr)).into()),
    }
}

/// Mounts, runs the work, unmounts, and returns the cost.
fn mounted(gauge: &Gauge, disk: &Path, at: &Path, fs: &str, work: &[&str]) -> Outcome<Reading> {
    let disk = disk.to_str().ok_or("a path that is no text")?;
    let at = at.to_str().ok_or("a path that is no text")?;
    let before = reading(gauge);
    let device = tell("losetup", &["--find", "--show", "--direct-io=on", disk])?;
    let done = tell("mount", &["-t", fs, &device, at]).and_then(|_| {
        // Drop the cache of data written before.
        std::fs::write("/proc/sys/vm/drop_caches", "3")?;
        let done = work.split_first().map_or(Ok(String::new()), |(program, args)| tell(program, args));
        tell("umount", &[at])?;
        done
    });
    tell("losetup", &["--detach", &device])?;
    done?;
    Ok(since(gauge, before))
}

fn since(gauge: &Gauge, before: Reading) -> Reading {
    let after = reading(gauge);
    Reading {
        energy: after.energy - before.energy,
        read: after.read - before.read,
        written: after.written - before.written,
        requests: after.requests - before.requests,
        flushes: after.flushes - before.flushes,
    }
}

/// Runs the same in a guest that uses the disk.
fn in_guest(gauge: &Gauge, disk: &Path, work: &str) -> Outcome<Reading> {
    let before = reading(gauge);
    let machine = Machine::new(KernelPackage::installed()?)?.direct_disk(disk);
    let run = machine.run(&format!("{GUEST}mount -t f2fs /dev/vda /mnt\n{work}\numount /mnt\n"))?;
    match run.ok() {
        true => Ok(since(gauge, before)),
        false => Err(run.describe().into()),
    }
}

fn measure(profile: &Profile, fs: &str, mkfs: &[&str], guest: bool) -> Outcome<()> {
    let blocks = DEVICE << 8;
    let gauge = Arc::new(Gauge::new(Setup {
        contents: Arc::new(Memory::new(blocks)),
        discards_read_zero: true,
        model: model::build(profile, blocks)?,
        profile: profile.clone(),
        speed: Speed::Paced,
    }));
    let dir = tempfile::tempdir()?;
    let options = MountOptions { caching: Caching::Live, ..MountOptions::default() };
    let shown = fuse::mount(Arc::new(Files::new(gauge.clone())), dir.path(), &options)?;
    let disk = dir.path().join("disk");
    let name = disk.to_str().ok_or("a path that is no text")?;
    tell(mkfs[0], &[&mkfs[1..], &[name]].concat())?;
    let at = tempfile::tempdir()?;
    let file = format!("--filename={}/file", at.path().display());
    let size = format!("--size={FILE}m");
    let once = |phase: Option<(&str, &str, u64)>| match (phase, guest) {
        (None, false) => mounted(&gauge, &disk, at.path(), fs, &[]),
        (None, true) => in_guest(&gauge, &disk, ""),
        (Some((name, how, mib)), false) => {
            let (name, moves) = (format!("--name={name}"), format!("--io_size={mib}m"));
            let mut fio = vec!["fio", &name, &file, &size, &moves, "--ioengine=psync", "--randseed=1"];
            fio.extend(["--fallocate=none", "--invalidate=0", "--minimal"]);
            fio.extend(how.split(' '));
            mounted(&gauge, &disk, at.path(), fs, &fio)
        }
        (Some((name, how, mib)), true) => {
            let kib = if how.contains("--bs=4k") { 4 } else { 512 };
            in_guest(&gauge, &disk, &format!("work {name} {kib} {} {FILE}", mib * 1024 / kib))
        }
    };
    once(None)?;
    let alone = once(None)?;
    for (name, how, mib) in PHASES {
        let r = once(Some((name, how, mib)))?;
        let kilobytes = (mib * 1024) as f64;
        let moved = |b: u64, less: u64| b.saturating_sub(less) as f64 / 1_048_576.0;
        println!(
            "| {fs} | {name} | {:.1} | {:.2} | {:.2} | {} | {} |",
            (r.energy - alone.energy).millijoules() * 1e3 / kilobytes,
            moved(r.read, alone.read) / mib as f64,
            moved(r.written, alone.written) / mib as f64,
            r.requests.saturating_sub(alone.requests),
            r.flushes.saturating_sub(alone.flushes),
        );
    }
    shown.unmount()?;
    shown.wait()?;
    Ok(())
}

fn run() -> Outcome<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "galaxy-nexus-emmc".into());
    let profile = Profile::find(&name)?;
    println!("| file system | phase | uJ/KB | read for each MB | written for each MB | requests | flushes |");
    println!("|---|---|---|---|---|---|---|");
    let known = std::fs::read_to_string("/proc/filesystems")?;
    for (fs, mkfs) in [("ext4", ["mkfs.ext4", "-q", "-F"]), ("f2fs", ["mkfs.f2fs", "-q", "-f"])] {
        match known.split_whitespace().any(|k| k == fs) {
            true => measure(&profile, fs, &mkfs, false)?,
            false if fs == "f2fs" => measure(&profile, fs, &mkfs, true)?,
            false => eprintln!("kernel_fileops: this kernel has no {fs}"),
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("kernel_fileops: {e}");
            ExitCode::FAILURE
        }
    }
}
