//! `cargo xtask check`: no two files of a crate import each other, and no longer circle of files exists.
//!
//! A file imports another when it names something that is defined there, in a `use` or in a path. What
//! a module only hands on (`pub use`) is looked up where it is defined: so a re-export hides no circle,
//! and is none of its own. Nor is it an import to declare a module, or to name one in a `use`: what is
//! taken out of it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use proc_macro2::{TokenStream, TokenTree};
use serde::Deserialize;
use syn::visit::{self, Visit};

use crate::run::{cargo, run_silently};

/// Checks every crate of the workspace.
pub fn run_check() -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    #[derive(Deserialize)]
    struct Package {
        targets: Vec<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        src_path: PathBuf,
    }
    let text = run_silently(cargo().args(["metadata", "--no-deps", "--format-version=1"]))?;
    let metadata: Metadata = serde_json::from_str(&text).context("what cargo metadata prints")?;
    let roots = metadata.packages.iter().flat_map(|package| &package.targets);
    let mut circles = BTreeSet::new();
    let mut files = 0;
    for Target { src_path } in roots {
        let imports = Imports::of(src_path)?;
        files += imports.files.len();
        circles.extend(imports.circles());
    }
    if circles.is_empty() {
        println!("{files} files, and none imports what imports it");
        return Ok(());
    }
    for circle in &circles {
        eprintln!("a circle of imports:\n{circle}");
    }
    bail!(
        "{} circles of files that import each other: move what both need into a file below both, or \
         hand it down as an argument",
        circles.len()
    )
}

/// The files of a crate, and which takes what from which.
struct Imports {
    files: Vec<PathBuf>,
    /// The names that one file takes from another.
    edges: BTreeMap<(usize, usize), BTreeSet<String>>,
}

impl Imports {
    fn of(root: &Path) -> anyhow::Result<Self> {
        let mut tree = Tree::default();
        let directory = root.parent().context("a crate's root is in a directory")?;
        tree.load(root, None, directory)?;
        let mut edges: BTreeMap<(usize, usize), BTreeSet<String>> = BTreeMap::new();
        for (at, module) in tree.modules.iter().enumerate() {
            let used =
                module.uses.iter().filter(|used| used.kind == Kind::Own).map(|used| &used.path);
            for path in module.paths.iter().chain(used) {
                if let Some(Found::Item(file)) = tree.resolve(at, path, &mut Vec::new())
                    && file != module.file
                {
                    let name = path.last().cloned().unwrap_or_default();
                    edges.entry((module.file, file)).or_default().insert(name);
                }
            }
        }
        Ok(Self { files: tree.files, edges })
    }

    /// Each circle as text, a line for each import.
    fn circles(&self) -> BTreeSet<String> {
        let reach: Vec<BTreeSet<usize>> =
            (0..self.files.len()).map(|file| self.reached(file)).collect();
        let circle = |file: usize| -> BTreeSet<usize> {
            reach[file].iter().copied().filter(|&other| reach[other].contains(&file)).collect()
        };
        let circles: BTreeSet<_> = (0..self.files.len()).map(circle).collect();
        let print = |circle: &BTreeSet<usize>| {
            let inside = self
                .edges
                .iter()
                .filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
            let line = |(&(from, to), names): (&(usize, usize), &BTreeSet<String>)| {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let [from, to] = [from, to].map(|file| self.files[file].display());
                format!("  {from}\n    takes from {to}: {}\n", names.join(", "))
            };
            inside.map(line).collect::<String>()
        };
        circles.iter().filter(|circle| circle.len() > 1).map(print).collect()
    }

    /// The files that `file` imports, and that these import, and so on.
    fn reached(&self, file: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![file];
        while let Some(at) = open.pop() {
            for &(_, to) in self.edges.keys().filter(|&&(from, _)| from == at) {
                if reached.insert(to) {
                    open.push(to);
                }
            }
        }
        reached
    }
}

/// A crate's modules.
#[derive(Default)]
struct Tree {
    modules: Vec<Module>,
    files: Vec<PathBuf>,
}

/// A module, in a file of its own or within one.
#[derive(Default)]
struct Module {
    file: usize,
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    /// What is defined here, and in which file: a macro that is exported counts as defined at the root.
    items: BTreeMap<String, usize>,
    uses: Vec<Use>,
    paths: Vec<Vec<String>>,
}

/// What a `use` brings in.
struct Use {
    path: Vec<String>,
    /// What it is called here; `None` for all that is there.
    name: Option<String>,
    kind: Kind,
}

/// Whom a `use` is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The module itself.
    Own,
    /// Those who use the module.
    HandedOn,
}

/// What a path leads to.
enum Found {
    Module(usize),
    /// Something that is defined in a file.
    Item(usize),
}

impl Tree {
    /// Adds the module of a file, and its children's; `directory` is where these have their files.
    fn load(
        &mut self,
        file: &Path,
        parent: Option<usize>,
        directory: &Path,
    ) -> anyhow::Result<usize> {
        let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("{}", file.display()))?;
        self.files.push(file.to_owned());
        self.add(self.files.len() - 1, parent, directory, &parsed.items)
    }

    fn add(
        &mut self,
        file: usize,
        parent: Option<usize>,
        directory: &Path,
        items: &[syn::Item],
    ) -> anyhow::Result<usize> {
        let at = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        let mut collector = Collector::default();
        for item in items {
            collector.visit_item(item);
        }
        for name in collector.exported {
            self.modules[0].items.insert(name, file);
        }
        let module = &mut self.modules[at];
        module.items = collector.items.into_iter().map(|name| (name, file)).collect();
        module.uses = collector.uses;
        module.paths = collector.paths;
        for item in collector.modules {
            let name = item.ident.to_string();
            let child = match &item.content {
                Some((_, items)) => self.add(file, Some(at), &directory.join(&name), items)?,
                None => {
                    let near = directory.join(format!("{name}.rs"));
                    let far = directory.join(&name).join("mod.rs");
                    let place = match path_attribute(item) {
                        Some(path) => self.files[file].with_file_name(path),
                        None if near.exists() => near,
                        None => far,
                    };
                    self.load(&place, Some(at), &directory.join(&name))?
                }
            };
            self.modules[at].children.insert(name, child);
        }
        Ok(at)
    }

    /// What `path` means in a module. `seen` are the questions that are being asked.
    fn resolve<'a>(
        &'a self,
        from: usize,
        path: &'a [String],
        seen: &mut Vec<(usize, &'a [String])>,
    ) -> Option<Found> {
        if seen.contains(&(from, path)) {
            return None;
        }
        seen.push((from, path));
        let found = self.look_up(from, path, seen);
        seen.pop();
        found
    }

    fn look_up<'a>(
        &'a self,
        from: usize,
        path: &'a [String],
        seen: &mut Vec<(usize, &'a [String])>,
    ) -> Option<Found> {
        let Some((first, rest)) = path.split_first() else { return Some(Found::Module(from)) };
        let module = &self.modules[from];
        match first.as_str() {
            "crate" => return self.resolve(0, rest, seen),
            "self" => return self.resolve(from, rest, seen),
            "super" => return self.resolve(module.parent?, rest, seen),
            _ => {}
        }
        if let Some(&child) = module.children.get(first) {
            return self.resolve(child, rest, seen);
        }
        if let Some(&file) = module.items.get(first) {
            return Some(Found::Item(file));
        }
        let named = module.uses.iter().filter(|used| used.name.as_ref() == Some(first));
        let all = module.uses.iter().filter(|used| used.name.is_none());
        let mut ways = named.map(|used| (used, rest)).chain(all.map(|used| (used, path)));
        ways.find_map(|(used, rest)| match self.resolve(from, &used.path, seen)? {
            Found::Module(there) => self.resolve(there, rest, seen),
            item @ Found::Item(_) => Some(item),
        })
    }
}

fn path_attribute(module: &syn::ItemMod) -> Option<String> {
    let attribute = module.attrs.iter().find(|a| a.path().is_ident("path"))?;
    match &attribute.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
        _ => None,
    }
}

/// What a module defines and names; not what its children do.
#[derive(Default)]
struct Collector<'a> {
    modules: Vec<&'a syn::ItemMod>,
    items: Vec<String>,
    /// Macros that are exported.
    exported: Vec<String>,
    uses: Vec<Use>,
    paths: Vec<Vec<String>>,
    /// Inside of a function nothing is defined that others can name.
    depth: usize,
}

impl<'a> Visit<'a> for Collector<'a> {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let name = match item {
            syn::Item::Mod(module) => return self.modules.push(module),
            syn::Item::Const(item) => Some(&item.ident),
            syn::Item::Enum(item) => Some(&item.ident),
            syn::Item::Fn(item) => Some(&item.sig.ident),
            syn::Item::Static(item) => Some(&item.ident),
            syn::Item::Struct(item) => Some(&item.ident),
            syn::Item::Trait(item) => Some(&item.ident),
            syn::Item::Type(item) => Some(&item.ident),
            syn::Item::Union(item) => Some(&item.ident),
            syn::Item::Macro(item) => item.ident.as_ref(),
            _ => None,
        };
        if let Some(name) = name.filter(|_| self.depth == 0) {
            self.items.push(name.to_string());
        }
        if let syn::Item::Macro(item) = item
            && let Some(name) = &item.ident
            && item.attrs.iter().any(|a| a.path().is_ident("macro_export"))
        {
            self.exported.push(name.to_string());
        }
        self.depth += 1;
        visit::visit_item(self, item);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        let kind = match item.vis {
            syn::Visibility::Inherited => Kind::Own,
            _ => Kind::HandedOn,
        };
        add_uses(&item.tree, kind, &mut Vec::new(), &mut self.uses);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        self.paths.push(path.segments.iter().map(|s| s.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'a syn::Macro) {
        visit::visit_macro(self, called);
        add_paths(called.tokens.clone(), &mut self.paths);
    }
}

/// Adds what a `use` brings in.
fn add_uses(tree: &syn::UseTree, kind: Kind, before: &mut Vec<String>, uses: &mut Vec<Use>) {
    let mut add = |last: &syn::Ident, name: &syn::Ident| {
        let mut path = before.clone();
        if last != "self" {
            path.push(last.to_string());
        }
        let name = if name == "self" { path.last().cloned() } else { Some(name.to_string()) };
        uses.push(Use { path, name, kind });
    };
    match tree {
        syn::UseTree::Name(used) => add(&used.ident, &used.ident),
        syn::UseTree::Rename(used) => add(&used.ident, &used.rename),
        syn::UseTree::Glob(_) => uses.push(Use { path: before.clone(), name: None, kind }),
        syn::UseTree::Group(group) => {
            group.items.iter().for_each(|tree| add_uses(tree, kind, before, uses));
        }
        syn::UseTree::Path(used) => {
            before.push(used.ident.to_string());
            add_uses(&used.tree, kind, before, uses);
            before.pop();
        }
    }
}

/// Adds whatever looks like a path in what a macro is given, or is made of.
fn add_paths(tokens: TokenStream, paths: &mut Vec<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    paths.extend(Some(std::mem::take(&mut path)).filter(|path| !path.is_empty()));
                }
                path.push(name.to_string());
                colons = 0;
                continue;
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Group(group) => add_paths(group.stream(), paths),
            _ => {}
        }
        paths.extend(Some(std::mem::take(&mut path)).filter(|path| !path.is_empty()));
        colons = 0;
    }
    paths.extend(Some(path).filter(|path| !path.is_empty()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate of these files; what is a circle of it, by the names of files.
    fn circles(name: &str, files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let directory = std::env::temp_dir().join(format!("xtask-{}-{name}", std::process::id()));
        for (file, text) in files {
            let path = directory.join(file);
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let circles = Imports::of(&directory.join("lib.rs")).expect("it parses").circles();
        std::fs::remove_dir_all(&directory).expect("removed");
        let names = |circle: &String| {
            let from = circle.lines().filter(|line| !line.starts_with("    "));
            let name = |line: &str| {
                let path = Path::new(line.trim()).strip_prefix(&directory).expect("inside");
                path.display().to_string()
            };
            from.map(name).collect::<BTreeSet<_>>().into_iter().collect()
        };
        circles.iter().map(names).collect()
    }

    #[test]
    fn a_circle_is_found_however_it_is_written() {
        for (name, b) in [
            ("use", "use crate::a::A; pub struct B(A);"),
            ("group", "use crate::{a::{self, A as Other}}; pub struct B(Other);"),
            ("path", "pub struct B(crate::a::A);"),
            ("super", "pub struct B(super::a::A);"),
            ("module", "use crate::a; pub struct B(a::A);"),
            ("inside", "pub struct B; fn f() { use crate::a::A; }"),
            ("tests", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"),
            ("all", "use crate::a::*; pub struct B(A);"),
            ("macro", "pub struct B; fn f() { println!(\"{}\", crate::a::A::NAME); }"),
            ("re-export", "use crate::A; pub struct B(A);"),
            ("twice", "use crate::again::Anew; pub struct B(Anew);"),
        ] {
            let lib = "mod a; mod b; mod again { pub use crate::A as Anew; } pub use a::A;";
            let a = "use crate::b::B; pub struct A(Option<Box<B>>);";
            let found = circles(name, &[("lib.rs", lib), ("a.rs", a), ("b.rs", b)]);
            assert_eq!(found, [["a.rs", "b.rs"]], "{name}");
        }
    }

    #[test]
    fn a_longer_circle_is_found_and_what_hangs_on_it_is_not_part_of_it() {
        let found = circles(
            "longer",
            &[
                ("lib.rs", "mod top; mod ring; mod leaf;"),
                ("top.rs", "use crate::ring::one::One;"),
                ("leaf.rs", "pub struct Leaf;"),
                ("ring/mod.rs", "pub mod one; mod two; mod three; pub use three::Three;"),
                ("ring/one.rs", "use super::two::Two; pub struct One(Two);"),
                ("ring/two.rs", "use super::Three; pub struct Two(Three);"),
                ("ring/three.rs", "use super::one; pub struct Three(one::One, crate::leaf::Leaf);"),
            ],
        );
        assert_eq!(found, [["ring/one.rs", "ring/three.rs", "ring/two.rs"]]);
    }

    #[test]
    fn a_parent_and_its_child_are_a_circle_when_each_takes_from_the_other() {
        let child = "use super::Parent; pub struct Child(Parent);";
        for (name, parent, count) in [
            ("declares", "mod child; pub struct Parent;", 0),
            ("hands-on", "mod child; pub use child::Child; pub struct Parent;", 0),
            ("names", "mod child; pub use child::Child; pub struct Parent(Option<Box<Child>>);", 1),
            ("uses", "mod child; use child::Child; pub struct Parent;", 1),
        ] {
            let found = circles(name, &[("lib.rs", parent), ("child.rs", child)]);
            assert_eq!(found, vec![["child.rs", "lib.rs"]; count], "{name}");
        }
    }

    #[test]
    fn what_only_goes_down_is_no_circle() {
        let found = circles(
            "down",
            &[
                ("lib.rs", "mod a; mod b; pub use a::A;"),
                ("a.rs", "use crate::b::B; pub struct A(B); impl A { fn b() {} }"),
                ("b.rs", "use std::fmt; pub struct B; mod tests { use super::*; fn a(b: B) {} }"),
            ],
        );
        assert!(found.is_empty(), "{found:?}");
    }
}
