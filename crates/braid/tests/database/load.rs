//! Loads: what was loaded is there as if it had been put; misuse is refused; a load that does not end leaves nothing
//! behind.

use std::path::Path;

use braid::{Database, Durability, Error, ErrorKind, Options, Structure, Table, WriteBatch};
use proptest::prelude::*;
use psync::sim::SimDisk;

use crate::whole::{Content, check_whole, content, directory_of, figure, leaves};

fn options(leaf_pages: u32) -> Options {
    Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(64 << 10)
        .segment_bytes(64 << 10)
        .leaf_pages(leaf_pages)
}

fn open(disk: &SimDisk, leaf_pages: u32) -> braid::Result<Database> {
    options(leaf_pages).open_on(disk.psync(), Path::new("/db"))
}

fn fresh(structure: Structure, leaf_pages: u32) -> (SimDisk, Database, Table) {
    let disk = SimDisk::new(u64::from(leaf_pages));
    let db = open(&disk, leaf_pages).expect("opens");
    let table = db.table("loaded", structure).expect("created");
    (disk, db, table)
}

fn pairs(count: u32, value_bytes: usize) -> Content {
    (0..count).map(|number| (number.to_be_bytes().to_vec(), vec![number.to_le_bytes()[0]; value_bytes])).collect()
}

/// Pairs of which every seventh has a document.
fn mixed(count: u32) -> Content {
    let bytes = |number: u32| if number.is_multiple_of(7) { 2049 + number as usize } else { 30 };
    let value = |number: u32| vec![number.to_le_bytes()[0]; bytes(number)];
    (0..count).map(|number| (number.to_be_bytes().to_vec(), value(number))).collect()
}

/// Nothing is logged behind the mark of a clean close.
fn a_load_that_would_end_behind_the_close_is_refused(structure: Structure) {
    for count in [0, 1, 5000] {
        let (disk, db, table) = fresh(structure, 1);
        let mut loader = table.loader().expect("begins");
        for (key, value) in pairs(count, 20) {
            loader.push(key, value).expect("in order");
        }
        db.close().expect("closes");
        let operations = disk.operations();
        assert!(matches!(loader.finish(), Err(Error::Closed)), "{count} pairs");
        assert_eq!(disk.operations(), operations, "{count} pairs");
        drop(table);
        let db = open(&disk, 1).expect("opens");
        assert_eq!(content(&db.open_table("loaded").expect("it is there")), Content::new());
        check_whole(&db);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_was_loaded_is_there(
        keys in prop::collection::btree_set(prop::collection::vec(any::<u8>(), 1..40), 0..1500),
        long_keys in prop::collection::btree_set(prop::collection::vec(0..3_u8, 900..1025), 0..40),
        lengths in prop::collection::vec(prop_oneof![8 => 0..60_usize, 2 => 0..2049_usize, 1 => 2049..9000_usize], 1..50),
        structure in prop::sample::select(Structure::ALL), leaf_pages in 1..20_u32, updates in prop::collection::btree_map(prop::collection::vec(any::<u8>(), 1..4), prop::option::of(0..3000_usize), 0..60),
    ) {
        let (disk, db, table) = fresh(structure, leaf_pages);
        let mut model: Content = keys.into_iter().chain(long_keys).zip(lengths.iter().cycle())
            .map(|(key, &length)| { let value = vec![key[0]; length]; (key, value) })
            .collect();
        prop_assert_eq!(table.load(&model).expect("loads"), model.len() as u64);
        prop_assert_eq!(&content(&table), &model);
        check_whole(&db);
        // It goes on as any table does.
        let mut batch = WriteBatch::new();
        for (key, value) in updates {
            match value {
                Some(length) => {
                    batch.put(&table, &key, vec![9; length]);
                    model.insert(key, vec![9; length]);
                }
                None => {
                    batch.delete(&table, &key);
                    model.remove(&key);
                }
            }
        }
        db.write(&batch).expect("writes");
        db.drain().expect("applies");
        prop_assert_eq!(&content(&table), &model);
        check_whole(&db);
        drop((table, db));
        disk.kill();
        let db = open(&disk, leaf_pages).expect("opens again");
        prop_assert_eq!(&content(&db.open_table("loaded").expect("there")), &model);
        check_whole(&db);
    }
}

#[test]
fn leaves_are_packed_and_lie_in_key_order() {
    for leaf_pages in [1, 4, 16, 64] {
        let (disk, db, table) = fresh(Structure::BTree, leaf_pages);
        table.load(pairs(60_000, 8)).expect("loads");
        let stats = table.stats().expect("stats");
        let (leaves, nodes) = (leaves(&stats), figure(&stats, "internal nodes"));
        let fill = stats.entry_bytes as f64 / stats.stored_bytes as f64;
        assert!((0.91..0.95).contains(&fill) || leaves < 10, "{leaf_pages} pages a leaf: {fill}");
        assert_eq!(stats.stored_bytes, leaves * u64::from(leaf_pages) * 4096);
        db.checkpoint().expect("checkpoint");
        let free = db.stats().expect("stats").space;
        assert!(nodes * 8 <= leaves + 40, "{nodes} nodes for {leaves} leaves");
        assert!(free.total_pages - free.free_pages < stats.stored_bytes / 4096 + nodes + 10);
        drop(disk);
    }
}

fn room_for_what_gives_space_back_is_kept_before_a_load_takes_it(structure: Structure) {
    let (disk, _db, table) = fresh(structure, 2);
    let mut loader = table.loader().expect("begins");
    let kept = || disk.read_file("/db/reserve").map_or(0, |file| file.len());
    let before = kept();
    // It does not wait for others, and no node comes with it.
    loader.push("key", vec![1; 5 << 20]).expect("a document");
    assert!(kept() >= before + (64 << 10), "{} bytes, and {before} before", kept());
}

fn misuse_is_refused_and_named(structure: Structure) {
    let (_disk, db, table) = fresh(structure, 2);
    let mut loader = table.loader().expect("begins");
    loader.push("b", "1").expect("the first");
    for (key, place) in [("a", 2), ("b", 2)] {
        match loader.push(key, "2") {
            Err(Error::LoadOrder { pair, before, .. }) => assert_eq!((pair, before.as_str()), (place, "b")),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(loader.push("", "x"), Err(Error::KeyLength { .. })));
    assert!(matches!(
        loader.push(vec![b'c'; Structure::Append.key_bytes_max() + 1], "x"),
        Err(Error::KeyLength { .. })
    ));
    loader.push("c", vec![0; 5000]).expect("a document");
    assert!(matches!(loader.push("bb", "2"), Err(Error::LoadOrder { pair: 3, .. })));
    // Nobody else may change the table meanwhile, and everybody may read it.
    let second = table.loader().expect_err("one at a time");
    assert!(matches!(second, Error::Loading { .. }) && second.is_retryable(), "{second}");
    assert!(matches!(table.put("z", "1"), Err(Error::Loading { .. })));
    assert!(matches!(db.drop_table("loaded"), Err(Error::Loading { .. })));
    assert_eq!(table.get("b").expect("reads"), None);
    db.checkpoint().expect("a checkpoint");
    check_whole(&db);
    assert_eq!(loader.finish().expect("ends"), 2);
    assert_eq!(table.get("b").expect("reads").as_deref(), Some(&b"1"[..]));
    table.put("z", "1").expect("writes go on");
    let error = table.loader().expect_err("not empty");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(matches!(error, Error::NotEmpty { .. }));
    check_whole(&db);
}

fn a_load_that_is_given_up_leaves_nothing_behind(structure: Structure) {
    let (_disk, db, table) = fresh(structure, 4);
    db.checkpoint().expect("a checkpoint");
    let used = |db: &Database| {
        let space = db.stats().expect("stats").space;
        space.total_pages - space.free_pages - space.retired_pages
    };
    let before = used(&db);
    for end in 0..3 {
        let mut loader = table.loader().expect("begins");
        for (key, value) in mixed(3000) {
            loader.push(key, value).expect("taken");
        }
        if end == 1 {
            db.checkpoint().expect("a checkpoint");
            check_whole(&db);
        }
        drop(loader);
        assert_eq!(used(&db), before);
        check_whole(&db);
        assert!(content(&table).is_empty());
    }
    db.checkpoint().expect("a checkpoint");
    db.checkpoint().expect("a checkpoint");
    let stats = table.stats().expect("stats");
    assert!(stats.document_segments <= 1 && stats.document_live_bytes == 0, "{stats:?}");
    assert_eq!(table.load(mixed(3000)).expect("loads"), 3000);
    assert_eq!(content(&table), mixed(3000));
}

fn an_iterator_out_of_order_leaves_the_table_empty(structure: Structure) {
    let (_disk, db, table) = fresh(structure, 1);
    let error = table.load([("a", "1"), ("c", "2"), ("b", "3")]).expect_err("out of order");
    assert!(error.to_string().starts_with("pair 3 of the load"), "{error}");
    assert!(content(&table).is_empty());
    table.put("a", "1").expect("writes go on");
    check_whole(&db);
}

/// A load with commits to another table around it; the power goes after `operations`.
fn load_until(structure: Structure, disk: &SimDisk, operations: u64, expected: &Content) -> (u64, bool) {
    let mut done = (0, false);
    let mut run = || -> braid::Result<()> {
        let db = open(disk, 2)?;
        let (table, other) = (db.table("loaded", structure)?, db.table("other", structure)?);
        // So that the load finds pages that were given up, and not only fresh ones.
        for round in 0..30_u64 {
            for key in 0..40_u64 {
                other.put_with((key * 7919 % 1000).to_be_bytes(), [round.to_le_bytes()[0]; 150], Durability::Os)?;
            }
        }
        disk.crash_after(operations);
        let mut loader = table.loader()?;
        for (number, (key, value)) in expected.iter().enumerate() {
            loader.push(key, value)?;
            if number % 100 == 0 {
                other.put("number", (number as u64).to_be_bytes())?;
                done.0 = number as u64;
            }
            if number % 400 == 200 {
                db.checkpoint()?;
            }
        }
        loader.finish()?;
        done.1 = true;
        table.put("later", "1")?;
        db.checkpoint()?;
        db.close()
    };
    let outcome = run();
    assert!(outcome.is_ok() || disk.is_crashed(), "{outcome:?}");
    done
}

fn a_crash_at_any_step_leaves_all_or_nothing(structure: Structure) {
    let expected = mixed(900);
    let (mut operations, mut step) = (0, 1);
    let (mut nothing, mut all) = (0, 0);
    loop {
        let disk = SimDisk::new(operations);
        let (number, ended) = load_until(structure, &disk, operations, &expected);
        let crashed = disk.is_crashed();
        disk.restart();
        let db = open(&disk, 2).expect("opens after a crash");
        let table = db.open_table("loaded").expect("there");
        let mut found = content(&table);
        let later = found.remove(b"later".as_slice());
        assert!(found.is_empty() || found == expected, "{operations}: {} of {}", found.len(), expected.len());
        assert!(!ended || found == expected, "{operations}: an acknowledged load is lost");
        assert!(later.is_none() || found == expected, "{operations}: what came later is there without the load");
        let other = db.open_table("other").expect("there").get("number").expect("reads");
        let other = other.map_or(0, |value| u64::from_be_bytes(value.try_into().expect("eight bytes")));
        assert!(other >= number, "{operations}: a commit during the load is lost");
        check_whole(&db);
        nothing += u32::from(found.is_empty());
        all += u32::from(found == expected);
        db.checkpoint().expect("a checkpoint");
        check_whole(&db);
        if found.is_empty() {
            assert_eq!(table.load(&expected).expect("loads again"), 900);
            check_whole(&db);
        }
        assert_eq!(table.get([0, 0, 0, 7]).expect("reads").as_ref(), expected.get([0, 0, 0, 7].as_slice()));
        if !crashed {
            break;
        }
        operations += step;
        // Steps of one around the end, where it counts.
        step = if operations < 40 { 3 } else { 1 };
    }
    assert!(nothing > 10 && all > 3, "{nothing} and {all}");
}

fn a_long_load_is_durable_in_all_of_its_files(structure: Structure) {
    // Far more segments than stay open, those of documents with one that has a segment of its own among them.
    let expected: Content = (0..60_000_u32)
        .map(|number| {
            let bytes = if number % 20 == 0 { 3000 } else { 120 };
            let bytes = if number == 31_000 { 100_000 } else { bytes };
            (number.to_be_bytes().to_vec(), vec![number.to_le_bytes()[0]; bytes])
        })
        .collect();
    let (disk, db, table) = fresh(structure, 4);
    assert_eq!(table.load(&expected).expect("loads"), 60_000);
    drop((table, db));
    let files = |suffix: &str| disk.files().iter().filter(|file| file.extension().is_some_and(|s| s == suffix)).count();
    assert!(files("doc") > 100 && (structure == Structure::BTree || files(directory_of(structure)) > 100));
    disk.restart();
    let db = open(&disk, 4).expect("opens after a crash");
    assert!(content(&db.open_table("loaded").expect("there")) == expected, "something is lost");
    check_whole(&db);
}

#[test]
fn pages_that_were_just_given_up_are_not_written_before_the_log_says_so() {
    let expected = pairs(20_000, 40);
    for operations in 0..30 {
        let disk = SimDisk::new(operations);
        let mut model = Content::new();
        let run = |model: &mut Content| -> braid::Result<()> {
            let db = open(&disk, 1)?;
            let (table, other) = (db.table("loaded", Structure::BTree)?, db.table("other", Structure::BTree)?);
            *model = pairs(4000, 400);
            other.load(&*model)?;
            db.checkpoint()?;
            let gone: Vec<_> = model.keys().take(400).cloned().collect();
            let mut batch = WriteBatch::new();
            gone.iter().for_each(|key| batch.delete(&other, key));
            db.write(&batch)?;
            gone.iter().for_each(|key| drop(model.remove(key)));
            // What waits is applied when the load begins: that gives a run of pages up, and its flush-end is not
            // flushed yet.
            let mut loader = table.loader()?;
            disk.crash_after(operations);
            expected.iter().try_for_each(|(key, value)| loader.push(key, value))
        };
        let outcome = run(&mut model);
        assert!(outcome.is_ok() || disk.is_crashed(), "{outcome:?}");
        disk.restart();
        let db = open(&disk, 1).expect("opens after a crash");
        assert_eq!(content(&db.open_table("other").expect("there")), model, "{operations}");
        check_whole(&db);
    }
}

fn a_full_disk_ends_a_load_and_nothing_else(structure: Structure) {
    for (count, long) in [(200_000, false), (20_000, true)] {
        let (disk, db, table) = fresh(structure, 4);
        let other = db.table("other", structure).expect("created");
        other.put("a", "1").expect("put");
        disk.set_capacity(Some(6 << 20));
        let error = if long { table.load(mixed(count)) } else { table.load(pairs(count, 40)) };
        let error = error.expect_err("a full disk");
        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
        assert!(content(&table).is_empty());
        check_whole(&db);
        other.put("a", "2").expect("writes go on");
        table.put("a", "1").expect("also here");
        db.checkpoint().expect("a checkpoint");
        check_whole(&db);
    }
}

/// Loads log next to nothing, so they could fill the disk while the log is shorter than a segment.
fn deletes_go_on_where_loads_have_filled_the_disk(structure: Structure) {
    let disk = SimDisk::new(1);
    let options = options(1).segment_bytes(1 << 20);
    let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
    disk.set_capacity(Some(24 << 20));
    let keys = 10_000_u32;
    for number in 0.. {
        let table = db.table(&format!("{number}"), structure).expect("created");
        if table.load(pairs(5 * keys, 40)).is_err() {
            assert!(number > 1, "there was room for two");
            break;
        }
    }
    // Nobody else leaves anything of the disk either.
    let used = disk.files().iter().filter_map(|file| disk.read_file(file)).map(|file| file.len() as u64).sum();
    disk.set_capacity(Some(used));
    let table = db.open_table("0").expect("it was loaded");
    for key in 0..keys {
        table.delete_with(key.to_be_bytes(), Durability::Os).expect("deletes go on");
    }
    db.checkpoint().expect("they are applied");
    assert_eq!(content(&table).len(), usize::try_from(4 * keys).expect("small"));
    table.put([1], [1]).expect("and there is room again");
    check_whole(&db);
}

fn a_failed_write_ends_the_load_and_all_writing(structure: Structure) {
    let (disk, db, table) = fresh(structure, 4);
    let mut loader = table.loader().expect("begins");
    disk.fail_operation(psync::sim::Fault::Write, 3, 5);
    let failed = pairs(100_000, 40).iter().try_for_each(|(key, value)| loader.push(key, value));
    let error = failed.and_then(|()| loader.finish().map(drop)).expect_err("a failed write");
    assert!(matches!(error.kind(), ErrorKind::Io | ErrorKind::Failed), "{error}");
    assert!(content(&table).is_empty());
    assert_eq!(
        db.table("loaded", structure).expect("there").put("a", "1").expect_err("read-only").kind(),
        ErrorKind::Failed
    );
    drop((table, db));
    disk.kill();
    let db = open(&disk, 4).expect("opens again");
    assert!(content(&db.open_table("loaded").expect("there")).is_empty());
    check_whole(&db);
}

on_every_structure!(
    misuse_is_refused_and_named,
    a_load_that_would_end_behind_the_close_is_refused,
    room_for_what_gives_space_back_is_kept_before_a_load_takes_it,
    a_load_that_is_given_up_leaves_nothing_behind,
    an_iterator_out_of_order_leaves_the_table_empty,
    a_crash_at_any_step_leaves_all_or_nothing,
    a_long_load_is_durable_in_all_of_its_files,
    a_full_disk_ends_a_load_and_nothing_else,
    deletes_go_on_where_loads_have_filled_the_disk,
    a_failed_write_ends_the_load_and_all_writing,
);
