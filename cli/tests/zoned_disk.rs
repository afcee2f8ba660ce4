//! `joulefs` on a host-managed zoned disk: Linux's own zoned null_blk in Linux 6.12 as a process (`scripts/install-tools
//! kernel`), which refuses what is not written at a zone's pointer. Skipped, and said so, where it is not built.

use std::fs;
use std::path::Path;
use std::time::Duration;

use joulefs_conformance::oracle::kernel::{Kernel, KernelRun};
use joulefs_conformance::oracle::linux::Linux;

/// A disk of 256 MiB with zones of 4 MiB is made by `zoned NAME CONVENTIONAL [ATTRIBUTE=VALUE]...`; `files DIR` shows what
/// lies below a directory, without what only fsck keeps there.
const WORDS: &str = r#"
mount -t configfs config /sys/kernel/config 2>/dev/null || true
zoned() {
    N=/sys/kernel/config/nullb/$1; mkdir $N
    for set in size=256 memory_backed=1 zoned=1 zone_size=4 blocksize=4096 zone_nr_conv=$2; do echo ${set#*=} >$N/${set%%=*}; done
    shift 2
    for set in "$@"; do echo ${set#*=} >$N/${set%%=*}; done
    echo 1 >$N/power
}
files() { (cd $1; find . -name lost+found -prune -o -type f -print | sort | xargs cksum); }
sound() { fsck.f2fs --dry-run $1 >/tmp/fsck || { cat /tmp/fsck; exit 1; }; if grep -E 'Fail|ASSERT' /tmp/fsck; then exit 1; fi; }
tree() {
    mkdir -p $1/deep/er
    for n in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=$1/f$n bs=4k count=$((n * n * 20)) 2>/dev/null; done
    for n in $(seq 200); do echo $n >$1/deep/er/small$n; done
}
"#;

fn run(script: &str) -> Option<KernelRun> {
    let Ok(linux) = Linux::built() else {
        println!("no kernel that has zoned null_blk: not asked");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("none");
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let kernel = Kernel::of(linux).without_mount().memory_mib(1024).timeout(Duration::from_secs(400));
    let kernel = kernel.program("joulefs", Path::new(env!("CARGO_BIN_EXE_joulefs")));
    let run = kernel.run(&image, &format!("{WORDS}\n{script}")).expect_ok();
    run.assert_no_f2fs_complaints();
    println!("{}", run.stdout);
    Some(run)
}

#[test]
fn a_volume_is_made_filled_and_emptied_on_a_zoned_disk_and_linux_goes_on_with_it() {
    let script = r#"
        zoned disk 8; D=/dev/disk
        cat /sys/block/disk/queue/zoned
        tree /tmp/tree; files /tmp/tree >/tmp/want
        joulefs mkfs $D
        joulefs info $D | grep -E 'features|segs|section' || true
        joulefs cp -r /tmp/tree $D:/first
        joulefs fsck $D
        sound $D
        # Linux finds it, and goes on.
        mount -t f2fs $D $MNT
        files $MNT/first | cmp - /tmp/want
        cp -r /tmp/tree $MNT/second; dd if=/dev/urandom of=$MNT/first/f8 bs=4k count=900 conv=notrunc,fsync 2>/dev/null
        rm $MNT/first/f7; umount $MNT
        sound $D
        # And so do we: enough that sections are cleaned and zones reset.
        joulefs fsck $D
        for n in 1 2 3 4 5 6 7 8; do
            joulefs cp -r /tmp/tree $D:/again$n
            [ $n -lt 3 ] || joulefs rm -r $D:/again$((n - 2)) 2>/dev/null || true
        done
        joulefs fsck $D
        sound $D
        mount -t f2fs $D $MNT
        files $MNT/second | cmp - /tmp/want
        files $MNT/again8 | cmp - /tmp/want
        umount $MNT
        sound $D
        # Made anew, over zones that are full.
        joulefs mkfs --force $D
        joulefs cp -r /tmp/tree $D:/first
        mount -t f2fs $D $MNT; files $MNT/first | cmp - /tmp/want; umount $MNT
        sound $D; echo all is well"#;
    let Some(run) = run(script) else { return };
    assert!(run.stdout.contains("host-managed") && run.stdout.contains("all is well"), "{}", run.stdout);
}
