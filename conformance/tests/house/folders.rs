//! Which folders of a crate import from which others?
//!
//! Imports in tests and re-exports (`pub use`) do not count. Left out: which folders there are, and which imports are
//! allowed.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::Name;

/// Names of a crate's folders, lowest first, each with its modules. A module inside another one may be listed
/// separately.
pub type Folders = Vec<(String, Vec<String>)>;

/// The index of a module's folder in the order; none for a module that is not listed.
pub fn folder(folders: &Folders, module: &Name) -> Option<usize> {
    let path = module.join("::");
    let lies_in =
        |listed: &str| path.strip_prefix(listed).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let listed = folders.iter().enumerate().flat_map(|(n, (_, modules))| modules.iter().map(move |m| (n, m)));
    listed.filter(|(_, m)| lies_in(m)).max_by_key(|(_, m)| m.len()).map(|(n, _)| n)
}

/// The imports from a higher folder into a lower one.
pub fn upward(imports: &BTreeMap<Name, BTreeSet<Name>>, folders: &Folders) -> Vec<String> {
    let all = imports.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    let is_upward = |(from, to): &(&Name, &Name)| match (folder(folders, from), folder(folders, to)) {
        (Some(from), Some(to)) => from < to,
        _ => false,
    };
    all.filter(is_upward).map(|(from, to)| format!("{} imports {}", from.join("::"), to.join("::"))).collect()
}
