//! A volume with an encrypted tree and sealed files, without the key: which operations are refused, and which are not.
//! `phone.img.zst` was created by `mkfs.f2fs -g android -O casefold,compression -C utf8` and filled by Linux 6.12 with
//! `conformance/tests/phone/fill.sh`. `conformance/tests/phone` tests with a kernel that supports encryption that Linux
//! gives the same results, and reads blocks moved by JouleFS with the key.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use device::{BlockDevice, Lba, Loss, Memory, PowerCut, Tag};
use format::superblock::{MAGIC, SuperBlock};
use joulefs_f2fs::Volume;
use joulefs_f2fs::gc::settings::{Settings, Urgency};
use joulefs_f2fs::settle::{settle, unsettle, upgrade};
use vfs::{Allocate, DirEntry, Error, FileFlags, FileKind, FileSystem, Flow, Ino, RenameFlags, SetAttr, WriteFlags};

use crate::log_rig::*;

/// Those of users, groups and projects.
const QUOTA_FILES: u64 = 3;

fn phone() -> Memory {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/fixtures/phone.img.zst");
    let mut bytes = vec![0; 128 << 20];
    let n = ruzstd::decoding::FrameDecoder::new().decode_all(&std::fs::read(packed).unwrap(), &mut bytes).unwrap();
    let dev = Memory::new((n / 4096) as u64);
    for (i, block) in bytes[..n].chunks(4096).enumerate().filter(|(_, b)| b.iter().any(|x| *x != 0)) {
        dev.write(Lba(i as u64), block, Tag::default()).unwrap();
    }
    dev
}

fn entries(vol: &Volume, dir: Ino) -> Vec<(Vec<u8>, FileKind, Ino)> {
    let mut out = Vec::new();
    vol.readdir(dir, 0, &mut |e: DirEntry<'_>| {
        if !matches!(e.name, b"." | b"..") {
            out.push((e.name.to_vec(), e.kind, e.ino));
        }
        Flow::Continue
    })
    .unwrap();
    out
}

/// Contents of every regular file as stored on the device; of encrypted files the ciphertext.
fn contents(vol: &Volume, dev: &dyn BlockDevice, dir: Ino, out: &mut Vec<(Ino, Vec<u8>)>) {
    for (_, kind, ino) in entries(vol, dir) {
        match kind {
            FileKind::Directory => contents(vol, dev, ino, out),
            FileKind::Regular => out.push((ino, whole(vol, dev, ino))),
            _ => {}
        }
    }
}

fn whole(vol: &Volume, dev: &dyn BlockDevice, ino: Ino) -> Vec<u8> {
    match vol.open(ino, false) {
        Ok(()) => {
            vol.release(ino);
            return read_all(vol, ino);
        }
        Err(e) => assert_eq!(e, Error::NoKey),
    }
    let mut bytes = vec![0; (vol.getattr(ino).unwrap().size as usize).next_multiple_of(4096)];
    for run in vol.extents(ino, 0, usize::MAX).unwrap() {
        for k in 0..run.blocks {
            let to = (run.from + k) as usize * 4096;
            // The hashes of a sealed file are behind its end.
            bytes.resize(bytes.len().max(to + 4096), 0);
            dev.read(Lba(run.addr + k), &mut bytes[to..to + 4096], Tag::default()).unwrap();
        }
    }
    assert!(bytes.iter().any(|byte| *byte != 0));
    bytes
}

#[test]
fn without_the_key_nothing_encrypted_is_changed_and_everything_can_be_deleted() {
    let dev = Arc::new(phone());
    let vol = mount(dev.clone());
    let (root, enc) = (vol.root(), find(&vol, "enc").unwrap());
    let all = entries(&vol, enc);
    assert_eq!(all.len(), 7);
    let of = |kind| all.iter().filter(move |e| e.1 == kind).cloned().collect::<Vec<_>>();
    let (name, _, file) = of(FileKind::Regular)[0].clone();
    let plain = new_file(&vol, root, "plain");
    let to = |dir, name: &'static [u8]| (dir, name);
    let none = RenameFlags::empty();
    let at = (enc, &name[..]);
    let new = vfs::NewNode { kind: FileKind::Regular, perm: 0o644, umask: 0, rdev: vfs::DeviceNumber::default() };
    let refused: [(&str, vfs::Result<()>); 16] = [
        ("create", vol.mknod(ROOT, enc, b"new", &new).map(drop)),
        ("nameless", vol.tmpfile(ROOT, enc, 0o600, 0).map(drop)),
        ("mkdir", vol.mkdir(ROOT, enc, b"new", 0o755, 0).map(drop)),
        ("symlink", vol.symlink(ROOT, enc, b"new", b"x").map(drop)),
        ("link in", vol.link(plain, enc, b"new").map(drop)),
        ("rename in", vol.rename(ROOT, to(root, b"plain"), to(enc, b"new"), none)),
        ("rename over", vol.rename(ROOT, to(root, b"plain"), at, none)),
        ("rename out", vol.rename(ROOT, at, to(root, b"out"), none)),
        ("rename inside", vol.rename(ROOT, at, to(enc, b"other"), none)),
        ("exchange", vol.rename(ROOT, at, to(root, b"plain"), RenameFlags::EXCHANGE)),
        ("write", vol.write(file, 0, b"x", WriteFlags::empty()).map(drop)),
        ("truncate", vol.open(file, true)),
        ("open", vol.open(file, false)),
        ("open to write", vol.may_write(file, false)),
        ("read", vol.read(file, 0, &mut [0; 16]).map(drop)),
        ("punch", vol.fallocate(file, Allocate::PunchHole, 0, 4096)),
    ];
    for (what, out) in refused {
        assert_eq!(out, Err(Error::NoKey), "{what}");
    }
    // Symlinks and directories have no contents to refuse.
    assert!(vol.refuses_opening());
    vol.readlink(of(FileKind::Symlink)[0].2).unwrap();
    vol.open(of(FileKind::Directory)[0].2, false).unwrap();
    vol.release(of(FileKind::Directory)[0].2);
    assert_eq!(vol.mknod(ROOT, enc, &name, &new).map(drop), Err(Error::Exists));
    assert_eq!(vol.rename(ROOT, to(enc, b"nothing"), to(root, b"new"), none), Err(Error::NotFound));
    let empty = of(FileKind::Directory).into_iter().find(|d| entries(&vol, d.2).len() == 1).unwrap();
    let flags = vol.flags(empty.2).unwrap().flags;
    assert_eq!(vol.set_flags(empty.2, flags | FileFlags::CASEFOLD, None), Err(Error::NoKey));
    assert_eq!(vol.rmdir(enc, &empty.0), Err(Error::NotEmpty));

    vol.setattr(file, &SetAttr { perm: Some(0o600), uid: Some(7), ..SetAttr::default() }).unwrap();
    vol.setxattr(file, b"user.a", b"b", vfs::XattrFlags::empty()).unwrap();
    vol.link(file, root, b"outside").unwrap();
    vol.rename(ROOT, to(root, b"enc"), to(root, b"moved"), none).unwrap();
    vol.unmount().unwrap();
    assert_clean(&*dev, "before anything is deleted");

    let vol = mount(dev.clone());
    fn empty_out(vol: &Volume, dir: Ino) {
        for (name, kind, ino) in entries(vol, dir) {
            if kind == FileKind::Directory {
                empty_out(vol, ino);
                vol.rmdir(dir, &name).unwrap();
            } else {
                vol.unlink(dir, &name).unwrap();
            }
        }
    }
    let moved = find(&vol, "moved").unwrap();
    empty_out(&vol, moved);
    vol.rmdir(vol.root(), b"moved").unwrap();
    assert_eq!(vol.getattr(find(&vol, "outside").unwrap()).unwrap().nlink, 1);
    vol.unmount().unwrap();
    assert_clean(&*dev, "after everything is deleted");
}

#[test]
fn a_sealed_file_is_read_and_deleted_and_never_changed() {
    let dev = Arc::new(phone());
    let vol = mount(dev.clone());
    let sealed = find(&vol, "sealed").unwrap();
    let sized = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    // The error is returned on open, not on writeback.
    assert!(vol.refuses_opening());
    vol.open(sealed, false).unwrap();
    vol.release(sealed);
    let plain = new_file(&vol, vol.root(), "plain");
    vol.may_write(plain, false).unwrap();
    let refused: [vfs::Result<()>; 7] = [
        vol.may_write(sealed, true),
        vol.write(sealed, 0, b"x", WriteFlags::empty()).map(drop),
        vol.open(sealed, true),
        vol.setattr(sealed, &sized(1)).map(drop),
        vol.setattr(sealed, &sized(1 << 20)).map(drop),
        vol.fallocate(sealed, Allocate::Reserve { keep_size: true }, 0, 1 << 20),
        vol.fallocate(sealed, Allocate::PunchHole, 0, 4096),
    ];
    for (i, out) in refused.into_iter().enumerate() {
        assert!(matches!(out, Err(Error::NotPermitted(_))), "{i}: {out:?}");
    }
    let (size, blocks) = {
        let a = vol.getattr(sealed).unwrap();
        (a.size, a.blocks512)
    };
    assert_eq!(size, 30_000);
    assert!(blocks / 8 > size / 4096 + 2, "there is a hash tree behind the end");
    vol.setattr(sealed, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
    vol.link(sealed, vol.root(), b"second").unwrap();
    vol.unlink(vol.root(), b"sealed").unwrap();
    assert_eq!(read_all(&vol, sealed).len(), 30_000);
    vol.forget(sealed, 9);
    vol.unlink(vol.root(), b"second").unwrap();
    vol.unmount().unwrap();
    assert_clean(&*dev, "unmounted");
}

#[test]
fn cleaning_moves_what_is_encrypted_and_sealed_byte_for_byte() {
    let dev = Arc::new(phone());
    let vol = mount(dev.clone());
    let mut before = Vec::new();
    contents(&vol, &*dev, vol.root(), &mut before);
    // Every block of every file, with its address.
    let places = |vol: &Volume| -> Vec<(Ino, u64, u64)> {
        let of = |ino: Ino| vol.extents(ino, 0, usize::MAX).unwrap().into_iter().map(move |e| (ino, e));
        let each = before.iter().flat_map(|(ino, _)| of(*ino));
        each.flat_map(|(ino, e)| (0..e.blocks).map(move |k| (ino, e.from + k, e.addr + k))).collect()
    };
    let old = places(&vol);
    assert!(old.len() > 50, "{}", old.len());
    for (ino, _) in &before {
        let mut at = 0;
        while at < u64::MAX {
            at = match vol.defragment(*ino, at..u64::MAX, vfs::Moving::Copy) {
                Ok((next, _)) => next,
                // In its inode.
                Err(Error::Invalid(_)) => break,
                Err(e) => panic!("{e}"),
            };
        }
    }
    let new = places(&vol);
    assert_eq!(new.len(), old.len(), "blocks behind the end, too");
    for (a, b) in old.iter().zip(&new) {
        assert!((a.0, a.1) == (b.0, b.1) && a.2 != b.2, "{a:?} {b:?}");
    }
    vol.unmount().unwrap();
    assert_clean(&*dev, "unmounted");
    let vol = mount(dev.clone());
    let mut after = Vec::new();
    contents(&vol, &*dev, vol.root(), &mut after);
    assert!(before == after);
}

/// Every listed name of a tree, with the inode it points to.
fn names(vol: &Volume, dir: Ino, out: &mut Vec<(Ino, Vec<u8>, FileKind, Ino)>) {
    for (name, kind, ino) in entries(vol, dir) {
        assert_eq!(vol.lookup(dir, &name).unwrap().attr.ino, ino, "found again by the name that is listed");
        out.push((dir, name, kind, ino));
        if kind == FileKind::Directory {
            names(vol, ino, out);
        }
    }
}

#[test]
fn an_android_volume_comes_to_hold_deltas_and_after_any_power_cut_linux_takes_it_or_refuses_it() {
    let listed = |dev: &Arc<Memory>| {
        let vol = mount(dev.clone());
        let (mut all, mut held) = (Vec::new(), Vec::new());
        names(&vol, vol.root(), &mut all);
        contents(&vol, &**dev, vol.root(), &mut held);
        (all, held)
    };
    let is_plain = |left: &Memory, copy: u64| {
        let mut block = [0; 4096];
        left.read(Lba(copy), &mut block, Tag::default()).unwrap();
        SuperBlock::check(&block).unwrap().raw.magic.get() == MAGIC
    };
    let image = phone();
    let before = listed(&Arc::new(image.fork()));
    let error = unsettle(&image).unwrap_err().to_string();
    assert!(error.contains("inode_checksum, which --upgrade adds"), "{error}");
    let writes = {
        let cut = power_cut(&image);
        let sealed = upgrade(cut.clone(), clock(), &mut |_, _| ()).unwrap();
        assert_eq!(sealed, Some(before.0.len() as u64 + 1 + QUOTA_FILES));
        assert_eq!(upgrade(cut.clone(), clock(), &mut |_, _| ()).unwrap(), None);
        cut.write_count()
    };
    let (mut refused, mut taken) = (0, 0);
    for at in 0..=writes {
        let cut = Arc::new(PowerCut::new(image.fork()));
        cut.cut_after(at);
        let _ = upgrade(cut.clone(), clock(), &mut |_, _| ());
        for (loss, left) in [cut.image(Loss::AllLost), cut.image(Loss::AllKept), cut.survivors(at)].iter().enumerate() {
            let plain = [is_plain(left, 0), is_plain(left, 1)];
            if plain[0] {
                // Linux mounts the first copy that it knows, and overwrites the other.
                assert_clean(left, &format!("write {at}, loss {loss}"));
                taken += 1;
            } else {
                assert!(!plain[1], "write {at}, loss {loss}: Linux would take a volume whose inodes may hold deltas");
                refused += 1;
            }
            let dev = Arc::new(left.fork());
            upgrade(dev.clone(), clock(), &mut |_, _| ()).unwrap();
            assert!(listed(&dev) == before, "write {at}, loss {loss}");
            settle(dev.clone(), clock(), &mut |_, _| ()).unwrap();
            // It checks the checksum of every inode.
            assert_tools_clean(&dev.fork());
        }
    }
    assert!(refused > 0 && taken > 10, "{refused}, {taken}");
}

#[test]
fn an_encrypted_tree_is_listed_moved_and_deleted_on_a_volume_with_deltas() {
    let dev = Arc::new(phone());
    assert!(upgrade(dev.clone(), clock(), &mut |_, _| ()).unwrap() > Some(0));
    let vol = mount(dev.clone());
    let enc = find(&vol, "enc").unwrap();
    let (mut before, mut held) = (Vec::new(), Vec::new());
    names(&vol, enc, &mut before);
    contents(&vol, &*dev, enc, &mut held);
    // Deltas in other files, in inodes and in delta nodes.
    let plain = new_file(&vol, vol.root(), "plain");
    let mut want = pattern(3, 60 * 4096);
    write(&vol, plain, 0, &want);
    vol.sync().unwrap();
    for n in 0..120 {
        let at = (n * 7 % 60) * 4096 + n;
        want[at] ^= 0x55;
        write(&vol, plain, at as u64, &want[at..=at]);
        if n % 4 == 3 {
            vol.fsync(plain, false).unwrap();
        }
    }
    assert!(vol.counters.deltas.load(Relaxed) > 80);
    // The tree's inodes, which hold the names of small directories, and its files' contents.
    let places = |vol: &Volume| -> Vec<u64> {
        let inodes = before.iter().map(|(.., ino)| *ino).chain([enc]);
        let files = before.iter().filter(|(.., kind, _)| *kind == FileKind::Regular);
        let contents = files.flat_map(|(.., ino)| vol.extents(*ino, 0, usize::MAX).unwrap()).map(|e| e.addr);
        inodes.map(|ino| u64::from(vol.inode_address(format::Ino(ino.0 as u32)).unwrap().0)).chain(contents).collect()
    };
    let old = places(&vol);
    // The logs leave the segments with the tree; most of the blocks written there after it are removed.
    let filler: Vec<String> = (0..1500).map(|n| format!("filler-{n}")).collect();
    for name in &filler {
        let ino = new_file(&vol, vol.root(), name);
        write(&vol, ino, 0, &[7; 8000]);
        vol.forget(ino, 1);
    }
    for n in 0..600 {
        vol.mkdir(ROOT, vol.root(), format!("directory-{n}").as_bytes(), 0o755, 0).unwrap();
    }
    // A name that makes the file cold.
    let film = new_file(&vol, vol.root(), "film.mp4");
    write(&vol, film, 0, &pattern(5, 600 * 4096));
    vol.sync().unwrap();
    for n in (0..600).filter(|n| n % 10 > 0) {
        vol.rmdir(vol.root(), format!("directory-{n}").as_bytes()).unwrap();
    }
    for name in filler.iter().filter(|name| !name.ends_with('0')) {
        vol.unlink(vol.root(), name.as_bytes()).unwrap();
    }
    vol.sync().unwrap();
    let greedy = Settings { urgency: Urgency::High, ..Settings::default() };
    let mut left = 100;
    while left > 0 && places(&vol).iter().any(|at| old.contains(at)) && vol.clean_in_background(&greedy).unwrap() {
        left -= 1;
    }
    vol.sync().unwrap();
    let new = places(&vol);
    let stayed: Vec<_> = old.iter().filter(|at| new.contains(at)).collect();
    // A log without new blocks still has one of them in its segment, which is not cleaned.
    assert!(old.len() > 40 && stayed.len() <= 1, "{stayed:?} of {old:?}, {new:?}");
    let look = |vol: &Volume| {
        let (mut now, mut holds) = (Vec::new(), Vec::new());
        names(vol, enc, &mut now);
        contents(vol, &*dev, enc, &mut holds);
        assert!(now == before && holds == held && read_all(vol, plain) == want);
    };
    look(&vol);
    vol.unmount().unwrap();
    assert_clean(&*dev, "after cleaning, with deltas");
    let vol = mount(dev.clone());
    look(&vol);
    // Bottom up.
    for (dir, name, kind, _) in before.iter().rev() {
        match kind {
            FileKind::Directory => vol.rmdir(*dir, name).unwrap(),
            _ => vol.unlink(*dir, name).unwrap(),
        }
    }
    vol.rmdir(vol.root(), b"enc").unwrap();
    assert!(read_all(&vol, plain) == want);
    vol.unmount().unwrap();
    assert_clean(&*dev, "after everything encrypted is deleted");
    // Plain F2FS again, readable by Linux.
    joulefs_f2fs::settle::settle(dev.clone(), clock(), &mut |_, _| ()).unwrap().expect("it held deltas");
    assert_clean(&*dev, "settled");
    assert!(read_all(&mount(dev), plain) == want);
}
