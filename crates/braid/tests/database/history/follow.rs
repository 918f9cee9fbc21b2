//! Whoever follows a database, or copies it, across a rollback.

use std::{ops::ControlFlow, path::Path};

use braid::{ChangeEvent, Options, Seq};
use psync::sim::SimDisk;

use super::world::World;
use crate::whole::{check_whole, content};

#[test]
fn the_feed_says_that_a_table_begins_anew() {
    let mut world = World::new(1, 5);
    world.change(10);
    let first = world.retain();
    world.change(10);
    let before = world.db.snapshot().seq();
    world.roll_back(first);
    world.change(1);
    let mut changes = world.db.changes(before).expect("kept");
    let next = changes.next().expect("a change").expect("reads");
    let ChangeEvent::RolledBack { table, to } = next.event else { panic!("{next:?}") };
    assert_eq!((&*table.name, to, next.seq), ("t", first, Seq(before.0 + 1)));
    let next = changes.next().expect("a change").expect("reads");
    assert!(matches!(next.event, ChangeEvent::Commit(_)), "{next:?}");
    assert!(changes.next().is_none());
    check_whole(&world.db);
}

#[test]
fn backups_have_what_there_is_behind_a_rollback() {
    let on = &mut |_| ControlFlow::Continue(());
    let mut world = World::new(2, 5);
    world.change(30);
    let first = world.retain();
    world.change(20);
    let (mut stream, full) = (Vec::new(), world.db.begin_backup().expect("begins"));
    let point = full.stream(&mut stream, on).expect("a backup").point;
    // One that began before has what there was then.
    world.change(10);
    let (old, begun) = (world.now(), world.db.begin_backup().expect("begins"));
    world.change(10);
    world.roll_back(first);
    world.change(10);
    let restored = |stream: &[u8], what: &str| {
        let disk = SimDisk::new(1);
        let options = || Options::new().background(false).segment_bytes(1 << 20).clock(world.clock());
        options().restore_on(disk.psync(), stream, Path::new("/again")).expect(what);
        let db = options().open_on(disk.psync(), Path::new("/again")).expect("opens");
        check_whole(&db);
        assert_eq!(db.tables()[0].settings.history, 5, "{what}");
        content(&db.open_table("t").expect("there"))
    };
    let mut older = stream.clone();
    begun.stream_since(&point, &mut older, on).expect("a backup");
    assert!(restored(&older, "begun before") == old);
    drop(begun);
    let next = world.db.begin_backup().expect("begins");
    next.stream_since(&point, &mut stream, on).expect("a backup");
    assert!(restored(&stream, "behind") == world.now());
    let mut whole = Vec::new();
    next.stream(&mut whole, on).expect("a backup");
    assert!(restored(&whole, "whole") == world.now());
}
