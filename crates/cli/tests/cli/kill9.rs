//! A process that commits on several threads is killed without warning, again and again. After each kill every
//! acknowledged commit is
//! there, none is in part, each thread's commits are a prefix of what it made, and nothing deleted is back.
//!
//! `BRAID_KILL_ROUNDS` says how often, 5 by default.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::common::{Place, command};
use braid::Database;
use rand::Rng;

const THREADS: usize = 4;

/// Runs a child for `time` after its first commit, kills it, and returns the last number that each thread acknowledged,
/// if it did any.
fn live_and_die(database: &str, durability: &str, time: Duration) -> Vec<Option<u64>> {
    let threads = THREADS.to_string();
    // A small write buffer, so that kills meet batches being applied, and not only commits.
    let arguments = [
        "crash-child",
        database,
        "--threads",
        &threads,
        "--durability",
        durability,
        "--write-buffer",
        "256KiB",
        "--cache",
        "1MiB",
    ];
    let mut child = command(&arguments).stdout(Stdio::piped()).spawn().expect("starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("the child commits").expect("a line");
    let mut acknowledged = vec![None; THREADS];
    let mut note = |line: &str| {
        let (thread, number) = line.split_once(' ').expect("thread and number");
        let thread: usize = thread.parse().expect("a thread");
        acknowledged[thread] = Some(number.parse().expect("a number"));
    };
    note(&first);
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            std::thread::sleep(time);
            child.kill().expect("killed");
            child.wait().expect("ended")
        });
        for line in lines {
            note(&line.expect("a line"));
        }
        let status = killer.join().expect("no panic");
        assert_eq!(status.code(), None, "the child ended by itself");
    });
    acknowledged
}

fn rounds(durability: &str) {
    let rounds =
        std::env::var("BRAID_KILL_ROUNDS").map_or(5, |rounds| rounds.parse().expect("BRAID_KILL_ROUNDS is a number"));
    let place = Place::new();
    let mut last = vec![0; THREADS];
    for round in 0..rounds {
        let time = Duration::from_millis(rand::rng().random_range(1..600));
        for (last, acknowledged) in last.iter_mut().zip(live_and_die(&place.database(), durability, time)) {
            *last = acknowledged.unwrap_or(*last);
        }
        let database = Database::open(place.database()).expect("opens without help");
        let (survivors, findings) = ::bench::crash::check(&database, &last).expect("reads");
        assert_eq!(findings, Vec::<String>::new(), "round {round}, killed after {time:?}");
        if round % 5 == 0 {
            let verification = database.verify().expect("reads");
            assert_eq!(verification.findings, Vec::<String>::new(), "round {round}");
        }
        last = survivors.iter().map(|survivor| survivor.last).collect();
        // Half of the children find a database that was closed, half one that was not.
        if round % 2 == 0 {
            database.close().expect("closes");
        }
    }
    assert!(last.iter().sum::<u64>() > 0);
    println!("{rounds} rounds, commits by thread: {last:?}");
}

#[test]
fn kill9_under_sync() {
    rounds("sync");
}

#[test]
fn kill9_under_os() {
    rounds("os");
}
