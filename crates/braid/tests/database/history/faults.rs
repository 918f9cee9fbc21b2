//! A rollback interrupted at every operation of the disk: by a power cut, an error, a full disk; and one to a state
//! that is not whole.

use std::{collections::BTreeSet, ffi::OsStr, path::PathBuf};

use braid::{ErrorKind, Seq};
use psync::{OpenOptions, sim::Fault};

use super::world::{Model, World};
use crate::whole::{Content, check_whole, content};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A table with states and changes behind them; which one to go back to.
fn prepared(seed: u64) -> (World, Seq) {
    // As many as are retained: the one that a rollback retains is one more.
    let mut world = World::new(seed, 2);
    world.change(25);
    let to = world.retain();
    world.change(25);
    world.retain();
    world.change(10);
    (world, to)
}

/// What the state has, seen now.
fn target(world: &World, to: Seq) -> Content {
    target_of(world.then(to))
}

#[test]
fn a_power_cut_at_any_operation_leaves_the_old_state_or_the_other() {
    let (mut cut, mut rolled) = (0, 0);
    for operations in 0.. {
        let (world, to) = prepared(operations % 5);
        let (old, new) = (world.now(), target(&world, to));
        assert!(old != new);
        world.disk.crash_after(operations);
        let outcome = world.table.roll_back(to);
        let crashed = world.disk.is_crashed();
        assert!(outcome.is_ok() || crashed, "{outcome:?}");
        let (clock, states) = (world.clock(), world.states.clone());
        let World { disk, db, table, .. } = world;
        drop((table, db));
        disk.restart();
        let (db, table) = World::open(&disk, &clock);
        let found = content(&table);
        assert!(found == old || found == new, "{operations}: neither");
        assert!(outcome.is_err() || found == new, "{operations}: it was durable");
        rolled += u32::from(found == new);
        check_whole(&db);
        for header in table.history() {
            let state: Content = table.at(header.seq).expect("there").iter().collect::<Result<_, _>>().expect("scans");
            assert!(
                state == target_of(states.range(..=header.seq).next_back().expect("some").1),
                "{operations}: the state at {:?}",
                header.seq
            );
        }
        // It can be done from there, as often as one likes.
        let is_retained = table.history().iter().any(|header| header.seq == to);
        assert!(is_retained || found == new, "{operations}: it is given up, and nothing went back to it");
        if is_retained {
            table.roll_back(to).expect("rolls back");
            assert!(content(&table) == new, "{operations}: again");
            check_whole(&db);
        }
        if !crashed {
            break;
        }
        cut += 1;
    }
    assert!(cut > 10 && rolled > 0 && rolled < cut, "{cut} operations, {rolled} of them behind it");
}

/// A table to which nothing matters any more that a state refers to, which state that is, and the files that there were
/// with it.
fn apart() -> (World, Seq, Vec<PathBuf>) {
    let mut world = World::new(3, 20);
    world.change(40);
    let to = world.retain();
    let files = world.disk.files();
    world.table.delete_range::<[u8; 0]>(..).expect("deletes");
    world.model.clear();
    world.note();
    for _ in 0..4 {
        world.change(20);
        world.table.compact().expect("compacts");
    }
    (world, to, files)
}

#[test]
fn a_state_of_which_a_file_is_gone_or_short_is_not_gone_back_to() {
    let mut refused = BTreeSet::new();
    for (number, is_short) in (0..apart().2.len()).flat_map(|number| [(number, false), (number, true)]) {
        let (world, to, files) = apart();
        let (path, old, new, clock) = (&files[number], world.now(), target(&world, to), world.clock());
        let kind = path.extension().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let World { disk, db, table, .. } = world;
        drop(table);
        db.close().expect("closes");
        if !["doc", "node"].contains(&kind.as_str()) || !disk.files().contains(path) {
            continue;
        }
        if is_short {
            let writable = OpenOptions { write: true, ..OpenOptions::default() };
            let file = disk.psync().open(path, &writable).expect("opens");
            file.set_len(1000).expect("cuts");
        } else {
            disk.psync().remove(path).expect("removes");
        }
        let (mut db, mut table) = World::open(&disk, &clock);
        if table.iter().any(|pair| pair.is_err()) {
            // What there is now needs it too.
            continue;
        }
        match table.roll_back(to) {
            Ok(_) => assert!(content(&table) == new, "{path:?} is not needed"),
            Err(error) => {
                let name = path.file_name().and_then(OsStr::to_str).expect("a name");
                assert!(error.kind() == ErrorKind::Corrupt && error.to_string().contains(name), "{path:?}: {error}");
                refused.insert((kind, is_short));
                for _ in 0..2 {
                    assert!(content(&table) == old, "{path:?}");
                    table.put("more", "value").expect("puts");
                    table.delete("more").expect("deletes");
                    db.checkpoint().expect("a checkpoint");
                    drop((table, db));
                    disk.kill();
                    (db, table) = World::open(&disk, &clock);
                }
                assert!(content(&table) == old, "{path:?}");
                table.roll_back(to).expect_err("it is still not whole");
            }
        }
    }
    assert_eq!(refused.len(), 4, "{refused:?}");
}

fn target_of(model: &Model) -> Content {
    model.iter().map(|(key, (value, _))| (key.clone(), value.to_vec())).collect()
}

fn every_operation(fault: Fault, errno: i32) {
    for n in 0.. {
        let (world, to) = prepared(n % 5);
        let (old, new) = (world.now(), target(&world, to));
        world.disk.fail_operation(fault, n, errno);
        let outcome = world.table.roll_back(to);
        let struck = world.disk.faults_left() == 0;
        assert!(outcome.is_ok() || struck, "{n}: {outcome:?}");
        world.db.drop_caches();
        let found = content(&world.table);
        assert!(found == if outcome.is_ok() { &new } else { &old }.clone() || is_unknown(&outcome), "{n}: {outcome:?}");
        if struck && fault == Fault::Growth {
            // A full disk is no failure.
            world.table.put("more", "value").expect("puts");
            world.table.delete("more").expect("deletes");
            check_whole(&world.db);
        }
        let clock = world.clock();
        let World { disk, db, table, .. } = world;
        drop((table, db));
        disk.restart();
        let (db, table) = World::open(&disk, &clock);
        let again = content(&table);
        assert!(again == found || is_unknown(&outcome), "{n}: opening it changed the content");
        assert!(again == old || again == new, "{n}: neither");
        check_whole(&db);
        if !struck {
            break;
        }
    }
}

fn is_unknown(outcome: &braid::Result<Seq>) -> bool {
    outcome.as_ref().is_err_and(|error| error.kind() == ErrorKind::Failed)
}

#[test]
fn a_write_that_fails_leaves_it_as_it_is() {
    every_operation(Fault::Write, EIO);
}

#[test]
fn a_flush_that_fails_leaves_it_as_it_is() {
    every_operation(Fault::Flush, EIO);
}

#[test]
fn a_full_disk_leaves_it_as_it_is() {
    every_operation(Fault::Growth, ENOSPC);
}
