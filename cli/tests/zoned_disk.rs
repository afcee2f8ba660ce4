//! `joulefs` on a host-managed zoned disk: Linux's zoned null_blk (`scripts/install-tools kernel`), which refuses
//! writes that are not at a zone's write pointer.

use std::fs;
use std::path::Path;
use std::time::Duration;

use judges::oracle::kernel::{Kernel, KernelRun};
use judges::oracle::linux::Linux;

/// `zoned NAME CONVENTIONAL [ATTRIBUTE=VALUE]...` creates a disk of 256 MiB with zones of 4 MiB; `files DIR` lists
/// everything below a directory except lost+found. `sound` runs fsck.f2fs, which also checks write pointers: pointers
/// of freed zones are reset only when a log begins there, or when Linux mounts the volume; until then, their complaints
/// are ignored.
const WORDS: &str = r#"
load null_blk fuse
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
but_for_pointers() {
    fsck.f2fs --dry-run $1 >/tmp/fsck || true
    grep -q 'valid_block_count matching with CP .*Ok' /tmp/fsck
    sed '/next block offset is free.*Write pointer goes advance/,+1d' /tmp/fsck >/tmp/rest
    if grep -E 'Fail|ASSERT' /tmp/rest | grep -v 'Write pointers consistency'; then cat /tmp/fsck; exit 1; fi
}
tree() {
    mkdir -p $1/deep/er
    for n in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=$1/f$n bs=4k count=$((n * n * 20)) 2>/dev/null; done
    for n in $(seq 200); do echo $n >$1/deep/er/small$n; done
}
"#;

fn run(script: &str) -> Option<KernelRun> {
    let linux = match Linux::complete() {
        Ok(linux) => linux,
        Err(why) => {
            testlog::missing(why);
            return None;
        }
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
        but_for_pointers $D
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

/// The daemon is killed during a write, so that pointers are ahead of the checkpoint; JouleFS continues, and so does
/// Linux.
#[test]
fn a_mount_that_is_killed_leaves_a_zoned_disk_on_which_we_and_linux_go_on() {
    let script = r#"
        zoned disk 8; D=/dev/disk
        tree /tmp/tree; files /tmp/tree >/tmp/want
        joulefs mkfs $D
        mkdir /tmp/f
        ahead() {
            joulefs mount -f $D /tmp/f >/tmp/said 2>&1 & pid=$!
            until grep -q ' /tmp/f ' /proc/mounts; do kill -0 $pid || { cat /tmp/said; exit 1; }; sleep 0.05; done
            cp -r /tmp/tree /tmp/f/$1; dd if=/tmp/tree/f5 of=/tmp/f/synced$1 bs=64k conv=fsync 2>/dev/null
            for n in 1 2 3 4 5 6; do dd if=/tmp/tree/f8 of=/tmp/f/more$n bs=16k 2>/dev/null; dd if=/tmp/tree/f$n of=/tmp/f/odd$n oflag=sync bs=4k count=40 2>/dev/null; done
            kill -9 $pid; wait $pid || true; umount -l /tmp/f
        }
        kept() { cmp $1/synced$2 /tmp/tree/f5; }
        ahead one
        joulefs fsck $D || true
        joulefs cp $D:/syncedone /tmp/there; cmp /tmp/there /tmp/tree/f5
        joulefs cp -r /tmp/tree $D:/after
        joulefs fsck $D; but_for_pointers $D
        ahead two
        mount -t f2fs $D $MNT
        kept $MNT two; kept $MNT one; files $MNT/after | cmp - /tmp/want
        cp -r /tmp/tree $MNT/linux; umount $MNT
        sound $D; joulefs fsck $D
        ahead three
        joulefs mount $D /tmp/f; kept /tmp/f three; files /tmp/f/linux | cmp - /tmp/want; rm -r /tmp/f/linux; joulefs unmount /tmp/f
        joulefs fsck $D; but_for_pointers $D
        mount -t f2fs $D $MNT; kept $MNT three; umount $MNT; sound $D; echo all is well"#;
    let Some(run) = run(script) else { return };
    assert!(run.stdout.contains("all is well"), "{}", run.stdout);
}

#[test]
fn disks_that_we_do_not_keep_to_are_refused() {
    let script = r#"
        said() { if joulefs "$@" >/tmp/said 2>&1; then exit 1; fi; cat /tmp/said; }
        zoned less 8 zone_capacity=3; said mkfs /dev/less
        zoned few 8 zone_max_active=12; said mkfs /dev/few
        zoned none 0; said mkfs /dev/none
        zoned disk 8; said mkfs /dev/disk --zoned 8M; said mkfs /dev/disk --type scherlfs
        joulefs mkfs /dev/disk; said mkfs /dev/disk
        mkdir /tmp/f; said mount -f /dev/disk /tmp/f --profile kirin9000-ufs31; said mount -f /dev/disk /tmp/f --record-device /tmp/r
        joulefs mkfs /tmp/plain.img --size 256M --zoned 8M; dd if=/tmp/plain.img of=/dev/disk bs=1M count=32 oflag=direct 2>/dev/null
        said cp /tmp/said /dev/disk:/x"#;
    let Some(run) = run(script) else { return };
    for words in [
        "/dev/less: zone 8 has a capacity of 768 of its 1024 blocks",
        "/dev/few: JouleFS cannot respect the disk's limit of 12 active zones",
        "/dev/disk: zoned disk; ScherlFS does not support zones",
        "/dev/disk: holds data; give --force to overwrite it",
        "/dev/disk: zoned disk; leave out --profile",
        "the volume's sections are not the device's zones",
    ] {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }
}
