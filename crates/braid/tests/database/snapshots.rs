//! What snapshots promise: everything stays as it was, for as long as they are held and no longer.

use braid::{Database, Durability, Options, Snapshot, Structure, Table};

use crate::whole::directory_of;

fn open(directory: &tempfile::TempDir) -> Database {
    let options =
        Options::new().cache_bytes(1 << 20).write_buffer_bytes(256 << 10).segment_bytes(1 << 20).leaf_pages(2);
    options.durability(Durability::Os).open(directory.path()).expect("opens")
}

fn compact(table: &Table) {
    table.compact().expect("compacts");
}

fn pairs(snapshot: &Snapshot, table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    snapshot.iter(table).collect::<Result<_, _>>().expect("scans")
}

fn all_tables_stay_as_they_were_over_rounds_and_compactions(structure: Structure) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(&directory);
    let tables = ["one", "other"].map(|name| db.table(name, structure).expect("a table"));
    let mut held = Vec::new();
    for generation in 0..12_u8 {
        for table in &tables {
            for key in 0..400_u16 {
                match (key + u16::from(generation)) % 5 {
                    0 => table.delete(key.to_be_bytes()).expect("delete"),
                    // Some are documents.
                    1 if key % 10 == 0 => table.put(key.to_be_bytes(), vec![generation; 3000]).expect("put"),
                    _ => table.put(key.to_be_bytes(), [generation; 40]).expect("put"),
                };
            }
        }
        let now = tables.each_ref().map(|table| table.iter().collect::<Result<Vec<_>, _>>().expect("scans"));
        held.push((db.snapshot(), now));
        match generation % 3 {
            0 => db.drain().expect("drains"),
            1 => db.checkpoint().expect("a checkpoint"),
            _ => tables.iter().for_each(compact),
        }
        if generation % 4 == 3 {
            held.remove(1);
        }
        for (snapshot, then) in &held {
            for (table, then) in tables.iter().zip(then) {
                assert_eq!(&pairs(snapshot, table), then, "generation {generation}, snapshot {:?}", snapshot.seq());
                let keys: Vec<_> = (0..400_u16).map(u16::to_be_bytes).collect();
                let found = snapshot.get_many(table, &keys).expect("get_many");
                let found: Vec<_> =
                    keys.iter().zip(found).filter_map(|(key, value)| Some((key.to_vec(), value?))).collect();
                assert_eq!(&found, then);
            }
        }
    }
    let stats = db.stats().expect("stats").snapshots;
    assert_eq!((stats.open, stats.oldest_seq), (held.len() as u64, Some(held[0].0.seq().0)));
    assert!(stats.written_since_oldest_bytes > 0 && stats.oldest_seconds >= 0.0);
    assert_eq!(db.verify().expect("verifies").findings, Vec::<String>::new());
}

fn what_nobody_sees_any_more_goes_with_the_next_rewrite(structure: Structure) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(&directory);
    let table = db.table("table", structure).expect("a table");
    let mut held = Vec::new();
    for generation in 0..8_u8 {
        for key in 0..1000_u16 {
            table.put(key.to_be_bytes(), [generation; 50]).expect("put");
        }
        held.push(db.snapshot());
        db.drain().expect("drains");
    }
    compact(&table);
    let entries = || table.stats().expect("stats").entries;
    assert_eq!(entries(), 8000, "each version is seen by one snapshot");
    held.truncate(3);
    compact(&table);
    assert_eq!(entries(), 4000, "those of three snapshots, and the newest");
    held.clear();
    compact(&table);
    assert_eq!(entries(), 1000);
    assert_eq!(db.stats().expect("stats").snapshots.open, 0);
}

fn a_key_may_have_more_versions_than_a_leaf_holds(structure: Structure) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(&directory);
    let table = db.table("table", structure).expect("a table");
    let mut held = Vec::new();
    for number in 0..1000_u32 {
        table.put("hot", [number.to_be_bytes().as_slice(), &[0; 100]].concat()).expect("put");
        table.put(number.to_be_bytes(), "").expect("put");
        held.push(db.snapshot());
        if number % 100 == 99 {
            db.drain().expect("drains");
        }
    }
    for (number, snapshot) in (0..1000_u32).zip(&held) {
        let value = snapshot.get(&table, "hot").expect("get").expect("there");
        assert_eq!(value[..4], number.to_be_bytes());
        assert_eq!(snapshot.range::<&[u8]>(&table, ..).count(), number as usize + 2);
    }
}

fn a_range_goes_on_after_its_snapshot_was_dropped(structure: Structure) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(&directory);
    let table = db.table("table", structure).expect("a table");
    for key in 0..500_u16 {
        table.put(key.to_be_bytes(), "then").expect("put");
    }
    let snapshot = db.snapshot();
    let mut range = snapshot.prefix(&table, []).rev();
    drop(snapshot);
    for key in 0..500_u16 {
        table.put(key.to_be_bytes(), "now").expect("put");
    }
    db.drain().expect("drains");
    assert_eq!(db.stats().expect("stats").snapshots.open, 1);
    assert!(range.by_ref().all(|pair| pair.expect("reads").1 == b"then"));
    drop(range);
    assert_eq!(db.stats().expect("stats").snapshots.open, 0);
}

fn tables_that_came_later_are_empty_and_those_that_went_are_there(structure: Structure) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(&directory);
    let gone = db.table("gone", structure).expect("a table");
    gone.put("k", "v").expect("put");
    let snapshot = db.snapshot();
    let later = db.table("later", structure).expect("a table");
    later.put("k", "v").expect("put");
    assert_eq!(snapshot.get(&later, "k").expect("get"), None);
    for number in 0..2000_u32 {
        gone.put(number.to_be_bytes(), [1; 200]).expect("put");
    }
    let full = db.snapshot();
    db.drop_table("gone").expect("dropped");
    let after = db.snapshot();
    let again = db.table("gone", structure).expect("another table");
    again.put("k", "other").expect("put");
    for _ in 0..3 {
        db.checkpoint().expect("a checkpoint");
        assert_eq!(snapshot.get(&gone, "k").expect("get").as_deref(), Some(&b"v"[..]));
        assert_eq!(pairs(&snapshot, &gone).len(), 1);
        assert_eq!(pairs(&full, &gone).len(), 2001);
        let error = after.get(&gone, "k").expect_err("dropped before");
        assert!(error.to_string().contains("gone"), "{error}");
        assert!(gone.get("k").is_err());
        assert_eq!(snapshot.get(&again, "k").expect("get"), None);
    }
    let used = || match structure {
        Structure::BTree => db.stats().map(|stats| stats.space.total_pages - stats.space.free_pages).expect("stats"),
        _ => std::fs::read_dir(directory.path().join(directory_of(structure))).expect("lists").count() as u64,
    };
    let held = used();
    drop((snapshot, full));
    db.checkpoint().expect("a checkpoint");
    let error = after.get(&gone, "k").expect_err("dropped before");
    assert!(error.to_string().contains("gone"), "{error}");
    assert!(used() < held, "{held} pages or files, and now {}", used());
    assert_eq!(db.verify().expect("verifies").findings, Vec::<String>::new());
}

on_every_structure!(
    all_tables_stay_as_they_were_over_rounds_and_compactions,
    what_nobody_sees_any_more_goes_with_the_next_rewrite,
    a_key_may_have_more_versions_than_a_leaf_holds,
    a_range_goes_on_after_its_snapshot_was_dropped,
    tables_that_came_later_are_empty_and_those_that_went_are_there,
);
