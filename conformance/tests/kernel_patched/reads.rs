//! The cleaner reads what the policy by energy takes it to read: a gap between two blocks along with them, where that is
//! cheaper than another request.

use std::ops::Range;
use std::path::Path;

use joulefs_conformance::oracle::kernel::Kernel;
use joulefs_conformance::oracle::linux::Linux;
use joulefs_conformance::oracle::tools::assert_fsck_clean;
use joulefs_conformance::worn::SMALL;

use super::patched;

/// Sections that are cleaned.
const TURNS: usize = 40;

/// What was read of the sections cleaned, in order: runs of blocks, by section.
fn reads(linux: &Linux, work: &Path, request: u64, read_block: u64) -> Vec<Vec<Range<u64>>> {
    let image = work.join("image");
    SMALL.build(&image).expect("an image");
    // Where segments begin is in the superblock. Each background cleaning is asked for by its ioctl, and finds no page in memory.
    let script = format!(
        "S=/sys/fs/f2fs/ubdb; T=/sys/kernel/tracing; mount -t tracefs trace $T; echo 8192 >$T/buffer_size_kb
        echo main $(od -An -tu4 -j1116 -N4 /dev/ubdb)
        mount -t f2fs -o background_gc=off,gc_policy=joule /dev/ubdb $MNT
        find $MNT -type f -exec sha256sum {{}} + | sort >/tmp/before
        umount $MNT; mount -t f2fs -o background_gc=off,gc_policy=joule /dev/ubdb $MNT
        echo 90 >$S/gc_keep_free; echo {request} >$S/gc_price_request; echo {read_block} >$S/gc_price_read_block
        echo 1 >$T/events/f2fs/f2fs_get_victim/enable; echo 1 >$T/events/block/block_rq_issue/enable
        for i in $(seq {TURNS}); do
            echo 3 >/proc/sys/vm/drop_caches
            perl -e 'open F, \"<\", $ENV{{MNT}}; ioctl F, 0x4004f506, my $a = pack \"I\", 0'
        done
        echo 0 >$T/tracing_on
        grep -oE 'victim = [0-9]+|block_rq_issue: [0-9,]+ R.*' $T/trace | sed 's/^/@ /'
        umount $MNT; mount -t f2fs -o background_gc=off /dev/ubdb $MNT
        find $MNT -type f -exec sha256sum {{}} + | sort | cmp - /tmp/before && echo the same
        umount $MNT"
    );
    let run = Kernel::of(linux.clone()).without_mount().run(&image, &script).expect_ok();
    assert_fsck_clean(&image);
    assert!(run.stdout.contains("the same"), "files changed: {}", run.stdout);
    let main: u64 = run.stdout.lines().find_map(|l| l.strip_prefix("main ")).unwrap().trim().parse().unwrap();
    let mut sections: Vec<Vec<Range<u64>>> = Vec::new();
    let mut section = 0..0;
    for line in run.stdout.lines().filter_map(|line| line.strip_prefix("@ ")) {
        if let Some(victim) = line.strip_prefix("victim = ") {
            let begin = main + victim.parse::<u64>().unwrap() * 512;
            section = begin..begin + 512;
            sections.push(Vec::new());
            continue;
        }
        // "98,16 RA 4096 () 12345 + 8 none,0,0 [perl]"
        let words: Vec<&str> = line.split(' ').collect();
        let plus = words.iter().position(|word| *word == "+").unwrap();
        let sectors = |at: usize| words[at].parse::<u64>().unwrap() / 8;
        let first = sectors(plus - 1);
        if section.contains(&first) {
            sections.last_mut().unwrap().push(first..first + sectors(plus + 1));
        }
    }
    sections
}

/// Gaps between a request and the next one: all of them, and those of up to so many blocks.
fn gaps(sections: &[Vec<Range<u64>>], short: u64) -> [usize; 2] {
    let pairs = sections.iter().flat_map(|reads| reads.windows(2));
    let gaps: Vec<u64> = pairs.filter_map(|pair| pair[1].start.checked_sub(pair[0].end)).collect();
    [gaps.len(), gaps.iter().filter(|gap| (1..=short).contains(*gap)).count()]
}

#[test]
fn a_gap_is_read_along_where_that_is_cheaper_than_another_request() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    let read = |request, read_block| reads(&linux, work.path(), request, read_block);
    // Eleven blocks cost less than a request, twelve more; where blocks are dear or requests free, no gap is worth it.
    let (along, dear) = (read(121_949, 10_819), read(10_818, 10_819));
    let blocks = |sections: &[Vec<Range<u64>>]| sections.iter().flatten().map(|read| read.end - read.start).sum::<u64>();
    let ([all, short], [all_dear, short_dear]) = (gaps(&along, 11), gaps(&dear, 11));
    println!("{all} gaps, {short} short, {} blocks; dear: {all_dear}, {short_dear}, {}", blocks(&along), blocks(&dear));
    assert_eq!(along.len(), TURNS);
    assert!(short_dear > 100, "the volume has no gaps that could be read along");
    assert!(short * 20 < short_dear, "gaps were left that are cheaper read along");
    assert!(all >= 10, "gaps were read along that cost more than a request");
}
