//! Volumes stay intact under the patched kernel, whose own assertions (`CONFIG_F2FS_CHECK_FS`) recompute f at every
//! change of a valid bit: with urgent background cleaning, when killed, with checkpoints disabled; with sections of
//! several segments; on zoned devices.

use std::path::Path;
use std::time::Duration;

use judges::oracle::kernel::{Ending, Kernel, KernelRun};
use judges::oracle::tools::{Mkfs, assert_fsck_clean};

use super::patched;

/// Functions for the guest: cleaning without pauses, and files written, overwritten and deleted at random.
const GUEST: &str = "S=/sys/fs/f2fs/$DISK
hurry() {
    echo 1 >$S/gc_min_sleep_time; echo 2 >$S/gc_max_sleep_time; echo 3 >$S/gc_no_gc_sleep_time
    echo 0 >$S/gc_idle_interval; echo 0 >$S/idle_interval; echo 50 >$S/gc_frag_ratio; echo 1 >$S/gc_frag_target
    # Whatever it costs.
    echo 0 >$S/atgc_age_threshold; echo 90 >$S/gc_keep_free
    # It sleeps for half a minute at first; urgency wakes it.
    echo 1 >$S/gc_urgent_sleep_time; echo 1 >$S/gc_urgent; sleep 0.05; echo 0 >$S/gc_urgent
}
# work SEED ROUNDS
work() {
    perl -e '
        my ($seed, $rounds, $at) = @ARGV; srand $seed;
        for (1 .. $rounds) {
            my $f = \"$at/f\" . int rand 200;
            if (rand() < 0.2) { unlink $f; next }
            open F, \"+>>\", $f or next; close F; open F, \"+<\", $f or next;
            for (1 .. 8) { seek F, 4096 * int(rand 64), 0; print F chr(65 + int rand 26) x (4096 * (1 + int rand 4)) }
            close F;
            system \"sync\" if $_ % 100 == 0;
        }' $1 $2 $MNT
}
cleaned() { sync; sleep 0.3; echo \"cleaned $(cat $S/gc_background_calls) background calls, moved $(cat $S/moved_blocks_background)\"; }
";

fn volume(work: &Path, mkfs: &Mkfs) -> std::path::PathBuf {
    let image = work.join("image");
    mkfs.format(&image, 160 << 20).expect("mkfs.f2fs formats");
    image
}

/// The kernel reports no errors; disabled checkpoints were requested.
#[track_caller]
fn assert_content(run: &KernelRun) {
    let complaints: Vec<&str> = run.complaints().into_iter().filter(|c| !c.contains("checkpoint disabled!")).collect();
    assert!(complaints.is_empty(), "the kernel complains: {complaints:?}\n{}", run.describe());
}

/// Background cleanings and blocks moved in them.
#[track_caller]
fn cleaned(run: &KernelRun) -> (u64, u64) {
    let line = run.stdout.lines().rfind(|l| l.starts_with("cleaned")).expect("it is told");
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers[1])
}

#[test]
fn background_cleaning_that_never_waits_leaves_volumes_whole() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    let sections = Mkfs { segments_per_section: Some(2), ..Mkfs::default() };
    for (mkfs, name) in [(Mkfs::default(), "segments"), (sections, "sections of two")] {
        for options in ["gc_policy=fagc", "gc_policy=fagc,atgc", "gc_policy=joule", "gc_policy=cost_benefit"] {
            let image = volume(work.path(), &mkfs);
            // On a busy host everything may be below the stop rule whenever the thread runs.
            let script = format!(
                "{GUEST}hurry
                for n in 1 2 3 4 5; do work $n 1500; sync; [ $(cat $S/moved_blocks_background) = 0 ] || break; done
                cleaned"
            );
            let kernel = Kernel::of(linux.clone()).mount_options(options).timeout(Duration::from_secs(300));
            let run = kernel.run(&image, &script).expect_ok();
            assert_content(&run);
            assert_fsck_clean(&image);
            let (calls, moved) = cleaned(&run);
            println!("{name}, {options}: {calls} background calls, {moved} blocks moved");
            assert!(calls > 20 && moved > 0, "{calls} {moved}");
        }
    }
}

#[test]
fn a_kill_while_it_cleans_leaves_the_last_checkpoint_whole() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    for (n, options) in ["gc_policy=fagc", "gc_policy=joule", "gc_policy=fagc,atgc"].into_iter().enumerate() {
        for after in [900, 1700, 2600] {
            let image = volume(work.path(), &Mkfs::default());
            let ending = Ending::CutAfter(Duration::from_millis(after));
            let script = format!("{GUEST}hurry; work {n} 1000000");
            Kernel::of(linux.clone()).mount_options(options).ending(ending).run(&image, &script).expect_ok();
            // It recovers, continues, and is intact.
            let script = format!("{GUEST}hurry; work 7 300; cleaned");
            let run = Kernel::of(linux.clone()).mount_options(options).run(&image, &script).expect_ok();
            assert_content(&run);
            assert_fsck_clean(&image);
        }
    }
}

#[test]
fn cleaning_does_not_touch_what_a_disabled_checkpoint_holds() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    for options in ["gc_policy=fagc", "gc_policy=joule", "gc_policy=fagc,atgc"] {
        let image = volume(work.path(), &Mkfs::default());
        let before = format!("{GUEST}work 1 400; sync; cat $MNT/f* | cksum");
        let sum = Kernel::of(linux.clone()).run(&image, &before).expect_ok().stdout;
        let disabled = format!("{options},checkpoint=disable:30%");
        let script = format!("{GUEST}hurry; work 2 300; cleaned");
        let cut = Kernel::of(linux.clone()).mount_options(&disabled).ending(Ending::Cut);
        cut.run(&image, &script).expect_ok();
        // The changes are lost: the files are those of the checkpoint.
        let run = Kernel::of(linux.clone()).run(&image, "cat $MNT/f* | cksum").expect_ok();
        assert_content(&run);
        assert_eq!(run.stdout, sum, "{options}");
        assert_fsck_clean(&image);
        // After re-enabling checkpoints, changes persist.
        let script = format!("{GUEST}hurry; work 3 200; mount -o remount,checkpoint=enable $MNT; work 4 200; cleaned");
        let run = Kernel::of(linux.clone()).mount_options(&disabled).run(&image, &script).expect_ok();
        assert_content(&run);
        assert_fsck_clean(&image);
    }
}

#[test]
fn zoned_devices_are_cleaned_and_stay_whole() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    // The image is not used: the device is the guest's own, in memory.
    let image = volume(work.path(), &Mkfs::default());
    for policy in ["fagc", "joule"] {
        let script = format!(
            "mount -t configfs config /sys/kernel/config
            DISK=zone; N=/sys/kernel/config/nullb/$DISK; mkdir $N; echo 4 >$N/zone_nr_conv
            echo 256 >$N/size; echo 1 >$N/memory_backed; echo 1 >$N/zoned; echo 8 >$N/zone_size; echo 4096 >$N/blocksize
            echo 1 >$N/power
            echo \"zoned: $(cat /sys/block/$DISK/queue/zoned)\"
            mkfs.f2fs -f -m /dev/$DISK >/dev/null
            {GUEST}
            mount -t f2fs -o gc_policy={policy} /dev/$DISK $MNT
            echo 100 >$S/gc_no_zoned_gc_percent; echo 100 >$S/gc_boost_zoned_gc_percent; hurry
            work 1 1200; sleep 1; cleaned
            umount $MNT
            fsck.f2fs --dry-run /dev/$DISK | grep -E 'Fail|ASSERT|Error|Done'"
        );
        let kernel = Kernel::of(linux.clone()).without_mount().memory_mib(768).timeout(Duration::from_secs(300));
        let run = kernel.run(&image, &script).expect_ok();
        assert_content(&run);
        println!("{policy}: {}", run.stdout);
        assert!(run.stdout.contains("host-managed"), "{}", run.stdout);
    }
}
