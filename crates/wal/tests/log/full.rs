//! A full disk is an error that goes away; deletes and upkeep have a reserve.

use psync::sim::SimDisk;
use wal::Claim::{Delete, Put, Upkeep};
use wal::{Claim, Error, Lsn, Wal};

use crate::common::{SEGMENT_BYTES, append, commit, open, options, store};

/// Appends until the log says that the disk is full.
fn fill(wal: &Wal, claim: Claim) -> u64 {
    let mut count = 0;
    loop {
        match wal.append(1, &[&[7; 1000]], true, claim) {
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

/// Whether there is room for a record.
#[track_caller]
fn goes(wal: &Wal, claim: Claim) -> bool {
    match wal.append(1, &[b"one"], true, claim) {
        Ok(_) => true,
        Err(Error::Full { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// A log in its second segment, on a disk with room for it, its three spares and `more` segments; and where it begins.
fn nearly_full(disk: &SimDisk, more: u64) -> (Wal, Lsn) {
    let (wal, ..) = open(&store(disk), &options(1)).expect("it opens");
    fill_some(&wal, 70);
    commit(&wal, 2, b"the checkpoint is behind it");
    let start = wal.durable();
    wal.trim(start).expect("it trims");
    wal.prepare().expect("there is room");
    let stats = wal.stats();
    assert_eq!((stats.segments_live, stats.segments_spare), (1, 3), "{stats:?}");
    disk.set_capacity(Some((4 + more) * SEGMENT_BYTES));
    (wal, start)
}

/// Records of [`fill`] that fit into a segment.
const PER_SEGMENT: u64 = (SEGMENT_BYTES - 4096 - 64) / 1012;

#[test]
fn a_full_disk_is_retryable_and_keeps_a_reserve() {
    let disk = SimDisk::new(1);
    let (wal, _) = nearly_full(&disk, 1);
    let seq = wal.last_seq();
    let written = fill(&wal, Put);
    assert!(written >= 2 * PER_SEGMENT, "a segment was there, another could be made: {written}");
    assert_eq!(wal.last_seq(), seq + written, "what was refused took no seq");
    assert!(wal.failed().is_none());
    assert!(matches!(wal.prepare(), Err(Error::Full { .. })));
    wal.flush_through(wal.end()).expect("the log is well");

    // Deletes take one more, upkeep the last, and nobody fills up what was kept for another.
    assert_eq!(wal.stats().segments_spare, 2);
    assert!(goes(&wal, Delete));
    assert_eq!(wal.stats().segments_spare, 2, "there is a little room in the segment that puts have filled");
    assert!((PER_SEGMENT..PER_SEGMENT + 2).contains(&fill(&wal, Delete)));
    assert_eq!(wal.stats().segments_spare, 1);
    assert!(!goes(&wal, Put));
    assert!((PER_SEGMENT..PER_SEGMENT + 2).contains(&fill(&wal, Upkeep)));
    assert_eq!(wal.stats().segments_spare, 0);
    assert!(!goes(&wal, Put) && !goes(&wal, Delete));
    wal.flush_through(wal.end()).expect("the log is well");
    let files = store(&disk).list("wal").expect("it lists").len();
    assert_eq!(files, 5, "nothing is left of what did not fit");

    // A checkpoint frees segments, and the log goes on, within the same room.
    wal.trim(wal.durable()).expect("it trims");
    let last = commit(&wal, 2, b"last");
    assert!(fill(&wal, Put) >= PER_SEGMENT);
    disk.set_capacity(None);
    fill_some(&wal, 200);
    wal.flush_through(wal.end()).expect("it is flushed");
    let count = usize::try_from(wal.last_seq() - last.seq + 1).expect("small");
    drop(wal);
    let from = wal::Options { start: last.lsn, ..options(2) };
    let (wal, replayed, shown) = open(&store(&disk), &from).expect("it opens");
    assert_eq!(shown.first(), Some(&last));
    assert_eq!(shown.len(), count);
    assert_eq!(wal.last_seq(), replayed.last_seq);
}

#[test]
fn nobody_fills_up_what_was_kept_for_another() {
    let disk = SimDisk::new(1);
    let (wal, start) = nearly_full(&disk, 0);
    fill(&wal, Put);
    fill(&wal, Delete);
    // The last segment holds a single record.
    wal.append(1, &[&[7; 1000]], false, Upkeep).expect("the last segment");
    assert_eq!(wal.stats().segments_spare, 0);
    assert!(!goes(&wal, Put) && !goes(&wal, Delete) && goes(&wal, Upkeep));
    wal.flush_through(wal.end()).expect("it is flushed");
    drop(wal);

    // So it is when it is opened again, and each segment that is trimmed gives back a part of the reserve.
    let (wal, ..) = open(&store(&disk), &wal::Options { start, ..options(2) }).expect("it opens");
    assert_eq!(wal.stats().segments_live, 4);
    assert!(!goes(&wal, Put) && !goes(&wal, Delete) && goes(&wal, Upkeep));
    for (number, put, delete) in [(2, false, true), (3, true, true), (4, true, true)] {
        wal.trim(Lsn(number * SEGMENT_BYTES)).expect("it trims");
        assert_eq!(wal.stats().segments_spare, number - 1);
        assert_eq!((goes(&wal, Put), goes(&wal, Delete)), (put, delete), "{number}");
    }
    assert!(fill(&wal, Put) >= PER_SEGMENT, "with three spares, puts grow into one");
}

#[test]
fn room_for_the_reserve_lets_in_who_leaves_it() {
    let disk = SimDisk::new(1);
    let (wal, _) = nearly_full(&disk, 0);
    fill(&wal, Put);
    fill(&wal, Delete);
    wal.append(1, &[&[7; 1000]], false, Upkeep).expect("the last segment");
    // There is space in the segment; what each has to leave is one file more.
    for (files, put, delete) in [(4, false, false), (5, false, true), (6, true, true)] {
        disk.set_capacity(Some(files * SEGMENT_BYTES));
        assert_eq!((goes(&wal, Delete), goes(&wal, Put)), (delete, put), "{files} files");
    }
    assert_eq!(wal.stats().segments_spare, 2);
}

#[test]
fn spares_come_with_the_use_of_the_first_segment() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    for spares in [0, 1, 2, 3] {
        wal.prepare().expect("it prepares");
        wal.prepare().expect("it prepares");
        let stats = wal.stats();
        assert_eq!((stats.segments_live, stats.segments_spare), (1, spares), "in quarter {spares}");
        append(&wal, 1, &vec![7; usize::try_from(SEGMENT_BYTES / 4 - 4096).expect("small")]);
        append(&wal, 1, &[7; 4096 - 200]);
    }
}

#[test]
fn a_put_makes_the_reserve_before_it_leaves_the_first_segment() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    disk.set_capacity(Some(3 * SEGMENT_BYTES));
    fill(&wal, Put);
    assert_eq!(
        (wal.stats().segments_live, wal.stats().segments_spare),
        (1, 2),
        "what there was room for is the reserve"
    );
    assert!(fill(&wal, Delete) >= PER_SEGMENT);
    assert!(fill(&wal, Upkeep) >= PER_SEGMENT);

    // With no room from the start, a put leaves a half of the first segment, and a delete a quarter, until there is
    // room.
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    disk.set_capacity(Some(SEGMENT_BYTES));
    let taken = [Put, Delete, Upkeep].map(|claim| 8 * fill(&wal, claim) / PER_SEGMENT);
    assert!(matches!(taken, [3 | 4, 1 | 2, 1 | 2]), "{taken:?} eighths");
    disk.set_capacity(None);
    fill_some(&wal, 1);
}

#[test]
fn preparing_on_a_full_disk_pauses() {
    let disk = SimDisk::new(1);
    let (wal, _) = nearly_full(&disk, 0);
    fill(&wal, Put);
    wal.flush_through(wal.end()).expect("it is flushed");
    let before = disk.operations();
    assert!(matches!(wal.prepare(), Err(Error::Full { .. })));
    let attempt = disk.operations() - before;
    assert!(attempt > 1, "it tried");
    // However slow this goes: pauses that double leave no more attempts than this in a quarter of an hour.
    let refused = (0..10_000).filter(|_| wal.prepare().is_err()).count() as u64;
    assert!(refused < 25, "{refused} attempts");
    assert_eq!(disk.operations() - before, (1 + refused) * attempt, "between attempts, nothing is written");
    // Appends try anyway.
    assert_eq!(fill(&wal, Put), 0);
    assert_eq!(disk.operations() - before, (2 + refused) * attempt);

    // A trim ends the pause.
    wal.trim(Lsn(2 * SEGMENT_BYTES)).expect("it trims");
    assert_eq!(wal.stats().segments_spare, 3);
    fill(&wal, Put);
    wal.flush_through(wal.end()).expect("it is flushed");
    disk.set_capacity(None);
    wal.prepare().expect("there is room");
    assert_eq!(wal.stats().segments_spare, 3);
}

fn fill_some(wal: &Wal, count: usize) {
    for _ in 0..count {
        wal.append(1, &[&[7; 1000]], true, Put).expect("it is appended");
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
    assert!(wal.stats().segments_spare <= 4, "{:?}", wal.stats());
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

/// A log whose segments are longer than its first file is at first.
fn long(epoch: u64) -> wal::Options {
    wal::Options { segment_bytes: 1 << 20, ..options(epoch) }
}

#[test]
fn the_first_segment_grows_with_the_log_and_leaves_room_to_deletes() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &long(1)).expect("it opens");
    let length = || disk.read_file("/db/wal/0.log").expect("it is there").len();
    assert_eq!(length(), 64 << 10);
    disk.set_capacity(Some(64 << 10));
    let refused = |claim| loop {
        match wal.append(1, &[&[7; 1000]], true, claim) {
            Ok(position) => assert!(position.end.0 <= 64 << 10),
            Err(Error::Full { .. }) => return wal.end().0,
            Err(error) => panic!("{error}"),
        }
    };
    let (puts, deletes, upkeep) = (refused(Put), refused(Delete), refused(Upkeep));
    assert!(
        puts <= 32 << 10 && puts + (15 << 10) < deletes && deletes + (11 << 10) < upkeep && upkeep <= 60 << 10,
        "{puts} {deletes} {upkeep}"
    );
    wal.flush_through(wal.end()).expect("what was let in goes in");
    assert_eq!(length(), 64 << 10);
    // Room that comes is taken, in steps, and at last there are spares.
    disk.set_capacity(None);
    append(&wal, 1, &[7; 1000]);
    assert_eq!(length(), 256 << 10);
    append(&wal, 1, &[7; 300_000]);
    assert_eq!(length(), 1 << 20);
    for _ in 0..3 {
        append(&wal, 1, &[7; 900_000]);
    }
    wal.trim(wal.durable()).expect("it trims");
    commit(&wal, 2, b"more");
    wal.trim(wal.durable()).expect("it trims");
    assert!(disk.read_file("/db/wal/0.log").is_none_or(|file| file.len() == 1 << 20));
}

#[test]
fn nothing_is_lost_of_a_log_that_grows_whenever_the_power_goes() {
    for operations in 0.. {
        let disk = SimDisk::new(operations);
        let mut committed = Vec::new();
        disk.crash_after(operations);
        let ended = (|| {
            let (wal, ..) = open(&store_of(&disk)?, &long(1))?;
            for number in 0..60_u8 {
                let position = wal.append(1, &[&[number; 5000]], true, Put)?;
                wal.flush_through(position.end)?;
                committed.push(number);
            }
            Ok::<_, Error>(())
        })();
        disk.restart();
        let (wal, _, shown) = open(&store(&disk), &long(2)).expect("it opens");
        assert!(shown.len() >= committed.len(), "{operations}: {} of {}", shown.len(), committed.len());
        assert!(shown.iter().zip(0..).all(|(record, number)| record.payload == [number; 5000]), "{operations}");
        let more = commit(&wal, 1, b"behind");
        drop(wal);
        let (_, _, again) = open(&store(&disk), &long(3)).expect("it opens");
        assert_eq!((again.len(), again.last().map(|last| last.seq)), (shown.len() + 1, Some(more.seq)));
        if ended.is_ok() {
            return;
        }
    }
}

fn store_of(disk: &SimDisk) -> Result<space::FileStore, Error> {
    Ok(space::FileStore::open(disk.psync(), std::path::Path::new("/db"), false)?)
}
