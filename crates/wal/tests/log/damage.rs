//! Damage that a crash does not explain is reported with its place; a torn tail is dropped.

use psync::sim::SimDisk;
use space::FileDamage;
use wal::{Error, Lsn, Options, Verdict};

use crate::common::{self, DATABASE, SEGMENT_BYTES, append, commit, open, options, store};

/// A log of flushed groups over several segments, and its records.
fn filled(disk: &SimDisk, groups: usize, bytes: usize) -> Vec<common::Owned> {
    let (wal, _, before) = open(&store(disk), &options(1)).expect("it opens");
    assert!(before.is_empty());
    (0..groups).map(|index| commit(&wal, 1, &vec![u8::try_from(index % 251).expect("small"); bytes])).collect()
}

fn damage_at(lsn: Lsn, index: u64) -> (String, u64) {
    assert_eq!(lsn.0 / SEGMENT_BYTES, index, "the test knows its segment");
    (format!("/db/wal/{index}.log"), lsn.0 % SEGMENT_BYTES)
}

#[test]
fn damage_in_the_middle_is_reported_with_its_place() {
    for (victim, offset_in_record) in [(3, 0), (3, 20), (10, 4), (40, 500)] {
        let disk = SimDisk::new(1);
        let records = filled(&disk, 100, 2000);
        let lsn = records[victim].lsn;
        let (file, offset) = damage_at(lsn, lsn.0 / SEGMENT_BYTES);
        assert!(disk.flip_bit(&file, offset + offset_in_record));
        let Err(Error::Corrupt(FileDamage { file: found, offset: at, what, .. })) = open(&store(&disk), &options(2))
        else {
            panic!("damage in record {victim} is not reported");
        };
        // The place is the group's.
        assert_eq!((found.to_string_lossy().as_ref(), at, what), (file.as_str(), offset - 56, "group checksum"));
    }
}

#[test]
fn a_lost_block_in_the_middle_is_damage() {
    let disk = SimDisk::new(1);
    let records = filled(&disk, 100, 2000);
    let (file, offset) = damage_at(records[50].lsn, records[50].lsn.0 / SEGMENT_BYTES);
    assert!(disk.corrupt(&file, offset - 56..offset - 56 + 4096));
    assert!(
        matches!(open(&store(&disk), &options(2)), Err(Error::Corrupt(FileDamage { offset: at, .. })) if at == offset - 56)
    );
}

#[test]
fn a_lost_segment_is_damage() {
    for lost in [0, 1, 2] {
        let disk = SimDisk::new(1);
        filled(&disk, 100, 2000);
        disk.psync().remove(format!("/db/wal/{lost}.log").as_ref()).expect("it is there");
        let Err(error) = open(&store(&disk), &options(2)) else { panic!("segment {lost} is missed by nobody") };
        assert!(error.to_string().contains(&format!("segment {lost}")), "{error}");
    }
}

#[test]
fn damage_in_a_segment_header_is_damage() {
    let disk = SimDisk::new(1);
    filled(&disk, 100, 2000);
    assert!(disk.flip_bit("/db/wal/1.log", 33));
    assert!(matches!(open(&store(&disk), &options(2)), Err(Error::Corrupt { .. })));
}

#[test]
fn damage_in_the_tail_is_dropped_unless_the_checkpoint_knows_better() {
    let disk = SimDisk::new(1);
    let records = filled(&disk, 10, 2000);
    let last = records.last().expect("some");
    // No later group states that the last one was durable.
    assert!(disk.flip_bit("/db/wal/0.log", last.lsn.0 + 100));
    let floor = Options { durable_floor: Lsn(last.lsn.0 + 8), ..options(2) };
    assert!(matches!(open(&store(&disk), &floor), Err(Error::Corrupt { .. })));
    let (wal, replayed, shown) = open(&store(&disk), &options(2)).expect("it is the tail");
    assert_eq!(shown, records[..9]);
    assert_eq!(replayed.end, Lsn(last.lsn.0 - 56));
    assert!(replayed.tail.contains("group checksum"), "{}", replayed.tail);
    // The log goes on there, with the seq that is free again.
    let next = commit(&wal, 1, b"next");
    assert_eq!(next.seq, last.seq);
    drop(wal);
    let (_, _, shown) = open(&store(&disk), &options(3)).expect("it opens");
    assert_eq!(shown, [&records[..9], &[next]].concat());
}

#[test]
fn groups_of_a_dropped_tail_never_come_back() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    let mut records = Vec::new();
    for _ in 0..10 {
        // Written, not flushed: no group states that the one before it was durable.
        records.push(append(&wal, 1, &[7; 48]));
        wal.write_through(wal.end()).expect("it is written");
    }
    drop(wal);
    let broken = records[3].lsn.0;
    assert!(disk.flip_bit("/db/wal/0.log", broken + 12));
    let (wal, replayed, shown) = open(&store(&disk), &options(2)).expect("it opens");
    assert_eq!(shown, records[..3]);
    // Fill the gap so exactly that the next stale group is where the next group would be.
    let stale = records[5].lsn.0 - 56;
    let payload = vec![1; usize::try_from(stale - replayed.end.0 - 56 - 56 - 16).expect("there is room")];
    let filler = commit(&wal, 1, &payload);
    assert_eq!(wal.end(), Lsn(stale), "the test knows the layout");
    drop(wal);
    let (wal, replayed, shown) = open(&store(&disk), &options(3)).expect("it opens");
    assert_eq!(shown, [&records[..3], &[filler]].concat());
    assert!(replayed.tail.contains("group epoch"), "{}", replayed.tail);
    drop(wal);
    // Nor where a checkpoint knows that very position: then nothing behind it is known.
    let (start, next_seq) = (Lsn(stale), shown[3].seq + 1);
    let (_, _, shown) =
        open(&store(&disk), &Options { start, durable_floor: start, next_seq, ..options(4) }).expect("it opens");
    assert_eq!(shown, []);
}

#[test]
fn groups_before_the_position_of_the_checkpoint_are_not_needed() {
    let disk = SimDisk::new(1);
    let records = filled(&disk, 100, 2000);
    let [before, first] = [49, 50].map(|index| records[index].lsn);
    let (file, offset) = damage_at(before, first.0 / SEGMENT_BYTES);
    assert!(disk.flip_bit(&file, offset + 100));
    assert!(matches!(open(&store(&disk), &options(2)), Err(Error::Corrupt { .. })));
    let (_, _, shown) = open(&store(&disk), &Options { start: first, ..options(2) }).expect("it opens");
    assert_eq!(shown, records[50..]);
}

#[test]
fn a_replayer_ends_the_log_where_something_is_missing() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    let first = commit(&wal, 1, b"durable and known to be");
    let second = commit(&wal, 2, b"durable");
    let third = append(&wal, 3, b"written");
    wal.write_through(wal.end()).expect("it is written");
    drop(wal);
    let refuse = |kind: u8, epoch: u64| {
        let mut seen = Vec::new();
        let result = wal::Wal::open(&store(&disk), &options(epoch), std::sync::Arc::new(wal::Alone), &mut |group| {
            let Some(durable) = group.durable else { return Ok(Verdict::Wait) };
            seen.extend(common::owned(group).map(|record| (record.kind, durable)));
            let refused = group.records().any(|record| record.kind == kind);
            Ok::<_, Error>(if refused { Verdict::Tail } else { Verdict::Accept })
        });
        (result, seen)
    };
    // What is known durable cannot be a tail.
    let (result, _) = refuse(1, 2);
    assert!(matches!(result, Err(Error::Corrupt { .. })));
    let (result, seen) = refuse(3, 3);
    assert_eq!(seen, [(1, true), (2, true), (3, false)]);
    let (wal, replayed) = result.expect("it opens");
    assert_eq!((replayed.end.0, replayed.records), (third.lsn.0 - 56, 2));
    assert_eq!(wal.last_seq(), second.seq);
    drop(wal);
    let (_, _, shown) = open(&store(&disk), &options(4)).expect("it opens");
    assert_eq!(shown, [first, second]);
}

#[test]
fn foreign_newer_and_misfit_files_are_named() {
    let disk = SimDisk::new(1);
    filled(&disk, 3, 100);
    let foreign = Options { database: *b"not the same one", ..options(2) };
    assert!(matches!(open(&store(&disk), &foreign), Err(Error::Foreign { .. })));
    let misfit = Options { segment_bytes: 2 * SEGMENT_BYTES, ..options(2) };
    assert!(matches!(open(&store(&disk), &misfit), Err(Error::SegmentSize { found, .. }) if found == SEGMENT_BYTES));
    assert!(matches!(open(&store(&disk), &options(1)), Err(Error::EpochUsed { epoch: 1, found: 1, .. })));
    assert_eq!(options(2).database, DATABASE);
    open(&store(&disk), &options(2)).expect("nothing was changed by these");
}

fn cut(disk: &SimDisk, path: &str, len: u64) {
    let write = psync::OpenOptions { write: true, ..psync::OpenOptions::default() };
    let file = disk.psync().open(path.as_ref(), &write).expect("it opens");
    file.set_len(len).expect("it is cut");
}

#[test]
fn a_file_that_was_cut_in_the_middle_is_damage() {
    let disk = SimDisk::new(1);
    let records = filled(&disk, 100, 2000);
    let (file, offset) = damage_at(records[40].lsn, 1);
    cut(&disk, &file, offset + 1000);
    let Err(Error::Corrupt(FileDamage { offset: at, .. })) = open(&store(&disk), &options(2)) else {
        panic!("a cut in the middle is not reported");
    };
    assert_eq!(at, offset - 56);
}

#[test]
fn a_file_that_was_cut_in_the_tail_is_as_long_again_as_it_has_to_be() {
    let disk = SimDisk::new(1);
    let records = filled(&disk, 10, 2000);
    cut(&disk, "/db/wal/0.log", records[9].lsn.0 + 5);
    let (wal, _, shown) = open(&store(&disk), &options(2)).expect("it is the tail");
    assert_eq!(shown, records[..9]);
    let more: Vec<_> = (0..20).map(|_| append(&wal, 1, &[3; 2000])).collect();
    wal.flush_through(wal.end()).expect("it is durable");
    drop(wal);
    let (_, _, shown) = open(&store(&disk), &options(3)).expect("it opens");
    assert_eq!(shown, [&records[..9], &more].concat());
    let whole = disk.read_file("/db/wal/0.log").expect("it is there");
    assert_eq!(whole.len() as u64, SEGMENT_BYTES);
}

#[test]
fn files_of_a_log_that_are_none_are_left_alone_or_used() {
    let disk = SimDisk::new(1);
    let records = filled(&disk, 3, 100);
    let create = psync::OpenOptions { write: true, create_new: true, ..psync::OpenOptions::default() };
    for name in ["notes.txt", "007.log", "x.log"] {
        disk.psync().open(format!("/db/wal/{name}").as_ref(), &create).expect("it is created");
    }
    // The making of a segment was interrupted.
    disk.psync().open("/db/wal/77.log".as_ref(), &create).expect("it is created");
    let (wal, _, shown) = open(&store(&disk), &options(2)).expect("it opens");
    assert_eq!(shown, records);
    let names = store(&disk).list("wal").expect("it lists");
    assert!(names.iter().any(|name| name == "notes.txt") && !names.iter().any(|name| name == "77.log"), "{names:?}");
    drop(wal);
}
