//! Rollbacks: the table is exactly as it was, and whoever is older sees what he saw.

use braid::{ErrorKind, Isolation, TransactionOptions};

use super::world::World;
use crate::whole::{Content, check_whole};

#[test]
fn a_table_is_exactly_as_it_was_and_goes_on_from_there() {
    for seed in 0..10 {
        let mut world = World::new(100 + seed, 20);
        for round in 0..10 {
            world.change(25);
            world.retain();
            world.change(10);
            if round % 2 == 1 {
                let seqs: Vec<_> = world.table.history().iter().map(|header| header.seq).collect();
                let to = seqs[(usize::try_from(seed).expect("few") * 7 + round * 3) % seqs.len()];
                world.roll_back(to);
                world.check();
                match (seed + round as u64) % 4 {
                    0 => world = world.reopen(true),
                    1 => world = world.reopen(false),
                    2 => drop(world.table.compact().expect("compacts")),
                    _ => {}
                }
                world.check();
            }
            if round % 3 == 2 {
                world.pass(15_000);
            }
        }
    }
}

#[test]
fn a_rollback_can_be_undone_and_done_again() {
    let mut world = World::new(1, 10);
    world.change(50);
    let first = world.retain();
    world.change(50);
    let second = world.now();
    world.roll_back(first);
    // What there was is retained, though nobody had asked for a checkpoint.
    let before = world.table.history().last().expect("a state").seq;
    assert!(before > first);
    world.roll_back(before);
    assert!(world.now() == second);
    world.check();
    world.roll_back(first);
    world.roll_back(first);
    world.change(5);
    world.check();
    world = world.reopen(true);
    world.check();
    world.roll_back(before);
    assert!(world.now() == second);
    world.reopen(true).check();
}

#[test]
fn a_table_can_be_as_empty_as_it_was() {
    let mut world = World::new(2, 10);
    world.table.put("key", "value").expect("puts");
    world.table.delete("key").expect("deletes");
    let empty = world.retain();
    world.change(100);
    world.retain();
    world.roll_back(empty);
    assert!(world.now().is_empty());
    world.check();
    world = world.reopen(true);
    world.change(10);
    world.check();
    world.reopen(true).check();
}

#[test]
fn snapshots_see_what_they_saw() {
    let mut world = World::new(3, 10);
    world.change(60);
    let first = world.retain();
    let mut snapshots = Vec::new();
    for round in 0..4 {
        world.change(30);
        snapshots.push((world.db.snapshot(), world.now()));
        if round % 2 == 1 {
            world.roll_back(first);
            snapshots.push((world.db.snapshot(), world.now()));
        }
    }
    let check = |world: &World, what: &str| {
        world.db.drop_caches();
        for (number, (snapshot, expected)) in snapshots.iter().enumerate() {
            let found: Content = snapshot.iter(&world.table).collect::<Result<_, _>>().expect("scans");
            assert!(found == *expected, "{what}: snapshot {number}");
            let key = expected.keys().next().expect("a key");
            assert_eq!(snapshot.get(&world.table, key).expect("reads").as_ref(), expected.get(key), "{what}: {number}");
        }
    };
    check(&world, "at once");
    world.change(60);
    world.retain();
    world.table.compact().expect("compacts");
    world.db.checkpoint().expect("a checkpoint");
    check(&world, "later");
    check_whole(&world.db);
    world.db.drop_table("t").expect("drops");
    world.db.checkpoint().expect("a checkpoint");
    check(&world, "dropped");
    drop(snapshots);
    world.db.checkpoint().expect("a checkpoint");
    check_whole(&world.db);
}

#[test]
fn transactions_that_are_older_are_in_conflict() {
    let mut world = World::new(4, 10);
    world.change(30);
    let first = world.retain();
    world.change(1);
    let mut writes = world.db.begin().expect("begins");
    writes.put(&world.table, "its own key", "value").expect("puts");
    let mut reads = world.db.begin_with(TransactionOptions::new().isolation(Isolation::Serializable)).expect("begins");
    assert_eq!(reads.get(&world.table, "nobody's key").expect("reads"), None);
    let other = world.db.table("other", braid::Structure::BTree).expect("created");
    reads.put(&other, "key", "value").expect("puts");
    world.roll_back(first);
    assert_eq!(writes.commit().expect_err("rolled back meanwhile").kind(), ErrorKind::Conflict);
    assert_eq!(reads.commit().expect_err("rolled back meanwhile").kind(), ErrorKind::Conflict);
    let mut later = world.db.begin().expect("begins");
    later.put(&world.table, "a key", "value").expect("puts");
    later.commit().expect("commits");
    world.model.insert(b"a key".to_vec(), (b"value"[..].into(), None));
    world.check();
}

#[test]
fn nobody_writes_to_a_table_that_is_loaded_nor_rolls_it_back() {
    let mut world = World::new(5, 10);
    world.table.put("key", "value").expect("puts");
    world.table.delete("key").expect("deletes");
    let empty = world.retain();
    world.table.compact().expect("compacts");
    let mut loader = world.table.loader().expect("it is empty");
    assert_eq!(world.table.roll_back(empty).expect_err("loading").kind(), ErrorKind::Locked);
    loader.push("a", "loaded").expect("takes it");
    loader.finish().expect("loads");
    world.model.insert(b"a".to_vec(), (b"loaded"[..].into(), None));
    world.note();
    let loaded = world.retain();
    world.roll_back(empty);
    world.check();
    world.roll_back(loaded);
    world.check();
    world.reopen(true).check();
}

#[test]
fn what_expires_goes_on_expiring() {
    let mut world = World::new(6, 10);
    world.change(100);
    let first = world.retain();
    world.change(30);
    world.pass(50_000);
    world.roll_back(first);
    let there = world.now().len();
    world.check();
    world.pass(60_000);
    assert!(world.now().len() < there, "nothing expires");
    world.check();
    world.table.compact().expect("compacts");
    world.check();
}
