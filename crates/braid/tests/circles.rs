//! Files need one another in no circle: in a crate no three files do, and in this one no two.
//!
//! A file needs the files that define what it imports, and what it names by a path. An import leads through the files
//! that only show a name of others. A name that a file shows, and has no other use for, is no need of that file.

#[path = "common/sources.rs"]
mod sources;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use sources::Source;

/// Most files of a circle.
const FILES_MAX: usize = 2;
/// In this crate.
const OWN_FILES_MAX: usize = 1;

/// A name leads through at most so many imports.
const IMPORTS_MAX: usize = 16;

/// The name of a module below the root of its crate.
type Module = Vec<String>;

/// Where a path leads.
#[derive(Debug, PartialEq)]
enum Place {
    Module(Module),
    /// What this module itself defines.
    Item(Module),
}

/// The files of a crate, by module.
#[derive(Default)]
struct Files(BTreeMap<Module, Source>);

#[test]
fn no_files_need_one_another_in_a_circle() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = Vec::new();
    for entry in fs::read_dir(own.join("..")).expect("the crates") {
        let folder = entry.expect("an entry").path().join("src");
        let most =
            if folder.canonicalize().ok() == own.join("src").canonicalize().ok() { OWN_FILES_MAX } else { FILES_MAX };
        for root in ["lib.rs", "main.rs"].map(|root| folder.join(root)).into_iter().filter(|root| root.exists()) {
            let mut files = Files::default();
            files.read(&root, &folder, Module::new());
            let circles = files.circles().into_iter().filter(|circle| circle.len() > most);
            wrong.extend(circles.map(|circle| format!("{}: {}", root.display(), files.shown(&circle))));
        }
    }
    assert!(wrong.is_empty(), "these files need one another:\n{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_seen() {
    let circles = |texts: &[(&str, &str)]| -> Vec<String> {
        let files = Files::of(texts);
        files.circles().iter().map(|circle| files.shown(circle)).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(circles(&[("", "mod a; mod b;"), ("a", "use crate::b::B;"), ("b", "pub struct B;")]), none);
    assert_eq!(
        circles(&[("", "mod a; mod b;"), ("a", "use crate::b::B; struct A;"), ("b", "pub struct B(super::a::A);")]),
        ["a needs b, b needs a"]
    );
    // Through names that others show: of the folder, and of the root.
    let folder = ("folder", "mod b; mod c; pub use b::B; pub(crate) use self::c::{C as D};");
    assert_eq!(
        circles(&[
            ("", "mod a; mod folder; pub use a::A;"),
            ("a", "use crate::folder; pub struct A(folder::D);"),
            folder,
            ("folder::b", "use crate::{A, a::{self}}; pub struct B;"),
            ("folder::c", "fn f() { let b = super::B::new(); } pub struct C;"),
        ]),
        ["a needs folder::c, folder::b needs a, folder::c needs folder::b"]
    );
    // A name that is shown is a need only where it is used as well.
    let child = ("a::b", "use super::A; pub struct B(A);");
    assert_eq!(circles(&[("", "mod a;"), ("a", "mod b; pub use b::B; pub struct A;"), child]), none);
    assert_eq!(
        circles(&[("", "mod a;"), ("a", "mod b; pub use b::B; pub struct A(B);"), child]),
        ["a needs a::b, a::b needs a"]
    );
    // Neither comments nor texts nor tests are a need.
    let beside = "/* crate::a::A */ const TEXT: &str = \"crate::a::A\"; #[cfg(test)] mod tests { use crate::a::A; }";
    assert_eq!(
        circles(&[
            ("", "mod a; mod b;"),
            ("a", "pub struct A(crate::b::B);"),
            ("b", &format!("pub struct B; {beside}"))
        ]),
        none
    );
}

impl Files {
    fn of(texts: &[(&str, &str)]) -> Self {
        let module = |name: &str| name.split("::").filter(|part| !part.is_empty()).map(String::from).collect();
        Self(texts.iter().map(|(name, text)| (module(name), Source::of(text))).collect())
    }

    /// Reads the file of a module, and those of the modules in it, which are in `folder`.
    fn read(&mut self, file: &Path, folder: &Path, module: Module) {
        let source = Source::of(&fs::read_to_string(file).expect("a source"));
        for name in &source.modules {
            let (below, inner) = (below(&module, name), folder.join(name));
            let file = [folder.join(format!("{name}.rs")), inner.join("mod.rs")].into_iter().find(|file| file.exists());
            self.read(&file.expect("the file of a module"), &inner, below);
        }
        self.0.insert(module, source);
    }

    /// The modules whose files each file needs.
    fn needs(&self) -> BTreeMap<&Module, BTreeSet<Module>> {
        self.0.iter().map(|(module, source)| (module, self.needs_of(module, source))).collect()
    }

    fn needs_of(&self, module: &Module, source: &Source) -> BTreeSet<Module> {
        let is_used = |name| source.names.contains(name) || source.paths.iter().any(|path| path[0] == *name);
        let imports = source.imports.iter().filter(|import| !import.is_shown || is_used(&import.name));
        let imports = imports.filter_map(|import| match self.resolve(module, &import.path, 0)? {
            Place::Module(_) if import.name != "*" => None,
            Place::Module(of) | Place::Item(of) => Some(of),
        });
        let paths = source.paths.iter().filter_map(|path| match self.resolve(module, path, 0)? {
            Place::Module(_) => None,
            Place::Item(of) => Some(of),
        });
        imports.chain(paths).filter(|of| of != module).collect()
    }

    /// Where a path leads that a module names; none where it leads out of the crate.
    fn resolve(&self, module: &Module, path: &[String], imports: usize) -> Option<Place> {
        let mut at = module.clone();
        for (index, name) in path.iter().enumerate() {
            match name.as_str() {
                "crate" => at = Module::new(),
                "self" => {}
                "super" => _ = at.pop()?,
                name => match self.find(&at, name, index + 1 == path.len(), imports) {
                    Some(Place::Module(inner)) => at = inner,
                    Some(item) => return Some(item),
                    // A name that the module neither defines nor imports is made there by a macro.
                    None if index > 0 && self.0[&at].imports.iter().all(|import| import.name != name) => {
                        return Some(Place::Item(at));
                    }
                    None => return None,
                },
            }
        }
        Some(Place::Module(at))
    }

    /// What a name is in a module. The last name of a path may be an item that is called as a module is.
    fn find(&self, module: &Module, name: &str, is_last: bool, imports: usize) -> Option<Place> {
        let source = self.0.get(module).filter(|_| imports < IMPORTS_MAX)?;
        let inner = source.modules.iter().any(|inner| inner == name);
        if source.items.contains(name) && (is_last || !inner) {
            return Some(Place::Item(module.clone()));
        }
        if inner {
            return Some(Place::Module(below(module, name)));
        }
        source.imports.iter().find_map(|import| match import.name.as_str() {
            "*" => match self.resolve(module, &import.path, imports + 1)? {
                Place::Module(of) if of != *module => self.find(&of, name, is_last, imports + 1),
                _ => None,
            },
            known if known == name => self.resolve(module, &import.path, imports + 1),
            _ => None,
        })
    }

    /// Sets of files of which each needs all others, over other files too.
    fn circles(&self) -> Vec<BTreeSet<Module>> {
        let needs = self.needs();
        let reach = |from: &Module| {
            let (mut reached, mut left) = (BTreeSet::new(), vec![from]);
            while let Some(needed) = left.pop().map(|module| &needs[module]) {
                left.extend(needed.iter().filter(|module| reached.insert((*module).clone())));
            }
            reached
        };
        let reached: BTreeMap<_, _> = needs.keys().map(|module| (*module, reach(module))).collect();
        let circle = |module: &Module| -> BTreeSet<Module> {
            reached[module].iter().filter(|other| reached[*other].contains(module)).cloned().collect()
        };
        let circles: BTreeSet<_> = needs.keys().copied().map(circle).filter(|circle| !circle.is_empty()).collect();
        circles.into_iter().collect()
    }

    /// The needs in a circle.
    fn shown(&self, circle: &BTreeSet<Module>) -> String {
        let needs = self.needs();
        let name = |module: &Module| if module.is_empty() { "the root".to_owned() } else { module.join("::") };
        let of_file = |module| {
            let within = needs[module].iter().filter(|needed| circle.contains(*needed));
            within.map(move |needed| format!("{} needs {}", name(module), name(needed)))
        };
        circle.iter().flat_map(of_file).collect::<Vec<_>>().join(", ")
    }
}

/// The module of that name in a module.
fn below(module: &Module, name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}
