//! A segment is made longer while the log is in it: whatever fails meanwhile, what a flush acknowledged is there.

use psync::sim::{Fault, SimDisk};
use wal::Claim::Put;
use wal::{Error, Wal};

use crate::common::{append, commit, open, options, store};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// A log whose segments are longer than its first file is at first.
fn long(epoch: u64) -> wal::Options {
    wal::Options { segment_bytes: 1 << 20, ..options(epoch) }
}

/// Makes the first segment longer.
type Grow = fn(&Wal) -> Result<(), Error>;

const WAYS: [(&str, Grow); 3] = [
    ("ahead of time", |wal| wal.prepare()),
    ("for the reserve", |wal| wal.reserve(u64::MAX)),
    ("for an append", |wal| wal.append(1, &[&[9; 40_000]], true, Put).map(drop)),
];

/// Records that are written and not flushed are in the segment, one operation of the disk fails while it grows, and
/// others go on.
fn grow_and_lose_power(seed: u64, grow: Grow, fault: Fault, passing: u64, errno: i32) -> Result<(), String> {
    let disk = SimDisk::new(seed);
    let (wal, ..) = open(&store(&disk), &long(1)).expect("it opens");
    let before = append(&wal, 1, &[1; 20_000]);
    wal.write_through(wal.end()).expect("it is written");
    disk.fail_operation(fault, passing, errno);
    let grown = grow(&wal);
    match &grown {
        // Nothing of the log is in doubt.
        Ok(()) | Err(Error::Full { .. }) => assert!(wal.failed().is_none()),
        Err(error) if fault == Fault::Name => assert!(matches!(error, Error::Io(_) | Error::Space(_)), "{error}"),
        Err(error) => assert!(wal.failed().is_some() || matches!(error, Error::Io(_) | Error::Space(_)), "{error}"),
    }
    let acknowledged = (|| {
        let position = wal.append(1, &[b"acknowledged"], true, Put)?;
        wal.flush_through(position.end)?;
        Ok::<_, Error>(position.seq)
    })();
    drop(wal);
    disk.restart();
    let (_, _, shown) = open(&store(&disk), &long(2)).map_err(|error| format!("it does not open: {error}"))?;
    if acknowledged.is_ok_and(|seq| shown.last().is_none_or(|last| last.seq != seq) || shown[0] != before) {
        return Err(format!("{} records are there, and one that was acknowledged is not ({grown:?})", shown.len()));
    }
    Ok(())
}

#[test]
fn what_fails_while_a_segment_grows_costs_no_acknowledged_record() {
    for (way, grow) in WAYS {
        for fault in [Fault::Flush, Fault::Write, Fault::Growth, Fault::Name] {
            for (seed, errno) in (0..12).zip([EIO, ENOSPC].into_iter().cycle()) {
                for passing in 0..4 {
                    if let Err(broken) = grow_and_lose_power(seed, grow, fault, passing, errno) {
                        panic!("grown {way}, {fault:?} {passing} fails with {errno}, seed {seed}: {broken}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_segment_that_cannot_be_written_fails_the_log_and_one_on_a_full_disk_does_not() {
    for (way, grow) in WAYS {
        let disk = SimDisk::new(1);
        let (wal, ..) = open(&store(&disk), &long(1)).expect("it opens");
        append(&wal, 1, &[1; 20_000]);
        disk.fail_operation(Fault::Growth, 0, ENOSPC);
        assert!(matches!(grow(&wal), Err(Error::Full { .. })), "{way}");
        commit(&wal, 1, b"the log is well");
        disk.fail_operation(Fault::Growth, 0, EIO);
        // The first attempt has begun a pause.
        let failed = if way == "ahead of time" { wal.reserve(u64::MAX) } else { grow(&wal) };
        assert!(matches!(failed, Err(Error::Failed(_))), "{way}: {failed:?}");
        assert!(matches!(wal.flush_through(wal.end()), Err(Error::Failed(_))), "{way}");
        assert!(matches!(wal.append(1, &[b"more"], true, Put), Err(Error::Failed(_))), "{way}");
    }
}
