//! Records that are longer than a segment: whole or not there, whoever reads, and whatever is lost of them.

use std::path::PathBuf;

use psync::sim::SimDisk;
use wal::{Claim, Error, Hints, Left, Lsn, Options, Reader, Salvage, Verdict, Wal};

use crate::common::{Owned, SEGMENT_BYTES, append, commit, open, options, owned, store};

/// Bytes that fill a bit more than three segments.
const LONG: usize = 190_000;

fn long(fill: u8) -> Vec<u8> {
    (0..LONG).map(|at| fill.wrapping_add(u8::try_from(at % 251).expect("small"))).collect()
}

/// The file of a segment.
fn file_of(disk: &SimDisk, number: u64) -> PathBuf {
    let holds = |file: &PathBuf| {
        let bytes = disk.read_file(file).unwrap_or_default();
        bytes.starts_with(b"BRAIDWAL") && bytes[32..40] == number.to_le_bytes()
    };
    disk.files().into_iter().find(holds).expect("the segment is there")
}

fn read_all(wal: &Wal, after: u64) -> wal::Result<Vec<u64>> {
    let (mut reader, mut seqs) = (Reader::new(after), Vec::new());
    while reader.read(wal, &mut |record| seqs.push(record.seq))? {}
    Ok(seqs)
}

#[test]
fn a_crash_amid_its_parts_leaves_nothing_of_a_record() {
    for lost_in in [1, 2, 3] {
        let disk = SimDisk::new(0);
        let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
        let first = commit(&wal, 1, b"first");
        let second = append(&wal, 2, &long(7));
        wal.write_through(wal.end()).expect("it is written");
        drop(wal);
        // The segments from one of its parts on never reached the device.
        let begin = second.lsn.0 / SEGMENT_BYTES;
        for number in begin + lost_in - 1..begin + 4 {
            assert!(disk.corrupt(file_of(&disk, number), 4096..8192));
        }
        let (wal, replayed, shown) = open(&store(&disk), &options(2)).expect("it opens");
        assert_eq!(shown, std::slice::from_ref(&first), "{}", replayed.tail);
        assert_eq!(wal.last_seq(), 1);
        // The seq goes to another record, and the parts that are left mean nothing.
        let again = commit(&wal, 3, b"another");
        assert_eq!(again.seq, 2);
        assert_eq!(read_all(&wal, 0).expect("it reads"), [1, 2]);
        drop(wal);
        let (wal, _, shown) = open(&store(&disk), &options(3)).expect("it opens");
        assert_eq!(shown, [first, again]);
        assert_eq!(read_all(&wal, 1).expect("it reads"), [2]);
    }
}

#[test]
fn a_log_that_begins_amid_a_record_begins_with_the_next() {
    let disk = SimDisk::new(0);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    append(&wal, 1, b"before");
    let record = append(&wal, 1, &long(1));
    let behind = commit(&wal, 1, b"behind");
    let starts = wal.segment_starts();
    assert_eq!(starts.iter().map(|(_, seq)| *seq).collect::<Vec<_>>(), [1, 2, 3, 3, 3]);
    // Kept from amid the record.
    let keep = Lsn(record.lsn.0 + SEGMENT_BYTES);
    wal.trim_keeping(keep, behind.lsn).expect("it trims");
    assert!(matches!(read_all(&wal, 1), Err(Error::Trimmed { seq: 2, oldest: 3 })));
    assert_eq!(read_all(&wal, 2).expect("it reads"), [3]);
    drop(wal);
    let kept = Options { keep: Some(keep), start: behind.lsn, next_seq: 3, ..options(2) };
    let (wal, _, shown) = open(&store(&disk), &kept).expect("it opens");
    assert_eq!(shown, [behind]);
    assert!(matches!(read_all(&wal, 1), Err(Error::Trimmed { seq: 2, oldest: 3 })));
    assert_eq!(read_all(&wal, 2).expect("it reads"), [3]);
}

#[test]
fn on_a_full_disk_all_of_a_record_fits_or_nothing_is_taken() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    for _ in 0..70 {
        append(&wal, 1, &[7; 1000]);
    }
    commit(&wal, 1, b"the checkpoint is behind it");
    wal.trim(wal.durable()).expect("it trims");
    wal.prepare().expect("there is room");
    disk.set_capacity(Some(8 * SEGMENT_BYTES));
    // Three spares are there, and four more segments have room: for one record of four parts, and the reserve.
    let fits = append(&wal, 1, &long(1));
    let end = wal.end();
    for claim in [Claim::Put, Claim::Delete, Claim::Upkeep] {
        let refused = wal.append(1, &[&long(2)], true, claim);
        assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
        assert_eq!((wal.end(), wal.last_seq()), (end, fits.seq));
    }
    assert!(wal.append(1, &[b"a delete"], true, Claim::Delete).is_ok());
    wal.flush_through(wal.end()).expect("the log is well");
    wal.trim(wal.durable()).expect("it trims");
    append(&wal, 1, &long(2));
    wal.flush_through(wal.end()).expect("the log is well");
}

#[test]
fn salvage_shows_whole_records_only() {
    for damaged in [None, Some(0), Some(2)] {
        let disk = SimDisk::new(0);
        let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
        let records = [append(&wal, 1, b"before"), append(&wal, 2, &long(9)), append(&wal, 1, &long(3))];
        let last = commit(&wal, 1, b"behind");
        let durable = wal.durable();
        drop(wal);
        if let Some(part) = damaged {
            assert!(disk.corrupt(file_of(&disk, records[1].lsn.0 / SEGMENT_BYTES + part), 9000..9100));
        }
        let hints = Hints { durable, ..Hints::default() };
        let salvage = Salvage::open(&store(&disk), &hints).expect("it opens").expect("there is a log");
        let (mut shown, mut holes): (Vec<Owned>, usize) = (Vec::new(), 0);
        let read = salvage.read(&mut |left| {
            match left {
                Left::Group(group) => shown.extend(owned(&group)),
                Left::Hole(hole) => {
                    assert_eq!((hole.first_seq, hole.next_seq), (2, Some(3)), "the loss of the record is told");
                    holes += 1;
                }
                Left::Torn(_) => panic!("nothing is torn"),
            }
            Ok::<_, Error>(Verdict::Accept)
        });
        read.expect("it reads");
        let [before, first, second] = records;
        let expected = if damaged.is_none() { vec![before, first, second, last] } else { vec![before, second, last] };
        assert!(shown == expected, "{damaged:?}: {:?}", shown.iter().map(|record| record.seq).collect::<Vec<_>>());
        assert_eq!(holes, usize::from(damaged.is_some()));
    }
}
