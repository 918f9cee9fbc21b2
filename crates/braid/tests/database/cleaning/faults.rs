//! Moving documents, interrupted at every operation of the disk: by a power cut, an error, a full disk.

use std::ops::ControlFlow;

use braid::{Database, ErrorKind, Structure, Table};
use psync::sim::{Fault, SimDisk};
use rand::{SeedableRng, rngs::StdRng};

use super::model::{change, fresh, key, open};
use crate::whole::{Content, check_whole, content};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A database with live and dead documents, closed, or as a power cut leaves it.
fn prepared(structure: Structure, seed: u64) -> (SimDisk, Content) {
    let mut random = StdRng::seed_from_u64(5);
    let (disk, db, table) = fresh(structure, seed);
    let mut model = Content::new();
    for round in 0..8 {
        change(&db, &table, &mut model, &mut random, 40, 12).expect("writes");
        if round == 3 {
            db.checkpoint().expect("a checkpoint");
        }
    }
    drop((table, db));
    disk.restart();
    (disk, model)
}

/// Compacts, with a commit after each stretch. The model is what is there for sure, and what may be.
fn compact(db: &Database, table: &Table, known: &mut Content, tried: &mut Content) -> braid::Result<()> {
    let (mut random, mut outcome) = (StdRng::seed_from_u64(6), Ok(()));
    table.compact_with(&braid::CompactOptions::new(), &mut |_| {
        outcome = change(db, table, tried, &mut random, 40, 5);
        if let Err(error) = &outcome {
            if error.kind() == ErrorKind::DiskFull {
                // Nothing of it was written.
                tried.clone_from(known);
            }
            return ControlFlow::Break(());
        }
        known.clone_from(tried);
        ControlFlow::Continue(())
    })?;
    outcome
}

fn a_power_cut_at_any_operation_leaves_old_or_new(structure: Structure) {
    let mut cut = 0;
    for operations in 0.. {
        let (disk, mut known) = prepared(structure, operations);
        let mut tried = known.clone();
        let db = open(&disk).expect("opens");
        let table = db.open_table("t").expect("there");
        disk.crash_after(operations);
        let outcome = compact(&db, &table, &mut known, &mut tried);
        let crashed = disk.is_crashed();
        assert!(outcome.is_ok() || crashed, "{outcome:?}");
        drop((table, db));
        disk.restart();
        let db = open(&disk).unwrap_or_else(|error| panic!("{operations}: {error}"));
        let table = db.open_table("t").expect("there");
        let found = content(&table);
        assert!(found == known || found == tried, "{operations}: the content is another");
        check_whole(&db);
        table.compact().expect("compacts");
        let stats = table.stats().expect("stats");
        assert_eq!(stats.document_bytes, stats.document_live_bytes, "{operations}: something is left behind");
        assert!(content(&table) == found, "{operations}: another compaction changed the content");
        check_whole(&db);
        if !crashed {
            break;
        }
        cut += 1;
    }
    assert!(cut > 30, "{cut} operations are too few to say much");
}

/// After operation `n` failed, the database works on, or it only reads and says why.
fn goes_on(db: &Database, table: &Table, n: u64, fault: Fault) {
    match table.put(key(1000), b"more") {
        Ok(_) => {
            table.delete(key(1000)).expect("deletes");
            table.compact().expect("compacts at last");
            let stats = table.stats().expect("stats");
            assert_eq!(stats.document_bytes, stats.document_live_bytes, "{n}: something is left behind");
            check_whole(db);
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Failed, "{n}: {error}");
            assert!(fault != Fault::Growth, "{n}: a full disk is no failure: {error}");
        }
    }
}

fn every_operation(structure: Structure, fault: Fault, errno: i32, least: u64) {
    for n in 0.. {
        let (disk, mut known) = prepared(structure, n);
        let mut tried = known.clone();
        let db = open(&disk).expect("opens");
        let table = db.open_table("t").expect("there");
        disk.fail_operation(fault, n, errno);
        let outcome = compact(&db, &table, &mut known, &mut tried);
        let struck = disk.faults_left() == 0;
        assert!(outcome.is_ok() || struck, "{n}: {outcome:?}");
        if !struck {
            assert!(n >= least, "{n} operations are too few to say much");
            break;
        }
        db.drop_caches();
        let found = content(&table);
        assert!(found == known || found == tried, "{n}: the content is another after {outcome:?}");
        goes_on(&db, &table, n, fault);
        drop((table, db));
        disk.restart();
        let db = open(&disk).unwrap_or_else(|error| panic!("{n}: {error}"));
        let again = content(&db.open_table("t").expect("there"));
        assert!(again == found || again == known || again == tried, "{n}: opening it changed the content");
        check_whole(&db);
    }
}

fn an_error_at_any_operation_takes_nothing(structure: Structure) {
    every_operation(structure, Fault::Any, EIO, 30);
}

fn no_room_at_any_operation_takes_nothing(structure: Structure) {
    every_operation(structure, Fault::Any, ENOSPC, 30);
}

fn a_disk_that_cannot_grow_turns_nothing_read_only(structure: Structure) {
    every_operation(structure, Fault::Growth, ENOSPC, 4);
}

on_every_structure!(
    a_power_cut_at_any_operation_leaves_old_or_new,
    an_error_at_any_operation_takes_nothing,
    no_room_at_any_operation_takes_nothing,
    a_disk_that_cannot_grow_turns_nothing_read_only,
);
