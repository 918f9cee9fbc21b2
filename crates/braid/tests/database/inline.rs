//! Tables that choose which values are stored beside their keys.

use std::{collections::BTreeMap, path::Path};

use braid::{Database, Error, Options, Structure, Table, TableOptions, WriteBatch};
use psync::sim::SimDisk;

use crate::{
    values::value,
    whole::{check_whole, content},
};

fn open(disk: &SimDisk) -> Database {
    let options = Options::new().background(false).cache_bytes(1 << 20).write_buffer_bytes(1 << 20);
    options.segment_bytes(1 << 20).leaf_pages(1).open_on(disk.psync(), Path::new("/db")).expect("opens")
}

fn table(db: &Database, structure: Structure, bytes: u16) -> Table {
    db.table_with("t", structure, &TableOptions::new().inline_bytes(bytes)).expect("a table")
}

fn documents(table: &Table) -> u64 {
    table.stats().expect("stats").document_live_bytes
}

fn limits(structure: Structure) -> [u16; 4] {
    let most = u16::try_from(structure.inline_bytes_max()).expect("a few KiB");
    [0, 100, most - 1, most]
}

fn the_limit_decides_and_stays_with_the_table(structure: Structure) {
    for limit in limits(structure) {
        let disk = SimDisk::new(1);
        let db = open(&disk);
        let t = table(&db, structure, limit);
        let mut expected = BTreeMap::new();
        for number in 0..40_u8 {
            expected.insert(number.to_be_bytes().to_vec(), value(number, limit.into()));
        }
        let put_all = |t: &Table, of: &BTreeMap<Vec<u8>, Vec<u8>>| {
            for (key, value) in of {
                t.put(key, value).expect("put");
            }
        };
        put_all(&t, &expected);
        db.checkpoint().expect("a checkpoint");
        assert_eq!(documents(&t), 0, "{structure} {limit}: all are beside their keys");
        assert_eq!(content(&t), expected);
        // One byte more, in many commits, in one, and in a crash.
        let long = value(99, usize::from(limit) + 1);
        t.put("one", &long).expect("put");
        let mut batch = WriteBatch::new();
        (0..40).for_each(|number| batch.put(&t, format!("many {number}"), &long));
        db.write(&batch).expect("writes");
        expected.insert(b"one".to_vec(), long.clone());
        expected.extend((0..40).map(|number| (format!("many {number}").into_bytes(), long.clone())));
        drop((t, db));
        disk.restart();
        let db = open(&disk);
        let t = db.open_table("t").expect("there");
        assert_eq!(t.settings().inline_bytes, Some(limit));
        db.checkpoint().expect("a checkpoint");
        let bytes = documents(&t);
        assert!(bytes >= 41 * long.len() as u64, "{structure} {limit}: {bytes} bytes of documents");
        assert_eq!(content(&t), expected);
        for (key, value) in &expected {
            assert_eq!(t.get(key).expect("reads").as_ref(), Some(value));
        }
        check_whole(&db);
    }
}

fn a_load_and_an_overwriting_writer_keep_to_the_limit(structure: Structure) {
    for limit in limits(structure) {
        let disk = SimDisk::new(2);
        let db = open(&disk);
        let t = table(&db, structure, limit);
        let mut expected = BTreeMap::new();
        let mut loader = t.loader().expect("loads");
        for number in 0..200_u8 {
            let length = usize::from(limit) + usize::from(number % 3 == 0);
            let (key, value) = (number.to_be_bytes().to_vec(), value(number, length));
            loader.push(&key, &value).expect("a pair");
            expected.insert(key, value);
        }
        loader.finish().expect("loaded");
        let is_long = |value: &&Vec<u8>| value.len() > limit.into();
        let long: u64 = expected.values().filter(is_long).map(|value| value.len() as u64).sum();
        let bytes = documents(&t);
        assert!((long..long + 100 * 80).contains(&bytes), "{structure} {limit}: {bytes} bytes, {long} in long values");
        assert_eq!(content(&t), expected);
        for round in 0..3 {
            for (number, (key, held)) in expected.iter_mut().enumerate() {
                *held = value(round, usize::from(limit) + usize::from(number % 2 == 0));
                t.put(key, &*held).expect("put");
            }
            db.drain().expect("applies");
        }
        assert_eq!(content(&t), expected);
        db.compact().expect("compacts");
        assert_eq!(content(&t), expected);
        check_whole(&db);
    }
}

fn a_limit_beyond_the_structures_is_refused(structure: Structure) {
    let db = open(&SimDisk::new(3));
    let beyond = u16::try_from(structure.inline_bytes_max() + 1).expect("a few KiB");
    let error = db.table_with("t", structure, &TableOptions::new().inline_bytes(beyond)).expect_err("too many");
    assert!(matches!(error, Error::Option { option: "inline_bytes", .. }), "{error}");
    assert!(error.to_string().contains(&structure.inline_bytes_max().to_string()), "{error}");
    assert!(db.tables().is_empty());
}

on_every_structure!(
    the_limit_decides_and_stays_with_the_table,
    a_load_and_an_overwriting_writer_keep_to_the_limit,
    a_limit_beyond_the_structures_is_refused,
);
