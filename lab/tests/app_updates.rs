//! A phone's applications, replayed on volumes that store small updates in different ways.

use std::num::NonZeroUsize;
use std::process::Command;

use device::BlockDevice;
use device::clock::Clock;
use device::energy::profile::Profile;
use f2fs::delta::Reads;
use f2fs::settle::settle;
use f2fs::{MountOptions, mkfs};
use format::superblock::Features;
use lab::apps::census::Census;
use lab::apps::database::Journal;
use lab::apps::play::{Made, Player};
use lab::apps::tape::{Call, Script};
use lab::apps::{APPS, App, database};
use lab::plan::{Changes, Experiment};
use sim::bench::Bench;
use vfs::FileSystem;

fn script(app: &str, minutes: u64, seed: u64) -> Script {
    App::find(app).unwrap().script(minutes, seed, None).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_although_sqlite_draws_random_numbers() {
    for app in APPS {
        let first = script(app.name, 1, 1);
        assert!(first == script(app.name, 1, 1), "{}: another script", app.name);
        assert!(first != script(app.name, 1, 2), "{}: the seed does nothing", app.name);
    }
    for journal in [Journal::Wal, Journal::Delete, Journal::Truncate, Journal::Persist, Journal::Memory] {
        let run = || App::find("TW").unwrap().script(1, 3, Some(journal)).unwrap();
        assert!(run() == run(), "{journal:?}");
    }
}

#[test]
fn sqlite_takes_sectors_of_512_bytes_as_on_android() {
    let script = script("GM", 1, 1);
    let writes = script.calls.iter().filter_map(|call| match call {
        Call::Write(file, 0, bytes) => Some((*file, &script.bytes[bytes.clone()])),
        _ => None,
    });
    // A journal's first sector: the offsets of its size and of the page size.
    let number = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let journals = writes.filter(|(_, b)| b.len() >= 28 && b.len() < 4096 && number(b, 24) == 4096);
    let sectors: Vec<(usize, u32)> = journals.map(|(_, b)| (b.len(), number(b, 20))).collect();
    assert!(!sectors.is_empty(), "no journal");
    assert!(sectors.iter().all(|s| *s == (512, 512)), "{sectors:?}");
}

#[test]
fn updates_are_counted_as_they_are() {
    let mut bytes = vec![7; 12_288];
    bytes.extend([1, 2, 3, 4]);
    let file = Call::Make(0, "a.db".into());
    let calls = vec![
        file,
        Call::Write(0, 0, 0..12_288),
        Call::Sync(0),
        // Within a page, across two pages, twice in a page before one sync, and past the end.
        Call::Write(0, 100, 12_288..12_292),
        Call::Sync(0),
        Call::Write(0, 4094, 12_288..12_292),
        Call::Sync(0),
        Call::Write(0, 8300, 12_288..12_292),
        Call::Write(0, 8400, 12_288..12_292),
        Call::Write(0, 12_288, 0..4096),
        Call::Sync(0),
    ];
    let c = Census::of(&Script { calls, bytes, prepares: 3, databases: vec![] }, true);
    assert_eq!((c.pages, c.updates, c.updated_pages, c.differing, c.syncs), (5, 4, 3, 16, 3));
    assert_eq!((c.below_256, c.ours, c.sqlite_updates, c.files, c.small_files), (4, 4, 4, 1, 1));
    assert_eq!(c.update_ratio(), 80.0);
    // A file of four pages leaves 919 of 923 words unused. Its four small differences fit at every threshold, so one
    // page and their bytes are written.
    assert_eq!((c.sqlite_files, c.temporary_files), (1, 0));
    assert!((c.free_in_inodes() - 100.0 * 919.0 / 923.0).abs() < 1e-9);
    for (n, written) in c.thresholds() {
        assert!((20.0..24.0).contains(&written), "{n} to a page: {written} %");
    }
    assert!(c.packed.iter().all(|p| *p == (4, c.small_bytes)), "{:?}", c.packed);
}

#[test]
fn volumes_write_the_pages_that_a_plain_count_says_and_fewer_with_deltas() {
    let changes = Changes { quick: true, ..Changes::default() };
    let experiment = Experiment::find("medfs-fig7-10").unwrap();
    let outcome = lab::run::run(&experiment, &changes, NonZeroUsize::new(2).unwrap(), &|_| ()).unwrap();
    for app in APPS {
        let of = |variant: &str, measure: &str| {
            let found = outcome.phases().find(|(v, p)| v.name == variant && p.name == app.name);
            found.unwrap().1.measures[measure].value
        };
        let pages = of("log", "script_pages");
        for plain in ["log", "in-place"] {
            let written = of(plain, "blocks_contents");
            // One page may be written twice: the volume's five seconds may end later than the census's.
            assert!((written - pages).abs() <= 2.0, "{}, {plain}: {written} blocks for {pages} pages", app.name);
            assert_eq!(of(plain, "deltas"), 0.0);
        }
        assert!(of("log", "in_place") == 0.0 && of("in-place", "in_place") > 20.0, "{}", app.name);
        for deltas in ["dci", "dci-in-place"] {
            let (whole, made) = (of(deltas, "blocks_contents"), of(deltas, "deltas"));
            assert!(
                made > 10.0 && (whole + made - pages).abs() <= 2.0 + of(deltas, "folded"),
                "{}, {deltas}",
                app.name
            );
        }
        // The flash programmed exactly what the volume wrote.
        assert!(of("dci", "programmed") == of("dci", "blocks"), "{}", app.name);
        assert!(of("dci", "blocks") < 0.85 * of("log", "blocks"), "{}", app.name);
    }
}

#[test]
fn what_applications_leave_is_whole_for_sqlite_and_settled_for_the_checkers_of_f2fs() {
    let profile = Profile::find("oneplus8t-ufs31").unwrap();
    for (app, journal) in [("TG", None), ("WC", None), ("GM", Some(Journal::Delete)), ("TW", Some(Journal::Truncate))] {
        let script = App::find(app).unwrap().script(2, 5, journal).unwrap();
        let mut bench = Bench::new(&profile, 128 << 8).unwrap();
        bench.keep_in_memory(4096);
        let options = MountOptions { delta_reads: Reads::All, ..MountOptions::default() };
        bench.format_with(5, mkfs::Options::modern().features | Features::DELTA, options).unwrap();
        let volume = bench.f2fs().unwrap().clone();
        let mut player = Player::new(&script);
        for begins in [false, true] {
            if begins {
                player.begin();
            }
            while player.left() > 0 {
                if let Made::Wait(time) = player.step(&*volume).unwrap() {
                    bench.clock().advance(time);
                }
                volume.tick().unwrap();
            }
        }
        for (file, expected) in &script.databases {
            database::check(volume.clone(), file, expected).unwrap();
            // The check detects missing data.
            let e = database::check(volume.clone(), file, &format!("{expected}more ")).unwrap_err();
            assert!(e.to_string().contains("SQLite finds it damaged"), "{e}");
        }
        volume.unmount().unwrap();
        let done = settle(bench.contents(), bench.clock().clone(), &mut |_, _| ()).unwrap().unwrap();
        assert!(done.deltas > 10, "{app}: {done:?}");
        let image = tempfile::NamedTempFile::new().unwrap();
        let mut bytes = vec![0; 128 << 20];
        bench.contents().read(device::Lba(0), &mut bytes, device::Tag::default()).unwrap();
        std::fs::write(image.path(), &bytes).unwrap();
        let verdict = Command::new("fsck.f2fs").arg("--dry-run").arg(image.path()).output().unwrap();
        assert!(verdict.status.success(), "{app}: {}", String::from_utf8_lossy(&verdict.stdout));
        assert!(bench.clock().monotonic().as_secs() > 100);
    }
}

#[test]
fn the_applications_have_about_the_shares_of_the_papers_table_1() {
    let changes = Changes { quick: true, ..Changes::default() };
    let experiment = Experiment::find("medfs-table1-2").unwrap();
    let outcome = lab::run::run(&experiment, &changes, NonZeroUsize::new(2).unwrap(), &|_| ()).unwrap();
    let mut compared = 0;
    for c in outcome.compared.iter().filter(|c| c.claim.quantity.starts_with("updates' share")) {
        let off = (c.ours.unwrap() - c.claim.value).abs();
        assert!(off < 12.0, "{}: {}", c.claim.quantity, c.difference_text());
        compared += 1;
    }
    assert_eq!(compared, 7 + 1);
}
