//! A log that nobody writes to any more gives its files back, and loses nothing by it.

use psync::sim::{Fault, SimDisk};
use wal::Claim::{Delete, Put, Upkeep};
use wal::{Error, Lsn, Wal};

use crate::common::{append, commit, open, options, store};

const SEGMENT_BYTES: u64 = 1 << 20;
/// What it may take.
const MOST: u64 = 128 << 10;

fn long(epoch: u64, start: Lsn) -> wal::Options {
    wal::Options { segment_bytes: SEGMENT_BYTES, start, durable_floor: start, ..options(epoch) }
}

/// A log in its third segment, with its spares.
fn busy(disk: &SimDisk) -> Wal {
    let (wal, ..) = open(&store(disk), &long(1, Lsn(0))).expect("it opens");
    (0..80).for_each(|_| drop(append(&wal, 1, &[1; 30_000])));
    wal.flush_through(wal.end()).expect("flushed");
    wal.prepare().expect("spares");
    assert!(bytes(disk) > 4 * SEGMENT_BYTES);
    wal
}

/// Bytes of all its files.
fn bytes(disk: &SimDisk) -> u64 {
    let files = disk.files();
    let log = files.iter().filter(|path| path.starts_with("/db/wal"));
    log.map(|path| disk.read_file(path).map_or(0, |file| file.len() as u64)).sum()
}

#[test]
fn what_it_does_not_need_goes_and_comes_back_with_its_use() {
    let disk = SimDisk::new(1);
    let wal = busy(&disk);
    assert!(wal.is_beyond(MOST));
    assert!(wal.turn_over(MOST).expect("turned"));
    let start = wal.end();
    wal.flush_through(start).expect("flushed");
    wal.trim(start).expect("trimmed");
    wal.rest().expect("given back");
    assert_eq!(bytes(&disk), MOST);
    assert!(!wal.is_beyond(MOST) && !wal.turn_over(MOST).expect("nothing to do"));
    wal.prepare().expect("nothing is needed");
    assert_eq!(bytes(&disk), MOST);

    // It goes on from there, also in another life.
    let first = commit(&wal, 1, b"first");
    drop(wal);
    disk.kill();
    let (wal, _, shown) = open(&store(&disk), &long(2, start)).expect("it opens");
    assert_eq!(shown.iter().map(|record| record.seq).collect::<Vec<_>>(), [first.seq]);
    assert_eq!(bytes(&disk), MOST);
    for _ in 0..80 {
        append(&wal, 1, &[2; 30_000]);
        wal.prepare().expect("room");
    }
    wal.flush_through(wal.end()).expect("flushed");
    assert!(bytes(&disk) >= 5 * SEGMENT_BYTES, "two live segments and three spares");
    drop(wal);
    disk.restart();
    let (_, _, shown) = open(&store(&disk), &long(3, start)).expect("it opens");
    assert_eq!(shown.len(), 81);
}

#[test]
fn on_a_full_disk_deletes_and_upkeep_have_a_part_of_what_is_left() {
    let disk = SimDisk::new(1);
    let wal = busy(&disk);
    assert!(wal.turn_over(MOST).expect("turned"));
    wal.flush_through(wal.end()).expect("flushed");
    wal.trim(wal.end()).expect("trimmed");
    wal.rest().expect("given back");
    disk.set_capacity(Some(0));
    let mut taken = [Put, Delete, Upkeep].map(|claim| {
        let mut bytes = 0;
        loop {
            match wal.append(1, &[&[3; 1000]], true, claim) {
                Ok(_) => bytes += 1000,
                Err(Error::Full { .. }) => return bytes,
                Err(error) => panic!("{error}"),
            }
        }
    });
    taken.iter_mut().for_each(|bytes| *bytes = *bytes * 8 / MOST);
    assert_eq!(taken, [3, 1, 1], "a half, less the header of the segment, a quarter, and a quarter");
    wal.flush_through(wal.end()).expect("it is all there");

    // Once it is as long as any, puts leave half of it until there are spares.
    disk.set_capacity(Some(SEGMENT_BYTES));
    let mut bytes = 0;
    while wal.append(1, &[&[4; 1000]], true, Put).is_ok() {
        bytes += 1000;
    }
    assert!((300_000..SEGMENT_BYTES / 2).contains(&bytes), "{bytes}");
    wal.append(1, &[&[5; 1000]], true, Delete).expect("a delete goes in");
    disk.set_capacity(None);
    wal.append(1, &[&[6; 1000]], true, Put).expect("there is room for spares");
}

/// The log is brought to rest, and the power goes, or something fails, anywhere in that. What was flushed is there,
/// whether the checkpoint that allows the trim was written or not.
#[test]
fn whatever_ends_it_nothing_is_lost() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let wal = busy(&disk);
        let seqs = wal.last_seq();
        match seed % 3 {
            0 => disk.crash_after(seed / 3 % 12),
            1 => disk.fail_operation(Fault::Any, seed / 3 % 12, 5),
            _ => {}
        }
        // What a checkpoint says, once it is durable.
        let mut start = Lsn(0);
        let outcome = (|| {
            wal.turn_over(MOST)?;
            wal.flush_through(wal.end())?;
            if seed % 2 == 0 {
                start = wal.end();
                wal.trim(start)?;
                wal.rest()?;
            }
            let position = wal.append(1, &[b"acknowledged"], true, Put)?;
            wal.flush_through(position.end)?;
            Ok::<_, Error>(position.seq)
        })();
        drop(wal);
        disk.restart();
        let (_, _, shown) = open(&store(&disk), &long(2, start)).expect("it opens");
        if start == Lsn(0) {
            assert!(shown.len() as u64 >= seqs, "seed {seed}: {} of {seqs}", shown.len());
        }
        if let Ok(seq) = outcome {
            assert_eq!(shown.last().map(|record| record.seq), Some(seq), "seed {seed}");
        }
    }
}
