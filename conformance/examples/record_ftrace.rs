//! Records Linux's tracepoints of block devices and F2FS, as files for the trace readers: as tracefs text, in its
//! several forms, and by `trace-cmd record`, in its several versions.
//!
//! Needs `scripts/install-tools emulator`, and the Debian packages trace-cmd, f2fs-tools, zstd.
//!
//!     cargo run -p joulefs-conformance --example record_ftrace -- DIRECTORY
//!
//! A guest with two processors has a disk with F2FS. Both ways of recording see the same work. The output of `trace-cmd
//! report` for every `trace.dat`, on the host, is next to it. Everything is compressed by zstd.

use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode};

use judges::oracle::qemu::{KernelPackage, Machine};
use judges::oracle::recorded::{self, pack, run, unpack};

/// Size of the disk.
const MIB: u64 = 96;
/// The guest's script.
const GUEST: &str = r#"
T=/sys/kernel/tracing
# The names of functions would be most of every trace.dat.
echo "0000000000000000 T none" >/tmp/symbols
mount --bind /tmp/symbols /proc/kallsyms
I=$T/instances/text
out() { for f; do echo "@@file ${f##*/} $(wc -c <$f)"; cat $f; done; }
cat >/tmp/work <<'END'
mount -t f2fs -o discard /dev/vda /mnt
taskset 1 dd if=/dev/urandom of=/mnt/large bs=64k count=20 conv=fsync 2>/dev/null
for i in 1 2 3 4 5 6; do
    taskset $((i % 2 + 1)) dd if=/dev/urandom of=/mnt/small$i bs=4k count=$i conv=fsync 2>/dev/null
done
taskset 1 dd if=/dev/urandom of=/mnt/large bs=4k seek=100 count=20 conv=notrunc,fsync 2>/dev/null &
taskset 2 dd if=/dev/zero of=/mnt/direct bs=4k count=20 oflag=direct 2>/dev/null
wait $!
sync
echo 3 >/proc/sys/vm/drop_caches
taskset 1 cat /mnt/large >/dev/null &
taskset 2 dd if=/mnt/direct of=/dev/null bs=16k iflag=direct 2>/dev/null
wait $!
rm /mnt/small* /mnt/direct
sync
fstrim /mnt
umount /mnt
END
EVENTS="block f2fs/f2fs_sync_file_enter f2fs/f2fs_sync_file_exit f2fs/f2fs_gc_begin f2fs/f2fs_write_checkpoint"
CMD="-e block -e f2fs:f2fs_sync_file_enter -e f2fs:f2fs_sync_file_exit -e f2fs:f2fs_gc_begin -e f2fs:f2fs_write_checkpoint"

echo mq-deadline >/sys/block/vda/queue/scheduler
mkfs.f2fs -q /dev/vda
mkdir $I
for e in $EVENTS; do echo 1 >$I/events/$e/enable; done
trace-cmd record -q $CMD -o /tmp/v7.dat --file-version 7 --compression zstd sh /tmp/work >/tmp/said 2>&1
echo 0 >$I/tracing_on
cat $I/trace >/tmp/trace.txt
echo 0 >$I/options/irq-info
cat $I/trace >/tmp/noirq.txt
echo 1 >$I/options/irq-info
(cat $I/trace_pipe & sleep 3; kill $!) >/tmp/pipe.txt 2>/dev/null || true
out /tmp/trace.txt /tmp/noirq.txt /tmp/pipe.txt /tmp/v7.dat

echo >$I/trace
echo 1 >$T/options/record-tgid
echo 1 >$I/options/record-tgid || true
echo mono >$I/trace_clock
echo 1 >$I/tracing_on
trace-cmd record -q $CMD -C mono -o /tmp/v6.dat --file-version 6 sh /tmp/work >/tmp/said 2>&1
echo 0 >$I/tracing_on
cat $I/trace >/tmp/tgid.txt
out /tmp/tgid.txt /tmp/v6.dat

echo 4 >$I/buffer_size_kb
echo 1 >$I/tracing_on
(cat $I/trace_pipe >/tmp/lost.txt & P=$!; sleep 1; kill -STOP $P; sh /tmp/work; kill -CONT $P; sleep 2; kill $P; wait $P) 2>/dev/null || true
echo 0 >$I/tracing_on
out /tmp/lost.txt
trace-cmd start -b 12 $CMD >/tmp/said 2>&1
sh /tmp/work
trace-cmd stop
trace-cmd extract -o /tmp/lost.dat >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }
out /tmp/lost.dat
"#;

fn main() -> ExitCode {
    recorded::main("record_ftrace", record)
}

fn record(place: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let work = tempfile::tempdir()?;
    let disk = work.path().join("disk");
    File::create(&disk)?.set_len(MIB << 20)?;
    let machine = Machine::new(KernelPackage::installed()?)?
        .processors(2)
        .module("mq-deadline")
        .program("/usr/bin/trace-cmd")
        .program("/usr/sbin/mkfs.f2fs")
        .disk(&disk);
    let done = machine.run(GUEST)?;
    if !done.ok() {
        return Err(done.describe().into());
    }
    let mut names = unpack(&done.output, work.path())?;
    for name in names.clone().iter().filter(|name| name.ends_with(".dat")) {
        let report = name.replace(".dat", ".report.txt");
        let text = File::create(work.path().join(&report))?;
        // Times in nanoseconds, events in the kernel's own format.
        run(Command::new("trace-cmd").args(["report", "-t", "-N", "-i"]).arg(work.path().join(name)).stdout(text))?;
        names.push(report);
    }
    for name in names {
        pack(&work.path().join(name), place)?;
    }
    Ok(())
}
