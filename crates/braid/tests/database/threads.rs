//! Power goes while many threads commit: what each was told is durable is there, whole, and of every thread a prefix.

use std::{path::Path, thread};

use braid::{Database, Durability, FlushScheme, Options, Structure, WriteBatch};
use psync::sim::SimDisk;

const THREADS: u8 = 6;
/// More than any life gets to.
const COMMITS: u32 = 100_000;

fn options() -> Options {
    Database::options()
        .cache_bytes(1 << 20)
        .write_buffer_bytes(1 << 20)
        .segment_bytes(64 << 10)
        .leaf_pages(1)
        .durability(Durability::Sync)
}

fn key(thread: u8, commit: u32, half: u8) -> [u8; 6] {
    let [a, b, c, d] = commit.to_be_bytes();
    [thread, a, b, c, d, half]
}

fn value(commit: u32) -> Vec<u8> {
    vec![u8::try_from(commit % 251).expect("a byte"); 1 + usize::try_from(commit * 37 % 900).expect("small")]
}

/// Commits pairs of keys until the power goes; how many were acknowledged.
fn committer(database: &Database, thread: u8) -> Option<u32> {
    let table = database.open_table("t").ok()?;
    for commit in 0..COMMITS {
        let mut batch = WriteBatch::new();
        batch.put(&table, key(thread, commit, 0), value(commit));
        batch.put(&table, key(thread, commit, 1), value(commit));
        if database.write(&batch).is_err() {
            return Some(commit);
        }
    }
    Some(COMMITS)
}

/// Records that entered the log in slots.
fn life(structure: Structure, seed: u64) -> u64 {
    let disk = SimDisk::new(seed);
    let scheme = FlushScheme::ALL[usize::try_from(seed).expect("small") % FlushScheme::ALL.len()];
    let database = options().flush_scheme(scheme).open_on(disk.psync(), Path::new("/db")).expect("it opens");
    database.table("t", structure).expect("a table");
    disk.crash_after(20 + seed * 7 % 300);
    let acknowledged: Vec<u32> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let database = &database;
                    move || committer(database, thread).expect("the table is there")
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let consolidated = database.stats().map_or(0, |stats| stats.log.consolidated_records);
    drop(database);
    disk.restart();
    let database = options().open_on(disk.psync(), Path::new("/db")).expect("it opens again");
    let table = database.open_table("t").expect("the table");
    for (thread, acknowledged) in (0..THREADS).zip(acknowledged) {
        // The one that met the failure may be there.
        let mut end = false;
        for commit in 0..acknowledged + 2 {
            let halves = [0, 1].map(|half| table.get(key(thread, commit, half)).expect("it reads"));
            let whole = halves.iter().all(|half| half.as_ref() == Some(&value(commit)));
            assert!(
                whole || halves == [None, None],
                "seed {seed}: commit {commit} of thread {thread} is there in part"
            );
            assert!(whole || commit >= acknowledged, "seed {seed}: commit {commit} of thread {thread} is lost");
            assert!(
                !(whole && end),
                "seed {seed}: commit {commit} of thread {thread} is there, and one before it is not"
            );
            end |= !whole;
        }
    }
    consolidated
}

fn what_threads_were_told_survives_every_crash(structure: Structure) {
    let consolidated: u64 = (0..80).map(|seed| life(structure, seed)).sum();
    println!("{consolidated} records went through slots");
}

on_every_structure!(what_threads_were_told_survives_every_crash,);
