//! Reading the log behind its writer: every record that has a seq, once and in order, from any seq that is there,
//! whatever is recycled, and
//! in the next life what was kept.

use proptest::prelude::*;
use psync::sim::SimDisk;
use wal::{Claim, Error, Lsn, Options, Position, Reader, Wal};

use crate::common::{Random, SEGMENT_BYTES, commit, open, options, store};

/// Everything that a reader has still to show.
fn rest(reader: &mut Reader, wal: &Wal) -> wal::Result<Vec<(u64, Vec<u8>)>> {
    let mut shown = Vec::new();
    while reader.read(wal, &mut |record| shown.push((record.seq, record.payload.to_vec())))? {}
    Ok(shown)
}

#[derive(Clone, Debug)]
enum Action {
    Append {
        length: usize,
        sequenced: bool,
    },
    Write,
    /// Keeps the segments from so many back on.
    Trim {
        segments: u64,
    },
    Read {
        reader: usize,
    },
    Begin {
        part: u64,
    },
    Reopen,
    ReadOnly,
}

fn action() -> impl Strategy<Value = Action> {
    let length = prop_oneof![8 => 0_usize..3000, 1 => Just(61_372_usize), 2 => 8000_usize..40_000];
    let in_parts = 61_373_usize..200_000;
    prop_oneof![
        1 => in_parts.prop_map(|length| Action::Append { length, sequenced: true }),
        12 => (length, prop::bool::weighted(0.8)).prop_map(|(length, sequenced)| Action::Append { length, sequenced }),
        3 => Just(Action::Write),
        2 => (0_u64..4).prop_map(|segments| Action::Trim { segments }),
        4 => (0_usize..3).prop_map(|reader| Action::Read { reader }),
        1 => (0_u64..100).prop_map(|part| Action::Begin { part }),
        1 => Just(Action::Reopen),
        1 => Just(Action::ReadOnly),
    ]
}

struct Run {
    disk: SimDisk,
    wal: Wal,
    epoch: u64,
    start: Lsn,
    keep: Lsn,
    sent: Vec<(Position, Vec<u8>)>,
    readers: Vec<Reader>,
}

impl Run {
    fn new() -> Self {
        let disk = SimDisk::new(0);
        let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
        let readers = vec![Reader::new(0)];
        Self { disk, wal, epoch: 1, start: Lsn(0), keep: Lsn(0), sent: Vec::new(), readers }
    }

    fn next_seq(&self) -> u64 {
        self.sent.iter().map(|(position, _)| position.seq).max().unwrap_or(0) + 1
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Append { length, sequenced } => {
                let fill = u8::try_from(self.sent.len() % 251).expect("below 251");
                let payload = vec![fill; length];
                let position = self.wal.append(1, &[&payload], sequenced, Claim::Upkeep).expect("it is appended");
                self.sent.push((position, payload));
            }
            Action::Write => self.wal.write_through(self.wal.end()).expect("it is written"),
            Action::Trim { segments } => {
                self.wal.flush_through(self.wal.end()).expect("it is flushed");
                self.start = self.wal.end();
                let number = (self.start.0 / SEGMENT_BYTES).saturating_sub(segments);
                self.keep = self.keep.max(Lsn(number * SEGMENT_BYTES));
                self.wal.trim_keeping(self.keep, self.start).expect("it trims");
            }
            Action::Read { reader } => {
                let at = reader % self.readers.len();
                let mut reader = self.readers.swap_remove(at);
                self.read(&self.wal, &mut reader);
                self.readers.push(reader);
            }
            Action::Begin { part } => self.readers.push(Reader::new(self.next_seq() * part / 100)),
            Action::Reopen => self.reopen(),
            Action::ReadOnly => {
                let options = Options { read_only: true, ..self.options() };
                let (wal, ..) = open(&store(&self.disk), &options).expect("it opens");
                self.read(&wal, &mut Reader::new(wal.segment_starts().first().map_or(0, |(_, seq)| seq - 1)));
            }
        }
    }

    /// Shows what is written, or that it was trimmed.
    fn read(&self, wal: &Wal, reader: &mut Reader) {
        let after = reader.seen();
        let written = wal.written();
        let oldest = wal.segment_starts().first().map_or(wal.last_seq() + 1, |(_, seq)| *seq);
        match rest(reader, wal) {
            Ok(shown) => {
                let due = self.sent.iter().filter(|(at, _)| at.seq > after && at.end <= written);
                let due: Vec<_> = due.map(|(at, payload)| (at.seq, payload.clone())).collect();
                assert!(shown == due, "after {after}: {} records instead of {}", shown.len(), due.len());
                assert!(after + 1 >= oldest, "seq {} was trimmed", after + 1);
            }
            Err(Error::Trimmed { seq, oldest: told }) => {
                assert_eq!((seq, told), (after + 1, oldest));
                assert!(seq < oldest, "seq {seq} is there");
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn options(&self) -> Options {
        let before = self.sent.iter().filter(|(at, _)| at.lsn < self.start).map(|(at, _)| at.seq).max().unwrap_or(0);
        let keep = Some(self.keep);
        Options { start: self.start, keep, durable_floor: self.start, next_seq: before + 1, ..options(self.epoch) }
    }

    fn reopen(&mut self) {
        let written = self.wal.written();
        self.epoch += 1;
        self.sent.retain(|(at, _)| at.end <= written);
        let starts = self.wal.segment_starts();
        let (wal, ..) = open(&store(&self.disk), &self.options()).expect("it opens");
        self.wal = wal;
        // What was kept is kept, and begins with the same seqs.
        let kept =
            |starts: Vec<(Lsn, u64)>| starts.into_iter().filter(|(from, _)| *from < self.start).collect::<Vec<_>>();
        assert_eq!(kept(self.wal.segment_starts()), kept(starts));
        self.readers.iter_mut().for_each(|reader| *reader = Reader::new(reader.seen()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_reader_shows_what_was_appended(actions in prop::collection::vec(action(), 1..80)) {
        let mut run = Run::new();
        for action in &actions {
            run.act(action);
        }
        run.act(&Action::Write);
        for reader in 0..run.readers.len() {
            run.act(&Action::Read { reader });
        }
        run.reopen();
        run.read(&run.wal, &mut Reader::new(0));
    }
}

#[test]
fn a_dropped_tail_is_not_shown() {
    let disk = SimDisk::new(3);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    let kept = commit(&wal, 1, b"kept");
    // Written and not flushed: the power takes it.
    for byte in 0..20 {
        wal.append(1, &[&[byte; 3000]], true, Claim::Put).expect("it is appended");
    }
    wal.write_through(wal.end()).expect("it is written");
    assert_eq!(rest(&mut Reader::new(0), &wal).expect("it reads").len(), 21);
    disk.restart();
    let (wal, ..) = open(&store(&disk), &options(2)).expect("it opens");
    let lost = wal.last_seq();
    let new = commit(&wal, 1, b"new");
    assert_eq!((new.seq, kept.seq), (lost + 1, 1));
    let shown = rest(&mut Reader::new(0), &wal).expect("it reads");
    assert!(shown.iter().map(|(seq, _)| *seq).eq(1..=new.seq), "each seq once");
    assert_eq!(shown.last().map(|(_, payload)| payload.as_slice()), Some(&b"new"[..]));
}

#[test]
fn damage_is_told_and_not_passed() {
    let disk = SimDisk::new(4);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    let first = commit(&wal, 1, b"first");
    let second = commit(&wal, 1, b"second");
    commit(&wal, 1, b"third");
    assert!(disk.flip_bit("/db/wal/0.log", second.lsn.0 + 12));
    let mut reader = Reader::new(0);
    let mut shown = Vec::new();
    let read = |reader: &mut Reader, shown: &mut Vec<u64>| reader.read(&wal, &mut |record| shown.push(record.seq));
    assert!(read(&mut reader, &mut shown).expect("the first one checks"));
    for _ in 0..2 {
        let error = read(&mut reader, &mut shown).expect_err("the second one does not");
        assert!(matches!(error, Error::Corrupt { .. }) && error.to_string().contains("wal/0.log"), "{error}");
    }
    assert_eq!(shown, [first.seq]);
}

#[test]
fn a_damaged_kept_segment_ends_what_is_kept_and_not_the_opening() {
    let disk = SimDisk::new(5);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    let mut random = Random::new(1);
    while wal.end().0 < 5 * SEGMENT_BYTES {
        commit(&wal, 1, &vec![1; 1000 + usize::try_from(random.below(4000)).expect("small")]);
    }
    let start = wal.end();
    wal.trim_keeping(Lsn(0), start).expect("it trims");
    let starts = wal.segment_starts();
    let next_seq = wal.last_seq() + 1;
    assert_eq!(starts.len(), 6);
    drop(wal);
    // The header of the first group of segment 2.
    let file = disk.files().into_iter().find(|path| {
        let bytes = disk.read_file(path).expect("it is there");
        path.starts_with("/db/wal") && bytes[32..40] == 2_u64.to_le_bytes()
    });
    assert!(disk.flip_bit(file.expect("segment 2"), 4096 + 20));
    let options = Options { start, keep: Some(Lsn(0)), durable_floor: start, next_seq, ..options(2) };
    let (wal, ..) = open(&store(&disk), &options).expect("it opens");
    assert_eq!(wal.segment_starts(), starts[3..]);
    assert!(matches!(rest(&mut Reader::new(0), &wal), Err(Error::Trimmed { oldest, .. }) if oldest == starts[3].1));
    let shown = rest(&mut Reader::new(starts[3].1 - 1), &wal).expect("it reads");
    assert!(shown.iter().map(|(seq, _)| *seq).eq(starts[3].1..next_seq));
}
