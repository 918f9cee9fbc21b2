use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use psync::sim::{Fault, SimDisk};

use super::*;

const SEGMENT_BYTES: u64 = 64 << 10;

/// A pool without segments.
fn pool(disk: &SimDisk) -> Pool {
    let store = FileStore::open(disk.psync(), Path::new("/db"), false).expect("the store opens");
    let geometry = Geometry::new(SEGMENT_BYTES).expect("valid");
    Pool::adopt(store, geometry, Arc::default(), Arc::default(), Vec::new(), Live::default()).expect("it opens")
}

#[test]
fn segments_are_written_ahead_only_where_flushes_are_frequent() {
    let mut pace = Pace::default();
    assert!(!pace.look(0, 0), "nothing is known");
    assert!(pace.look(4 << 20, 2));
    assert!(pace.look(4 << 20, 300), "as before: too little came since");
    assert!(!pace.look(6 << 20, 300));
    assert!(pace.look(8 << 20, 300), "no flush at all");

    let disk = SimDisk::new(3);
    let pool = pool(&disk);
    let written = || pool.store.counters(StreamKind::Wal).snapshot().written_bytes;
    pool.make_spares(1).expect("there is room");
    assert_eq!(written(), SEGMENT_BYTES);
    add(&pool.counters.group_bytes, 4 << 20);
    add(&pool.counters.flushes, 1);
    pool.make_spares(2).expect("there is room");
    assert_eq!(written(), SEGMENT_BYTES, "the second one is not written");
    // The second file has its room all the same.
    disk.set_capacity(Some(2 * SEGMENT_BYTES));
    assert!(matches!(pool.make_spares(3), Err(Error::Full { .. })));
    assert_eq!(pool.spares(), 2);
}

#[test]
fn attempts_on_a_full_disk_become_rare_and_a_trim_asks_for_one_at_once() {
    let disk = SimDisk::new(1);
    let pool = pool(&disk);
    let now = Cell::new(Instant::now());
    let clock = || now.get();
    let end = Lsn(SEGMENT_BYTES);
    pool.prepare(end, clock).expect("there is room");
    assert_eq!(pool.spares(), SPARES);
    pool.take(1, Claim::Put, 1).expect("a spare");
    disk.set_capacity(Some(3 * SEGMENT_BYTES));

    // An hour of calls, ten a second: eight while the pauses grow, then one a minute.
    let operations = disk.operations();
    let failed = (0..36_000).filter(|_| {
        now.set(now.get() + Duration::from_millis(100));
        pool.prepare(end, clock).is_err()
    });
    let failed = failed.count() as u64;
    assert!((60..70).contains(&failed), "{failed} attempts");
    let per_attempt = (disk.operations() - operations) / failed;
    assert!((1..10).contains(&per_attempt), "{per_attempt} operations each");
    let operations = disk.operations();
    pool.prepare(end, clock).expect("a pause is no error");
    assert_eq!(disk.operations(), operations);

    pool.trim(1).expect("nothing is trimmed");
    pool.prepare(end, clock).expect("a pause is no error");
    assert_eq!(disk.operations(), operations, "a trim of nothing is no reason to try again");
    pool.trim(2).expect("it trims");
    for number in 2..4 {
        pool.take(number, Claim::Upkeep, 1).expect("a spare");
    }
    assert!(matches!(pool.prepare(end, clock), Err(Error::Full { .. })), "a trim is");

    // Success ends the pause too: the next failure is the first of a new row.
    disk.set_capacity(Some(4 * SEGMENT_BYTES));
    now.set(now.get() + Duration::from_secs(60));
    assert!(matches!(pool.prepare(end, clock), Err(Error::Full { .. })), "one more fits, not two");
    assert_eq!(pool.spares(), 2);
    now.set(now.get() + Duration::from_millis(250));
    assert!(matches!(pool.prepare(end, clock), Err(Error::Full { .. })), "and the pause is short again");
}

#[test]
fn spares_that_cannot_be_removed_stay_spares_and_hide_no_other_error() {
    const EIO: i32 = 5;
    let disk = SimDisk::new(1);
    let pool = pool(&disk);
    pool.make_spares(12).expect("there is room");
    disk.fail_operation(Fault::Name, 1, EIO);
    assert!(pool.shed().is_err());
    let left = pool.spares();
    let files = |pool: &Pool| pool.store.list("wal").expect("lists").len();
    assert_eq!(files(&pool), left, "each file is a spare, and can be removed later");
    pool.shed().expect("the other removals work");
    assert_eq!((pool.spares(), files(&pool)), (left - 1, left - 1));

    let failed = (1..60).filter(|count| {
        let disk = SimDisk::new(1);
        let pool = self::pool(&disk);
        disk.set_capacity(Some(8 * SEGMENT_BYTES));
        disk.fail_operation(Fault::Name, *count, EIO);
        let made = pool.make_row(20);
        disk.faults_left() == 0 && matches!(made, Err(Error::Full { .. })) && files(&pool) > 2
    });
    assert!(failed.count() > 0, "a removal failed, and still the row could not be made because the disk is full");
}
