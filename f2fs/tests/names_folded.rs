//! Names in casefolded directories, changed and synced. They are checked by a plain model that identifies names by
//! their folded form, by both checkers, and by Linux, in both directions: each system replays fsyncs of the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{BlockDevice, Lba, Loss, Memory, Rng, Tag};
use format::Block;
use format::casefold::{STRICT, fold};
use format::superblock::{Features, RawSuperBlock};
use joulefs_f2fs::mkfs::Options;
use joulefs_f2fs::{MountOptions, Volume};
use judges::oracle::kernel::{Ending, Kernel};
use judges::oracle::linux::Linux;
use vfs::{DirEntry, FileFlags, FileSystem, Flow, Ino, RenameFlags};

use crate::log_rig::*;

fn folding() -> Options {
    let modern = Options::modern();
    Options { features: modern.features | Features::CASEFOLD, ..modern }
}

/// A new casefolded directory.
fn folded(vol: &Volume, parent: Ino, name: &str) -> Ino {
    let dir = vol.mkdir(ROOT, parent, name.as_bytes(), 0o755, 0).unwrap().attr.ino;
    vol.set_flags(dir, vol.flags(dir).unwrap().flags | FileFlags::CASEFOLD, None).unwrap();
    dir
}

fn names(vol: &Volume, dir: Ino) -> Vec<String> {
    let mut out = Vec::new();
    vol.readdir(dir, 0, &mut |e: DirEntry<'_>| {
        if !matches!(e.name, b"." | b"..") {
            out.push(String::from_utf8(e.name.to_vec()).unwrap());
        }
        Flow::Continue
    })
    .unwrap();
    out.sort();
    out
}

fn at(vol: &Volume, dir: Ino, name: &str) -> Option<Ino> {
    match vol.lookup(dir, name.as_bytes()) {
        Ok(e) => Some(e.attr.ino),
        Err(vfs::Error::NotFound) => None,
        Err(e) => panic!("{name}: {e}"),
    }
}

/// One of few names, in one of many spellings.
fn spelling(rng: &mut Rng) -> String {
    let stem = ["Straße", "ÅNGSTRÖM", "name of some length", "Σίσυφος", "x"][rng.below(5) as usize];
    let name = format!("{stem}-{}", rng.below(60));
    match rng.below(4) {
        0 => name.to_uppercase(),
        1 => name.to_lowercase(),
        2 => name.replace('Å', "A\u{30a}").replace('Ö', "O\u{308}"),
        _ => name,
    }
}

/// Contents of a directory: by folded name, the spelling and the inode.
type Model = BTreeMap<Vec<u8>, (String, Ino)>;

#[test]
fn names_that_fold_alike_are_one_name_whatever_is_done_to_them() {
    for (inline, seed) in [(true, 1), (false, 2), (true, 3)] {
        let image = Arc::new(formatted(128, &folding()));
        let options = || MountOptions { inline, ..MountOptions::default() };
        let mut vol = Volume::mount(image.clone(), clock(), options()).unwrap();
        let mut dirs = [folded(&vol, vol.root(), "one"), folded(&vol, vol.root(), "two")];
        let mut models = [Model::new(), Model::new()];
        let mut rng = Rng::new(seed);
        for step in 0..4000 {
            let (a, b) = (rng.below(2) as usize, rng.below(2) as usize);
            let (name, other) = (spelling(&mut rng), spelling(&mut rng));
            let key = |n: &str| fold(n.as_bytes()).unwrap();
            let known = models[a].get(&key(&name)).cloned();
            assert_eq!(at(&vol, dirs[a], &name), known.as_ref().map(|k| k.1), "{step}: {name}");
            match rng.below(8) {
                0..=3 => {
                    let new = vfs::NewNode {
                        kind: vfs::FileKind::Regular,
                        perm: 0o644,
                        umask: 0,
                        rdev: vfs::DeviceNumber::default(),
                    };
                    match (vol.mknod(ROOT, dirs[a], name.as_bytes(), &new), known) {
                        (Err(vfs::Error::Exists), Some(_)) => {}
                        (Ok(e), None) => _ = models[a].insert(key(&name), (name, e.attr.ino)),
                        (out, known) => panic!("{step}: {name}: {out:?}, {known:?}"),
                    }
                }
                4 => match (vol.unlink(dirs[a], name.as_bytes()), known) {
                    (Err(vfs::Error::NotFound), None) => {}
                    (Ok(()), Some(_)) => _ = models[a].remove(&key(&name)),
                    (out, known) => panic!("{step}: {name}: {out:?}, {known:?}"),
                },
                5 if known.is_some() => {
                    let (_, ino) = known.unwrap();
                    match (vol.link(ino, dirs[b], other.as_bytes()), models[b].contains_key(&key(&other))) {
                        (Err(vfs::Error::Exists), true) => {}
                        (Ok(_), false) => _ = models[b].insert(key(&other), (other, ino)),
                        (out, known) => panic!("{step}: {other}: {out:?}, {known}"),
                    }
                }
                _ => {
                    let out =
                        vol.rename(ROOT, (dirs[a], name.as_bytes()), (dirs[b], other.as_bytes()), RenameFlags::empty());
                    let Some((_, ino)) = known else {
                        assert_eq!(out, Err(vfs::Error::NotFound), "{step}");
                        continue;
                    };
                    out.unwrap();
                    let target = models[b].get(&key(&other)).cloned();
                    if target.as_ref().is_none_or(|t| t.1 != ino) {
                        // An existing entry keeps its spelling.
                        let kept = target.map_or(other.clone(), |t| t.0);
                        models[a].remove(&key(&name));
                        models[b].insert(key(&other), (kept, ino));
                    }
                }
            }
            if step % 500 == 499 {
                vol.unmount().unwrap();
                drop(vol);
                assert_clean(&*image, "unmounted");
                vol = Volume::mount(image.clone(), clock(), options()).unwrap();
                dirs = [find(&vol, "one").unwrap(), find(&vol, "two").unwrap()];
            }
        }
        for (dir, model) in dirs.iter().zip(&models) {
            let mut spelled: Vec<String> = model.values().map(|(name, _)| name.clone()).collect();
            spelled.sort();
            assert_eq!(names(&vol, *dir), spelled);
            assert!(spelled.len() > 60, "{}", spelled.len());
        }
        vol.unmount().unwrap();
        assert_clean(&*image, "at the end");
        assert_tools_clean(&image);
    }
}

#[test]
fn a_directory_of_thousands_of_folded_names_has_each_under_its_hash() {
    let image = Arc::new(formatted(128, &folding()));
    let vol = mount(image.clone());
    let dir = folded(&vol, vol.root(), "d");
    for i in 0..3000 {
        vol.forget(new_file(&vol, dir, &format!("Größe-{i}")), 1);
    }
    for i in (0..3000).step_by(7) {
        assert!(at(&vol, dir, &format!("GRÖSSE-{i}")).is_some(), "{i}");
        vol.unlink(dir, format!("gro\u{308}ße-{i}").as_bytes()).unwrap();
    }
    vol.unmount().unwrap();
    assert_clean(&*image, "unmounted");
    assert_tools_clean(&image);
}

#[test]
fn a_strict_volume_refuses_what_is_not_utf_8_and_others_know_it_by_its_bytes() {
    for strict in [false, true] {
        let image = formatted(64, &folding());
        for copy in 0..2 {
            let mut block: Block = [0; 4096];
            image.read(Lba(copy), &mut block, Tag::default()).unwrap();
            let mut raw = RawSuperBlock::of(&block).clone();
            raw.s_encoding_flags = if strict { STRICT } else { 0 }.into();
            raw.store(&mut block);
            image.write(Lba(copy), &block, Tag::default()).unwrap();
        }
        let image = Arc::new(image);
        let vol = mount(image.clone());
        let dir = folded(&vol, vol.root(), "d");
        let make = |name: &[u8]| vol.mkdir(ROOT, dir, name, 0o755, 0).map(drop);
        if strict {
            assert!(matches!(make(b"A\xff"), Err(vfs::Error::Invalid(_))));
            assert!(matches!(vol.lookup(dir, b"A\xff"), Err(vfs::Error::Invalid(_))));
        } else {
            make(b"A\xff").unwrap();
            make(b"a\xff").unwrap();
            assert_eq!(make(b"A\xff"), Err(vfs::Error::Exists));
        }
        make(b"A").unwrap();
        assert_eq!(make(b"a"), Err(vfs::Error::Exists));
        vol.unmount().unwrap();
        assert_clean(&*image, "unmounted");
    }
}

#[test]
fn a_directory_begins_and_ends_to_fold_only_while_it_is_empty() {
    let vol = mount(Arc::new(formatted(64, &folding())));
    let dir = folded(&vol, vol.root(), "d");
    let set = |dir, on| {
        let mut flags = vol.flags(dir).unwrap().flags;
        flags.set(FileFlags::CASEFOLD, on);
        vol.set_flags(dir, flags, None)
    };
    new_file(&vol, dir, "A");
    assert_eq!(set(dir, false), Err(vfs::Error::NotEmpty));
    let sub = vol.mkdir(ROOT, dir, b"sub", 0o755, 0).unwrap().attr.ino;
    assert!(vol.flags(sub).unwrap().flags.contains(FileFlags::CASEFOLD), "inherited");
    vol.unlink(dir, b"a").unwrap();
    vol.rmdir(dir, b"SUB").unwrap();
    set(dir, false).unwrap();
    new_file(&vol, dir, "A");
    new_file(&vol, dir, "a");
    assert_eq!(set(dir, true), Err(vfs::Error::NotEmpty));
    let file = new_file(&vol, vol.root(), "file");
    assert!(matches!(set(file, true), Err(vfs::Error::Unsupported(_))));
    let plain = mount(Arc::new(formatted(64, &Options::modern())));
    let dir = plain.mkdir(ROOT, plain.root(), b"d", 0o755, 0).unwrap().attr.ino;
    assert!(matches!(plain.set_flags(dir, FileFlags::CASEFOLD, None), Err(vfs::Error::Unsupported(_))));
}

/// A volume with `d/Old` in its checkpoint, after `change`, with `d/<name>` created and synced.
fn synced_in(name: &str, change: impl FnOnce(&Volume, Ino)) -> (Memory, u64, u64) {
    let dev = power_cut(&formatted(64, &folding()));
    let vol = mount(dev.clone());
    let dir = folded(&vol, vol.root(), "d");
    write(&vol, new_file(&vol, dir, "Old"), 0, b"old");
    vol.sync().unwrap();
    change(&vol, dir);
    let count = || (vol.counters.fast_fsyncs.load(Relaxed), vol.counters.slow_fsyncs.load(Relaxed));
    let before = count();
    let f = new_file(&vol, dir, name);
    write(&vol, f, 0, b"synced");
    vol.fsync(f, false).unwrap();
    let after = count();
    (dev.image(Loss::AllLost), after.0 - before.0, after.1 - before.1)
}

#[test]
fn a_name_that_comes_back_in_another_spelling_takes_a_checkpoint_since_linux_would_keep_both() {
    let gone = |vol: &Volume, dir| vol.unlink(dir, b"old").unwrap();
    for (name, change, fast, there) in [
        ("New", None, true, vec!["New", "Old"]),
        ("OLD", Some(gone as fn(&Volume, Ino)), false, vec!["OLD"]),
        // The same spelling: roll-forward gives the name to the new file.
        ("Old", Some(gone as fn(&Volume, Ino)), true, vec!["Old"]),
    ] {
        let (image, quick, slow) = synced_in(name, |vol, dir| {
            if let Some(change) = change {
                change(vol, dir);
            }
        });
        assert_eq!((quick > 0, slow > 0), (fast, !fast), "{name}");
        recovered(&image, |vol| {
            let dir = find(vol, "d").unwrap();
            assert_eq!(names(vol, dir), there);
            let f = at(vol, dir, &name.to_uppercase()).expect("synced");
            assert_eq!(read_all(vol, f), b"synced");
        });
        // Debian's kernel may lack Unicode support: it then refuses the volume.
        let linux = match Linux::complete() {
            Ok(linux) => linux,
            Err(why) => {
                testlog::missing(why);
                continue;
            }
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        image.save(&path).unwrap();
        let run = Kernel::of(linux).run(&path, &format!("ls d; cat d/{}", name.to_lowercase())).expect_ok();
        run.assert_no_f2fs_complaints();
        assert_eq!(run.stdout, format!("{}\nsynced", there.join("\n")));
        assert_clean(&Memory::load(&path).unwrap(), "after Linux");
    }
}

#[test]
fn a_file_that_takes_a_name_over_is_synced_under_the_spelling_that_is_there() {
    let dev = power_cut(&formatted(64, &folding()));
    let vol = mount(dev.clone());
    let dir = folded(&vol, vol.root(), "d");
    new_file(&vol, dir, "Settings");
    vol.sync().unwrap();
    let fresh = new_file(&vol, dir, "settings.tmp");
    write(&vol, fresh, 0, b"newer");
    vol.rename(ROOT, (dir, b"Settings.TMP"), (dir, b"SETTINGS"), RenameFlags::empty()).unwrap();
    vol.fsync(fresh, false).unwrap();
    recovered(&dev.image(Loss::AllLost), |vol| {
        let dir = find(vol, "d").unwrap();
        assert_eq!(names(vol, dir), ["Settings"]);
        assert_eq!(read_all(vol, at(vol, dir, "settings").unwrap()), b"newer");
    });
}

#[test]
fn whenever_the_power_goes_a_folding_directory_is_whole_and_has_what_was_synced() {
    for seed in 0..3 {
        let dev = power_cut(&formatted(64, &folding()));
        let vol = mount(dev.clone());
        let dir = folded(&vol, vol.root(), "d");
        vol.sync().unwrap();
        let mut rng = Rng::new(seed);
        let mut synced: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for step in 0..120u64 {
            let name = spelling(&mut rng);
            let key = fold(name.as_bytes()).unwrap();
            match at(&vol, dir, &name) {
                Some(ino) => {
                    synced.remove(&key);
                    vol.unlink(dir, name.as_bytes()).unwrap();
                    vol.forget(ino, 1);
                }
                None => {
                    let f = new_file(&vol, dir, &name);
                    let text = pattern(step, 3000);
                    write(&vol, f, 0, &text);
                    if rng.below(3) > 0 {
                        vol.fsync(f, false).unwrap();
                        synced.insert(key, text);
                    }
                    vol.forget(f, 1);
                }
            }
            if rng.below(9) == 0 {
                vol.fsyncdir(dir, false).unwrap();
            }
            for loss in [Loss::AllLost, Loss::AllKept, Loss::Random(step)] {
                recovered(&dev.image(loss), |vol| {
                    let dir = find(vol, "d").unwrap();
                    let all = names(vol, dir);
                    let keys: std::collections::BTreeSet<_> = all.iter().map(|n| fold(n.as_bytes()).unwrap()).collect();
                    assert_eq!(keys.len(), all.len(), "step {step}: a name twice: {all:?}");
                    for (key, text) in &synced {
                        let f = at(vol, dir, std::str::from_utf8(key).unwrap()).expect("synced");
                        assert!(read_all(vol, f) == *text, "step {step}");
                    }
                });
            }
        }
    }
}

/// A shell function by `ioctl` in `perl`: `seal FILE`.
const SEAL: &str = r#"
seal() { perl -e 'open my $f, "<", $ARGV[0] or die; my $a = pack("LLLLQLLQx88", 1, 1, 4096, 0, 0, 0, 0, 0); ioctl $f, 0x40806685, $a or die "seal: $!\n"' $1; }
"#;

#[test]
fn we_replay_what_linux_synced_of_folding_directories_and_of_sealed_files() {
    let linux = match Linux::complete() {
        Ok(linux) => linux,
        Err(why) => return testlog::missing(why),
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let options = folding();
    let features = options.features | Features::VERITY;
    formatted(128, &Options { features, ..options }).save(&path).unwrap();
    let script = format!(
        "{SEAL}
        mkdir d s; chattr +F d; echo old >d/Straße; sync
        echo new >d/Größe; sync d/Größe; rm d/STRASSE; echo again >d/Straße; sync d/straße
        head -c 50000 /dev/urandom >s/small; head -c 9000000 /dev/urandom >s/large; cp s/* $OUT/
        seal s/small; seal s/large; sync s/small s/large
        echo unsynced >d/unsynced"
    );
    let run = Kernel::of(linux.clone()).ending(Ending::Cut).run(&path, &script).expect_ok();
    let want = |name: &str| std::fs::read(run.out().join(name)).unwrap();
    recovered(&Memory::load(&path).unwrap(), |vol| {
        let d = find(vol, "d").unwrap();
        assert_eq!(names(vol, d), ["Größe", "Straße"]);
        assert_eq!(read_all(vol, at(vol, d, "GRÖSSE").unwrap()), b"new\n");
        assert_eq!(read_all(vol, at(vol, d, "strasse").unwrap()), b"again\n");
        let s = find(vol, "s").unwrap();
        for name in ["small", "large"] {
            // Linux's own roll-forward takes the hashes behind the end for a longer file.
            assert!(read_all(vol, at(vol, s, name).unwrap()) == want(name), "{name}");
        }
    });
    // Linux verifies, block by block, what JouleFS recovered; and JouleFS's sync of a sealed file keeps it valid.
    let image = power_cut(&Memory::load(&path).unwrap());
    let vol = mount(image.clone());
    let s = find(&vol, "s").unwrap();
    let sealed = at(&vol, s, "small").unwrap();
    assert!(matches!(vol.open(sealed, true), Err(vfs::Error::NotPermitted(_))));
    let mut at = 0;
    while at < u64::MAX {
        at = vol.defragment(sealed, at..u64::MAX, vfs::Moving::Copy).unwrap().0;
    }
    vol.setattr(sealed, &vfs::SetAttr { perm: Some(0o600), ..vfs::SetAttr::default() }).unwrap();
    vol.fsync(sealed, false).unwrap();
    image.image(Loss::AllLost).save(&path).unwrap();
    let run = Kernel::of(linux).run(&path, "stat -c %a s/small; cp s/* $OUT/").expect_ok();
    assert!(run.stdout.starts_with("600\n"), "{}", run.stdout);
    for name in ["small", "large"] {
        assert!(std::fs::read(run.out().join(name)).unwrap() == want(name), "{name}");
    }
    assert_clean(&Memory::load(&path).unwrap(), "after Linux");
    assert_tools_clean(&Memory::load(&path).unwrap());
}
