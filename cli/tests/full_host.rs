//! The host's file system fills up: acknowledged data is in the image afterwards, and other writes report errors.

use std::path::Path;
use std::process::{Command, Output};

use super::room::Room;

/// Each with the program that creates it; tmpfs needs none.
const HOSTS: [(&str, Option<&str>); 4] =
    [("tmpfs", None), ("ext4", Some("mkfs.ext4")), ("xfs", Some("mkfs.xfs")), ("btrfs", Some("mkfs.btrfs"))];

/// The start of every script: a host file system `h` of kind `$HOST`, an empty directory `m`.
const BEGIN: &str = r#"
set -u
cd "$WORK"; mkdir h m
case $HOST in
    tmpfs) mount -t tmpfs -o size=${SIZE:-80m} t h ;;
    quota)
        truncate -s 800M disk; "$BTRFS" disk; mkdir all
        mount -t btrfs -o loop disk all && btrfs quota enable all && btrfs subvolume create all/s >/dev/null || exit 99
        btrfs qgroup limit 120M all/s && mount --bind all/s h ;;
    btrfs) truncate -s 400M disk; "$BTRFS" disk; mount -t btrfs -o loop disk h ;;
    *) truncate -s 400M disk; mkfs.$HOST -q disk >/dev/null; mount -t $HOST -o loop disk h ;;
esac || exit 99
fill() {
    fallocate -l $(($(df --output=avail -k h | tail -1) - 512))k h/filler
    # btrfs finds more room once it has written what it has.
    for n in 2 3 4 5 6; do dd if=/dev/zero of=h/filler$n bs=64k status=none; sync -f h; done
    dd if=/dev/zero of=h/filler7 bs=4k status=none
    sync -f h
}
# Says whether a file of the image holds the first $3 bytes of $2.
same() { "$J" cat "h/v.img:/$1" | cmp -s -n $3 - "$2" && [ $("$J" cat "h/v.img:/$1" | wc -c) -ge $3 ] && echo "same $1" || echo "differs $1"; }
"#;

/// Makes Btrfs in an image.
const MAKE_BTRFS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../judges/mkfs.btrfs");

/// Runs a script in its own mount namespace; returns its output and the errors printed, or why there is no such host.
fn script(host: &str, kind: &str, text: &str) -> Result<(String, String), String> {
    let work = Room::new();
    let out: Output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &format!("{BEGIN}{text}")])
        .envs([("J", env!("CARGO_BIN_EXE_joulefs")), ("BTRFS", MAKE_BTRFS)])
        .envs([("HOST", host), ("TYPE", kind), ("WORK", &work.text(""))])
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match out.status.code() {
        Some(99) => Err(format!("a loop device, to mount {host}: {}", text(&out.stderr).trim())),
        _ => Ok((text(&out.stdout), text(&out.stderr))),
    }
}

/// Host file systems that this machine can mount.
fn hosts() -> Vec<&'static str> {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap();
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        testlog::missing("root and /dev/fuse, to mount hosts and images");
        return Vec::new();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).exists());
    HOSTS
        .into_iter()
        .filter(|(host, maker)| {
            let usable = known.split_whitespace().any(|k| k == *host) && maker.is_none_or(has);
            if !usable {
                testlog::kernel_lacks(format_args!("{host}, or this machine the program that makes one"));
            }
            usable
        })
        .map(|(host, _)| host)
        .collect()
}

fn on_all(kinds: &[&str], text: &str, judge: impl Fn(&str, &str, &str)) {
    for host in hosts() {
        for kind in kinds {
            match script(host, kind, text) {
                Ok((out, err)) => judge(&format!("{kind} on {host}"), &out, &err),
                Err(why) => testlog::missing(why),
            }
        }
    }
}

/// The lines that begin with `word`, without it.
fn lines<'t>(out: &'t str, word: &str) -> Vec<&'t str> {
    out.lines().filter_map(|l| l.strip_prefix(word)?.strip_prefix(' ')).collect()
}

#[test]
fn what_was_acknowledged_before_and_after_the_host_filled_is_there_and_the_rest_said_so() {
    const WORK: &str = r#"
"$J" mkfs --type $TYPE --size 1G h/v.img >/dev/null
head -c 16000000 /dev/urandom > contents
"$J" mount h/v.img m || exit 1
echo keep > m/keep; cp contents m/before && echo "acknowledged before 16000000"
fill
for i in $(seq 60); do
    head -c 300000 contents | dd of=m/f$i bs=300000 iflag=fullblock conv=fsync status=none && echo "acknowledged f$i 300000"
done
cp contents m/after && sync m/after && echo "acknowledged after 16000000"
mkdir m/d 2>/dev/null && echo "acknowledged d"
"$J" ctl m stat | grep -i 'state'
rm m/keep; echo "rm $?"
"$J" unmount m; echo "unmount $?"
rm h/filler*
"$J" fsck h/v.img >fsck.txt 2>&1; echo "fsck $?"; cat fsck.txt >&2
for i in $(seq 60); do
    "$J" ls h/v.img:/f$i >/dev/null 2>&1 && same f$i contents 300000
done
same before contents 16000000
"$J" ls h/v.img:/d >/dev/null 2>&1 && echo "same d"
"#;
    on_all(&["f2fs", "scherlfs"], WORK, |which, out, err| {
        assert_eq!(lines(out, "unmount"), ["0"], "{which}: {out}{err}");
        assert_eq!(lines(out, "fsck"), ["0"], "{which}: {out}{err}");
        // On a full btrfs a write may use more ballast than its length.
        let removed = lines(out, "rm") == ["0"];
        assert!(removed || (which.ends_with("btrfs") && err.contains("cannot remove")), "{which}: {out}{err}");
        let same = lines(out, "same");
        let acknowledged = lines(out, "acknowledged");
        assert!(acknowledged.contains(&"before 16000000"), "{which}: {out}{err}");
        for file in &acknowledged {
            let name = file.split(' ').next().unwrap();
            assert!(same.contains(&name), "{which}: {file} was acknowledged and is not there\n{out}{err}");
        }
        assert!(acknowledged.len() < 60, "{which}: the host was never full\n{out}{err}");
        assert!(err.contains("No space left on device"), "{which}: {err}");
    });
}

#[test]
fn a_mount_takes_writes_again_when_its_host_has_room_again() {
    const WORK: &str = r#"
"$J" mkfs --type $TYPE --size 1G h/v.img >/dev/null
head -c 3000000 /dev/urandom > contents
"$J" mount h/v.img m || exit 1
cp contents m/before; fill
for i in $(seq 40); do cp contents m/x$i 2>/dev/null || { echo "full here"; break; }; done
# A block may find room where a file does not.
mkdir m/d 2>/dev/null && echo "made d" || echo "same d"
rm h/filler*; sync h/v.img; sleep 4
mkdir m/e; echo "again $?"
cp contents m/after && sync m/after; echo "again $?"
"$J" unmount m; echo "unmount $?"
"$J" ls h/v.img:/d >/dev/null 2>&1 && echo "same d"
same before contents 3000000; same after contents 3000000
"#;
    on_all(&["f2fs", "scherlfs"], WORK, |which, out, err| {
        assert_eq!(lines(out, "full"), ["here"], "{which}: {out}{err}");
        assert_eq!(lines(out, "again"), ["0", "0"], "{which}: {out}{err}");
        assert_eq!(lines(out, "unmount"), ["0"], "{which}: {out}{err}");
        assert_eq!(lines(out, "same"), ["d", "before", "after"], "{which}: {out}{err}");
    });
}

#[test]
fn removing_files_gives_a_full_host_its_room_back() {
    const WORK: &str = r#"
"$J" mkfs --type $TYPE --size 400M h/v.img >/dev/null
head -c 1048576 /dev/urandom > contents
"$J" mount h/v.img m || exit 1
for i in $(seq 30); do cp contents m/o$i && sync m/o$i || exit 1; done
for i in $(seq 100); do echo "old $i" >m/c$i; done
fill; sleep 2
# Each with a descriptor of its own; only the write is asked.
for i in $(seq 60); do head -c 20000 contents | dd of=m/x$i bs=20000 status=none 2>/dev/null && echo "accepted x$i 20000"; done
rm m/o*; sleep 6
for i in 1 2 3 4 5 6 7 8; do cat contents; done >big
# On a busy machine the checkpoint that frees the room, or the look at the host, comes later.
for i in $(seq 30); do cp big m/again 2>/dev/null && sync m/again && break; sleep 2; done
cmp big m/again; echo "again $?"
"$J" unmount m; echo "unmount $?"
for i in $(seq 60); do "$J" ls h/v.img:/x$i >/dev/null 2>&1 && same x$i contents 20000; done
same again big 8388608
"#;
    on_all(&["f2fs", "scherlfs"], WORK, |which, out, err| {
        if which.ends_with("btrfs") {
            // On such a host a checkpoint takes as much space as it frees.
            return;
        }
        assert_eq!((lines(out, "again"), lines(out, "unmount")), (vec!["0"], vec!["0"]), "{which}: {out}{err}");
        let same = lines(out, "same");
        for file in lines(out, "accepted") {
            let name = file.split(' ').next().unwrap();
            assert!(same.contains(&name), "{which}: {file} was accepted and is not there\n{out}{err}");
        }
        assert!(same.contains(&"again"), "{which}: {out}{err}");
    });
}

#[test]
fn a_host_without_room_is_refused_by_mount_and_named_by_commands_that_write() {
    const WORK: &str = r#"
"$J" mkfs --type $TYPE --size 1G h/v.img >/dev/null
head -c 30000000 /dev/urandom > contents; mkdir tree; for i in 1 2 3; do cp contents tree/$i; done
"$J" cp contents h/v.img:/before
fill
"$J" mount h/v.img m; echo "mount $?"
"$J" mount -o ro h/v.img m && cmp m/before contents; echo "ro $?"; "$J" unmount m
rm h/filler*; sync -f h
fallocate -l 6M h/spare; fill; rm h/spare; sync -f h
"$J" cp -r tree h/v.img:/tree; echo "cp $?"
"$J" fsck h/v.img >fsck.txt 2>&1; echo "fsck $?"; cat fsck.txt >&2
same before contents 30000000
"$J" mkfs --type $TYPE --size 1G --from tree h/w.img; echo "from $?"
ls h | grep w.img
"#;
    on_all(&["f2fs", "scherlfs"], WORK, |which, out, err| {
        assert_eq!(lines(out, "mount"), ["1"], "{which}: {out}{err}");
        assert!(err.contains("mount needs") && err.contains("4.00 MiB") && err.contains("-o ro"), "{which}: {err}");
        assert_eq!(lines(out, "ro"), ["0"], "{which}: {out}{err}");
        assert_eq!(lines(out, "cp"), ["1"], "{which}: {out}{err}");
        assert!(err.contains("the file system that holds this image is full"), "{which}: {err}");
        assert_eq!(lines(out, "fsck"), ["0"], "{which}: {out}{err}");
        assert_eq!(lines(out, "same"), ["before"], "{which}: {out}{err}");
        assert_eq!(lines(out, "from"), ["1"], "{which}: {out}{err}");
        assert!(!out.contains("w.img"), "{which}: a half-made image stays\n{out}{err}");
    });
}

#[test]
fn a_thin_block_device_without_room_says_so_and_what_it_lost_is_written_again() {
    // A loop device on a sparse file: like dm-thin it is overcommitted, and reports this at writeback.
    const WORK: &str = r#"
truncate -s 1G h/thin; dev=$(losetup --find --show h/thin) || exit 99
"$J" mkfs --type $TYPE $dev >/dev/null
head -c 12000000 /dev/urandom > contents
"$J" mount $dev m || exit 1
cp contents m/before && sync m/before && echo "acknowledged before"
fill
for i in 1 2 3; do cp contents m/x$i && sync m/x$i && echo "acknowledged x$i"; done
rm h/filler*
"$J" unmount m; echo "unmount $?"
"$J" fsck $dev >fsck.txt 2>&1; echo "fsck $?"; cat fsck.txt >&2
for f in before x1 x2 x3; do "$J" cat "$dev:/$f" 2>/dev/null | cmp -s - contents && echo "same $f"; done
losetup -d $dev
"#;
    for kind in ["f2fs", "scherlfs"] {
        if !hosts().contains(&"tmpfs") {
            return;
        }
        let (out, err) = match script("tmpfs", kind, WORK) {
            Ok(both) => both,
            Err(why) => return testlog::missing(why),
        };
        assert_eq!(lines(&out, "unmount"), ["0"], "{kind}: {out}{err}");
        assert_eq!(lines(&out, "fsck"), ["0"], "{kind}: {out}{err}");
        let same = lines(&out, "same");
        // Its fsync failed, but the data stayed in memory, and the unmount found space.
        assert!(same.contains(&"x1"), "{kind}: {out}{err}");
        let acknowledged = lines(&out, "acknowledged");
        assert!(acknowledged.len() < 4, "{kind}: the host was never full\n{out}");
        for name in acknowledged {
            assert!(same.contains(&name), "{kind}: {name} was acknowledged\n{out}{err}");
        }
    }
}

#[test]
fn a_quota_that_is_used_up_is_a_full_host_and_nothing_accepted_is_lost() {
    const WORK: &str = r#"
"$J" mkfs --type $TYPE --size 400M h/v.img >/dev/null
head -c 4000000 /dev/urandom > contents
"$J" mount h/v.img m -o log=$WORK/log || exit 1
for i in $(seq 60); do cp contents m/f$i && sync m/f$i && echo "acknowledged f$i 4000000"; done
mkdir m/d 2>/dev/null && echo "acknowledged d"
rm m/f1; echo "rm $?"
"$J" unmount m; echo "unmount $?"
"$J" fsck h/v.img >fsck.txt 2>&1; echo "fsck $?"; cat fsck.txt log >&2
for i in $(seq 2 60); do "$J" ls h/v.img:/f$i >/dev/null 2>&1 && same f$i contents 4000000; done
"$J" ls h/v.img:/d >/dev/null 2>&1 && echo "same d"
"#;
    if !hosts().contains(&"btrfs") {
        return;
    }
    for kind in ["f2fs", "scherlfs"] {
        let (out, err) = match script("quota", kind, WORK) {
            Ok(both) => both,
            Err(why) => return testlog::missing(why),
        };
        assert_eq!((lines(&out, "unmount"), lines(&out, "fsck")), (vec!["0"], vec!["0"]), "{kind}: {out}{err}");
        let (acknowledged, same) = (lines(&out, "acknowledged"), lines(&out, "same"));
        assert!((10..50).contains(&acknowledged.len()), "{kind}: the quota was never used up, or at once\n{out}{err}");
        for file in acknowledged.iter().filter(|file| **file != "f1 4000000") {
            let name = file.split(' ').next().unwrap();
            assert!(same.contains(&name), "{kind}: {file} was acknowledged and is not there\n{out}{err}");
        }
        assert!(err.contains("No space left on device"), "{kind}: {err}");
    }
}
