//! The code keeps the structure in ARCHITECTURE.md: a crate depends only on crates below it, and no crate has a cycle
//! of modules that import each other. A module may use its parent module's items: it is a part of it. The folders of
//! `f2fs` are ordered, and none uses a higher one. And cargo runs all tests.

mod folders;
mod imports;
mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use folders::{Folders, folder, upward};
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
    let imports = sources.named(false);
    assert!(imports.values().map(BTreeSet::len).sum::<usize>() > 400);
    let wrong = upward(&imports, &folders);
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

/// The upward imports in a crate of the folders `low` and `high`.
fn astray(low: &str) -> Vec<String> {
    let readme = "# House\n\n## Folders\n\nUp.\n\n| folder | holds | modules |\n|---|---|---|\n\
                  | low | all | `low`, `high::data` |\n| high | rest | `high` |\n\nEnd.\n";
    let high = ("high", "pub mod data; use crate::low::L; pub struct T(L);");
    let data = ("high::data", "pub struct D;");
    upward(&Sources::of(&[("", "mod low; mod high;"), ("low", low), high, data]).named(false), &folders(readme))
}

#[test]
fn an_import_from_a_folder_above_is_found_however_it_is_written() {
    for low in [
        "use crate::high::T;",
        "pub use crate::high::T; fn f(_: T) {}",
        "fn f(_: &crate::high::T) {}",
        "impl L { fn f(&self) { crate::high::g() } }",
    ] {
        assert_eq!(astray(low), ["low imports high"], "{low}");
    }
}

#[test]
fn imports_downwards_and_of_tests_and_names_passed_on_are_allowed() {
    for low in [
        "pub use crate::high::T;",
        "use crate::high::data::D; pub struct L(D);",
        "#[cfg(test)] mod tests { use crate::high::T; }",
        "/// See [`crate::high::T`].\nfn f() { \"crate::high::T\"; }",
    ] {
        assert!(astray(low).is_empty(), "{low}");
    }
}
