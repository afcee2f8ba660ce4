//! Makes the recordings of the experiment `nexus-kernel`: what ext4 and F2FS of Linux ask of a metered disk that takes its
//! time when a file is written and read as in Mohan's slides (HotStorage'17, slide 13), in several ways of mounting and of
//! writing that could be meant there.
//!
//! The kernel runs as a process (`scripts/install-tools kernel`), so that nobody needs root. Each phase has a mount of its
//! own with nothing in memory. Recorded is what the disk is asked while the work is done, and until a `sync` after it is;
//! what mounting and unmounting ask is not.
//!
//! Not part of `joulefs lab`, for it takes minutes of real time and does not repeat exactly.
//!
//!     cargo run -p joulefs-conformance --example record_fileops -- OUT galaxy-nexus-emmc [SIDE...]

#[path = "metered/mod.rs"]
mod metered;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::clock::RealClock;
use device::energy::profile::Profile;
use joulefs_conformance::oracle::kernel::Kernel;
use joulefs_conformance::oracle::linux::Linux;
use metered::Disk;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Mebibytes of the disk.
const DISK: u64 = 1024;

/// A way of using a file system.
struct Side {
    name: &'static str,
    fs: &'static str,
    mkfs: &'static [&'static str],
    mount: &'static str,
    /// What the guest does before it works on the file.
    before: &'static str,
    /// Phases: name, what is done, KiB of a call, calls, MiB of the file.
    phases: &'static [Phase],
}

type Phase = (&'static str, &'static str, u64, u64, u64);

const SEQUENTIAL_WRITE: Phase = ("sequential-write", "sequential-write", 512, 256, 128);
const RANDOM_WRITE: Phase = ("random-write", "random-write", 4, 2560, 128);
const SEQUENTIAL_READ: Phase = ("sequential-read", "sequential-read", 512, 256, 128);
const RANDOM_READ: Phase = ("random-read", "random-read", 4, 2560, 128);
/// Into a file that is one hole, of the size of what is written.
const HOLES: Phase = ("random-write", "random-write-holes", 4, 2560, 10);
/// At any byte, not at multiples of a page.
const ANYWHERE: Phase = ("random-read", "random-read-anywhere", 4, 2560, 128);
const WRITE_ANYWHERE: Phase = ("random-write", "random-write-anywhere", 4, 2560, 128);
/// Through a mapping of the file.
const MAPPED: Phase = ("random-read", "random-read-mapped", 4, 2560, 128);

const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
const F2FS: &[&str] = &["mkfs.f2fs", "-q", "-f"];
/// No kernel adds anything to `fsync` that 2014's did not: no writing in place.
const NOT_IN_PLACE: &str = "echo 0 > /sys/fs/f2fs/ubdb/ipu_policy";

const SIDES: &[Side] = &[
    Side { name: "ext4", fs: "ext4", mkfs: EXT4, mount: "", before: "", phases: &[SEQUENTIAL_WRITE, RANDOM_WRITE, SEQUENTIAL_READ, RANDOM_READ] },
    Side { name: "f2fs", fs: "f2fs", mkfs: F2FS, mount: "", before: "", phases: &[SEQUENTIAL_WRITE, RANDOM_WRITE, SEQUENTIAL_READ, RANDOM_READ] },
    Side { name: "ext4-holes", fs: "ext4", mkfs: EXT4, mount: "", before: "", phases: &[HOLES] },
    Side { name: "f2fs-holes", fs: "f2fs", mkfs: F2FS, mount: "", before: "", phases: &[HOLES] },
    Side { name: "f2fs-not-in-place", fs: "f2fs", mkfs: F2FS, mount: "", before: NOT_IN_PLACE, phases: &[SEQUENTIAL_WRITE, RANDOM_WRITE] },
    Side { name: "ext4-data-journal", fs: "ext4", mkfs: EXT4, mount: "data=journal", before: "", phases: &[SEQUENTIAL_WRITE, RANDOM_WRITE] },
    Side { name: "ext4-old", fs: "ext4", mkfs: &["mkfs.ext4", "-q", "-F", "-O", "^64bit,^metadata_csum,^flex_bg,^orphan_file,^fast_commit", "-E", "lazy_itable_init=0,lazy_journal_init=0"], mount: "noatime,nodelalloc", before: "", phases: &[SEQUENTIAL_WRITE, RANDOM_WRITE] },
    Side { name: "ext4-old-holes", fs: "ext4", mkfs: &["mkfs.ext4", "-q", "-F", "-O", "^64bit,^metadata_csum,^flex_bg,^orphan_file,^fast_commit", "-E", "lazy_itable_init=0,lazy_journal_init=0"], mount: "noatime,nodelalloc", before: "", phases: &[HOLES] },
    Side { name: "ext4-no-extents-holes", fs: "ext4", mkfs: &["mkfs.ext4", "-q", "-F", "-O", "^extents,^64bit,^metadata_csum,^flex_bg,^orphan_file", "-E", "lazy_itable_init=0,lazy_journal_init=0"], mount: "", before: "", phases: &[HOLES] },
    Side { name: "ext4-1k", fs: "ext4", mkfs: &["mkfs.ext4", "-q", "-F", "-b", "1024", "-E", "lazy_itable_init=0,lazy_journal_init=0"], mount: "", before: "", phases: &[SEQUENTIAL_WRITE, RANDOM_WRITE] },
    Side { name: "ext4-anywhere", fs: "ext4", mkfs: EXT4, mount: "", before: "", phases: &[SEQUENTIAL_WRITE, WRITE_ANYWHERE, ANYWHERE] },
    Side { name: "f2fs-anywhere", fs: "f2fs", mkfs: F2FS, mount: "", before: "", phases: &[SEQUENTIAL_WRITE, WRITE_ANYWHERE, ANYWHERE] },
    Side { name: "ext4-mapped", fs: "ext4", mkfs: EXT4, mount: "", before: "echo 8 > /sys/block/ubdb/queue/read_ahead_kb", phases: &[SEQUENTIAL_WRITE, MAPPED] },
    Side { name: "f2fs-mapped", fs: "f2fs", mkfs: F2FS, mount: "", before: "echo 8 > /sys/block/ubdb/queue/read_ahead_kb", phases: &[SEQUENTIAL_WRITE, MAPPED] },
];

/// `work HOW KIB COUNT MIB` makes so many calls of so many KiB on a file of so many MiB.
const WORK: &str = r#"
work() {
    perl -e '
        my ($how, $kib, $count, $mib) = @ARGV; my $size = $kib * 1024;
        my @at = map { $_ * $size } 0 .. $mib * 1024 / $kib - 1; srand 1;
        if ($how =~ /random/) { for my $i (reverse 1 .. $#at) { my $j = int rand($i + 1); @at[$i, $j] = @at[$j, $i] } }
        if ($how =~ /anywhere/) { pop @at; $_ = int rand($mib * 1048576 - $size) for @at }
        my $file = "/tmp/m/file";
        if ($how =~ /holes/) { open F, "+>", $file or die "open: $!"; truncate F, $mib * 1048576; fsync_() }
        else { open F, $how eq "sequential-write" ? "+>" : "+<", $file or die "open: $!" }
        sub fsync_ { syscall(74, fileno F) == 0 or die "fsync: $!" }
        my $data = join "", map { chr int rand 256 } 1 .. $size;
        my $map;
        if ($how =~ /mapped/) { $map = syscall(9, 0, $mib * 1048576, 1, 1, fileno F, 0) }
        for my $at (@at[0 .. $count - 1]) {
            if ($map) { my $p = unpack "P1", pack "Q", $map + $at; next }
            sysseek F, $at, 0 or die "seek: $!";
            if ($how =~ /write/) {
                syswrite(F, $data) == $size or die "write: $!";
                fsync_();
            } else { sysread(F, my $got, $size) == $size or die "read: $!" }
        }' $1 $2 $3 $4
}
# Says something to the host by a disk of its own, and waits for the answer, a file.
say() {
    printf "%s\n" "$1" | dd of=/dev/ubdc bs=512 conv=fsync,sync 2>/dev/null
    until [ -e "$HOST$2/$1" ]; do sleep 0.05; done
}
"#;

/// Waits until the guest says something, does it, and answers; false if the guest is gone.
fn until(said: &str, flag: &Path, over: &AtomicBool, then: impl FnOnce() -> Outcome<()>) -> Outcome<bool> {
    let name = flag.join("flag");
    while !std::fs::read(&name)?.starts_with(said.as_bytes()) {
        if over.load(Ordering::Acquire) {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    then()?;
    std::fs::write(flag.join(said), "")?;
    Ok(true)
}

/// One phase in a guest of its own.
fn phase(kernel: &Kernel, disk: &mut Disk, side: &Side, phase: &Phase, out: &Path) -> Outcome<()> {
    let (name, how, kib, count, mib) = phase;
    let flag = tempfile::tempdir()?;
    let dir = flag.path().to_str().ok_or("a path that is no text")?.to_owned();
    let image = flag.path().join("flag");
    std::fs::write(&image, vec![0; 4096])?;
    let before = side.before;
    let script = format!(
        "{WORK}\ncd /\n{before}\nsay begin {dir}\nwork {how} {kib} {count} {mib}\nsync\nsay end {dir}\n"
    );
    let kernel = kernel.clone().fs_type(side.fs).mount_options(side.mount).second_image(&image);
    let path = disk.path();
    let over = AtomicBool::new(false);
    let to = out.join(format!("{}.{name}.rec.zst", side.name));
    let clock = Arc::new(RealClock::new());
    let (run, requests, spent) = std::thread::scope(|scope| -> Outcome<_> {
        let guest = scope.spawn(|| {
            let run = kernel.run(&path, &script);
            over.store(true, Ordering::Release);
            run
        });
        let mut from = disk.spent();
        let began = until("begin", flag.path(), &over, || {
            from = disk.spent();
            disk.record(&to, &clock)
        })?;
        let mut requests = 0;
        let ended = began
            && until("end", flag.path(), &over, || {
                requests = disk.recorded()?;
                Ok(())
            })?;
        let to = disk.spent();
        let run = guest.join().map_err(|_| "the kernel did not start")?;
        if !ended {
            return Err(run.describe().into());
        }
        Ok((run, requests, (to.0 - from.0, [0, 1, 2].map(|n| to.1[n] - from.1[n]))))
    })?;
    if !run.ok() {
        return Err(run.describe().into());
    }
    let (energy, [reads, writes, flushes]) = spent;
    let kilobytes = (kib * count) as f64;
    println!(
        "| {} | {name} | {:.1} | {reads} | {writes} | {flushes} | {requests} |",
        side.name,
        energy.millijoules() * 1e3 / kilobytes,
    );
    Ok(())
}

fn run() -> Outcome<()> {
    let usage = "record_fileops OUT PROFILE [SIDE...]";
    let mut args = std::env::args().skip(1);
    let out = PathBuf::from(args.next().ok_or(usage)?);
    let profile = Profile::find(&args.next().ok_or(usage)?)?;
    let chosen: Vec<String> = args.collect();
    std::fs::create_dir_all(&out)?;
    let kernel = Kernel::of(Linux::built()?).timeout(Duration::from_secs(1800));
    println!("| | phase | uJ/KB | reads | writes | flushes | recorded |");
    println!("|---|---|---|---|---|---|---|");
    for side in SIDES.iter().filter(|s| chosen.is_empty() || chosen.iter().any(|c| c == s.name)) {
        let mut disk = Disk::new(&profile, DISK)?;
        let made = Command::new(side.mkfs[0]).args(&side.mkfs[1..]).arg(disk.path()).output()?;
        if !made.status.success() {
            return Err(format!("{:?}: {}", side.mkfs, String::from_utf8_lossy(&made.stderr)).into());
        }
        for one in side.phases {
            phase(&kernel, &mut disk, side, one, &out)?;
        }
        disk.close()?;
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("record_fileops: {e}");
            ExitCode::FAILURE
        }
    }
}
