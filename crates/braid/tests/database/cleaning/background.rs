//! Cleaning in the background: space stays bounded by what lives.

use std::path::Path;

use braid::{Durability, Structure, WriteBatch};
use psync::sim::SimDisk;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::model::{change, check, fresh, key, open, options};
use crate::whole::{Content, check_whole, content};

fn space(disk: &SimDisk) -> u64 {
    let documents = disk.files().into_iter().filter(|file| file.extension().is_some_and(|suffix| suffix == "doc"));
    documents.filter_map(|file| disk.read_file(file)).map(|file| file.len() as u64).sum()
}

fn live(model: &Content) -> u64 {
    model.values().filter(|value| value.len() > 2048).map(|value| value.len() as u64).sum()
}

fn random_overwrites_take_little_more_than_twice_what_lives(structure: Structure) {
    for (seed, retained) in [(1, false), (2, true)] {
        let mut random = StdRng::seed_from_u64(seed);
        let disk = SimDisk::new(seed);
        let db = options().open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", structure).expect("created");
        let mut model = Content::new();
        for number in 0..700 {
            let value = vec![1; 4000];
            table.put_with(key(number), &value, Durability::Os).expect("put");
            model.insert(key(number), value);
        }
        let mut kept = None;
        let mut worst: f64 = 0.0;
        for round in 0..250 {
            change(&db, &table, &mut model, &mut random, 700, 20).expect("writes");
            if retained && round % 50 == 20 {
                kept = Some((db.snapshot(), model.clone()));
            }
            if retained && round % 50 == 40 {
                let (snapshot, expected) = kept.take().expect("taken");
                let seen: Content = snapshot.iter(&table).collect::<Result<_, _>>().expect("reads");
                assert!(seen == expected, "a snapshot sees something else");
            }
            if kept.is_none() {
                // Four segments beside it.
                let taken = space(&disk).saturating_sub(4 * (64 << 10));
                worst = worst.max(taken as f64 / live(&model) as f64);
            }
        }
        let stats = db.stats().expect("stats");
        assert!(stats.documents_cleaned > 500, "{}", stats.documents_cleaned);
        eprintln!("seed {seed}: at most {worst:.2} times what lives");
        assert!(retained || worst < 2.2, "{worst}");
        check(&disk, db, table, &model);
    }
}

fn what_readers_keep_it_from_releasing_is_bounded(structure: Structure) {
    let mut random = StdRng::seed_from_u64(5);
    let (disk, db, table) = fresh(structure, 5);
    let mut model = Content::new();
    for number in 0..700 {
        let value = vec![1; 4000];
        table.put_with(key(number), &value, Durability::Os).expect("put");
        model.insert(key(number), value);
    }
    db.drain().expect("applies");
    let mut reader = table.iter();
    assert!(reader.next().is_some());
    let cleaned = || db.stats().expect("stats").document_bytes_cleaned;
    let before = cleaned();
    for _ in 0..150 {
        change(&db, &table, &mut model, &mut random, 700, 20).expect("writes");
    }
    let held = cleaned() - before;
    let live = live(&model);
    assert!(held < live, "{held} bytes were copied beside {live} that live, and none released");
    drop(reader);
    let mut worst = 0;
    for round in 0..150 {
        change(&db, &table, &mut model, &mut random, 700, 20).expect("writes");
        if round > 50 {
            worst = worst.max(space(&disk));
        }
    }
    assert!(cleaned() - before > held + live, "it goes on");
    assert!(worst < live * 22 / 10 + 4 * (64 << 10), "{worst} bytes beside {live} that live");
    check(&disk, db, table, &model);
}

fn a_power_cut_while_it_cleans_takes_nothing(structure: Structure) {
    let mut cut = 0;
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let (disk, db, table) = fresh(structure, seed);
        let (mut known, mut failed) = (Content::new(), None);
        for _ in 0..80 {
            change(&db, &table, &mut known, &mut random, 60, 12).expect("writes");
        }
        disk.crash_after(random.random_range(0..2000));
        let mut tried = known.clone();
        for _ in 0..200 {
            if let Err(error) = change(&db, &table, &mut tried, &mut random, 60, 12) {
                failed = Some(error);
                break;
            }
            known.clone_from(&tried);
        }
        assert!(failed.is_none() || disk.is_crashed(), "{failed:?}");
        cut += u32::from(failed.is_some() && db.stats().is_ok_and(|stats| stats.documents_cleaned > 0));
        drop((table, db));
        disk.restart();
        let db = open(&disk).unwrap_or_else(|error| panic!("{seed}: {error}"));
        let table = db.open_table("t").expect("there");
        let found = content(&table);
        assert!(found == known || found == tried, "{seed}: the content is another");
        check_whole(&db);
    }
    assert!(cut > 20, "{cut} power cuts after something was cleaned");
}

fn a_disk_that_is_nearly_full_gets_out_when_documents_are_deleted(structure: Structure) {
    let (disk, db, table) = fresh(structure, 3);
    let mut batch = WriteBatch::new();
    for number in 0..600 {
        batch.put(&table, key(number), vec![2; 4000]);
        if batch.len() == 20 {
            db.write(&batch).expect("writes");
            batch.clear();
        }
    }
    db.checkpoint().expect("a checkpoint");
    let used = disk.used_bytes();
    disk.set_capacity(Some(used + (192 << 10)));
    let refused = (600..1000).find_map(|number| table.put(key(number), vec![3; 4000]).err());
    assert!(refused.is_some(), "the disk is full");
    // In every segment some go and some stay.
    let gone: Vec<u32> = (0..600).filter(|number| number % 3 != 0).collect();
    for number in &gone {
        table.delete(key(*number)).expect("deletes go on");
    }
    // First there is no room for any document, then for a few segments of them.
    db.checkpoint().expect("a checkpoint");
    disk.set_capacity(Some(used + (448 << 10)));
    db.checkpoint().expect("a checkpoint");
    for number in gone.iter().take(200) {
        table.put(key(*number), vec![4; 4000]).expect("there is room again");
    }
    check_whole(&db);
    for number in (0..600).filter(|number| number % 3 == 0) {
        assert_eq!(table.get(key(number)).expect("reads"), Some(vec![2; 4000]));
    }
}

fn a_damaged_document_does_not_keep_it_busy(structure: Structure) {
    let (disk, db, table) = fresh(structure, 4);
    for number in 0..400 {
        table.put(key(number), vec![5; 4000]).expect("put");
    }
    db.checkpoint().expect("a checkpoint");
    for file in disk.files().into_iter().filter(|file| file.extension().is_some_and(|suffix| suffix == "doc")) {
        assert!(disk.flip_bit(&file, 300));
    }
    db.drop_caches();
    // The rest of each segment is overwritten; what is damaged stays as long as it lives.
    let damaged: Vec<u32> = (0..400).filter(|number| table.get(key(*number)).is_err()).collect();
    assert!(damaged.len() > 10);
    for round in 0..4 {
        for number in (0..400).filter(|number| !damaged.contains(number)) {
            table.put(key(number), vec![round; 4000]).expect("put");
        }
    }
    db.checkpoint().expect("a checkpoint");
    assert!(damaged.iter().all(|number| table.get(key(*number)).is_err()));
    damaged.iter().for_each(|number| table.put(key(*number), b"mended").map(drop).expect("put"));
    db.checkpoint().expect("a checkpoint");
    check_whole(&db);
}

on_every_structure!(
    a_disk_that_is_nearly_full_gets_out_when_documents_are_deleted,
    random_overwrites_take_little_more_than_twice_what_lives,
    what_readers_keep_it_from_releasing_is_bounded,
    a_power_cut_while_it_cleans_takes_nothing,
    a_damaged_document_does_not_keep_it_busy,
);
