//! Arrows point down: no folder of `src` names one that stands above it, and nobody names what the crate's root shows.

#[expect(dead_code, reason = "the floors need paths alone")]
#[path = "common/sources.rs"]
mod sources;

use std::{
    fs,
    path::{Path, PathBuf},
};

use sources::Source;

/// The folders, from the ground up.
const FLOORS: [&str; 18] = [
    "words",
    "opq",
    "error",
    "format",
    "options",
    "root",
    "structures",
    "tables",
    "engine",
    "read",
    "verify",
    "commit",
    "apply",
    "upkeep",
    "open",
    "handles",
    "backup",
    "salvage",
];

/// Of the roof, and of what stands on it for fuzzing, nothing is asked.
const ROOF: [&str; 2] = ["lib.rs", "fuzzing.rs"];

#[test]
fn no_folder_names_one_above_it() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for entry in fs::read_dir(&source).expect("the sources") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        match FLOORS.iter().position(|floor| *floor == name) {
            Some(floor) => files_in(&path).iter().for_each(|file| wrong.extend(wrong_in(file, floor))),
            None if ROOF.contains(&name.as_str()) => {}
            None => wrong.push(format!("{name} has no floor")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_arrow_up_is_seen() {
    assert_eq!(floors_named("use crate::{engine::{self, Engine}, words};\n// crate::handles\n"), ["engine", "words"]);
    assert_eq!(
        floors_named("fn f() -> crate::handles::Table {}\n#[cfg(test)]\nmod tests { use crate::salvage::x; }"),
        ["handles"]
    );
    assert_eq!(floors_named("use crate::Error;\npub(crate) use crate::opq::Opq;"), ["Error", "opq"]);
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files.extend(files_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// What is wrong in a file of that floor.
fn wrong_in(file: &Path, floor: usize) -> Vec<String> {
    let tells = |named: String| match FLOORS.iter().position(|other| *other == named) {
        Some(other) if other <= floor => None,
        Some(_) => Some(format!("{} names `{named}`, which stands above it", file.display())),
        None => Some(format!("{} takes `{named}` from the root of the crate", file.display())),
    };
    floors_named(&fs::read_to_string(file).expect("a source")).into_iter().filter_map(tells).collect()
}

/// What comes first behind `crate::` in each path, in groups of paths too; each once.
fn floors_named(text: &str) -> Vec<String> {
    let source = Source::of(text);
    let imports = source.imports.iter().map(|import| &import.path);
    let mut named = Vec::new();
    for path in imports.chain(&source.paths) {
        if let [root, name, ..] = path.as_slice()
            && root == "crate"
            && !named.contains(name)
        {
            named.push(name.clone());
        }
    }
    named
}
