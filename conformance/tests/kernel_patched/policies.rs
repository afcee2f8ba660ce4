//! A policy of the patched kernel stays set, and never blocks a writer that waits for free space.

use judges::oracle::cleaning::record;
use judges::oracle::kernel::Kernel;
use judges::oracle::tools::{Mkfs, assert_fsck_clean};
use judges::oracle::victims::{Gc, Policy, Purpose, Step};
use trials::worn::SMALL;

use super::patched;

#[test]
fn a_policy_stays_set_while_urgency_comes_and_goes() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    let image = work.path().join("image");
    Mkfs::default().format(&image, 64 << 20).expect("mkfs.f2fs formats");
    let script = "S=/sys/fs/f2fs/$DISK
        told() { echo \"$(cat $S/gc_policy) $(cat $S/gc_mode)\"; }
        mount -t f2fs -o gc_policy=fagc /dev/$DISK $MNT; told
        echo 1 >$S/gc_urgent; told; echo 0 >$S/gc_urgent; told
        echo 2 >$S/gc_idle; echo 0 >$S/gc_idle; told
        mount -o remount,ro $MNT; mount -o remount,rw $MNT; told
        echo joule >$S/gc_policy; told
        grep -o gc_policy=[a-z]* /proc/mounts
        mount -o remount,gc_policy=default $MNT; told; grep -c gc_policy /proc/mounts || true
        echo nonsense >$S/gc_policy || told
        echo 100 >$S/gc_frag_ratio || cat $S/gc_frag_ratio
        echo 61 >$S/gc_fagc_age_weight || cat $S/gc_fagc_age_weight
        cat $S/gc_request_cost $S/gc_on_battery $S/gc_keep_free
        echo 91 >$S/gc_keep_free || cat $S/gc_keep_free
        umount $MNT; mount -t f2fs -o gc_policy=nonsense /dev/$DISK $MNT || echo refused";
    let run = Kernel::of(linux).without_mount().run(&image, script).expect_ok();
    let said: Vec<&str> = run.stdout.lines().filter(|l| !l.contains("error") && !l.contains("mount:")).collect();
    let fagc = "default cost_benefit greedy [fagc] joule";
    let default = "[default] cost_benefit greedy fagc joule GC_NORMAL";
    let want = [
        &format!("{fagc} GC_NORMAL"),
        &format!("{fagc} GC_URGENT_HIGH"),
        &format!("{fagc} GC_NORMAL"),
        &format!("{fagc} GC_NORMAL"),
        &format!("{fagc} GC_NORMAL"),
        "default cost_benefit greedy fagc [joule] GC_NORMAL",
        "gc_policy=joule",
        default,
        "0",
        default,
        "0",
        "40",
        "10",
        "0",
        "0",
        "0",
        "refused",
    ];
    let said: Vec<&str> = said.into_iter().filter(|l| !l.trim().is_empty() && !l.contains("dmesg")).collect();
    assert_eq!(said, want);
}

#[test]
fn who_waits_for_space_is_served_whatever_the_policy_refuses() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    let image = work.path().join("image");
    // Before it has observed a use, `joule` cleans nothing.
    let script = "mnt background_gc=off,gc_policy=joule; knob gc_frag_ratio 99
        clean background; clean foreground; knob gc_urgent 1; clean background; knob gc_urgent 0; clean background
        umnt
        mnt background_gc=off,mode=lfs,gc_policy=joule; knob gc_frag_ratio 99
        for i in $(seq 16); do fill new$i 10; done; umnt";
    SMALL.build(&image).expect("an image");
    let fixture = record(linux, &image, &[], script).unwrap_or_else(|e| panic!("{e}"));
    assert_fsck_clean(&image);
    let searches: Vec<_> =
        fixture.mounts[0].steps.iter().filter_map(|s| if let Step::Looked(l) = s { Some(l) } else { None }).collect();
    let told = searches.iter().filter(|l| l.purpose == Purpose::Clean);
    let told: Vec<_> = told.map(|l| (l.gc, l.policy, l.segment.is_some())).collect();
    let want = [
        (Gc::Background, Policy::Joule, false),
        (Gc::Foreground, Policy::Greedy, true),
        (Gc::Background, Policy::Greedy, true),
        (Gc::Background, Policy::Joule, false),
    ];
    assert_eq!(told, want);
    let failed = fixture.mounts[1].steps.iter().filter(|s| matches!(s, Step::Failed(_))).count();
    let cleaned =
        fixture.mounts[1].steps.iter().filter(|s| matches!(s, Step::Victim(v) if v.gc == Gc::Foreground)).count();
    assert!(failed < 16 && cleaned > 0, "{cleaned} sections cleaned for writers, {failed} writes failed");
}
