//! Databases that an earlier build has made, in `tests/golden`, one closed and one killed: they open, have what was
//! written, and can be written to.
//!
//! A database is made by [`make`], run in the tree of the build whose format it is to have:
//! `cargo test -p braid --test golden -- --ignored`. Those here are of commit 137c3df.

#[path = "common/archive.rs"]
mod archive;

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use archive::{pack, unpack};
use braid::{Compression, Database, ManualClock, Options, Structure, Table, TableOptions};

const NOW_MILLIS: u64 = 1_800_000_000_000;
const DATABASES: [&str; 2] = ["closed", "killed"];

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// What a database has to have.
struct Expected {
    tables: Vec<(&'static str, Structure, Content)>,
    /// What the second table had at each checkpoint, and at the end. The last two checkpoints are retained.
    states: Vec<Content>,
}

fn open(path: &Path, clock: &ManualClock) -> Database {
    // So long a log that no checkpoint comes but those that are asked for.
    let options = Options::new().background(false).cache_bytes(1 << 20).write_buffer_bytes(4 << 20);
    options.segment_bytes(1 << 20).leaf_pages(1).clock(clock.clone()).open(path).expect("opens")
}

fn key(number: u32) -> Vec<u8> {
    format!("key {number:06}").into_bytes()
}

/// Some values are documents in every structure.
fn value(number: u32, round: u32) -> Vec<u8> {
    let length = if number.is_multiple_of(100) { 5000 } else { 20 + number % 50 };
    (0..length).map(|at| (number.wrapping_mul(31) + round * 7 + at / 9).to_le_bytes()[0]).collect()
}

fn put(table: &Table, content: &mut Content, number: u32, round: u32) {
    table.put(key(number), value(number, round)).expect("put");
    content.insert(key(number), value(number, round));
}

fn delete(table: &Table, content: &mut Content, number: u32) {
    table.delete(key(number)).expect("deleted");
    content.remove(&key(number));
}

/// Fills a new database with all that is stored in a way of its own.
fn fill(db: &Database, clock: &ManualClock) -> Expected {
    let settings = TableOptions::new().compression(Compression::Zstd).history(2);
    let tree = db.table("tree", Structure::BTree).expect("a table");
    let trie = db.table_with("trie", Structure::Append, &settings).expect("a table");
    let mut contents = [Content::new(), Content::new()];
    let mut states = Vec::new();
    for round in 0..3 {
        for (table, content) in [&tree, &trie].into_iter().zip(&mut contents) {
            let step = usize::try_from(round + 1).expect("small");
            (0..1500).step_by(step).for_each(|number| put(table, content, number, round));
            (0..1500).step_by(7).for_each(|number| delete(table, content, number + round));
            let (low, high) = (key(400 + 100 * round), key(450 + 100 * round));
            table.delete_range(low.clone()..high.clone()).expect("deleted");
            content.retain(|key, _| *key < low || *key >= high);
            for number in 2000..2010 {
                table.put_expiring(key(number), value(number, round), Duration::from_secs(3600)).expect("put");
                content.insert(key(number), value(number, round));
                table.put_expiring(key(number + 100), "gone", Duration::from_millis(1)).expect("put");
            }
        }
        clock.advance(Duration::from_millis(1000));
        db.checkpoint().expect("a checkpoint");
        states.push(contents[1].clone());
    }
    db.table("dropped", Structure::Append).expect("a table").put("key", "value").expect("put");
    db.drop_table("dropped").expect("dropped");
    let loaded = db.table("loaded", Structure::Append).expect("a table");
    let mut loader = loaded.loader().expect("a loader");
    let pairs: Content = (0..300).map(|number| (key(number), value(number, 9))).collect();
    pairs.iter().for_each(|(key, value)| loader.push(key, value).expect("takes it"));
    loader.finish().expect("loaded");
    // Waits in the log, and what of it is applied has no checkpoint.
    for (table, content) in [&tree, &trie].into_iter().zip(&mut contents) {
        (0..40).for_each(|number| put(table, content, 10 * number, 5));
        db.drain().expect("applied");
        (0..40).for_each(|number| delete(table, content, 11 * number));
        table.delete_range(key(700)..key(710)).expect("deleted");
        content.retain(|found, _| *found < key(700) || *found >= key(710));
    }
    states.push(contents[1].clone());
    let [of_tree, of_trie] = contents;
    let tables = vec![
        ("tree", Structure::BTree, of_tree),
        ("trie", Structure::Append, of_trie),
        ("loaded", Structure::Append, pairs),
    ];
    Expected { tables, states }
}

#[test]
#[ignore = "makes the databases, with the build whose format they are to have"]
fn make() {
    for name in DATABASES {
        let (directory, clock) = (
            tempfile::tempdir().expect("a directory"),
            ManualClock::new(UNIX_EPOCH + Duration::from_millis(NOW_MILLIS)),
        );
        let db = open(directory.path(), &clock);
        fill(&db, &clock);
        if name == "closed" {
            db.close().expect("closes");
        }
        pack(directory.path(), name);
    }
}

#[test]
fn databases_of_an_earlier_build_have_what_was_written() {
    for name in DATABASES {
        let (made, clock) = (
            tempfile::tempdir().expect("a directory"),
            ManualClock::new(UNIX_EPOCH + Duration::from_millis(NOW_MILLIS)),
        );
        let expected = fill(&open(made.path(), &clock), &clock);
        let directory = tempfile::tempdir().expect("a directory");
        unpack(name, directory.path());
        for life in 0..2 {
            let db = open(directory.path(), &ManualClock::new(UNIX_EPOCH + Duration::from_millis(NOW_MILLIS + 10_000)));
            assert_eq!(db.verify().expect("verifies").findings, [""; 0], "{name}, life {life}");
            let names: Vec<_> = db.tables().into_iter().map(|table| (table.name, table.structure)).collect();
            let mut all: Vec<_> = expected.tables.iter().map(|(name, of, _)| ((*name).to_owned(), *of)).collect();
            all.sort_by(|one, other| one.0.cmp(&other.0));
            assert_eq!(names, all, "{name}, life {life}");
            for (of, _, content) in &expected.tables {
                let table = db.open_table(of).expect("it is there");
                let mut found: Content = table.iter().map(|pair| pair.expect("a pair")).collect();
                assert_eq!(found.remove(&b"new"[..]).is_some(), life > 0);
                assert_eq!(found, *content, "{name}, life {life}, table {of}");
                table.put("new", "value").expect("put");
            }
            if life == 0 {
                let trie = db.open_table("trie").expect("it is there");
                let states: Vec<Content> = trie
                    .history()
                    .iter()
                    .map(|state| trie.at(state.seq).expect("opens").iter().map(|pair| pair.expect("a pair")).collect())
                    .collect();
                // A close of a table that retains states makes one.
                let last = if name == "closed" { 3 } else { 2 };
                assert_eq!(states, expected.states[last - 1..=last], "{name}");
            }
            db.close().expect("closes");
        }
    }
}
