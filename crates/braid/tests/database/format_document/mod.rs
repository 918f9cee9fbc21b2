//! docs/format.md is true: a database is made, and every byte of it is decoded with nothing but the tables of the
//! document.
//!
//! 1. [`made`] makes a database on a simulated disk, with everything in it that has a table in the document, and takes
//!    its files.
//! 2. [`check`] decodes them from the superblock down to keys, values and documents, and holds what it finds against
//!    what was written.
//! 3. The document is then made wrong, one row at a time, and the check has to notice.

mod backup;
mod check;
mod document;
mod log;
mod made;
mod runs;
mod tree;

use document::{Document, Size};

const TEXT: &str = include_str!("../../../../../docs/format.md");

#[test]
fn the_document_decodes_a_database() {
    let document = Document::parse(TEXT).expect("the document's tables");
    let made = made::make();
    check::check(&document, &made).expect("the document is true");
    let used = check::layouts();
    let documented: Vec<&str> = document.layouts.keys().map(String::as_str).collect();
    assert_eq!(documented, used, "every table is checked, and only they");
}

#[test]
fn every_wrong_size_is_noticed() {
    let document = Document::parse(TEXT).expect("the document's tables");
    let made = made::make();
    let mut missed = Vec::new();
    for (layout, rows) in &document.layouts {
        for (index, row) in rows.iter().enumerate() {
            let Size::Bytes(bytes) = row.size else { continue };
            for other in [bytes + 1, bytes - 1] {
                let mut wrong = document.clone();
                let rows = wrong.layouts.get_mut(layout).expect("it is there");
                rows[index].size = Size::Bytes(other);
                // The offsets that follow agree with it: the document is wrong, but not in contradiction to itself.
                for later in &mut rows[index + 1..] {
                    later.offset = later.offset.map(|offset| offset + other - bytes);
                }
                if check::check(&wrong, &made).is_ok() {
                    missed.push(format!("{layout}: {} of {other} bytes", row.field));
                }
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn every_wrong_offset_is_noticed() {
    let document = Document::parse(TEXT).expect("the document's tables");
    let made = made::make();
    for (layout, rows) in &document.layouts {
        for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.offset.is_some()) {
            let mut wrong = document.clone();
            wrong.layouts.get_mut(layout).expect("it is there")[index].offset = row.offset.map(|offset| offset + 4);
            assert!(check::check(&wrong, &made).is_err(), "{layout}: {}", row.field);
        }
    }
}

#[test]
fn fields_in_the_wrong_order_are_noticed() {
    let document = Document::parse(TEXT).expect("the document's tables");
    let made = made::make();
    let mut missed = Vec::new();
    for (layout, rows) in &document.layouts {
        for (index, pair) in rows.windows(2).enumerate() {
            if pair[0].size != pair[1].size {
                continue;
            }
            let mut wrong = document.clone();
            let rows = wrong.layouts.get_mut(layout).expect("it is there");
            rows[index].field.clone_from(&pair[1].field);
            rows[index + 1].field.clone_from(&pair[0].field);
            if check::check(&wrong, &made).is_ok() {
                missed.push(format!("{layout}: {} before {}", pair[1].field, pair[0].field));
            }
        }
    }
    // Fields that have the same value: types and versions are 1, and the positions are the end of the log when nobody
    // commits while a
    // checkpoint is written.
    let alike = [
        "checkpoint image: log start before flush ends below",
        "checkpoint image: log durable before log start",
        "document: type before version",
        "log segment header: version before type",
    ];
    assert_eq!(missed, alike);
}

#[test]
fn a_directory_holds_the_files_of_the_document() {
    let names = |path: &std::path::Path| -> Vec<String> {
        let entries = std::fs::read_dir(path).expect("lists").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort();
        names
    };
    let directory = tempfile::tempdir().expect("a directory");
    let db = braid::Options::new().segment_bytes(64 << 10).open(directory.path()).expect("opens");
    let table = db.table("table", braid::Structure::BTree).expect("the table opens");
    table.put("key", vec![7; 5000]).expect("writes");
    let lock = directory.path().join("LOCK");
    let holder = std::fs::read_to_string(&lock).expect("reads");
    assert_eq!(holder, format!("{}\n", std::process::id()));
    assert_eq!(names(directory.path()), ["LOCK", "data", "doc", "reserve", "superblock", "wal"]);
    assert_eq!(names(&directory.path().join("doc")), ["1-1.doc"]);
    assert!(names(&directory.path().join("wal")).iter().all(|name| name.ends_with(".log")));
    let known = ["LOCK", "data", "device.json", "device.learned", "doc/<table>-<segment>.doc", "reserve", "superblock"];
    for name in known.into_iter().chain(["wal/<index>.log"]) {
        assert!(TEXT.contains(&format!("\n| `{name}` |")), "{name} has no row");
    }
    drop(table);
    db.close().expect("closes");
    assert_eq!(std::fs::read_to_string(&lock).expect("reads"), "");
}
