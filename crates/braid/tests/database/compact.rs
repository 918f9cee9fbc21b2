//! Compaction: the same content in packed leaves that lie in key order, whatever goes on meanwhile and wherever it
//! ends.

use std::{
    ops::ControlFlow,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use braid::{Compaction, Database, Durability, ErrorKind, Options, Structure, Table, WriteBatch};
use proptest::prelude::*;
use psync::sim::SimDisk;

use crate::whole::{Content, check_whole, content, directory_of, figure, leaves};

fn options(leaf_pages: u32) -> Options {
    Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(128 << 10)
        .segment_bytes(128 << 10)
        .leaf_pages(leaf_pages)
}

fn open(disk: &SimDisk, leaf_pages: u32) -> braid::Result<Database> {
    options(leaf_pages).open_on(disk.psync(), Path::new("/db"))
}

fn fresh(structure: Structure, leaf_pages: u32) -> (SimDisk, Database, Table) {
    let disk = SimDisk::new(u64::from(leaf_pages));
    let db = open(&disk, leaf_pages).expect("opens");
    let table = db.table("t", structure).expect("created");
    (disk, db, table)
}

fn compact(table: &Table) -> Compaction {
    table.compact().expect("compacts")
}

/// A key that is one of `keys`, all over the place.
fn scattered(number: u32, keys: u32) -> Vec<u8> {
    ((number.wrapping_mul(2_654_435_761)) % keys).to_be_bytes().to_vec()
}

/// Puts `count` scattered keys in random order.
fn fill(db: &Database, table: &Table, numbers: std::ops::Range<u32>, value_bytes: usize) -> Content {
    let mut model = Content::new();
    for first in numbers.clone().step_by(200) {
        let mut batch = WriteBatch::new();
        for number in first..(first + 200).min(numbers.end) {
            let (key, value) = (scattered(number, 1_000_000), vec![number.to_le_bytes()[0]; value_bytes]);
            batch.put(table, &key, &value);
            model.insert(key, value);
        }
        db.write_with(&batch, Durability::Os).expect("writes");
    }
    model
}

#[test]
fn leaves_are_packed_and_lie_in_key_order() {
    for leaf_pages in [1, 2, 4, 16] {
        let disk = SimDisk::new(u64::from(leaf_pages));
        // A compaction goes on by an eighth of the write buffer, less a leaf at most: no less than four full ones of a
        // page.
        let options = options(leaf_pages).write_buffer_bytes((160 << 10).max(u64::from(leaf_pages) * (64 << 10)));
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("created");
        let model = fill(&db, &table, 0..20_000.max(leaf_pages * 5_000), 60);
        db.drain().expect("applies");
        let before = table.stats().expect("stats");
        let done = compact(&table);
        let after = table.stats().expect("stats");
        assert!(done.leaves >= leaves(&before) && !done.stopped);
        let fill = after.entry_bytes as f64 / after.stored_bytes as f64;
        assert!(fill > 0.88, "{leaf_pages} pages a leaf: {fill}, {before:?}, {after:?}");
        let steps = before.entry_bytes / (16 << 10) + 2;
        assert!(
            leaves(&after) - figure(&after, "adjacent leaves") <= steps,
            "{leaf_pages} pages a leaf: {after:?}, {steps} steps"
        );
        assert!(leaves(&after) < leaves(&before) && after.entries == model.len() as u64, "{before:?} {after:?}");
        let nodes = |stats| figure(stats, "internal nodes");
        assert!(nodes(&after) <= nodes(&before), "{before:?} {after:?}");
        assert_eq!(content(&table), model);
        check_whole(&db);
        // Again it has nothing to gain, and does no harm.
        compact(&table);
        let again = table.stats().expect("stats");
        assert!(leaves(&again) <= leaves(&after) + 1, "{after:?} {again:?}");
        check_whole(&db);
        drop((table, db));
        disk.restart();
        let db = open(&disk, leaf_pages).expect("opens again");
        assert_eq!(content(&db.open_table("t").expect("there")), model);
        check_whole(&db);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn a_compacted_table_is_the_same_map(
        batches in prop::collection::vec(
            prop::collection::vec((prop::collection::vec(0..5_u8, 1..6), prop::option::weighted(0.7, prop_oneof![9 => 0..300_usize, 1 => 2049..6000_usize])), 1..150),
            1..12),
        structure in prop::sample::select(Structure::ALL), long in 0..900_usize, leaf_pages in 1..9_u32,
    ) {
        let (disk, db, table) = fresh(structure, leaf_pages);
        let mut model = Content::new();
        for (number, changes) in batches.into_iter().enumerate() {
            let mut batch = WriteBatch::new();
            for (mut key, value) in changes {
                key.resize(key.len() + long, 7);
                match value {
                    Some(length) => {
                        let value = vec![number.to_le_bytes()[0]; length];
                        batch.put(&table, &key, &value);
                        model.insert(key, value);
                    }
                    None => {
                        batch.delete(&table, &key);
                        model.remove(&key);
                    }
                }
            }
            db.write(&batch).expect("writes");
            if number % 3 == 1 {
                compact(&table);
                prop_assert_eq!(&content(&table), &model);
                check_whole(&db);
            }
        }
        compact(&table);
        prop_assert_eq!(table.stats().expect("stats").entries, model.len() as u64);
        prop_assert_eq!(&content(&table), &model);
        check_whole(&db);
        drop((table, db));
        disk.kill();
        let db = open(&disk, leaf_pages).expect("opens again");
        prop_assert_eq!(&content(&db.open_table("t").expect("there")), &model);
        check_whole(&db);
    }
}

fn what_mass_deletes_left_is_gone_and_the_table_can_be_loaded(structure: Structure) {
    let (_disk, db, table) = fresh(structure, 2);
    let model = fill(&db, &table, 0..8000, 100);
    for keys in model.keys().collect::<Vec<_>>().chunks(200) {
        let mut batch = WriteBatch::new();
        keys.iter().filter(|key| key[3] % 50 != 0).for_each(|key| batch.delete(&table, key));
        db.write_with(&batch, Durability::Os).expect("writes");
    }
    let left: Content = model.iter().filter(|(key, _)| key[3] % 50 == 0).map(|(k, v)| (k.clone(), v.clone())).collect();
    compact(&table);
    let stats = table.stats().expect("stats");
    assert_eq!(stats.entries, left.len() as u64);
    // Of a trie those leaves are joined that take less than a quarter of a node.
    let leaf_bytes = if structure == Structure::BTree { 7000 } else { 1000 };
    let levels = figure(&stats, "levels");
    assert!(leaves(&stats) <= stats.entry_bytes / leaf_bytes + 2 && levels <= 2, "{stats:?}");
    assert_eq!(content(&table), left);
    let mut batch = WriteBatch::new();
    left.keys().for_each(|key| batch.delete(&table, key));
    db.write(&batch).expect("writes");
    assert_eq!(table.load(&model).expect("a table without keys is empty"), model.len() as u64);
    assert_eq!(content(&table), model);
    check_whole(&db);
}

fn a_reader_of_an_older_state_goes_on_and_then_space_returns(structure: Structure) {
    let (disk, db, table) = fresh(structure, 2);
    let model = fill(&db, &table, 0..6000, 100);
    db.drain().expect("applies");
    let directory = Path::new("/db").join(directory_of(structure));
    let mut nodes: Vec<_> = disk.files().into_iter().filter(|file| file.starts_with(&directory)).collect();
    // By number. What is made anew goes to the last one too.
    nodes.sort_by_key(|file| file.as_os_str().len());
    nodes.pop();
    // Pages, which go with a flush of the log, or segments of nodes, which go with a checkpoint.
    let kept = || {
        db.checkpoint().expect("a checkpoint");
        match structure {
            Structure::BTree => db.stats().expect("stats").space.retired_pages,
            _ => nodes.iter().filter(|file| disk.read_file(file).is_some()).count() as u64,
        }
    };
    let mut range = table.iter();
    let first = range.next().expect("not empty").expect("reads");
    compact(&table);
    db.drop_caches();
    assert!(kept() > 0);
    let rest: Content = range.by_ref().collect::<Result<_, _>>().expect("scans");
    let seen: Content = rest.into_iter().chain([first]).collect();
    assert_eq!(seen, model);
    drop(range);
    assert_eq!(kept(), 0);
    assert_eq!(content(&table), model);
    check_whole(&db);
}

fn it_stops_where_it_is_told_to_and_goes_on_later(structure: Structure) {
    let (_disk, db, table) = fresh(structure, 1);
    let model = fill(&db, &table, 0..10_000, 100);
    let (mut calls, mut last) = (0, 0);
    let stopped = table.compact_with(&braid::CompactOptions::new(), &mut |progress| {
        calls += 1;
        assert!(progress.bytes > last && progress.total_bytes > 0 && progress.table == "t");
        last = progress.bytes;
        if calls == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(stopped.expect("stops").stopped && calls == 5);
    let some = leaves(&table.stats().expect("stats"));
    check_whole(&db);
    assert_eq!(content(&table), model);
    let all = db.compact().expect("compacts");
    let all_leaves = leaves(&table.stats().expect("stats"));
    // Leaves of a trie are written anew in key order, and no fuller than they were.
    let is_packed = if structure == Structure::BTree { all_leaves < some } else { all_leaves <= some };
    assert!(!all.stopped && is_packed, "{all_leaves} leaves after {some}");
    assert_eq!(content(&table), model);
    check_whole(&db);
}

#[test]
fn leaves_get_another_size_and_mix_with_the_old_ones() {
    let (disk, db, table) = fresh(Structure::BTree, 1);
    let mut model = fill(&db, &table, 0..12_000, 60);
    db.close().expect("closes");
    drop(table);
    for leaf_pages in [8, 2] {
        let db = open(&disk, leaf_pages).expect("opens again");
        let table = db.open_table("t").expect("there");
        // Enough for the engine to say what the table is used for.
        model.extend(fill(&db, &table, 12_000..24_000, 60));
        let mut steps = 0;
        let half = &mut |_| {
            steps += 1;
            if steps == 40 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        assert!(table.compact_with(&braid::CompactOptions::new(), half).expect("stops").stopped);
        let stats = table.stats().expect("stats");
        assert_ne!(stats.stored_bytes, leaves(&stats) * u64::from(leaf_pages) * 4096, "leaves of both sizes");
        assert_eq!(content(&table), model);
        model.extend(fill(&db, &table, 20_000..30_000, 30));
        db.drain().expect("applies");
        assert_eq!(content(&table), model);
        check_whole(&db);
        compact(&table);
        let stats = table.stats().expect("stats");
        assert_eq!(stats.stored_bytes, leaves(&stats) * u64::from(leaf_pages) * 4096);
        assert_eq!(content(&table), model);
        check_whole(&db);
        db.close().expect("closes");
    }
}

/// Compacts while commits come, until the power goes after `operations`. What was committed by then, and may have been.
fn compact_until(disk: &SimDisk, operations: u64, start: &Content) -> (Content, Content) {
    let (mut acknowledged, mut tried) = (start.clone(), start.clone());
    let mut run = || -> braid::Result<()> {
        let db = open(disk, 2)?;
        let table = db.open_table("t")?;
        disk.crash_after(operations);
        let mut step = 0_u32;
        let mut outcome = Ok(());
        table.compact_with(&braid::CompactOptions::new(), &mut |_| {
            step += 1;
            let mut batch = WriteBatch::new();
            for number in 0..40 {
                let key = scattered(step * 40 + number, 1_000_000);
                if number % 4 == 0 {
                    let gone = tried.range(key..).next().map(|(key, _)| key.clone());
                    gone.inspect(|key| batch.delete(&table, key)).map(|key| tried.remove(&key));
                } else {
                    let value = vec![step.to_le_bytes()[0]; if number == 1 { 3000 } else { 50 }];
                    batch.put(&table, &key, &value);
                    tried.insert(key, value);
                }
            }
            outcome = db.write(&batch).map(drop);
            if outcome.is_err() {
                return ControlFlow::Break(());
            }
            acknowledged.clone_from(&tried);
            ControlFlow::Continue(())
        })?;
        outcome?;
        db.close()
    };
    let outcome = run();
    assert!(outcome.is_ok() || disk.is_crashed(), "{outcome:?}");
    (acknowledged, tried)
}

fn a_crash_at_any_step_leaves_the_content_whole(structure: Structure) {
    let (mut operations, mut partly) = (0, 0);
    loop {
        let disk = SimDisk::new(operations);
        let start = {
            let db = open(&disk, 2).expect("opens");
            let table = db.table("t", structure).expect("created");
            let model = fill(&db, &table, 0..1500, 100);
            db.close().expect("closes");
            model
        };
        let (acknowledged, tried) = compact_until(&disk, operations, &start);
        let crashed = disk.is_crashed();
        disk.restart();
        let db = open(&disk, 2).expect("opens after a crash");
        let table = db.open_table("t").expect("there");
        let found = content(&table);
        assert!(found == acknowledged || found == tried, "{operations}: the content is another");
        check_whole(&db);
        partly += u32::from(found != start && crashed);
        compact(&table);
        assert!(content(&table) == found, "{operations}: another compaction changed the content");
        check_whole(&db);
        if !crashed {
            break;
        }
        operations += 1;
    }
    assert!(operations > 50 && partly > 20, "{operations} {partly}");
}

fn a_full_disk_stops_it_and_changes_nothing_more(structure: Structure) {
    let (disk, db, table) = fresh(structure, 2);
    let mut model = fill(&db, &table, 0..30_000, 100);
    db.checkpoint().expect("a checkpoint");
    let used: u64 = disk.files().iter().filter_map(|file| disk.read_file(file)).map(|file| file.len() as u64).sum();
    for more in [0, 64 << 10, 512 << 10] {
        // A reader of the oldest state keeps every page that is given up.
        let mut reader = table.iter();
        assert!(reader.next().is_some());
        disk.set_capacity(Some(used + more));
        let error = table.compact().expect_err("a full disk");
        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
        assert_eq!(content(&table), model);
        check_whole(&db);
        drop(reader);
        let key = model.keys().next().expect("not empty").clone();
        table.delete(&key).expect("deletes go on");
        model.remove(&key);
    }
    disk.set_capacity(None);
    compact(&table);
    assert_eq!(content(&table), model);
    check_whole(&db);
}

fn writers_and_readers_go_on(structure: Structure) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Options::new()
        .cache_bytes(1 << 20)
        .write_buffer_bytes(2 << 20)
        .leaf_pages(2)
        .open(directory.path().join("db"))
        .expect("opens");
    let table = db.table("t", structure).expect("created");
    let mut model = fill(&db, &table, 0..20_000, 80);
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (mut model, mut from) = (Content::new(), 20_000);
            while !done.load(Ordering::Relaxed) && from < 60_000 {
                model.extend(fill(&db, &table, from..from + 400, 90));
                from += 400;
            }
            model
        });
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for key in model.keys().step_by(97) {
                    assert!(table.get(key).expect("reads").is_some());
                }
            }
        });
        for _ in 0..3 {
            compact(&table);
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("no panic");
        writer.join().expect("no panic")
    });
    model.extend(written);
    assert_eq!(content(&table), model);
    check_whole(&db);
}

on_every_structure!(
    what_mass_deletes_left_is_gone_and_the_table_can_be_loaded,
    a_reader_of_an_older_state_goes_on_and_then_space_returns,
    it_stops_where_it_is_told_to_and_goes_on_later,
    a_crash_at_any_step_leaves_the_content_whole,
    a_full_disk_stops_it_and_changes_nothing_more,
    writers_and_readers_go_on,
);
