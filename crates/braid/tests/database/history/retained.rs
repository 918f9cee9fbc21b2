//! States that are retained: which there are, and that they can be read.

use std::sync::atomic::{AtomicBool, Ordering};

use braid::{Durability, Error, ErrorKind, Seq, Structure, TableOptions};

use super::world::World;
use crate::whole::{Content, check_whole, content};

#[test]
fn each_checkpoint_retains_the_state_if_there_is_a_change() {
    let mut world = World::new(1, 3);
    assert_eq!(world.table.history(), []);
    world.db.checkpoint().expect("a checkpoint");
    assert_eq!(world.table.history(), [], "nothing was ever changed");
    let seqs: Vec<Seq> = (0..2)
        .map(|_| {
            world.change(20);
            world.retain()
        })
        .collect();
    world.db.checkpoint().expect("a checkpoint");
    let listed = |world: &World| world.table.history().iter().map(|header| header.seq).collect::<Vec<_>>();
    assert_eq!(listed(&world), seqs, "nothing was changed in between");
    let mut world = world.reopen(false);
    world.db.checkpoint().expect("a checkpoint");
    assert_eq!(listed(&world), seqs, "nor before it was opened");
    let history = world.table.history();
    assert!(history[0].number < history[1].number && history.iter().all(|header| header.keys > 0 && header.bytes > 0));
    world.check();

    // A range delete alone is a change.
    world.table.delete_prefix("0").expect("deletes");
    world.model.retain(|key, _| !key.starts_with(b"0"));
    world.note();
    world.retain();
    world.change(1);
    world.retain();
    assert_eq!(listed(&world).len(), 3);
    assert_eq!(listed(&world)[0], seqs[1], "the oldest goes");
    world.check();
    world.reopen(true).check();
}

#[test]
fn a_state_has_exactly_the_commits_up_to_its_seq() {
    for seed in 0..8 {
        let mut world = World::new(seed, 5);
        for round in 0..12 {
            world.change(15);
            match round % 4 {
                0 => drop(world.retain()),
                1 => world.db.drain().expect("applies"),
                2 => world.pass(20_000),
                _ => world = world.reopen(round % 8 == 3),
            }
            world.check();
        }
        assert!(world.table.history().len() > 2);
    }
}

#[test]
fn commits_that_come_while_a_state_is_made_are_not_in_it() {
    // In the background rounds, checkpoints and commits go on beside each other.
    let directory = tempfile::tempdir().expect("a directory");
    let options = braid::Options::new().write_buffer_bytes(256 << 10).segment_bytes(256 << 10);
    let db = options.open(directory.path().join("db")).expect("opens");
    let table = db.table_with("t", Structure::Append, &TableOptions::new().history(1000)).expect("created");
    let value = |number: u32| number.to_be_bytes().repeat(if number.is_multiple_of(5) { 700 } else { 20 });
    let (first, is_over) = (db.snapshot().seq().0, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                table.put_with((number % 500_u32).to_be_bytes(), value(number), Durability::Os).expect("puts");
            }
        });
        for _ in 0..20 {
            let before = db.snapshot().seq();
            while db.snapshot().seq() == before {
                std::thread::yield_now();
            }
            db.checkpoint().expect("a checkpoint");
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let history = table.history();
    assert!(history.len() >= 20, "{} states", history.len());
    let (mut expected, mut next) = (Content::new(), 0);
    for header in &history {
        let end = u32::try_from(header.seq.0 - first).expect("few");
        for number in next..end {
            expected.insert((number % 500).to_be_bytes().to_vec(), value(number));
        }
        next = end;
        let found: Content = table.at(header.seq).expect("retained").iter().collect::<Result<_, _>>().expect("scans");
        assert!(found == expected, "the state at {:?}", header.seq);
        assert_eq!(header.keys, expected.len() as u64);
    }
    check_whole(&db);
    let middle = history[history.len() / 2].seq;
    let expected: Content = table.at(middle).expect("retained").iter().collect::<Result<_, _>>().expect("scans");
    table.roll_back(middle).expect("rolls back");
    assert!(content(&table) == expected);
    check_whole(&db);
}

#[test]
fn states_stay_as_they_are_whatever_is_compacted_and_cleaned() {
    for seed in 0..4 {
        let mut world = World::new(seed, 4);
        for round in 0..10 {
            world.change(40);
            if round % 3 == 0 {
                world.retain();
            }
            world.table.compact().expect("compacts");
            world.check();
        }
        world.reopen(true).check();
    }
}

#[test]
fn an_opened_state_is_there_when_it_is_not_retained_any_more_and_when_the_table_is_dropped() {
    let mut world = World::new(3, 1);
    world.change(60);
    let seq = world.retain();
    let then = world.table.at(seq).expect("retained");
    let expected: Content = then.iter().collect::<Result<_, _>>().expect("scans");
    assert!(expected.len() > 20);
    let read = |what: &str| {
        let found: Content = then.iter().collect::<Result<_, _>>().expect("scans");
        assert!(found == expected, "{what}");
        let first = expected.keys().next().expect("a key");
        assert_eq!(then.get(first).expect("reads").as_ref(), expected.get(first), "{what}");
        assert_eq!(then.prefix(&first[..2]).count(), expected.keys().filter(|key| key[..2] == first[..2]).count());
    };
    for _ in 0..3 {
        world.change(60);
        world.retain();
        world.table.compact().expect("compacts");
    }
    let error = world.table.at(seq).expect_err("given up");
    assert!(matches!(&error, Error::NoSuchState { retained, .. } if retained.len() == 1), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    world.db.drop_caches();
    read("not retained");
    world.db.drop_table("t").expect("drops");
    (0..3).for_each(|_| world.db.checkpoint().expect("a checkpoint"));
    world.db.drop_caches();
    read("dropped");
    drop(then);
    drop(world.table);
    world.db.checkpoint().expect("a checkpoint");
    check_whole(&world.db);
}

#[test]
fn only_append_tables_retain_states_and_not_any_number() {
    let world = World::new(1, 0);
    let options = TableOptions::new().history(2);
    let error = world.db.table_with("b", Structure::BTree, &options).expect_err("in place");
    assert!(error.to_string().contains("history") && error.to_string().contains("append"), "{error}");
    let table = world.db.table("b", Structure::BTree).expect("created");
    assert_eq!(table.set_history(1).expect_err("in place").kind(), ErrorKind::InvalidInput);
    assert_eq!(world.table.set_history(braid::HISTORY_MAX + 1).expect_err("too many").kind(), ErrorKind::InvalidInput);
    let error = table.at(Seq(1)).expect_err("none is");
    assert!(error.to_string().ends_with("none is"), "{error}");
    assert_eq!(world.table.roll_back(Seq(1)).expect_err("none is").kind(), ErrorKind::NotFound);
    world.table.put("key", "value").expect("nothing is in the way");
}

#[test]
fn how_many_are_retained_can_be_chosen_later_and_is_durable() {
    let mut world = World::new(2, 0);
    world.change(30);
    world.db.checkpoint().expect("a checkpoint");
    assert_eq!(world.table.history(), []);
    world.table.set_history(2).expect("sets");
    let mut world = world.reopen(true);
    assert_eq!(world.db.tables()[0].settings.history, 2);
    world.retain();
    world.change(3);
    world.retain();
    let mut world = world.reopen(true);
    assert_eq!(world.table.history().len(), 2);
    world.table.set_history(1).expect("sets");
    assert_eq!(world.table.history().len(), 2, "until the next checkpoint");
    world.db.checkpoint().expect("a checkpoint");
    assert_eq!(world.table.history().len(), 1);
    world.check();
    world.table.set_history(0).expect("sets");
    world.db.checkpoint().expect("a checkpoint");
    world = world.reopen(false);
    assert_eq!((world.table.history().len(), world.db.tables()[0].settings.history), (0, 0));
    world.check();
}
