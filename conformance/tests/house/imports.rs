//! Which module of a crate refers to which others?
//!
//! A module is a file. Files are parsed as Rust, so comments and strings do not count; references in tests do not count
//! either. A re-exported name (`pub use`) counts for the module that defines it. Left out on purpose: which references
//! are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, File, Item, UseTree, Visibility};

/// A module, or an item in it: the path from the crate's root.
pub type Name = Vec<String>;

/// The files of a crate by module.
#[derive(Default)]
pub struct Sources {
    files: BTreeMap<Name, File>,
    paths: BTreeSet<PathBuf>,
}

impl Sources {
    /// Reads the files, from the crate's root file on.
    pub fn read(root: &Path) -> Sources {
        let mut sources = Sources::default();
        sources.take(root, Vec::new(), true);
        sources
    }
    /// From texts, by module.
    pub fn of(texts: &[(&str, &str)]) -> Sources {
        let name = |path: &str| path.split("::").filter(|n| !n.is_empty()).map(str::to_owned).collect();
        let files = texts.iter().map(|(path, text)| (name(path), syn::parse_file(text).unwrap())).collect();
        Sources { files, paths: BTreeSet::new() }
    }
    fn take(&mut self, path: &Path, name: Name, owns_directory: bool) {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let beside = path.with_file_name("");
        let below = if owns_directory { beside.clone() } else { path.with_extension("") };
        for item in &file.items {
            let Item::Mod(module) = item else { continue };
            if module.content.is_some() || is_of_tests(&module.attrs) {
                continue;
            }
            let child = module.ident.to_string();
            let [own, directory] = [below.join(format!("{child}.rs")), below.join(&child).join("mod.rs")];
            let name = name.iter().cloned().chain([child]).collect();
            match elsewhere(&module.attrs) {
                Some(path) => self.take(&beside.join(path), name, true),
                None if own.exists() => self.take(&own, name, false),
                None => self.take(&directory, name, true),
            }
        }
        self.files.insert(name, file);
        self.paths.insert(path.canonicalize().unwrap());
    }
    /// The files, by their canonical paths.
    pub fn paths(&self) -> &BTreeSet<PathBuf> {
        &self.paths
    }
    /// The files, by module.
    pub fn files(&self) -> &BTreeMap<Name, File> {
        &self.files
    }
    /// The number of modules.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// The modules that each module refers to, without its own ancestors.
    pub fn imports(&self) -> BTreeMap<Name, BTreeSet<Name>> {
        let mut all = self.named(true);
        all.iter_mut().for_each(|(name, others)| others.retain(|other| !name.starts_with(other)));
        all
    }
    /// The modules that each module refers to, including its ancestors and itself. Re-exports (`pub use`) count if
    /// `passed_on`.
    pub fn named(&self, passed_on: bool) -> BTreeMap<Name, BTreeSet<Name>> {
        let mut brought = Brought::default();
        for (name, file) in &self.files {
            let mut seen = Seen::new(name, self, &mut brought);
            seen.collecting = true;
            seen.visit_file(file);
        }
        let edges = self.files.iter().map(|(name, file)| {
            let mut seen = Seen::new(name, self, &mut brought);
            seen.passed_on = passed_on;
            seen.visit_file(file);
            let named = std::mem::take(&mut seen.named);
            (name.clone(), named.iter().map(|n| self.module_of(n, &brought, 0)).collect())
        });
        edges.collect()
    }
    /// The module that defines an item.
    fn module_of(&self, name: &[String], brought: &Brought, depth: usize) -> Name {
        let within = (0..=name.len()).rev().find(|&n| self.files.contains_key(&name[..n])).unwrap_or(0);
        let (module, rest) = name.split_at(within);
        let passed_on = rest.first().and_then(|first| brought.get(module)?.get(first));
        match passed_on {
            Some(from) if depth < 8 => {
                let further: Name = from.iter().chain(&rest[1..]).cloned().collect();
                self.module_of(&further, brought, depth + 1)
            }
            _ => module.to_vec(),
        }
    }
}

/// Modules that depend on each other, directly or through others.
pub fn circles(imports: &BTreeMap<Name, BTreeSet<Name>>) -> Vec<BTreeSet<Name>> {
    let reached = |from: &Name| {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&Name> = imports.get(from).into_iter().flatten().collect();
        while let Some(name) = next.pop() {
            if reached.insert(name.clone()) {
                next.extend(imports.get(name).into_iter().flatten());
            }
        }
        reached
    };
    let reach: BTreeMap<&Name, BTreeSet<Name>> = imports.keys().map(|name| (name, reached(name))).collect();
    let circle = |name: &Name| -> BTreeSet<Name> {
        reach[name].iter().filter(|other| reach[*other].contains(name)).cloned().collect()
    };
    let all: BTreeSet<_> = imports.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    all.into_iter().collect()
}

/// The names that each module imports: by module and short name, the definition's path.
type Brought = BTreeMap<Name, BTreeMap<String, Name>>;

/// A module's references.
struct Seen<'a> {
    /// The current module, which may be inside the file.
    at: Name,
    sources: &'a Sources,
    brought: &'a mut Brought,
    /// Only collects imports.
    collecting: bool,
    /// Counts re-exports.
    passed_on: bool,
    named: BTreeSet<Name>,
}

impl<'a> Seen<'a> {
    fn new(name: &Name, sources: &'a Sources, brought: &'a mut Brought) -> Self {
        Seen { at: name.clone(), sources, brought, collecting: false, passed_on: true, named: BTreeSet::new() }
    }
    /// The target of a path, if it is in this crate.
    fn absolute(&self, path: &[String]) -> Option<Name> {
        let mut at = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => self.at.clone(),
            first => {
                let mut child = self.at.clone();
                child.push(first.to_owned());
                if self.sources.files.contains_key(&child) {
                    return Some(self.at.iter().chain(path).cloned().collect());
                }
                let from = self.brought.get(&self.at)?.get(first)?;
                return Some(from.iter().chain(&path[1..]).cloned().collect());
            }
        };
        let mut rest = path;
        while let Some((first, further)) = rest.split_first() {
            match first.as_str() {
                "super" => drop(at.pop()),
                "self" | "crate" => {}
                _ => break,
            }
            rest = further;
        }
        at.extend_from_slice(rest);
        Some(at)
    }
    fn name(&mut self, path: &[String]) {
        if !self.collecting {
            self.named.extend(self.absolute(path));
        }
    }
    fn take_use(&mut self, before: &[String], tree: &UseTree) {
        let with = |name: &syn::Ident| -> Name {
            let name = name.to_string();
            before.iter().cloned().chain((name != "self" || before.is_empty()).then_some(name)).collect()
        };
        match tree {
            UseTree::Path(path) => self.take_use(&with(&path.ident), &path.tree),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.take_use(before, tree)),
            UseTree::Glob(_) => self.name(before),
            UseTree::Name(name) => self.bring(with(&name.ident), None),
            UseTree::Rename(name) => self.bring(with(&name.ident), Some(name.rename.to_string())),
        }
    }
    fn bring(&mut self, path: Name, rename: Option<String>) {
        let short = rename.or_else(|| path.last().cloned());
        match (self.collecting, self.absolute(&path), short) {
            (true, Some(from), Some(short)) if from.last() != self.at.last() || from.len() != self.at.len() + 1 => {
                self.brought.entry(self.at.clone()).or_default().insert(short, from);
            }
            _ => self.name(&path),
        }
    }
    /// Paths in the arguments or the body of a macro.
    fn take_tokens(&mut self, tokens: TokenStream) {
        let mut path = Name::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Punct(colon) if colon.as_char() == ':' && !path.is_empty() => colons += 1,
                TokenTree::Ident(ident) if colons == 2 => {
                    path.push(ident.to_string());
                    colons = 0;
                    continue;
                }
                other => {
                    self.name(&std::mem::take(&mut path));
                    colons = 0;
                    match other {
                        TokenTree::Ident(ident) if ident == "crate" || ident == "super" => path.push(ident.to_string()),
                        TokenTree::Group(group) => self.take_tokens(group.stream()),
                        _ => {}
                    }
                }
            }
        }
        self.name(&path);
    }
}

impl<'ast> Visit<'ast> for Seen<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attrs = match item {
            Item::Fn(i) => &i.attrs,
            Item::Impl(i) => &i.attrs,
            Item::Mod(i) => &i.attrs,
            Item::Use(i) => &i.attrs,
            Item::Struct(i) => &i.attrs,
            Item::Enum(i) => &i.attrs,
            Item::Const(i) => &i.attrs,
            Item::Static(i) => &i.attrs,
            Item::Type(i) => &i.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_of_tests(attrs) {
            visit::visit_item(self, item);
        }
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        self.at.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.at.pop();
    }
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let counts = self.collecting || self.passed_on || !matches!(item.vis, Visibility::Public(_));
        if item.leading_colon.is_none() && counts {
            self.take_use(&[], &item.tree);
        }
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names: Name = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.name(&names);
        }
        visit::visit_path(self, path);
    }
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.take_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
    // A visibility is not a use.
    fn visit_visibility(&mut self, _: &'ast Visibility) {}
    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

/// True for `#[cfg(test)]`.
pub fn is_of_tests(attrs: &[Attribute]) -> bool {
    let is_test = |attr: &Attribute| {
        attr.path().is_ident("cfg") && attr.parse_args::<syn::Path>().is_ok_and(|p| p.is_ident("test"))
    };
    attrs.iter().any(is_test)
}

/// The file that `#[path = "..."]` names.
fn elsewhere(attrs: &[Attribute]) -> Option<String> {
    let attr = attrs.iter().find(|attr| attr.path().is_ident("path"))?;
    let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) = &attr.meta.require_name_value().ok()?.value
    else {
        return None;
    };
    Some(path.value())
}
