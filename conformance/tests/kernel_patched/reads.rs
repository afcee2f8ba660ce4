//! The cleaner reads exactly what the energy policy assumes: it also reads the gap between two blocks if that is
//! cheaper than another request.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

use judges::oracle::kernel::Kernel;
use judges::oracle::linux::Linux;
use judges::oracle::tools::assert_fsck_clean;
use trials::worn::SMALL;

use super::patched;

/// Number of sections cleaned.
const TURNS: usize = 40;

/// Cleans the volume on `$1`, which may be another device than the image, one section at a time; files do not change.
/// `bad` is called before each cleaning, `good` after it.
const GUEST: &str = "T=/sys/kernel/tracing; mount -t tracefs trace $T; echo 8192 >$T/buffer_size_kb
sums() { find $MNT -type f -exec sha256sum {} + | sort; }
volume() { mount -t f2fs -o background_gc=off,gc_policy=joule /dev/$1 $MNT; S=/sys/fs/f2fs/$1; }
bad() { :; }
good() { :; }
clean() {
    # Where segments begin is in the superblock.
    echo main $(od -An -tu4 -j1116 -N4 /dev/$1)
    volume $1; sums >/tmp/before; umount $MNT; volume $1
    echo 90 >$S/gc_keep_free; echo $2 >$S/gc_request_cost
    for event in f2fs/f2fs_get_victim block/block_rq_issue block/block_rq_error; do echo 1 >$T/events/$event/enable; done
    for i in $(seq $3); do
        # Nothing is in memory.
        echo 3 >/proc/sys/vm/drop_caches
        bad
        perl -e 'open F, \"<\", $ENV{MNT}; ioctl F, 0x4004f506, my $a = pack \"I\", 0'
        good
    done
    echo 0 >$T/tracing_on
    echo moved $(cat $S/moved_blocks_background)
    grep -oE 'victim = [0-9]+|block_rq_(issue|error): [0-9,]+ R.*' $T/trace | sed 's/^/@ /'
    umount $MNT; volume $1
    sums | cmp - /tmp/before && echo the same
    umount $MNT; fsck.f2fs --dry-run /dev/$1 | grep -E 'Fail|ASSERT|Error' || true
}
";

/// A cleaned section.
struct Section {
    segno: u64,
    /// Runs of its blocks that were read, in order.
    read: Vec<Range<u64>>,
}

/// The reads of each cleaned section, in order.
struct Reads {
    sections: Vec<Section>,
    /// Failed requests.
    failed: usize,
    /// Moved blocks.
    moved: u64,
}

/// Runs a script that cleans in the guest, on the image of an aged volume.
fn reads(linux: &Linux, work: &Path, script: &str) -> Reads {
    let image = work.join("image");
    SMALL.build(&image).expect("an image");
    let script = format!("{GUEST}{script}");
    let run = Kernel::of(linux.clone()).without_mount().memory_mib(768).run(&image, &script).expect_ok();
    assert!(run.stdout.contains("the same"), "files changed: {}", run.stdout);
    assert!(!["Fail", "ASSERT", "Error"].iter().any(|word| run.stdout.contains(word)), "{}", run.stdout);
    assert_fsck_clean(&image);
    let number = |name: &str| -> u64 {
        let line = run.stdout.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.trim().parse().ok()).unwrap_or_else(|| panic!("no {name}: {}", run.stdout))
    };
    let main = number("main ");
    let mut reads = Reads { sections: Vec::new(), failed: 0, moved: number("moved ") };
    let mut section = 0..0;
    for line in run.stdout.lines().filter_map(|line| line.strip_prefix("@ ")) {
        if let Some(victim) = line.strip_prefix("victim = ") {
            let segno: u64 = victim.parse().unwrap();
            section = main + segno * 512..main + segno * 512 + 512;
            reads.sections.push(Section { segno, read: Vec::new() });
        } else if line.starts_with("block_rq_error") {
            reads.failed += 1;
        } else {
            // "block_rq_issue: 98,16 RA 4096 () 12345 + 8 none,0,0 [perl]"
            let words: Vec<&str> = line.split(' ').collect();
            let plus = words.iter().position(|word| *word == "+").unwrap();
            let sectors = |at: usize| words[at].parse::<u64>().unwrap() / 8;
            let first = sectors(plus - 1);
            if section.contains(&first) {
                reads.sections.last_mut().unwrap().read.push(first..first + sectors(plus + 1));
            }
        }
    }
    reads
}

/// Cleans the image itself, where a request costs as much as this many blocks.
fn at_cost(linux: &Linux, work: &Path, request: u64) -> Vec<Section> {
    reads(linux, work, &format!("clean $DISK {request} {TURNS}")).sections
}

/// Merges reads across gaps of up to `most` blocks: runs that one request may cover.
fn joined(read: &[Range<u64>], most: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for next in read {
        match runs.last_mut() {
            Some(last) if next.start >= last.end && next.start - last.end <= most => last.end = next.end,
            _ => runs.push(next.clone()),
        }
    }
    runs
}

#[test]
fn a_gap_is_read_along_where_that_is_cheaper_than_another_request() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    // If a request costs eleven blocks, gaps of up to eleven are read. If requests are free, none is.
    let along = at_cost(&linux, work.path(), 11);
    let dear = at_cost(&linux, work.path(), 0);
    assert_eq!((along.len(), dear.len()), (TURNS, TURNS));
    // Prices affect the choice, so compare the sections that both runs chose.
    let both: Vec<(&Section, &Section)> =
        along.iter().filter_map(|a| Some((a, dear.iter().find(|d| d.segno == a.segno)?))).collect();
    let requests = |of: fn(&(&Section, &Section)) -> usize| both.iter().map(of).sum::<usize>();
    let (made, alone) = (requests(|(a, _)| a.read.len()), requests(|(_, d)| d.read.len()));
    let runs: Vec<Range<u64>> = both.iter().flat_map(|(_, d)| joined(&d.read, 11)).collect();
    // As long as any read.
    let longest = along.iter().flat_map(|section| &section.read).map(|read| read.end - read.start).max().unwrap();
    let fewest = runs.iter().map(|run| (run.end - run.start).div_ceil(longest)).sum::<u64>() as usize;
    println!(
        "{} sections: {alone} requests, {made} with gaps; {} runs, in {fewest} of up to {longest}",
        both.len(),
        runs.len()
    );
    assert!(both.len() >= TURNS / 2 && alone > fewest * 3 / 2, "nothing to read along");
    assert!(made <= fewest + fewest / 10, "gaps were left that are cheaper read along, or requests not joined");
    // Each run is read as one, and no further.
    let (read, needed) = (|s: &Section| joined(&s.read, 0), |s: &Section| joined(&s.read, 11));
    let alike = both.iter().filter(|(a, d)| read(a) == needed(d)).count();
    assert!(alike * 10 >= both.len() * 9, "{alike} of {} sections are read in the runs that are cheapest", both.len());
}

/// A gap may be unreadable. Then a request fails that also has needed blocks.
#[test]
fn a_gap_that_cannot_be_read_takes_nothing_from_the_blocks_beside_it() {
    let Some(linux) = patched() else { return };
    let work = tempfile::tempdir().expect("a directory");
    // The gaps between needed blocks are found in a run that reads no gaps. The device fails there during cleaning, but
    // not elsewhere or in sections already cleaned, where the kernel writes.
    let needed = at_cost(&linux, work.path(), 0);
    let gaps = |section: &Section| -> String {
        let gaps = section.read.windows(2).map(|pair| pair[0].end..pair[1].start);
        let gaps = gaps.filter(|gap| !gap.is_empty() && gap.end - gap.start <= 11);
        gaps.map(|gap| format!("{}-{} ", gap.start * 8, gap.end * 8 - 1)).collect()
    };
    let gaps: String =
        needed.iter().map(|section| format!("echo {} >/tmp/gaps/{}\n", gaps(section), section.segno)).collect();
    let script = format!(
        "mount -t configfs config /sys/kernel/config; N=/sys/kernel/config/nullb/bad; mkdir $N
        echo $(($(cat /sys/block/$DISK/size) / 2048)) >$N/size; echo 1 >$N/memory_backed; echo 4096 >$N/blocksize; echo 1 >$N/power
        dd if=/dev/$DISK of=/dev/bad bs=1M 2>/dev/null
        mkdir /tmp/gaps; {gaps}
        bad() {{ for gap in $(cat /tmp/gaps/*); do echo +$gap >$N/badblocks; done; }}
        good() {{ for gap in $(cat /tmp/gaps/*); do echo -$gap >$N/badblocks; done; rm -f /tmp/gaps/$(grep -o 'victim = [0-9]*' $T/trace | tail -1 | cut -d' ' -f3); }}
        clean bad 11 {TURNS}"
    );
    let (run, control) =
        (reads(&linux, work.path(), &script), reads(&linux, work.path(), &script.replace("echo +", ": ")));
    println!("{} requests failed; {} blocks moved, {} where none fails", run.failed, run.moved, control.moved);
    assert!(run.failed > 20 && control.failed == 0, "{} and {} requests failed", run.failed, control.failed);
    // In any order: ages depend on the clock.
    let victims = |run: &Reads| -> BTreeSet<u64> { run.sections.iter().map(|section| section.segno).collect() };
    assert_eq!((victims(&run), run.moved), (victims(&control), control.moved), "what could not be read along was left");
}
