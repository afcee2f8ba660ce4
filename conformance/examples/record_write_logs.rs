//! Records write logs for their reader: one by Linux's device-mapper target log-writes, two by QEMU's `blklogwrites`,
//! with sectors of 512 and of 4096 bytes.
//!
//! Needs `scripts/install-tools emulator`, and the Debian packages dmsetup, e2fsprogs, qemu-utils, zstd.
//!
//!     cargo run -p joulefs-conformance --example record_write_logs -- DIRECTORY

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode};

use judges::oracle::qemu::{KernelPackage, Machine};
use judges::oracle::recorded::{self, pack, run};

/// Writes to ext4 on the disk; the second disk is the log.
const GUEST: &str = r#"
dmsetup create logged --table "0 $(cat /sys/block/vda/size) log-writes /dev/vda /dev/vdb"
dmsetup mknodes
mkfs.ext4 -q -E nodiscard /dev/mapper/logged 4096
dmsetup message logged 0 mark made
mount -t ext4 -o discard /dev/mapper/logged /mnt
dd if=/dev/zero of=/mnt/one bs=64k count=4 conv=fsync 2>/dev/null
dmsetup message logged 0 mark synced
rm /mnt/one
sync
fstrim /mnt
umount /mnt
dmsetup remove logged
"#;

/// Commands for QEMU's driver.
const ASKED: [&str; 9] = [
    "write -P 1 0 4k",
    "write -P 2 64k 20k",
    "flush",
    "write -f -P 3 8k 4k",
    "discard 128k 64k",
    "write -z 256k 16k",
    "flush",
    "write -P 4 1M 1M",
    "write -P 5 8k 4k",
];

fn main() -> ExitCode {
    recorded::main("record_write_logs", record)
}

fn record(place: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let work = tempfile::tempdir()?;
    let disk = |name: &str, mib: u64| -> std::io::Result<_> {
        let path = work.path().join(name);
        File::create(&path)?.set_len(mib << 20)?;
        Ok(path)
    };
    let (below, log) = (disk("below", 8)?, disk("dm-ext4.log", 64)?);
    let machine = Machine::new(KernelPackage::installed()?)?
        .module("ext4")
        .module("crc32c_generic")
        .module("dm-mod")
        .module("dm-log-writes")
        .program("/usr/sbin/dmsetup")
        .program("/usr/sbin/mkfs.ext4")
        .disk(&below)
        .disk(&log);
    let done = machine.run(GUEST)?;
    if !done.ok() {
        return Err(done.describe().into());
    }
    // The device is larger than its log: keep one sector of zeroes after it.
    let bytes = fs::read(&log)?;
    let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1).next_multiple_of(512);
    fs::write(&log, &bytes[..(used + 512).min(bytes.len())])?;
    pack(&log, place)?;

    for sector in [512, 4096] {
        let (disk, log) = (disk("disk", 4)?, disk(&format!("qemu-{sector}.log"), 0)?);
        let options = format!(
            "driver=blklogwrites,log-sector-size={sector},file.driver=raw,file.file.driver=file,file.file.filename={},\
             log.driver=raw,log.file.driver=file,log.file.filename={}",
            disk.display(),
            log.display()
        );
        let mut qemu = Command::new("qemu-io");
        ASKED.iter().for_each(|asked| _ = qemu.args(["-c", asked]));
        run(qemu.args(["--image-opts", &options]))?;
        pack(&log, place)?;
    }
    Ok(())
}
