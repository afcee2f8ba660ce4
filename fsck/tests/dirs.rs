//! Damage to directories is found, named and repaired; files that lose their name are not lost.

use std::path::Path;

use device::Memory;
use format::dentry::{self, Layout};
use format::hash::name_hash;
use format::inode::{Advise, RawInode};
use format::superblock::Features;
use format::{Block, Ino, Nid, bits};
use fsck::{Action, DotFault, FindingKind as K, Name, NodeFault};

use crate::rig::{FEATURES, Volume, volume};

const B: Layout = Layout::BLOCK;

/// Bytes of one entry's hash, inode, length and type.
fn entry(b: &mut Block, slot: usize) -> &mut [u8] {
    &mut b[30 + slot * 11..30 + slot * 11 + 11]
}

#[test]
fn a_name_that_leads_nowhere_leads_to_the_inode_of_that_name_again() {
    let v = volume(&[]);
    let dir = v.ino("many");
    let (at, slot, ino) = v.entry(dir, "file_number_7");
    v.edit(at, |b| dentry::redirect(&B, b, slot, 60_000, 1));
    let done =
        v.finds_and_repairs(|k| matches!(k, K::NodeUnusable { nid: Nid(60_000), fault: NodeFault::Unmapped, .. }));
    let name = Name(b"file_number_7".to_vec());
    assert!(done.actions.contains(&Action::NameRestored { dir, name, ino }));
    assert_eq!(Volume::of(v.dev).entry(dir, "file_number_7").2, ino);
}

#[test]
fn a_name_that_leads_nowhere_is_removed_and_reported_if_no_inode_has_it() {
    let v = volume(&[]);
    let dir = v.ino("many");
    let (at, slot, ino) = v.entry(dir, "file_number_7");
    v.edit(at, |b| dentry::redirect(&B, b, slot, 60_000, 1));
    v.edit_inode(ino, |r| r.i_name[..4].copy_from_slice(b"else"));
    let done = v.finds_and_repairs(|k| matches!(k, K::NodeUnusable { nid: Nid(60_000), .. }));
    let name = Name(b"file_number_7".to_vec());
    assert!(done.actions.contains(&Action::EntryRemoved { dir, name, ino: Ino(60_000) }));
    assert!(done.actions.contains(&Action::Adopted { ino }));
}

#[test]
fn an_inode_without_a_name_goes_to_lost_found_which_is_made_if_need_be() {
    for features in [&[][..], FEATURES] {
        let v = volume(features);
        let dir = v.ino("many");
        let (at, slot, ino) = v.entry(dir, "file_number_9");
        v.edit(at, |b| dentry::remove(&B, b, slot));
        let files = v.check().counts.files;
        let done = v.finds_and_repairs(|k| matches!(k, K::Unreachable { nid, .. } if *nid == ino.nid()));
        assert!(done.actions.contains(&Action::Adopted { ino }), "{:?}", done.actions);
        assert_eq!(done.after.counts.files, files + 1);
        let v = Volume::of(v.dev);
        let home = v.ino("lost+found");
        assert_eq!(v.entry(home, &format!("#{ino}")).2, ino);
    }
}

#[test]
fn a_directory_without_a_name_keeps_what_is_below_it() {
    let v = volume(&[]);
    let (at, slot, ino) = v.entry(v.sb.root, "many");
    v.edit(at, |b| dentry::remove(&B, b, slot));
    let done = v.finds_and_repairs(|k| matches!(k, K::Unreachable { nid, .. } if *nid == ino.nid()));
    assert_eq!(done.actions.iter().filter(|a| matches!(a, Action::Adopted { .. })).count(), 1);
    let v = Volume::of(v.dev);
    assert_eq!(v.ino(&format!("lost+found/#{ino}")), ino);
    v.ino(&format!("lost+found/#{ino}/file_number_399"));
}

#[test]
fn a_deleted_inode_that_was_not_freed_becomes_an_orphan() {
    let v = volume(&[]);
    let (at, slot, ino) = v.entry(v.sb.root, "tiny");
    v.edit(at, |b| dentry::remove(&B, b, slot));
    v.edit_inode(ino, |r| r.i_links = 0.into());
    let done = v.finds_and_repairs(|k| matches!(k, K::Unreachable { .. }));
    assert_eq!(done.after.counts.orphans, 1);
}

#[test]
fn a_slot_in_use_without_a_lawful_entry_is_found() {
    let v = volume(&[]);
    let (at, slot, _) = v.entry(v.ino("many"), "file_number_7");
    v.edit(at, |b| entry(b, slot)[8..10].fill(0));
    v.finds_and_repairs(|k| matches!(k, K::DentryBad { place } if place.slot == slot));
}

#[test]
fn a_name_whose_slots_are_marked_free_is_found() {
    let v = volume(&[]);
    let (at, slot, _) = v.entry(v.ino("many"), "file_number_7");
    v.edit(at, |b| {
        bits::lsb_put(b, slot + 1, false);
    });
    v.finds_and_repairs(|k| matches!(k, K::DentrySlots { place, .. } if place.slot == slot));
}

#[test]
fn a_wrong_hash_is_set_right() {
    let v = volume(&[]);
    let dir = v.ino("many");
    let (at, slot, _) = v.entry(dir, "file_number_7");
    v.edit(at, |b| entry(b, slot)[0] ^= 1);
    v.finds_and_repairs(|k| matches!(k, K::DentryHash { place, .. } if place.slot == slot));
    let v = Volume::of(v.dev);
    v.entry(dir, "file_number_7");
}

#[test]
fn a_damaged_name_is_restored_from_its_inode() {
    let v = volume(&[]);
    let dir = v.ino("many");
    let (at, slot, ino) = v.entry(dir, "file_number_7");
    v.edit(at, |b| b[2384 + slot * 8] = b'X');
    v.finds_and_repairs(|k| matches!(k, K::DentryHash { .. }));
    assert_eq!(Volume::of(v.dev).entry(dir, "file_number_7").2, ino);
}

#[test]
fn a_name_in_the_wrong_bucket_is_moved() {
    let v = volume(&[]);
    let dir = v.ino("many");
    let blocks = v.dir_blocks(dir);
    // From its block at level 1 or deeper to the neighbour bucket of block 0 at the same level.
    let (index, from) = blocks.iter().copied().find(|(i, _)| (2..6).contains(i)).expect("two levels");
    let wrong = if index < 4 { 4..6 } else { 2..4 };
    let (_, to) = blocks.iter().copied().find(|(i, _)| wrong.contains(i)).expect("the other bucket");
    let block = v.read(from);
    let d = dentry::entries(&B, &block, 0).next().expect("an entry");
    let (slot, name, hash, ino, kind) = (d.slot, d.name.to_vec(), d.hash, d.ino, d.kind);
    let target = v.read(to);
    let room = dentry::free_run(&B, &target, dentry::slots_for(name.len())).expect("room");
    v.edit(from, |b| dentry::remove(&B, b, slot));
    v.edit(to, |b| dentry::insert(&B, b, room, &name, hash, ino, kind));
    v.finds_and_repairs(|k| matches!(k, K::DentryBucket { name: n, .. } if n.0 == name));
}

#[test]
fn a_type_that_is_not_the_inodes_is_set_right() {
    let v = volume(&[]);
    let dir = v.ino("many");
    let (at, slot, ino) = v.entry(dir, "file_number_7");
    v.edit(at, |b| dentry::redirect(&B, b, slot, ino.0, 5));
    v.finds_and_repairs(|k| matches!(k, K::DentryType { stored: 5, is: 1, .. }));
}

#[test]
fn the_type_of_every_name_of_a_file_is_compared() {
    for name in ["twice", "again"] {
        let v = volume(&[]);
        let (at, slot, ino) = v.entry(v.sb.root, name);
        v.edit(at, |b| dentry::redirect(&B, b, slot, ino.0, 0x81));
        v.finds_and_repairs(|k| matches!(k, K::DentryType { stored: 0x81, is: 1, .. }));
    }
}

#[test]
fn a_directory_whose_mode_was_damaged_stays_a_directory() {
    let v = volume(&[]);
    let dir = v.ino("many");
    v.edit_inode(dir, |r| r.i_mode = (r.i_mode.get() ^ 0o100_000).into());
    v.finds_and_repairs(|k| matches!(k, K::DentryType { stored: 2, .. }));
    assert_eq!(v.check().counts, volume(&[]).check().counts);
}

#[test]
fn a_name_that_stands_twice_is_reduced_to_one() {
    let v = volume(&[]);
    let (at, _, _) = v.entry(v.sb.root, "tiny");
    let mid = v.ino("mid");
    v.edit(at, |b| {
        let room = dentry::free_run(&B, b, 1).expect("room");
        dentry::insert(&B, b, room, b"tiny", name_hash(b"tiny"), mid.0, 1);
    });
    v.finds_and_repairs(|k| matches!(k, K::DentryRepeated { name, .. } if name.0 == b"tiny"));
    assert_eq!(v.check().counts, volume(&[]).check().counts);
}

#[test]
fn a_second_name_of_a_directory_is_removed() {
    let v = volume(&[]);
    let (at, _, _) = v.entry(v.sb.root, "tiny");
    let dir = v.ino("deep");
    v.edit(at, |b| {
        let room = dentry::free_run(&B, b, 1).expect("room");
        dentry::insert(&B, b, room, b"zwei", name_hash(b"zwei"), dir.0, 2);
    });
    v.finds_and_repairs(|k| matches!(k, K::DirectoryTwice { ino, .. } if *ino == dir));
    assert_eq!(v.check().counts, volume(&[]).check().counts);
}

#[test]
fn a_directory_below_itself_ends_the_walk() {
    let v = volume(&[]);
    let (at, slot, _) = v.entry(v.ino("deep/er"), "leaf");
    let deep = v.ino("deep");
    v.edit(at, |b| dentry::redirect(&B, b, slot, deep.0, 2));
    v.finds_and_repairs(|k| matches!(k, K::DirectoryTwice { ino, .. } if *ino == deep));
}

#[test]
fn dots_that_are_missing_wrong_or_repeated_are_mended() {
    let v = volume(&[]);
    let dir = v.ino("deep");
    let (at, slot, _) = v.entry(dir, ".");
    v.edit(at, |b| dentry::remove(&B, b, slot));
    v.finds_and_repairs(|k| *k == K::Dots { dir, which: ".", fault: DotFault::Missing });

    let v = volume(&[]);
    let (at, slot, _) = v.entry(dir, "..");
    v.edit(at, |b| dentry::redirect(&B, b, slot, 77, 2));
    v.finds_and_repairs(|k| *k == K::Dots { dir, which: "..", fault: DotFault::LeadsTo(Ino(77)) });

    let v = volume(&[]);
    v.edit(at, |b| {
        let room = dentry::free_run(&B, b, 1).expect("room");
        dentry::insert(&B, b, room, b".", 0, dir.0, 2);
    });
    v.finds_and_repairs(|k| *k == K::Dots { dir, which: ".", fault: DotFault::Repeated });
}

#[test]
fn dots_are_marked_as_directories() {
    let v = volume(&[]);
    let (at, slot, ino) = v.entry(v.ino("deep"), ".");
    v.edit(at, |b| dentry::redirect(&B, b, slot, ino.0, 0x82));
    v.finds_and_repairs(|k| matches!(k, K::DentryType { stored: 0x82, is: 2, .. }));
}

#[test]
fn a_directory_that_remembers_another_parent_is_found() {
    let v = volume(&[]);
    let ino = v.ino("deep/er");
    v.edit_inode(ino, |r| r.i_pino = 9.into());
    v.finds_and_repairs(|k| matches!(k, K::DirParentWrong { ino: i, stored: Ino(9), .. } if *i == ino));
}

#[test]
fn a_directory_too_short_or_too_flat_for_its_entries_is_found() {
    let v = volume(&[]);
    let dir = v.ino("many");
    v.edit_inode(dir, |r| r.i_size = 4096.into());
    v.finds_and_repairs(|k| matches!(k, K::DirSizeWrong { ino, size: 4096, .. } if *ino == dir));

    let v = volume(&[]);
    let depth = RawInode::of(&v.node(dir.nid())).i_current_depth.get();
    assert!(depth > 1);
    v.edit_inode(dir, |r| r.i_current_depth = 1.into());
    v.finds_and_repairs(|k| *k == K::DirDepthWrong { ino: dir, stored: 1, needs: depth });
}

/// A volume made and filled by Linux 6.12, whose directories `small` (inline) and `large` fold case.
fn casefolded() -> Volume {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/fixtures/casefold.img.zst");
    let mut bytes = vec![0; 64 << 20];
    let n = ruzstd::decoding::FrameDecoder::new().decode_all(&std::fs::read(packed).unwrap(), &mut bytes).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::write(&image, &bytes[..n]).unwrap();
    Volume::of(Memory::load(&image).unwrap())
}

#[test]
fn a_wrong_hash_of_a_name_that_folds_case_is_found_and_set_to_what_linux_wrote() {
    let v = casefolded();
    let report = v.check();
    assert!(report.findings.is_empty(), "{report}");
    let dir = v.ino("large");
    let name = "Eintrag-ÄÖÜ-123";
    let (at, slot, _) = v.entry(dir, name);
    let linux = entry(&mut v.read(at), slot)[..4].to_vec();
    assert_ne!(linux, name_hash(name.as_bytes()).to_le_bytes(), "the folded name is hashed");
    for wrong in [name_hash(name.as_bytes()), 0, !0] {
        let v = casefolded();
        v.edit(at, |b| entry(b, slot)[..4].copy_from_slice(&wrong.to_le_bytes()));
        v.finds_and_repairs(|k| matches!(k, K::DentryHash { stored, .. } if *stored == wrong));
        let after = Volume::of(v.dev);
        let (at, slot, _) = after.entry(dir, name);
        assert_eq!(entry(&mut after.read(at), slot)[..4], linux);
    }
}

#[test]
fn a_wrong_hash_in_an_inline_directory_that_folds_case_is_found_and_repaired() {
    let v = casefolded();
    let dir = v.ino("small");
    let area = v.division(dir).inline_area();
    let layout = dentry::Layout::inline(area.len());
    let hash_at = |b: &Block| {
        let d = dentry::entries(&layout, &b[area.clone()], 0).find(|d| d.name == "Straße".as_bytes()).unwrap();
        let hash = d.hash.to_le_bytes();
        b.windows(4).position(|w| w == hash).unwrap()
    };
    v.edit_node(dir.nid(), |b| {
        let at = hash_at(b);
        b[at] ^= 1;
    });
    v.finds_and_repairs(|k| matches!(k, K::DentryHash { place, .. } if place.dir == dir));
}

#[test]
fn encrypted_names_that_fold_case_are_not_hashed_and_that_is_said() {
    let v = casefolded();
    for copy in 0..2 {
        v.edit_sb(copy, |r| r.feature = (r.feature.get() | Features::ENCRYPT.bits()).into());
    }
    let dir = v.ino("large");
    v.edit_inode(dir, |r| r.i_advise |= Advise::ENCRYPT.bits());
    v.finds(|k| *k == K::HashesUnchecked { dir });
    // Its place must still fit its hash. The first level has one bucket, all others an even number.
    let (_, at) = *v.dir_blocks(dir).last().unwrap();
    let slot = dentry::entries(&dentry::Layout::BLOCK, &v.read(at), 0).next().unwrap().slot;
    v.edit(at, |b| entry(b, slot)[0] ^= 1);
    let report = v.finds(|k| matches!(k, K::DentryBucket { place, .. } if place.dir == dir));
    assert!(report.errors().all(|k| !matches!(k, K::DentryHash { .. })));
}
