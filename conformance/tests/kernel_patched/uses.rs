//! The energy policy knows how its volume is used: the segments and blocks of a use, what holes cost the logs, and that
//! a use may span pauses without requests.

use std::collections::BTreeMap;

use judges::oracle::kernel::Kernel;
use judges::oracle::tools::assert_fsck_clean;
use trials::worn::{LARGE, SMALL};

use super::patched;

/// Functions for the guest: runs a search of the background cleaner, and prints its inputs.
const GUEST: &str = "S=/sys/fs/f2fs/$DISK; T=/sys/kernel/tracing; mount -t tracefs trace $T
traced() { echo 1 >$T/events/f2fs/$1/enable; }
rest() {
    echo >$T/trace
    perl -e 'open F, \"<\", $ENV{MNT}; ioctl F, 0x4004f506, my $a = pack \"I\", 0'
    grep -o 'free_soon = .*' $T/trace | tail -1 | sed \"s/^/$1 /\"
}
write() { dd if=/dev/zero of=$MNT/$1 bs=1M count=$2 conv=notrunc,fsync 2>/dev/null; sync; }
";

/// The printed numbers at rests with these names, by name.
fn said(stdout: &str) -> BTreeMap<&str, BTreeMap<&str, u64>> {
    let rests = stdout.lines().filter_map(|line| line.split_once(' '));
    let numbers = |text| {
        let fields = str::split(text, ", ").filter_map(|field| field.split_once(" = "));
        fields.filter_map(|(name, n)| Some((name, n.parse().ok()?))).collect()
    };
    rests.map(|(name, text)| (name, numbers(text))).collect()
}

#[test]
fn a_use_is_what_was_written_since_the_last_rest() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    let image = work.path().join("image");
    SMALL.build(&image).expect("an image");
    let script = format!(
        "{GUEST}
        mount -t f2fs -o background_gc=off,gc_policy=joule /dev/$DISK $MNT; traced f2fs_victim_frag
        rest mounted
        write a 8; rest once
        write b 12; rest twice
        cat $MNT/a $MNT/b >/dev/null; rest read; rest read
        # Where they are: a small volume overwrites in place.
        write a 8; write b 8; rest over
        write a 8; write b 8; rest over_again
        write c 20; rest larger; write d 20; rest large
        umount $MNT"
    );
    let run = Kernel::of(linux).without_mount().run(&image, &script).expect_ok();
    assert_fsck_clean(&image);
    let said = said(&run.stdout);
    println!("{said:?}");
    let next = |rest: &str| said[rest]["takes"];
    assert_eq!((next("mounted"), next("once")), (0, 0), "one use says nothing");
    // In addition to the file's blocks, its nodes and those of the directory are written.
    let about = |n: u64, blocks: u64| (blocks..blocks + 64).contains(&n);
    let takes = next("twice");
    assert!(about(takes, 8 * 256), "{takes}");
    assert_eq!(next("read"), takes, "one that only reads is none");
    assert_eq!((next("over"), next("over_again")), (takes, takes), "overwriting in place takes nothing");
    assert!(about(next("large"), 20 * 256), "{}", next("large"));
}

#[test]
fn holes_cost_the_requests_that_the_files_in_them_are_cut_into() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    let image = work.path().join("image");
    LARGE.build(&image).expect("an image");
    // After the logs have left their segments, they find only holes: FIBMAP shows their places.
    let script = format!(
        "{GUEST}
        mount -t f2fs -o background_gc=off,gc_policy=joule /dev/$DISK $MNT; traced f2fs_victim_frag
        rest fresh
        echo 99999 >$S/min_ssr_sections
        write first 4; write file 24; rest worn
        perl -e 'open F, \"<\", \"$ENV{{MNT}}/file\"; my $cuts = -1; my $last = -1;
            for (0 .. 24 * 256 - 1) {{ my $a = pack \"i\", $_; ioctl F, 1, $a or die $!; $a = unpack \"i\", $a; $cuts++ if $a != $last + 1; $last = $a }}
            print \"file cuts = $cuts\\n\"'
        umount $MNT"
    );
    let run = Kernel::of(linux).without_mount().run(&image, &script).expect_ok();
    assert_fsck_clean(&image);
    let said = said(&run.stdout);
    println!("{said:?}");
    assert_eq!((said["fresh"]["cuts"], said["fresh"]["moved_cuts"]), (0, 512), "nothing is known yet");
    let (theirs, own) = (said["worn"]["cuts"], said["file"]["cuts"] * 1024 / (24 * 256));
    assert!(own > 10 && theirs.abs_diff(own) <= own / 5, "{theirs} and {own} cuts among 1,024 blocks");
}

#[test]
fn the_thread_cleans_several_sections_in_a_batch_while_no_requests_arrive() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    let image = work.path().join("image");
    SMALL.build(&image).expect("an image");
    let script = format!(
        "{GUEST}
        mount -t f2fs -o gc_policy=joule /dev/$DISK $MNT; traced f2fs_get_victim; traced f2fs_gc_begin; traced f2fs_gc_end
        echo 90 >$S/gc_keep_free
        echo 20 >$S/gc_min_sleep_time; echo 20 >$S/gc_max_sleep_time; echo 20 >$S/gc_no_gc_sleep_time
        echo 0 >$S/gc_idle_interval; echo 0 >$S/idle_interval
        # It sleeps for half a minute at first; urgency wakes it.
        echo 1 >$S/gc_urgent_sleep_time; echo 1 >$S/gc_urgent; sleep 0.05; echo 0 >$S/gc_urgent; sleep 0.1
        echo >$T/trace; for i in $(seq 12); do sleep 0.1; sync; done
        grep -oE 'f2fs_gc_begin|f2fs_gc_end|Joule' $T/trace | sed 's/^/@ /'; umount $MNT"
    );
    let run = Kernel::of(linux).without_mount().run(&image, &script).expect_ok();
    assert_fsck_clean(&image);
    let lines: Vec<&str> = run.stdout.lines().filter_map(|line| line.strip_prefix("@ ")).collect();
    let batches = lines.split(|line| *line == "f2fs_gc_begin").skip(1).filter(|batch| batch.contains(&"f2fs_gc_end"));
    let sections: Vec<usize> = batches.map(|batch| batch.iter().filter(|l| **l == "Joule").count()).collect();
    println!("{sections:?}");
    assert!((2..=16).contains(&sections.iter().max().copied().unwrap_or(0)), "{sections:?}");
}
