//! Both file systems are used in the same way: a recording ends with the same tree, and an experiment transfers the
//! same bytes. Features that only one has are refused by name.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use device::energy::profile::Profile;
use lab::plan::{Changes, Experiment};
use lab::result::Outcome;
use sha2::{Digest, Sha256};
use sim::traces::by_inode::{ByInode, How};
use sim::traces::calls::{OnVolumeDone, Options, run};
use sim::traces::source::{ByPath, Source};
use sim::traces::state::Wanted;
use sim::traces::{ReplayError, Run, Speed};
use trace::Opened;
use trace::call::Calls;
use trace::replay::needs;
use vfs::{FileKind, FileSystem, Flow};
use volume::{Kind, MountOptions};

/// Every path except the file systems' own: its type, number of links and contents.
fn held(fs: &dyn FileSystem) -> BTreeMap<String, String> {
    let (mut all, mut todo) = (BTreeMap::new(), vec![(String::new(), fs.root())]);
    while let Some((dir, ino)) = todo.pop() {
        let mut names = Vec::new();
        fs.readdir(ino, 0, &mut |entry| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            Flow::Continue
        })
        .unwrap();
        for name in names.into_iter().filter(|name| ![".", "..", ".ifile", "lost+found"].contains(&name.as_str())) {
            let (path, attr) = (format!("{dir}/{name}"), fs.lookup(ino, name.as_bytes()).unwrap().attr);
            let holds = match attr.kind {
                FileKind::Directory => {
                    todo.push((path.clone(), attr.ino));
                    String::new()
                }
                FileKind::Symlink => String::from_utf8_lossy(&fs.readlink(attr.ino).unwrap()).into_owned(),
                FileKind::Regular => {
                    let mut bytes = vec![0; attr.size as usize];
                    assert_eq!(fs.read(attr.ino, 0, &mut bytes), Ok(bytes.len()), "{path}");
                    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
                    format!("{} bytes {digest}", attr.size)
                }
                _ => String::new(),
            };
            let links = if attr.kind == FileKind::Directory { 0 } else { attr.nlink };
            all.insert(path, format!("{:?} {:o} {links} {holds}", attr.kind, attr.perm));
        }
    }
    all
}

/// The tree after remounting what a replay wrote.
fn left(run: &Run<OnVolumeDone>) -> BTreeMap<String, String> {
    let OnVolumeDone { fs, contents, .. } = &run.done;
    let options = MountOptions::default().read_only(true);
    let mounted = volume::mount(*fs, contents.clone(), sim::aging::clock(), options).unwrap();
    held(&*mounted.volume())
}

fn on(kind: Kind, state: Wanted) -> Options {
    Options { fs: kind, state, speed: Speed::BackToBack, seed: 3, ..Options::default() }
}

/// Paths whose contents differ between two trees.
fn differing<'a>(here: &'a BTreeMap<String, String>, there: &BTreeMap<String, String>) -> Vec<&'a String> {
    here.iter().filter(|(path, holds)| there.get(*path) != Some(*holds)).map(|(path, _)| path).take(9).collect()
}

/// Replays the calls on both: they end with the same tree, and both spend energy. For files in `unknown`, whose
/// contents are not recorded, only the length is compared.
fn ends_alike(what: &str, unknown: &BTreeSet<String>, mut replay: impl FnMut(&Options) -> Run<OnVolumeDone>) {
    let [f2fs, scherlfs] = Kind::ALL.map(|kind| replay(&on(kind, Wanted::default())));
    let known = |run: &Run<OnVolumeDone>| {
        let mut tree = left(run);
        for (_, holds) in tree.iter_mut().filter(|(path, _)| unknown.contains(*path)) {
            holds.truncate(holds.find(" bytes").expect("a file"));
        }
        tree
    };
    let (here, there) = (known(&f2fs), known(&scherlfs));
    assert!(here.len() > unknown.len(), "{what}: nothing is left");
    assert_eq!((differing(&here, &there), differing(&there, &here)), (Vec::new(), Vec::new()), "{what}");
    for run in [&f2fs, &scherlfs] {
        assert!(run.ledger.total().0 > 0 && run.damage.is_none(), "{what}");
        assert_eq!(run.done.calls.no_space, 0, "{what}");
    }
    let (a, b) = (&f2fs.done.calls, &scherlfs.done.calls);
    assert_eq!((a.calls, a.written, a.read), (b.calls, b.written, b.read), "{what}");
    println!("{what}: {} paths, {} on F2FS, {} on ScherlFS", here.len(), f2fs.ledger.total(), scherlfs.ledger.total());
}

fn made(file: &Path, options: &Options) -> Run<OnVolumeDone> {
    let profile = Profile::find("laptop-disk-4200").unwrap();
    let mut source = ByInode::open(file, How::default()).unwrap().expect("a recording of ours");
    run(&mut source, &mut [], &profile, options, &mut |_, _| ()).unwrap()
}

/// Files that the recorded programs did not change: a recording may have only their lengths.
fn unchanged(recording: &Path) -> BTreeSet<String> {
    let text = std::fs::read_to_string(recording.with_extension("sums")).unwrap();
    let lines = text.lines().filter_map(|line| line.split_once(" as before  "));
    lines.map(|(_, path)| format!("/{path}")).collect()
}

fn recordings() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../recordings");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> = all.filter(|path| path.extension().is_some_and(|e| e == "rec")).collect();
    all.sort();
    all
}

#[test]
fn every_recording_that_is_shipped_ends_with_the_same_tree_on_both() {
    let all = recordings();
    assert!(all.len() >= 8);
    for file in &all {
        ends_alike(&file.display().to_string(), &unchanged(file), |options| made(file, options));
    }
}

#[test]
fn it_leaves_the_same_files_on_volumes_that_are_aged_and_nearly_full() {
    let file = recordings().into_iter().find(|path| path.ends_with("settings.rec")).unwrap();
    let plain = left(&made(&file, &on(Kind::F2fs, Wanted::default())));
    assert!(plain.len() > 2, "{}", plain.len());
    for kind in Kind::ALL {
        let run = made(&file, &on(kind, Wanted { recipe: Some("three-fifths".into()), full: Some(0.8) }));
        let began = run.done.began;
        assert!((0.79..0.82).contains(&began.full), "{kind}: {began:?}");
        assert_eq!(
            (began.free_segments.is_some(), began.free_pieces.is_some()),
            (kind == Kind::F2fs, kind != Kind::F2fs)
        );
        let tree = left(&run);
        assert_eq!(differing(&plain, &tree), Vec::<&String>::new(), "{kind}");
        assert!(tree.len() > plain.len() + 20, "{kind}: {} paths", tree.len());
    }
}

/// An external recording with calls by path; contents are generated.
#[test]
fn a_recording_of_another_program_ends_with_the_same_tree_on_both() {
    let Some(file) = lab::theirs::find("mobigen.out.facebook") else {
        return testlog::not_shipped(lab::theirs::missing("mobigen.out.facebook"));
    };
    let open = || -> Result<Box<dyn Calls>, ReplayError> {
        match trace::open(&file)? {
            Opened::Calls(calls) => Ok(calls),
            _ => panic!("calls"),
        }
    };
    let (needs, _) = needs::scan(&mut *open().unwrap(), |_| ());
    let profile = Profile::find("laptop-disk-4200").unwrap();
    ends_alike("mobigen.out.facebook", &BTreeSet::new(), |options| {
        let mut source = ByPath { open: &open, needs: &needs, length: 1 };
        assert!(source.room() > 0);
        run(&mut source, &mut [], &profile, options, &mut |_, _| ()).unwrap()
    });
}

fn quick(name: &str, variants: &[&str], parameters: &str) -> Result<Outcome, String> {
    let variants = variants.iter().map(|v| (*v).to_owned()).collect();
    let changes = Changes { quick: true, variants, parameters: parameters.parse().unwrap(), ..Changes::default() };
    let experiment = Experiment::find(name).unwrap();
    lab::run::check(&experiment, &changes).map_err(|e| e.to_string())?;
    lab::run::run(&experiment, &changes, NonZeroUsize::MIN, &|_| ()).map_err(|e| e.to_string())
}

#[test]
fn an_experiment_on_scherlfs_moves_the_bytes_it_moves_on_f2fs_and_counts_by_scherlfs_causes() {
    let ours = quick("nexus-fileops", &["f2fs"], "fs = 'scherlfs'").unwrap();
    let before = quick("nexus-fileops", &["f2fs"], "").unwrap();
    assert_eq!(ours.phases().count(), before.phases().count());
    for ((_, a), (_, b)) in ours.phases().zip(before.phases()) {
        assert_eq!((&a.name, a.bytes, a.fs, b.fs), (&b.name, b.bytes, Kind::ScherlFs, Kind::F2fs));
        let known = Kind::ScherlFs.reasons();
        assert!(a.spent.iter().all(|s| s.cause == 0 || known.iter().any(|r| r.number == s.cause)), "{}", a.name);
        let log = known.iter().find(|r| r.text == "log").unwrap().number;
        assert_eq!(a.traffic.iter().any(|t| t.cause == log && t.blocks_written > 0), a.name.ends_with("write"));
        assert_eq!(sim::flame::phase::flame(a).total(), a.total());
    }
    // A result of F2FS does not name a file system, as before there were two.
    let text = serde_json::to_string(&before).unwrap();
    assert!(!text.contains("\"fs\"") && serde_json::to_string(&ours).unwrap().contains("\"fs\":\"scherlfs\""));
}

#[test]
fn an_experiments_options_reach_the_volume() {
    let of = |options: &str| {
        let parameters = format!("fs = 'scherlfs'\n{options}");
        let outcome = quick("nexus-fileops", &["f2fs"], &parameters).unwrap();
        outcome.phases().map(|(_, p)| p.total().0).sum::<u64>()
    };
    // Every call is a separate transaction.
    assert_ne!(of("options = { sync = 'call' }"), of(""));
}

#[test]
fn what_only_one_of_them_has_is_refused_by_name() {
    let refused = |name: &str, variants: &[&str], parameters: &str| quick(name, variants, parameters).unwrap_err();
    let e = refused("nexus-fileops", &["f2fs-no-node-cache"], "fs = 'scherlfs'");
    assert!(e.contains("ScherlFS") && e.contains("node_cache"), "{e}");
    let e = refused("gc-bound", &[], "fs = 'scherlfs'");
    assert!(e.contains("ScherlFS") && e.contains("clean"), "{e}");
    let e = refused("nexus-fileops", &["f2fs"], "options = { sync = 'call' }");
    assert!(e.contains("F2FS has no option sync=call"), "{e}");
    let e = refused("nexus-fileops", &["f2fs"], "options = { speed = 9 }");
    assert!(e.contains("no option \"speed\""), "{e}");
    let e = refused("nexus-fileops", &["f2fs"], "fs = 'ext4'");
    assert!(e.contains("ext4") && e.contains("scherlfs"), "{e}");
}

#[test]
fn sqlite_makes_its_transactions_on_scherlfs() {
    let outcome = quick("nexus-sqlite", &[], "fs = 'scherlfs'").unwrap();
    for (v, p) in outcome.phases() {
        assert!(p.measures["energy_per_transaction"].value > 0.0, "{}, {}", v.name, p.name);
        assert!(!p.measures.contains_key("checkpoints_per_transaction"), "{}", p.name);
    }
}
