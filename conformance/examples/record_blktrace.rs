//! Records Linux's block layer below ext4 and F2FS, with blktrace, as files for the trace readers.
//!
//! Needs `scripts/install-tools emulator`, and the Debian packages blktrace, e2fsprogs, f2fs-tools, zstd.
//!
//!     cargo run -p joulefs-conformance --example record_blktrace -- DIRECTORY
//!
//! A guest with two processors has two disks. The first has a partition with ext4 and is recorded by `blktrace -d
//! /dev/vda -o vda`, one file per processor; the second has F2FS and is recorded by `blktrace -d /dev/vdb -o -`, one
//! stream. On the host, blkparse converts both to text. Everything is compressed by zstd.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use judges::oracle::qemu::{KernelPackage, Machine};
use judges::oracle::recorded::{self, pack, run, unpack};

/// Size of each disk.
const MIB: u64 = 96;
/// The guest's script. Functions take the directory they work in.
const GUEST: &str = r#"
out() { for f; do echo "@@file ${f##*/} $(wc -c <$f)"; cat $f; done; }
record() { blktrace "$@" & PID=$!; sleep 2; }
done_recording() { sync; sleep 1; kill -INT $PID; wait $PID || true; }
work() {
    taskset 1 dd if=/dev/urandom of=$1/large bs=64k count=40 conv=fsync 2>/dev/null
    taskset 2 dd if=/dev/zero of=$1/direct bs=3M count=1 oflag=direct 2>/dev/null
    for i in 1 2 3 4 5 6 7 8 9 10; do
        taskset $((i % 2 + 1)) dd if=/dev/urandom of=$1/small$i bs=4k count=$i conv=fsync 2>/dev/null
    done
    taskset 1 dd if=/dev/urandom of=$1/large bs=4k seek=100 count=30 conv=notrunc 2>/dev/null &
    taskset 2 dd if=/dev/urandom of=$1/direct bs=4k seek=7 count=30 oflag=direct conv=notrunc 2>/dev/null
    wait $!
    sync
    echo 3 >/proc/sys/vm/drop_caches
    taskset 1 cat $1/large >/dev/null &
    taskset 2 dd if=$1/direct of=/dev/null bs=16k iflag=direct 2>/dev/null
    wait $!
    rm $1/small* $1/direct
    sync
    fstrim $1
}

echo mq-deadline >/sys/block/vda/queue/scheduler
mkfs.ext4 -q /dev/vda1
record -d /dev/vda -D /tmp -o vda >/tmp/said 2>&1
mount -t ext4 -o discard /dev/vda1 /mnt
work /mnt
umount /mnt
done_recording
out /tmp/vda.blktrace.*

echo bfq >/sys/block/vdb/queue/scheduler
mkfs.f2fs -q /dev/vdb
record -d /dev/vdb -o - >/tmp/vdb.blktrace 2>/tmp/said
mount -t f2fs /dev/vdb /mnt
work /mnt
umount /mnt
done_recording
out /tmp/vdb.blktrace
"#;

fn main() -> ExitCode {
    recorded::main("record_blktrace", record)
}

fn record(place: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let work = tempfile::tempdir()?;
    let disk = |name: &str| -> std::io::Result<_> {
        let path = work.path().join(name);
        File::create(&path)?.set_len(MIB << 20)?;
        Ok(path)
    };
    let (first, second) = (disk("first")?, disk("second")?);
    let mut table = vec![0; 512];
    // The only partition: from sector 2048 to the end, type Linux (0x83).
    table[450] = 0x83;
    table[454..458].copy_from_slice(&2048_u32.to_le_bytes());
    table[458..462].copy_from_slice(&((MIB << 11) as u32 - 2048).to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    OpenOptions::new().write(true).open(&first)?.write_all(&table)?;
    let machine = Machine::new(KernelPackage::installed()?)?
        .processors(2)
        .module("ext4")
        .module("crc32c_generic")
        .module("mq-deadline")
        .module("bfq")
        .program("/usr/sbin/blktrace")
        .program("/usr/sbin/mkfs.ext4")
        .program("/usr/sbin/mkfs.f2fs")
        .disk(&first)
        .disk(&second);
    let done = machine.run(GUEST)?;
    if !done.ok() {
        return Err(done.describe().into());
    }
    let names = unpack(&done.output, work.path())?;
    let blkparse = |from: &str, to: &str| {
        let mut command = Command::new("blkparse");
        command.current_dir(work.path()).args(["-i", from, "-o", to]);
        command
    };
    run(&mut blkparse("vda", "vda.blkparse"))?;
    run(blkparse("-", "vdb.blkparse").stdin(File::open(work.path().join("vdb.blktrace"))?))?;
    for name in names.iter().map(String::as_str).chain(["vda.blkparse", "vdb.blkparse"]) {
        pack(&work.path().join(name), place)?;
    }
    Ok(())
}
