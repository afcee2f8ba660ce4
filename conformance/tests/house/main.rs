//! The code keeps the structure in ARCHITECTURE.md: a crate depends only on crates below it, and no crate has a cycle
//! of modules that import each other. A module may use its parent module's items: it is a part of it. The folders of
//! `f2fs` are ordered, and none uses a higher one. And cargo runs all tests.

mod folders;
mod imports;
mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use folders::{Folders, Use, What, folder, upward, uses};
use imports::{Name, Sources, circles};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn manifest(path: &Path) -> toml::Table {
    fs::read_to_string(path).unwrap().parse().unwrap()
}

/// The project's crates, by directory, each with the crates that its product (not its tests) is built from.
fn rooms() -> BTreeMap<String, BTreeSet<String>> {
    let members = manifest(&root().join("Cargo.toml"))["workspace"]["members"].as_array().unwrap().clone();
    let members: Vec<String> = members.iter().map(|m| m.as_str().unwrap().to_owned()).collect();
    let known = |member: &String| {
        let manifest = manifest(&root().join(member).join("Cargo.toml"));
        let tables = ["dependencies", "build-dependencies"].into_iter().filter_map(|t| manifest.get(t)?.as_table());
        let named = tables.flat_map(|table| table.keys());
        // A crate inside another's directory has both in its name: scherlfs-format is scherlfs/format.
        let is = |name: &str, member: &str| name.strip_prefix("joulefs-").unwrap_or(name) == member.replace('/', "-");
        let room = |name: &str| members.iter().find(|m| is(name, m)).cloned();
        (member.clone(), named.filter_map(|name| room(name)).collect())
    };
    members.iter().map(known).collect()
}

/// The layers drawn in ARCHITECTURE.md, highest first.
fn storeys(text: &str, rooms: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let (_, drawn) = text.split_once("## The rooms").expect("ARCHITECTURE.md has a section on rooms");
    let lines = drawn.lines().skip_while(|line| !line.starts_with("    ")).take_while(|line| line.starts_with("    "));
    let names =
        |line: &str| line.split_whitespace().take_while(|w| rooms.contains_key(*w)).map(str::to_owned).collect();
    lines.map(names).collect()
}

/// Violations: a crate that depends on one of its own layer or above, or that is not drawn.
fn out_of_place(rooms: &BTreeMap<String, BTreeSet<String>>, storeys: &[Vec<String>]) -> Vec<String> {
    let storey = |room: &String| storeys.iter().position(|s| s.contains(room));
    let mut wrong = Vec::new();
    for (room, known) in rooms {
        let Some(here) = storey(room) else {
            wrong.push(format!("{room} is not drawn"));
            continue;
        };
        let above = known.iter().filter(|other| storey(other).is_none_or(|there| there <= here));
        wrong.extend(above.map(|other| format!("{room} knows {other}")));
    }
    wrong
}

/// A crate's cycles, each with the imports that form it.
fn described(imports: &BTreeMap<Name, BTreeSet<Name>>) -> Vec<String> {
    let shown = |name: &Name| if name.is_empty() { "crate".to_owned() } else { name.join("::") };
    let of_circle = |circle: BTreeSet<Name>| {
        let within = |from: &Name| imports[from].intersection(&circle).map(shown).collect::<Vec<_>>().join(", ");
        let lines: Vec<String> = circle.iter().map(|from| format!("{} -> {}", shown(from), within(from))).collect();
        format!("a circle of {}:\n    {}", circle.len(), lines.join("\n    "))
    };
    circles(imports).into_iter().map(of_circle).collect()
}

#[test]
fn a_crate_knows_only_crates_below_it() {
    let rooms = rooms();
    let storeys = storeys(&fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap(), &rooms);
    assert!(rooms.len() > 10 && storeys.len() > 4, "{rooms:?} {storeys:?}");
    let wrong = out_of_place(&rooms, &storeys);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_crate_has_a_circle_of_modules() {
    let mut found = Vec::new();
    let mut modules = 0;
    for room in rooms().keys() {
        let src = root().join(room).join("src");
        let file = ["lib.rs", "main.rs"].map(|name| src.join(name)).into_iter().find(|file| file.exists());
        let sources = Sources::read(&file.unwrap());
        modules += sources.len();
        found.extend(described(&sources.imports()).into_iter().map(|circle| format!("{room}: {circle}")));
    }
    assert!(modules > 400, "only {modules} modules are found");
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The folders that a README lists, lowest first: rows of a name, contents, and modules.
fn folders(text: &str) -> Folders {
    let (_, listed) = text.split_once("\n## Folders\n").expect("the README has a section on folders");
    let rows = listed.lines().skip_while(|l| !l.starts_with("|---")).skip(1).take_while(|l| l.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, name, _, modules, _] = cells[..] else { panic!("{line}: three columns expected") };
        (name.to_owned(), modules.split(", ").map(|m| m.trim_matches('`').to_owned()).collect())
    };
    rows.map(row).collect()
}

#[test]
fn no_folder_of_f2fs_uses_one_above_it() {
    let folders = folders(&fs::read_to_string(root().join("f2fs/README.md")).unwrap());
    assert!(folders.len() > 10, "{folders:?}");
    let sources = Sources::read(&root().join("f2fs/src/lib.rs"));
    let astray: Vec<String> = sources
        .files()
        .keys()
        .filter(|n| !n.is_empty() && folder(&folders, n).is_none())
        .map(|n| n.join("::"))
        .collect();
    assert!(astray.is_empty(), "belong to no folder: {astray:?}");
    let uses = uses(&sources, "Volume");
    assert!(uses.iter().filter(|u| u.what != What::Import).count() > 600);
    // Every folder may use the volume's type, which holds all state, and `volume::begin`, which makes space before a
    // change.
    let volume = |name: &Name| name.join("::") == "volume";
    let of_type = |u: &Use| u.what == What::Import && (volume(&u.from) || volume(&u.to));
    let begins = |u: &Use| u.to.join("::") == "volume::begin";
    let wrong: Vec<String> =
        upward(&uses, &folders).into_iter().filter(|u| !of_type(u) && !begins(u)).map(Use::text).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_file_of_tests_is_in_a_program_that_cargo_runs() {
    let (mut files, mut wrong) = (0, Vec::new());
    for room in rooms().keys().map(|room| root().join(room)) {
        let (many, forgotten) = programs::forgotten(&room);
        files += many;
        wrong.extend(forgotten.iter().map(|path| format!("{} is in no test program", path.display())));
        wrong.extend(programs::untested(&room).iter().map(|what| format!("cargo runs no {what}")));
    }
    assert!(files > 250, "only {files} files of tests are found");
    assert!(wrong.is_empty(), "name them in the crate's tests/together.rs or its Cargo.toml: {wrong:#?}");
}

fn found(texts: &[(&str, &str)]) -> Vec<String> {
    circles(&Sources::of(texts).imports()).into_iter().flatten().map(|name| name.join("::")).collect()
}

#[test]
fn a_circle_is_found_however_it_is_written() {
    let lib = ("", "mod a; mod b; mod c;");
    let a = ("a", "use crate::b::B; pub struct A;");
    let by_path = ("b", "pub struct B; fn f(_: &crate::a::A) {}");
    assert_eq!(found(&[lib, a, by_path, ("c", "")]), ["a", "b"]);
    assert_eq!(
        found(&[lib, a, ("b", "use super::c::C; pub struct B;"), ("c", "use crate::{a::{self, A}};")]),
        ["a", "b", "c"]
    );
    assert_eq!(
        found(&[lib, a, ("b", "pub struct B; fn f() { println!(\"{}\", crate::a::A) }"), ("c", "")]),
        ["a", "b"]
    );
    // Through a re-export of the root, and through a module's.
    assert_eq!(found(&[("", "mod a; mod b; pub use a::A;"), a, ("b", "pub struct B; impl crate::A {}")]), ["a", "b"]);
    assert_eq!(
        found(&[lib, ("a", "use crate::b; fn f(_: b::B) {}"), ("b", "mod inner { use super::super::a; }")]),
        ["a", "b"]
    );
    // Through a child, which is a part of its parent.
    let child = ("a::c", "use crate::b::B; pub struct C;");
    assert_eq!(
        found(&[lib, ("a", "mod c; use c::C;"), child, ("b", "use crate::a; pub struct B;")]),
        ["a", "a::c", "b"]
    );
}

#[test]
fn what_tests_comments_and_visibilities_name_and_a_child_of_its_parent_makes_no_circle() {
    let lib = ("", "pub mod a; mod b; pub use a::A; pub use b::B;");
    let a = ("a", "use crate::b::B; pub struct A;");
    assert!(
        found(&[lib, a, ("b", "//! See crate::a::A.\npub struct B; #[cfg(test)] mod tests { use crate::a::A; }")])
            .is_empty()
    );
    assert!(
        found(&[lib, a, ("b", "pub(super) struct B; pub(in crate::a) struct C; fn f() { \"crate::a::A\"; }")])
            .is_empty()
    );
    assert!(found(&[lib, ("a", "use std::a; use b::x; pub struct A;"), ("b", "use crate::A;")]).is_empty());
    assert!(
        found(&[("", "mod a;"), ("a", "mod b; use b::B; struct A(B);"), ("a::b", "use super::A; struct B;")])
            .is_empty()
    );
    let made = "pub struct B; macro_rules! all { () => { /// See [`crate::a::A`].\n struct C; } }";
    assert!(found(&[lib, a, ("b", made)]).is_empty());
}

#[test]
fn a_crate_that_knows_one_above_it_or_is_not_drawn_is_found() {
    let rooms = |all: &[(&str, &[&str])]| -> BTreeMap<String, BTreeSet<String>> {
        all.iter().map(|(room, known)| (room.to_string(), known.iter().map(|k| k.to_string()).collect())).collect()
    };
    let house = rooms(&[("roof", &["wall", "floor"]), ("wall", &["floor"]), ("floor", &[])]);
    let drawn = "# House\n\n## The rooms\n\nDown.\n\n    roof      keeps rain off the wall\n    wall      holds\n    floor     carries\n\nEnd.\n";
    let storeys = storeys(drawn, &house);
    assert_eq!(storeys, [["roof"], ["wall"], ["floor"]]);
    assert!(out_of_place(&house, &storeys).is_empty());
    let upside_down = rooms(&[("roof", &[]), ("wall", &["wall"]), ("floor", &["roof"]), ("shed", &[])]);
    assert_eq!(out_of_place(&upside_down, &storeys), ["floor knows roof", "shed is not drawn", "wall knows wall"]);
}

/// The upward uses in a crate of the folders `low` and `high`, where `Volume` is the type with the methods.
fn astray(low: &str, high: &str) -> Vec<String> {
    let readme = "# House\n\n## Folders\n\nUp.\n\n| folder | holds | modules |\n|---|---|---|\n\
                  | low | all | `volume`, `low` |\n| high | rest | `high` |\n\nEnd.\n";
    let lib = ("", "mod volume; mod low; mod high;");
    let volume =
        "use crate::{low::L, high::{self, H}}; pub struct Volume { l: L, h: Mutex<Box<H>>, n: u32, m: crate::high::M }";
    let sources = Sources::of(&[lib, ("volume", volume), ("low", low), ("high", high)]);
    let uses = uses(&sources, "Volume");
    let of_low = |u: &&Use| u.from.join("::") != "volume";
    upward(&uses, &folders(readme)).into_iter().filter(of_low).map(Use::text).collect()
}

#[test]
fn a_use_of_a_method_or_field_above_is_found_however_it_is_written() {
    let high = "use crate::volume::Volume; impl Volume { fn above(&self) { self.below() } fn as_fn(&self) {} }";
    let low = |body: &str| format!("use crate::volume::Volume; impl Volume {{ fn below(&self) {{ {body} }} }}");
    for body in
        ["self.above();", "f(|| self.above());", "assert!(g(self.above()));", "Self::above(self);", "vol.above();"]
    {
        assert_eq!(astray(&low(body), high), ["low calls above of high"], "{body}");
    }
    assert_eq!(astray("fn f(vol: &V) { h(Volume::above); vol.as_fn() }", high).len(), 2);
    for body in ["self.h.lock();", "f(|| self.h.x = 1);", "assert!(g(vol.h));"] {
        assert_eq!(astray(&low(body), high), ["low touches h of high"], "{body}");
    }
    assert_eq!(astray(&low("self.m"), high), ["low touches m of high"]);
    assert_eq!(astray("use crate::high::T;", "pub struct T;"), ["low imports high"]);
    assert_eq!(astray("pub use crate::high::T; fn f(_: T) {}", "pub struct T;"), ["low imports high"]);
}

#[test]
fn uses_downwards_of_tests_and_of_other_types_and_names_passed_on_are_allowed() {
    let high = "use crate::volume::Volume; impl Volume { fn above(&self) { self.below() } }";
    for low in [
        "pub use crate::high::above;",
        "impl Volume { fn below(&self) {} #[cfg(test)] fn looked(&self) { self.above() } }",
        "struct Other; impl Other { fn below(&self) { self.above() } }",
        "impl Volume { fn below(&self) { self.l.above(); self.n.above(); other.above(); other.h } }",
        "#[cfg(test)] mod tests { fn f(vol: &Volume) { vol.above() } }",
        "/// See [`Volume::above`].\nfn f() { \"vol.above()\"; }",
    ] {
        assert!(astray(low, high).is_empty(), "{low}");
    }
}
