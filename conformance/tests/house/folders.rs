//! Which folders of a crate use which others, where most of its code is methods of one type?
//!
//! Imports alone do not show it: methods of that type are called without one. So a call of such a method, on `self` or
//! `vol`, counts as naming the file that defines it. Calls that only tests make do not count, nor does a name that a file
//! only passes on (`pub use`). Left out: which fields of the type a file touches, and which of its uses are allowed.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Expr, Item, Type};

use super::imports::{Name, Sources, is_of_tests};

/// Folders of a crate by their names, the lowest first, each with the modules in it. A module inside another of them
/// belongs where it is named itself.
pub type Folders = Vec<(String, Vec<String>)>;

/// One file's use of another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub from: Name,
    pub to: Name,
    /// The method that is called; none if the module is imported.
    pub method: Option<String>,
}

impl Use {
    /// For a person.
    pub fn text(&self) -> String {
        let (from, to) = (self.from.join("::"), self.to.join("::"));
        match &self.method {
            Some(method) => format!("{from} calls {method} of {to}"),
            None => format!("{from} imports {to}"),
        }
    }
}

/// Every use of one file by another: imports, and calls of the methods of `central`.
pub fn uses(sources: &Sources, central: &str) -> BTreeSet<Use> {
    let mut defined = BTreeMap::new();
    for (name, file) in sources.files() {
        methods(&file.items, central).for_each(|method| drop(defined.insert(method, name.clone())));
    }
    let named = sources.named(false);
    let imports = named
        .iter()
        .flat_map(|(from, all)| all.iter().map(|to| Use { from: from.clone(), to: to.clone(), method: None }));
    let mut all: BTreeSet<Use> = imports.collect();
    for (from, file) in sources.files() {
        let mut calls = Calls { central, inside: false, found: BTreeSet::new() };
        calls.visit_file(file);
        let known = calls.found.into_iter().filter_map(|method| Some((defined.get(&method)?.clone(), method)));
        all.extend(known.map(|(to, method)| Use { from: from.clone(), to, method: Some(method) }));
    }
    all.retain(|u| u.from != u.to);
    all
}

/// The folder that a module lies in, as its place in the order; none for a module that is not listed.
pub fn folder(folders: &Folders, module: &Name) -> Option<usize> {
    let path = module.join("::");
    let lies_in =
        |listed: &str| path.strip_prefix(listed).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let listed = folders.iter().enumerate().flat_map(|(n, (_, modules))| modules.iter().map(move |m| (n, m)));
    listed.filter(|(_, m)| lies_in(m)).max_by_key(|(_, m)| m.len()).map(|(n, _)| n)
}

/// The uses that lead from a folder to a higher one.
pub fn upward<'a>(uses: &'a BTreeSet<Use>, folders: &Folders) -> Vec<&'a Use> {
    let is_upward = |u: &&Use| match (folder(folders, &u.from), folder(folders, &u.to)) {
        (Some(from), Some(to)) => from < to,
        _ => false,
    };
    uses.iter().filter(is_upward).collect()
}

/// The methods that a type has by itself, not by a trait.
fn methods<'a>(items: &'a [Item], central: &'a str) -> impl Iterator<Item = String> + 'a {
    let of_central = move |item: &'a Item| match item {
        Item::Impl(i) if i.trait_.is_none() && is(&i.self_ty, central) && !is_of_tests(&i.attrs) => Some(&i.items),
        _ => None,
    };
    items.iter().filter_map(of_central).flatten().filter_map(|item| match item {
        syn::ImplItem::Fn(f) if !is_of_tests(&f.attrs) => Some(f.sig.ident.to_string()),
        _ => None,
    })
}

fn is(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|s| s.ident == name))
}

/// What a file calls.
struct Calls<'a> {
    central: &'a str,
    /// `self` is of the central type.
    inside: bool,
    found: BTreeSet<String>,
}

impl Calls<'_> {
    fn is_central(&self, receiver: &str) -> bool {
        receiver == "vol" || receiver == "self" && self.inside
    }
    /// Calls in what a macro is given.
    fn take_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for four in tokens.windows(4) {
            if let [TokenTree::Ident(on), TokenTree::Punct(dot), TokenTree::Ident(method), TokenTree::Group(given)] =
                four
                && dot.as_char() == '.'
                && given.delimiter() == Delimiter::Parenthesis
                && self.is_central(&on.to_string())
            {
                self.found.insert(method.to_string());
            }
        }
        for token in tokens {
            if let TokenTree::Group(group) = token {
                self.take_tokens(group.stream());
            }
        }
    }
}

impl<'ast> Visit<'ast> for Calls<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if !is_of_tests(&item.attrs) {
            let outside = std::mem::replace(&mut self.inside, is(&item.self_ty, self.central));
            visit::visit_item_impl(self, item);
            self.inside = outside;
        }
    }
    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_of_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }
    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        if let Expr::Path(on) = &*call.receiver
            && on.path.get_ident().is_some_and(|on| self.is_central(&on.to_string()))
        {
            self.found.insert(call.method.to_string());
        }
        visit::visit_expr_method_call(self, call);
    }
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let names: Vec<String> = path.path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let [.., on, method] = &names[..]
            && (on == self.central || on == "Self" && self.inside)
        {
            self.found.insert(method.clone());
        }
    }
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.take_tokens(call.tokens.clone());
    }
}
