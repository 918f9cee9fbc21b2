//! What states hold of space: they are pinned, counted, and give it back.

use super::world::World;

fn compact(world: &World) {
    world.table.compact().expect("compacts");
}

#[test]
fn history_that_shrinks_gives_its_space_back() {
    let mut world = World::new(5, 4);
    for _ in 0..4 {
        world.change(150);
        world.retain();
        compact(&world);
    }
    let stats = world.table.stats().expect("stats");
    assert_eq!(stats.history_states, 4);
    assert!(stats.history_bytes > 500_000, "{} bytes of history", stats.history_bytes);
    let (files, before) = (world.files(), stats.document_bytes + stats.own_bytes);
    world.check();

    // A power cut and an opening leave everything there.
    let world = world.reopen(true);
    let stats = world.table.stats().expect("stats");
    assert_eq!(stats.history_states, 4);
    world.check();

    world.table.set_history(0).expect("sets");
    compact(&world);
    (0..2).for_each(|_| world.db.checkpoint().expect("a checkpoint"));
    let stats = world.table.stats().expect("stats");
    assert_eq!((stats.history_states, stats.history_bytes), (0, 0));
    let after = stats.document_bytes + stats.own_bytes;
    assert!(after + 500_000 < before && world.files() < files, "{after} of {before} bytes, {} files", world.files());
    assert!(stats.document_bytes < 2 * stats.document_live_bytes, "{stats:?}");
    world.check();
}

#[test]
fn what_states_hold_is_no_garbage_that_is_cleaned_without_end() {
    let world = World::new(6, 10);
    let put = |round: u8, keys: &mut dyn Iterator<Item = u8>| {
        keys.for_each(|key| world.table.put([key], vec![round; 20_000]).map(drop).expect("puts"));
        world.db.drain().expect("applies");
    };
    put(1, &mut (0..100));
    world.db.checkpoint().expect("a checkpoint");
    // Two documents of three are dead in each segment, and all of them are retained.
    put(2, &mut (0..100).filter(|key| key % 3 > 0));
    (0..20).for_each(|_| world.db.drain().expect("nothing to do"));
    let moved = || world.db.stats().expect("stats").document_bytes_cleaned;
    let stats = world.table.stats().expect("stats");
    assert!(stats.document_bytes * 2 > stats.document_live_bytes * 3, "{stats:?}");
    assert!(stats.history_bytes > 1_000_000 && moved() < 100_000, "{} bytes moved", moved());
    // Without the state it is garbage as any.
    world.table.set_history(0).expect("sets");
    (0..3).for_each(|_| world.db.checkpoint().expect("a checkpoint"));
    let stats = world.table.stats().expect("stats");
    assert!(stats.document_bytes * 2 < stats.document_live_bytes * 3, "{stats:?}");
    assert!(moved() > 200_000, "{} bytes moved", moved());
    crate::whole::check_whole(&world.db);
}

#[test]
fn a_dropped_table_takes_its_states_along() {
    let mut world = World::new(7, 8);
    for _ in 0..4 {
        world.change(80);
        world.retain();
    }
    // The log of what was committed is kept for a while, with the documents that it names.
    let clock = world.clock();
    let World { disk, db, table, .. } = world;
    drop(table);
    db.drop_table("t").expect("drops");
    db.close().expect("closes");
    let again = || {
        let options = braid::Options::new().background(false).segment_bytes(64 << 10).clock(clock.clone());
        options.open_on(disk.psync(), std::path::Path::new("/db")).expect("opens")
    };
    let db = again();
    (0..3).for_each(|_| db.checkpoint().expect("a checkpoint"));
    crate::whole::check_whole(&db);
    let left: Vec<_> = disk.files().into_iter().filter(|path| !path.starts_with("/db/wal")).collect();
    assert!(left.iter().all(|path| !path.starts_with("/db/doc") && !path.starts_with("/db/node")), "{left:?}");
}
