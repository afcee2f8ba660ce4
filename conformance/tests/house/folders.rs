//! Which folders of a crate use which others, if most of its code is methods of one type?
//!
//! Imports do not show it: methods of that type are called without one. So a call of such a method, on `self` or `vol`,
//! counts as a use of the file that defines it, and an access to a field as a use of the files that define the field's
//! type. Uses in tests and re-exports (`pub use`) do not count. Left out: fields with types of other crates, and which
//! uses are allowed.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Expr, Item, Member, Type, UseTree};

use super::imports::{Name, Sources, is_of_tests};

/// Names of a crate's folders, lowest first, each with its modules. A module inside another one may be listed
/// separately.
pub type Folders = Vec<(String, Vec<String>)>;

/// One file's use of another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    pub from: Name,
    pub to: Name,
    pub what: What,
}

/// What a file uses of another file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// An imported item.
    Import,
    /// A method of the central type.
    Method(String),
    /// A field of the central type.
    Field(String),
}

impl Use {
    /// Description for messages.
    pub fn text(&self) -> String {
        let (from, to) = (self.from.join("::"), self.to.join("::"));
        match &self.what {
            What::Import => format!("{from} imports {to}"),
            What::Method(method) => format!("{from} calls {method} of {to}"),
            What::Field(field) => format!("{from} touches {field} of {to}"),
        }
    }
}

/// Every use of one file by another: imports, and methods and fields of `central`.
pub fn uses(sources: &Sources, central: &str) -> BTreeSet<Use> {
    let mut defined: BTreeMap<What, BTreeSet<Name>> = BTreeMap::new();
    for (name, file) in sources.files() {
        let here = BTreeSet::from([name.clone()]);
        defined.extend(methods(&file.items, central).map(|method| (What::Method(method), here.clone())));
        defined.extend(fields(&file.items, central).map(|(field, types)| (What::Field(field), types)));
    }
    let named = sources.named(false);
    let imports = named
        .iter()
        .flat_map(|(from, all)| all.iter().map(|to| Use { from: from.clone(), to: to.clone(), what: What::Import }));
    let mut all: BTreeSet<Use> = imports.collect();
    for (from, file) in sources.files() {
        let mut seen = Seen { central, inside: false, found: BTreeSet::new() };
        seen.visit_file(file);
        for what in seen.found {
            let definitions = defined.get(&what).into_iter().flatten();
            all.extend(definitions.map(|to| Use { from: from.clone(), to: to.clone(), what: what.clone() }));
        }
    }
    all.retain(|u| u.from != u.to);
    all
}

/// The index of a module's folder in the order; none for a module that is not listed.
pub fn folder(folders: &Folders, module: &Name) -> Option<usize> {
    let path = module.join("::");
    let lies_in =
        |listed: &str| path.strip_prefix(listed).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let listed = folders.iter().enumerate().flat_map(|(n, (_, modules))| modules.iter().map(move |m| (n, m)));
    listed.filter(|(_, m)| lies_in(m)).max_by_key(|(_, m)| m.len()).map(|(n, _)| n)
}

/// The uses of a higher folder by a lower one.
pub fn upward<'a>(uses: &'a BTreeSet<Use>, folders: &Folders) -> Vec<&'a Use> {
    let is_upward = |u: &&Use| match (folder(folders, &u.from), folder(folders, &u.to)) {
        (Some(from), Some(to)) => from < to,
        _ => false,
    };
    uses.iter().filter(is_upward).collect()
}

/// A type's inherent methods.
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

/// A type's fields, each with the modules that define its type.
fn fields<'a>(items: &'a [Item], central: &'a str) -> impl Iterator<Item = (String, BTreeSet<Name>)> + 'a {
    let mut brought = BTreeMap::new();
    for item in items {
        if let Item::Use(item) = item {
            take_use(&mut Vec::new(), &item.tree, &mut brought);
        }
    }
    let of_central = move |item: &'a Item| match item {
        Item::Struct(s) if s.ident == central => Some(&s.fields),
        _ => None,
    };
    items.iter().filter_map(of_central).flatten().filter_map(move |field| {
        let mut made_of = Types { brought: &brought, found: BTreeSet::new() };
        made_of.visit_type(&field.ty);
        Some((field.ident.as_ref()?.to_string(), made_of.found))
    })
}

/// Records the modules of this crate from which a `use` imports names.
fn take_use(before: &mut Name, tree: &UseTree, brought: &mut BTreeMap<String, Name>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            take_use(before, &path.tree, brought);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| take_use(before, tree, brought)),
        UseTree::Name(name) if before.first().is_some_and(|first| first == "crate") => {
            brought.insert(name.ident.to_string(), before[1..].to_vec());
        }
        UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_) => {}
    }
}

/// The modules of this crate that a type's definition refers to.
struct Types<'a> {
    brought: &'a BTreeMap<String, Name>,
    found: BTreeSet<Name>,
}

impl<'ast> Visit<'ast> for Types<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Name = path.segments.iter().map(|s| s.ident.to_string()).collect();
        match &names[..] {
            [first, modules @ .., _] if first == "crate" => drop(self.found.insert(modules.to_vec())),
            [first, ..] => self.found.extend(self.brought.get(first).cloned()),
            [] => {}
        }
        visit::visit_path(self, path);
    }
}

fn is(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|s| s.ident == name))
}

/// A file's uses of the central type.
struct Seen<'a> {
    central: &'a str,
    /// `self` is of the central type.
    inside: bool,
    found: BTreeSet<What>,
}

impl Seen<'_> {
    fn is_central(&self, on: &str) -> bool {
        on == "vol" || on == "self" && self.inside
    }
    fn is_central_expr(&self, on: &Expr) -> bool {
        let Expr::Path(on) = on else { return false };
        on.path.get_ident().is_some_and(|on| self.is_central(&on.to_string()))
    }
    /// The tokens of a macro call.
    fn take_tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        for (n, three) in tokens.windows(3).enumerate() {
            let [TokenTree::Ident(on), TokenTree::Punct(dot), TokenTree::Ident(name)] = three else { continue };
            if dot.as_char() == '.' && self.is_central(&on.to_string()) {
                let is_call =
                    |next: &TokenTree| matches!(next, TokenTree::Group(g) if g.delimiter() == Delimiter::Parenthesis);
                let what = if tokens.get(n + 3).is_some_and(is_call) { What::Method } else { What::Field };
                self.found.insert(what(name.to_string()));
            }
        }
        for token in tokens {
            if let TokenTree::Group(group) = token {
                self.take_tokens(group.stream());
            }
        }
    }
}

impl<'ast> Visit<'ast> for Seen<'_> {
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
        if self.is_central_expr(&call.receiver) {
            self.found.insert(What::Method(call.method.to_string()));
        }
        visit::visit_expr_method_call(self, call);
    }
    fn visit_expr_field(&mut self, field: &'ast syn::ExprField) {
        if let Member::Named(name) = &field.member
            && self.is_central_expr(&field.base)
        {
            self.found.insert(What::Field(name.to_string()));
        }
        visit::visit_expr_field(self, field);
    }
    fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
        let names: Vec<String> = path.path.segments.iter().map(|s| s.ident.to_string()).collect();
        if let [.., on, method] = &names[..]
            && (on == self.central || on == "Self" && self.inside)
        {
            self.found.insert(What::Method(method.clone()));
        }
    }
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.take_tokens(call.tokens.clone());
    }
}
