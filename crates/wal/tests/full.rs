//! A full disk is an error that goes away; deletes have a reserve.

mod common;

use common::{SEGMENT_BYTES, commit, open, options, store};
use psync::sim::SimDisk;
use wal::{Error, Lsn};

/// Appends until the log says that the disk is full.
fn fill(wal: &wal::Wal, reserve: bool) -> u64 {
    let mut count = 0;
    loop {
        match wal.append(1, &[&[7; 1000]], true, reserve) {
            Ok(_) => count += 1,
            Err(Error::Full { segment_bytes, .. }) => {
                assert_eq!(segment_bytes, SEGMENT_BYTES);
                return count;
            }
            Err(error) => panic!("{error}"),
        }
        assert!(count < 10_000, "the disk never fills");
    }
}

#[test]
fn a_full_disk_is_retryable_and_keeps_a_reserve() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    wal.prepare().expect("there is room");
    assert_eq!(wal.stats().segments_spare, 2);
    disk.set_capacity(Some(3 * SEGMENT_BYTES));
    let seq = wal.last_seq();
    let written = fill(&wal, false);
    assert!(written > 60, "two segments were there");
    assert_eq!(wal.last_seq(), seq + written, "what was refused took no seq");
    assert!(wal.failed().is_none());
    assert!(matches!(wal.prepare(), Err(Error::Full { .. })));
    wal.flush_through(wal.end()).expect("the log is well");

    // The reserve takes some more.
    assert!(fill(&wal, true) > 30);
    assert_eq!(wal.stats().segments_spare, 0);
    wal.flush_through(wal.end()).expect("the log is well");
    let files = store(&disk).list("wal").expect("it lists").len();
    assert_eq!(files, 3, "nothing is left of what did not fit");

    // A checkpoint frees segments, and the log goes on; the first freed one is the reserve again.
    wal.trim(wal.durable()).expect("it trims");
    let last = commit(&wal, 2, b"last");
    disk.set_capacity(None);
    fill_some(&wal, 200);
    wal.flush_through(wal.end()).expect("it is flushed");
    drop(wal);
    let from = wal::Options { start: last.lsn, ..options(2) };
    let (wal, replayed, shown) = open(&store(&disk), &from).expect("it opens");
    assert_eq!(shown.first(), Some(&last));
    assert_eq!(shown.len(), 201);
    assert_eq!(wal.last_seq(), replayed.last_seq);
}

fn fill_some(wal: &wal::Wal, count: usize) {
    for _ in 0..count {
        wal.append(1, &[&[7; 1000]], true, false).expect("it is appended");
    }
}

#[test]
fn a_disk_that_is_full_from_the_start_says_so() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(1000));
    assert!(matches!(open(&store(&disk), &options(1)), Err(Error::Full { .. })));
    disk.set_capacity(None);
    open(&store(&disk), &options(1)).expect("it opens");
}

#[test]
fn trimmed_segments_are_used_again_and_excess_goes() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    for _ in 0..20 {
        fill_some(&wal, 300);
        wal.flush_through(wal.end()).expect("it is flushed");
        wal.trim(wal.end()).expect("it trims");
    }
    let stats = wal.stats();
    assert!(stats.segments_created < 12, "{stats:?}");
    assert!(stats.segments_recycled > 80, "{stats:?}");
    // A calmer workload needs fewer spares.
    for _ in 0..40 {
        fill_some(&wal, 70);
        wal.flush_through(wal.end()).expect("it is flushed");
        wal.trim(wal.end()).expect("it trims");
    }
    assert!(wal.stats().segments_spare <= 3, "{:?}", wal.stats());
    let files = store(&disk).list("wal").expect("it lists").len() as u64;
    assert_eq!(files, wal.stats().segments_spare + wal.stats().segments_live);
}

#[test]
fn nothing_is_trimmed_that_is_not_durable() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    let first = commit(&wal, 1, b"first");
    fill_some(&wal, 300);
    wal.trim(wal.end()).expect("it trims");
    assert_eq!(wal.stats().segments_recycled, 0);
    wal.flush_through(wal.end()).expect("it is flushed");
    drop(wal);
    let (_, _, shown) = open(&store(&disk), &options(2)).expect("it opens");
    assert_eq!((shown.len(), &shown[0]), (301, &first));
    assert!(shown[0].lsn > Lsn(4096));
}
