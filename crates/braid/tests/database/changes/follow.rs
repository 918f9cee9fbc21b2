//! Following a database while threads write to it.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use braid::{Change, ChangeEvent, ChangeOperation, Changes, Database, Durability, Error, Options, Seq, Structure};
use psync::sim::SimDisk;

const WRITERS: u8 = 2;
const COMMITS: u32 = 1500;
/// Long enough for whatever may keep a thread from running.
const LONG: Duration = Duration::from_secs(120);

fn options() -> Options {
    Options::new().cache_bytes(1 << 20).write_buffer_bytes(256 << 10).segment_bytes(64 << 10).leaf_pages(1)
}

fn key(writer: u8, commit: u32) -> Vec<u8> {
    [&[writer][..], &commit.to_be_bytes()].concat()
}

/// Some are documents.
fn value(commit: u32) -> Vec<u8> {
    vec![commit.to_le_bytes()[0]; if commit.is_multiple_of(40) { 5000 } else { 100 + commit as usize % 300 }]
}

fn write(db: &Database, writer: u8) {
    let table = db.open_table("t").expect("the table");
    for commit in 0..COMMITS {
        let durability = match commit % 3 {
            0 => Durability::Lazy(Duration::from_millis(1)),
            1 => Durability::Os,
            _ => Durability::Sync,
        };
        table.put_with(key(writer, commit), value(commit), durability).expect("put");
    }
}

/// Which writer's which commit it is, after a look at the value.
fn commit(change: Change) -> Option<(u8, u32)> {
    let ChangeEvent::Commit(mut operations) = change.event else { return None };
    let Some(ChangeOperation::Put { key, value: found, .. }) = operations.pop() else { panic!("a put") };
    assert!(operations.is_empty());
    let commit = u32::from_be_bytes(key[1..].try_into().expect("five bytes"));
    assert!(found == value(commit), "commit {commit} of writer {}", key[0]);
    Some((key[0], commit))
}

/// Follows until every commit was seen, each writer's in order.
fn follow_all(mut feed: Changes) {
    let (mut seq, mut next) = (feed.seq(), [0; WRITERS as usize]);
    while next != [COMMITS; WRITERS as usize] {
        assert!(feed.wait(LONG).expect("nothing fails"), "nothing came after {seq:?}");
        for change in feed.by_ref() {
            let change = change.expect("it reads");
            assert_eq!(change.seq.0, seq.0 + 1);
            seq = change.seq;
            if let Some((writer, commit)) = commit(change) {
                assert_eq!(commit, next[usize::from(writer)], "writer {writer}");
                next[usize::from(writer)] += 1;
            }
        }
    }
}

#[test]
fn a_follower_sees_everything_while_threads_write() {
    let disk = SimDisk::new(1);
    let db = options().retain_log_bytes(64 << 20).open_on(disk.psync(), Path::new("/db")).expect("opens");
    db.table("t", Structure::BTree).expect("a table");
    let feeds = [0, 1].map(|from| db.changes(Seq(from)).expect("it is kept"));
    thread::scope(|scope| {
        feeds.into_iter().for_each(|feed| drop(scope.spawn(|| follow_all(feed))));
        (0..WRITERS).for_each(|writer| {
            drop(scope.spawn({
                let db = &db;
                move || write(db, writer)
            }))
        });
    });
    // And afterwards, in large reads.
    follow_all(db.changes(Seq(0)).expect("it is kept"));
}

#[test]
fn nothing_wrong_is_shown_while_segments_are_recycled() {
    let disk = SimDisk::new(2);
    let db = options().open_on(disk.psync(), Path::new("/db")).expect("opens");
    db.table("t", Structure::BTree).expect("a table");
    let done = AtomicBool::new(false);
    let gone = thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let db = &db;
                scope.spawn(move || write(db, writer))
            })
            .collect();
        let follower = scope.spawn(|| {
            let (mut from, mut gone) = (Seq(0), 0);
            while !done.load(Ordering::Acquire) {
                // Each goes on from where the last one was, or from what there is.
                let mut feed = match db.changes(from) {
                    Ok(feed) => feed,
                    Err(Error::ChangesGone { oldest, .. }) => {
                        gone += 1;
                        from = Seq(oldest - 1);
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                for change in feed.by_ref().take(200) {
                    match change {
                        Ok(change) => {
                            assert_eq!(change.seq.0, from.0 + 1);
                            from = change.seq;
                            commit(change);
                        }
                        Err(Error::ChangesGone { after, oldest }) => {
                            assert!(after == from.0 && after < oldest, "{after} and {oldest}, after {from:?}");
                            gone += 1;
                            from = Seq(oldest - 1);
                            break;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            gone
        });
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            db.checkpoint().expect("a checkpoint");
        }
        done.store(true, Ordering::Release);
        follower.join().expect("no panic")
    });
    println!("{gone} times the log was not there any more");
}

#[test]
fn a_wait_ends_with_a_change_or_with_the_database() {
    let disk = SimDisk::new(3);
    let db = options().open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", Structure::BTree).expect("a table");
    let mut feed = db.changes(Seq(0)).expect("it is kept");
    assert!(feed.wait(Duration::ZERO).expect("nothing fails"), "the table is new");
    assert_eq!(feed.by_ref().count(), 1);
    assert!(!feed.wait(Duration::from_millis(1)).expect("nothing fails"), "there is nothing newer");
    thread::scope(|scope| {
        let waits = scope.spawn(|| feed.wait(LONG).expect("nothing fails"));
        table.put("a", "1").expect("put");
        assert!(waits.join().expect("no panic"));
    });
    assert_eq!(feed.by_ref().count(), 1);
    thread::scope(|scope| {
        let waits = scope.spawn(|| feed.wait(LONG));
        db.close().expect("closes");
        assert!(matches!(waits.join().expect("no panic"), Err(Error::Closed)));
    });
}
