//! Whole compactions.

use std::{
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
};

use braid::{BackendKind, CompactOptions, Options, SUBMISSION_BATCH_MAX, Structure};
use rand::{SeedableRng, rngs::StdRng};

use super::inline::inline_bytes_max;
use super::model::{change, check, compact, fresh, key, open};
use crate::whole::{Content, check_whole, content};

fn document_files(disk: &psync::sim::SimDisk) -> Vec<std::path::PathBuf> {
    disk.files().into_iter().filter(|file| file.extension().is_some_and(|suffix| suffix == "doc")).collect()
}

fn only_what_lives_is_left_and_every_way_to_read_is_the_same(structure: Structure) {
    let ways = [
        CompactOptions::new(),
        CompactOptions::new().submission_batch(1).sorted(false),
        CompactOptions::new().submission_batch(7).direct(false),
        CompactOptions::new().submission_batch(1024).sorted(false).direct(false),
    ];
    for (seed, way) in (0..).zip(ways) {
        let mut random = StdRng::seed_from_u64(seed);
        let (disk, db, table) = fresh(structure, seed);
        let mut model = Content::new();
        for _ in 0..60 {
            change(&db, &table, &mut model, &mut random, 150, 20).expect("writes");
        }
        db.checkpoint().expect("a checkpoint");
        let before = (table.stats().expect("stats"), document_files(&disk));
        let documents = model.values().filter(|value| value.len() > inline_bytes_max(structure)).count() as u64;
        let mut last = 0;
        let done = table
            .compact_with(&way, &mut |progress| {
                assert!(progress.bytes > last && progress.total_bytes > 0, "{progress:?}");
                last = progress.bytes;
                ControlFlow::Continue(())
            })
            .expect("compacts");
        assert_eq!((done.documents, done.damaged_documents), (documents, 0));
        let after = table.stats().expect("stats");
        assert_eq!(after.document_bytes, after.document_live_bytes, "nothing dead is left");
        assert_eq!(after.document_live_bytes, done.document_bytes);
        assert!(after.document_bytes < before.0.document_bytes, "{before:?} {after:?}");
        assert!(document_files(&disk).iter().all(|file| !before.1.contains(file)), "old files are gone");
        let (_db, table) = check(&disk, db, table, &model);
        assert_eq!(compact(&table, &way).documents, documents);
    }
}

#[test]
fn a_submission_batch_that_there_cannot_be_is_refused() {
    let (_disk, _db, table) = fresh(Structure::BTree, 1);
    for documents in [0, SUBMISSION_BATCH_MAX + 1] {
        let options = CompactOptions::new().submission_batch(documents);
        let error = table.compact_with(&options, &mut |_| ControlFlow::Continue(())).expect_err("refused");
        assert!(
            error.to_string().contains(&format!("from 1 to 1024 documents can be in flight, not {documents}")),
            "{error}"
        );
    }
}

fn snapshots_keep_what_they_see_and_no_more(structure: Structure) {
    let mut random = StdRng::seed_from_u64(7);
    let (disk, db, table) = fresh(structure, 7);
    let (mut model, mut kept) = (Content::new(), Vec::new());
    for round in 0..40 {
        change(&db, &table, &mut model, &mut random, 60, 15).expect("writes");
        if round % 10 == 5 {
            kept.push((db.snapshot(), model.clone()));
        }
        if round % 13 == 0 {
            db.drain().expect("applies");
        }
        if round % 10 == 9 {
            compact(&table, &CompactOptions::new());
            db.drop_caches();
            for (snapshot, expected) in &kept {
                let seen: Content = snapshot.iter(&table).collect::<Result<_, _>>().expect("reads");
                assert!(seen == *expected, "round {round}: a snapshot sees something else");
            }
            check_whole(&db);
        }
    }
    let held = table.stats().expect("stats").document_live_bytes;
    drop(kept);
    compact(&table, &CompactOptions::new());
    let documents = model.values().filter(|value| value.len() > inline_bytes_max(structure));
    let stats = table.stats().expect("stats");
    assert!(stats.document_live_bytes < held);
    let stored: u64 = documents.map(|value| (value.len() as u64 + 24).next_multiple_of(8)).sum();
    assert_eq!(stats.document_live_bytes, stored);
    check(&disk, db, table, &model);
}

fn what_a_reader_has_begun_to_read_stays_until_it_is_through(structure: Structure) {
    let mut random = StdRng::seed_from_u64(8);
    let (disk, db, table) = fresh(structure, 8);
    let mut model = Content::new();
    for _ in 0..20 {
        change(&db, &table, &mut model, &mut random, 100, 20).expect("writes");
    }
    db.drain().expect("applies");
    let mut range = table.iter();
    let first = range.next().expect("not empty").expect("reads");
    compact(&table, &CompactOptions::new());
    let before = model.clone();
    for _ in 0..20 {
        change(&db, &table, &mut model, &mut random, 100, 20).expect("writes");
    }
    compact(&table, &CompactOptions::new());
    db.drop_caches();
    let seen: Content = [Ok(first)].into_iter().chain(range).collect::<Result<_, _>>().expect("reads");
    assert!(seen == before);
    db.checkpoint().expect("a checkpoint");
    let stats = table.stats().expect("stats");
    assert_eq!(stats.document_bytes, stats.document_live_bytes, "then it goes");
    check(&disk, db, table, &model);
}

fn a_damaged_document_stays_where_it_is_and_the_others_move(structure: Structure) {
    let (disk, db, table) = fresh(structure, 9);
    for number in 0..50 {
        table.put(key(number), [number.to_le_bytes()[0]; 3000]).expect("put");
    }
    db.checkpoint().expect("a checkpoint");
    let file = document_files(&disk).remove(0);
    assert!(disk.flip_bit(&file, 10_000));
    let done = compact(&table, &CompactOptions::new());
    assert_eq!((done.documents, done.damaged_documents), (49, 1));
    assert!(document_files(&disk).contains(&file), "what is left of it stays");
    let damaged: Vec<u32> = (0..50).filter(|number| table.get(key(*number)).is_err()).collect();
    assert_eq!(damaged.len(), 1);
    assert_eq!(db.verify().expect("verifies").findings.len(), 1);
    table.put(key(damaged[0]), b"mended").expect("put");
    db.checkpoint().expect("a checkpoint");
    assert!(!document_files(&disk).contains(&file));
    check_whole(&db);
}

fn what_expired_and_what_a_range_delete_hides_is_not_moved(structure: Structure) {
    let (disk, db, table) = fresh(structure, 10);
    let mut model = Content::new();
    for number in 0..100_u32 {
        let (key, value) = (number.to_be_bytes(), vec![number.to_le_bytes()[0]; 2500]);
        match number % 10 {
            0 => {
                table.put_expiring(key, &value, braid::Expires::At(std::time::UNIX_EPOCH)).expect("put");
            }
            _ => {
                table.put(key, &value).expect("put");
                if !(40..60).contains(&number) {
                    model.insert(key.to_vec(), value);
                }
            }
        }
    }
    table.delete_range(40_u32.to_be_bytes()..60_u32.to_be_bytes()).expect("deletes");
    let done = compact(&table, &CompactOptions::new());
    assert_eq!(done.documents, model.len() as u64);
    check(&disk, db, table, &model);
}

fn it_stops_where_it_is_told_to(structure: Structure) {
    let mut random = StdRng::seed_from_u64(11);
    let (disk, db, table) = fresh(structure, 11);
    let mut model = Content::new();
    for _ in 0..30 {
        change(&db, &table, &mut model, &mut random, 200, 20).expect("writes");
    }
    let stopped = table.compact_with(&CompactOptions::new(), &mut |_| ControlFlow::Break(())).expect("stops");
    assert!(stopped.stopped && stopped.documents > 0 && stopped.leaves == 0);
    let (db, table) = check(&disk, db, table, &model);
    compact(&table, &CompactOptions::new());
    check(&disk, db, table, &model);
}

fn writers_and_readers_go_on(structure: Structure) {
    let backends = [None, Some(BackendKind::Sync)];
    for backend in backends {
        let directory = tempfile::tempdir().expect("a directory");
        let mut options = Options::new().cache_bytes(1 << 20).write_buffer_bytes(1 << 20).leaf_pages(2);
        if let Some(backend) = backend {
            options = options.backend(backend);
        }
        let db = options.open(directory.path().join("db")).expect("opens");
        let table = db.table("t", structure).expect("created");
        let put = |writer: u32, number: u32, round: u8| {
            table.put_with(key(number * 4 + writer), vec![round; 2100 + number as usize], braid::Durability::Os)
        };
        for writer in 0..2 {
            (0..400).for_each(|number| put(writer, number, 0).map(drop).expect("put"));
        }
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut round = 0;
                while !done.load(Ordering::Relaxed) && round < 200 {
                    round += 1;
                    (0..400).filter(|number| number % 7 == u32::from(round) % 7).for_each(|number| {
                        put(0, number, round).expect("put");
                    });
                }
                round
            });
            let reader = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let keys: Vec<_> = (0..400).map(|number| key(number * 4 + 1)).collect();
                    for (number, value) in table.get_many(&keys).expect("reads").into_iter().enumerate() {
                        assert_eq!(value, Some(vec![0; 2100 + number]));
                    }
                    for pair in table.iter() {
                        let (_, value) = pair.expect("reads");
                        assert!(value.iter().all(|byte| *byte == value[0]));
                    }
                }
            });
            for _ in 0..5 {
                compact(&table, &CompactOptions::new());
            }
            done.store(true, Ordering::Relaxed);
            reader.join().expect("no panic");
            let last = writer.join().expect("no panic");
            for number in 0..400_u32 {
                let newest = (0..=last).rev().find(|round| *round == 0 || number % 7 == u32::from(*round) % 7);
                let value = table.get(key(number * 4)).expect("reads").expect("there");
                assert_eq!(value, vec![newest.expect("0 at least"); 2100 + number as usize]);
            }
        });
        check_whole(&db);
        let model = content(&table);
        drop(table);
        db.close().expect("closes");
        let db = Options::new().open(directory.path().join("db")).expect("opens again");
        assert!(content(&db.open_table("t").expect("there")) == model);
    }
}

fn a_table_that_is_dropped_meanwhile_ends_it(structure: Structure) {
    let (disk, db, table) = fresh(structure, 12);
    for number in 0..100 {
        table.put(key(number), [1; 3000]).expect("put");
    }
    let mut dropped = false;
    let outcome = table.compact_with(&CompactOptions::new(), &mut |_| {
        if !dropped {
            db.drop_table("t").expect("drops");
            dropped = true;
        }
        ControlFlow::Continue(())
    });
    assert!(outcome.is_ok() && dropped, "{outcome:?}");
    drop(table);
    db.checkpoint().expect("a checkpoint");
    assert!(document_files(&disk).is_empty());
    drop(db);
    disk.restart();
    check_whole(&open(&disk).expect("opens again"));
}

on_every_structure!(
    only_what_lives_is_left_and_every_way_to_read_is_the_same,
    snapshots_keep_what_they_see_and_no_more,
    what_a_reader_has_begun_to_read_stays_until_it_is_through,
    a_damaged_document_stays_where_it_is_and_the_others_move,
    what_expired_and_what_a_range_delete_hides_is_not_moved,
    it_stops_where_it_is_told_to,
    writers_and_readers_go_on,
    a_table_that_is_dropped_meanwhile_ends_it,
);
