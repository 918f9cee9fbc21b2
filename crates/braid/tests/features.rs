//! Builds with some of the features, or none: `make features` runs these tests with every combination.
//!
//! A database opens, and is written to, with each of them. What a build cannot do it refuses in words, and a build
//! without features has few dependencies and needs no C compiler.

#[path = "common/archive.rs"]
mod archive;

use std::{collections::BTreeSet, path::Path, process::Command};

use braid::{Compression, Database, Error, ErrorKind, Options, Structure, Table, TableOptions};

/// Most foreign crates that a build without features may need.
const FOREIGN_CRATES_MAX: usize = 29;

/// Crates that run a C compiler or an assembler when they are built, or for a crate that does.
const COMPILERS: [&str; 7] = ["bindgen", "cc", "cmake", "nasm-rs", "pkg-config", "psm", "zstd-sys"];

/// The archive with a table for each compression, made by a build with both codecs.
const ARCHIVE: &str = "compressed";

fn open(path: &Path) -> Database {
    let options = Options::new().background(false).cache_bytes(1 << 20).write_buffer_bytes(4 << 20);
    options.segment_bytes(1 << 20).leaf_pages(1).open(path).expect("opens")
}

/// A value that every codec makes smaller.
fn long(number: u32) -> Vec<u8> {
    format!("{number} bottles of beer on the wall, ").repeat(150).into_bytes()
}

fn compressed(compression: Compression) -> TableOptions {
    TableOptions::new().compression(compression)
}

/// Writes values that are stored apart, and one that is not.
fn fill(table: &Table) {
    for number in 0..20_u32 {
        table.put(number.to_be_bytes(), long(number)).expect("put");
    }
    table.put("short", "value").expect("put");
}

#[test]
fn a_build_writes_and_reads_with_its_codecs_and_names_the_feature_of_others() {
    for (structure, compression) in
        Structure::ALL.iter().flat_map(|structure| Compression::ALL.map(|compression| (*structure, compression)))
    {
        let directory = tempfile::tempdir().expect("a directory");
        let db = open(directory.path());
        let made = db.table_with("t", structure, &compressed(compression));
        if !compression.is_built() {
            let error = made.expect_err("not in this build");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let feature = format!("build with feature `{compression}` of crate `braid`");
            assert!(error.to_string().contains(&feature), "{error}");
            assert!(db.tables().is_empty());
            continue;
        }
        fill(&made.expect("a table"));
        db.close().expect("closes");
        let db = open(directory.path());
        let table = db.open_table("t").expect("a table");
        for number in 0..20_u32 {
            assert_eq!(table.get(number.to_be_bytes()).expect("read"), Some(long(number)), "{structure} {compression}");
        }
        assert_eq!(db.verify().expect("verifies").findings, [""; 0]);
        let stored = table.stats().expect("figures").document_live_bytes;
        assert_eq!(stored < 20 * 2000, compression != Compression::None, "{compression}: {stored} bytes");
    }
}

#[test]
#[ignore = "makes the archive, with a build that has both codecs"]
fn make() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(directory.path());
    for compression in Compression::ALL {
        fill(&db.table_with(&compression.to_string(), Structure::BTree, &compressed(compression)).expect("a table"));
    }
    db.close().expect("closes");
    archive::pack(directory.path(), ARCHIVE);
}

#[test]
fn a_database_of_a_build_with_all_codecs_opens_and_tells_what_cannot_be_read() {
    let directory = tempfile::tempdir().expect("a directory");
    archive::unpack(ARCHIVE, directory.path());
    let check = |db: &Database, compression: Compression| {
        let table = db.open_table(&compression.to_string()).expect("a table");
        assert_eq!(table.get("short").expect("read"), Some(b"value".to_vec()));
        assert_eq!(table.iter().keys_only().count(), 21);
        let read = table.get(7_u32.to_be_bytes());
        let all = table.iter().collect::<Result<Vec<_>, _>>();
        if compression.is_built() {
            assert_eq!(read.expect("read"), Some(long(7)));
            assert_eq!(all.expect("read").len(), 21);
            return;
        }
        for error in [read.expect_err("no codec"), all.expect_err("no codec")] {
            assert_eq!(error.kind(), ErrorKind::MissingFeature, "{error}");
            assert!(matches!(&error, Error::MissingFeature { feature, .. } if *feature == compression.to_string()));
            assert!(error.to_string().contains(&format!("build with feature `{compression}`")), "{error}");
        }
    };
    let db = open(directory.path());
    Compression::ALL.into_iter().for_each(|compression| check(&db, compression));
    let findings = db.verify().expect("verifies").findings;
    let missing: Vec<_> = Compression::ALL.into_iter().filter(|compression| !compression.is_built()).collect();
    assert_eq!(findings.len(), missing.len() * 20, "{findings:?}");
    for finding in findings {
        let names = missing.iter().any(|compression| finding.contains(&format!("build with feature `{compression}`")));
        assert!(names, "{finding}");
    }
    // Documents move as they are stored, and new ones are written as this build can.
    for compression in Compression::ALL {
        let table = db.open_table(&compression.to_string()).expect("a table");
        table.put("new", long(1000)).expect("put");
        table.compact().expect("compacted");
        assert_eq!(table.get("new").expect("read"), Some(long(1000)));
        table.delete("new").expect("deleted");
    }
    db.close().expect("closes");
    let db = open(directory.path());
    Compression::ALL.into_iter().for_each(|compression| check(&db, compression));
}

#[cfg(feature = "serde")]
#[test]
fn figures_can_be_serialized() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(directory.path());
    fill(&db.table("t", Structure::BTree).expect("a table"));
    let figures = serde_json::to_value(db.stats().expect("figures")).expect("plain data");
    assert!(figures.is_object(), "{figures}");
}

/// Names of the crates that `braid` is built with, its own ones left out.
fn foreign(arguments: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["tree", "-p", "braid", "--no-default-features", "--prefix", "none", "--locked", "-e"])
        .args(arguments)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.split(' ').next()).filter(|name| !name.is_empty());
    names.filter(|name| *name != "braid" && !name.starts_with("braid-")).map(str::to_owned).collect()
}

#[test]
fn a_build_without_features_has_few_dependencies_and_needs_no_c_compiler() {
    let normal = foreign(&["normal"]);
    assert!(normal.contains("parking_lot"), "{normal:?}");
    assert!(normal.len() <= FOREIGN_CRATES_MAX, "{} foreign crates: {normal:?}", normal.len());
    let compilers = |crates: BTreeSet<String>| COMPILERS.into_iter().filter(|name| crates.contains(*name)).count();
    assert_eq!(compilers(foreign(&["normal,build"])), 0);
    assert_ne!(compilers(foreign(&["normal,build", "--features", "zstd"])), 0, "the list knows those of zstd");
}
