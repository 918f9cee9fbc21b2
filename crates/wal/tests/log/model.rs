//! Random work against a model: appends of all sizes, writes, flushes, trims, and openings in between.

use std::path::Path;

use proptest::prelude::*;
use psync::sim::SimDisk;
use space::FileStore;
use wal::{Claim, Error, Lsn, Options, Wal};

use crate::common::{self, Owned, SEGMENT_BYTES, open, options, store};

#[derive(Clone, Debug)]
enum Action {
    Append {
        length: usize,
        parts: usize,
        sequenced: bool,
        claim: Claim,
    },
    /// A record that ends just before, at or behind the end of the segment.
    AppendToEdge {
        short_by: i64,
    },
    Write,
    Flush,
    FlushSome {
        back: usize,
    },
    Checkpoint {
        back: usize,
    },
    Prepare,
    Reopen,
    ReadOnly,
}

fn claim() -> impl Strategy<Value = Claim> {
    prop_oneof![Just(Claim::Put), Just(Claim::Delete), Just(Claim::Upkeep)]
}

fn action() -> impl Strategy<Value = Action> {
    let length = prop_oneof![6 => 0usize..200, 2 => 0usize..9000, 1 => 50_000usize..=61_368];
    let in_parts = prop_oneof![61_373usize..200_000, (1usize..4).prop_map(|parts| parts * 61_372)];
    prop_oneof![
        1 => (in_parts, 1usize..4, claim())
            .prop_map(|(length, parts, claim)| Action::Append { length, parts, sequenced: true, claim }),
        12 => (length, 1usize..4, any::<bool>(), claim())
            .prop_map(|(length, parts, sequenced, claim)| Action::Append { length, parts, sequenced, claim }),
        3 => (-80i64..80).prop_map(|short_by| Action::AppendToEdge { short_by }),
        3 => Just(Action::Write),
        3 => Just(Action::Flush),
        2 => (0usize..20).prop_map(|back| Action::FlushSome { back }),
        2 => (0usize..20).prop_map(|back| Action::Checkpoint { back }),
        1 => Just(Action::Prepare),
        2 => Just(Action::Reopen),
        1 => Just(Action::ReadOnly),
    ]
}

struct Run {
    disk: SimDisk,
    wal: Wal,
    epoch: u64,
    start: Lsn,
    next_seq: u64,
    sent: Vec<(Owned, Lsn)>,
}

impl Run {
    fn new() -> Self {
        let disk = SimDisk::new(0);
        let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
        Self { disk, wal, epoch: 1, start: Lsn(0), next_seq: 1, sent: Vec::new() }
    }

    fn append(&mut self, length: usize, parts: usize, sequenced: bool, claim: Claim) {
        let fill = u8::try_from(self.sent.len() % 255).expect("below 255");
        let payload = vec![fill; length];
        let pieces: Vec<&[u8]> = payload.chunks((length / parts).max(1)).collect();
        let kind = fill + 1;
        let before = self.wal.end();
        let position = self.wal.append(kind, &pieces, sequenced, claim).expect("it is appended");
        assert_eq!(position.seq, if sequenced { self.next_seq } else { 0 });
        assert!(position.lsn >= before && position.end == self.wal.end());
        assert!(position.lsn.0.is_multiple_of(8) && position.end.0.is_multiple_of(8));
        let segments = (position.end.0 - 1) / SEGMENT_BYTES - position.lsn.0 / SEGMENT_BYTES + 1;
        assert_eq!(segments, length.div_ceil(61_372).max(1) as u64, "no record has more segments than it needs");
        self.next_seq += u64::from(sequenced);
        self.sent.push((Owned { lsn: position.lsn, kind, seq: position.seq, payload }, position.end));
    }

    /// The end of the record that is `back` before the last.
    fn end_of(&self, back: usize) -> Lsn {
        let index = self.sent.len().checked_sub(back + 1);
        index.map_or(self.wal.end(), |index| self.sent[index].1)
    }

    fn act(&mut self, action: &Action) {
        match *action {
            Action::Append { length, parts, sequenced, claim } => self.append(length, parts, sequenced, claim),
            Action::AppendToEdge { short_by } => {
                let rest = i64::try_from(SEGMENT_BYTES - self.wal.end().0 % SEGMENT_BYTES).expect("small");
                let length = (rest - 12 - short_by).clamp(0, 61_368);
                self.append(usize::try_from(length).expect("not negative"), 1, true, Claim::Put);
            }
            Action::Write => {
                self.wal.write_through(self.wal.end()).expect("it is written");
                assert_eq!(self.wal.written(), self.wal.end());
            }
            Action::Flush => {
                self.wal.flush_through(self.wal.end()).expect("it is flushed");
                assert_eq!(self.wal.durable(), self.wal.end());
            }
            Action::FlushSome { back } => {
                let end = self.end_of(back);
                self.wal.flush_through(end).expect("it is flushed");
                assert!(self.wal.durable() >= end);
            }
            Action::Checkpoint { back } => {
                let start = self.end_of(back);
                self.wal.flush_through(start).expect("it is flushed");
                self.start = self.start.max(start);
                self.wal.trim(self.start).expect("it trims");
                assert!(self.wal.bytes_retained() <= self.wal.end().0 - self.start.0 + SEGMENT_BYTES);
            }
            Action::Prepare => self.wal.prepare().expect("there is room"),
            Action::Reopen => self.reopen(),
            Action::ReadOnly => self.read_only(),
        }
    }

    /// What a checkpoint says of the records that it makes unnecessary.
    fn seq_before_start(&self) -> u64 {
        let before = self.sent.iter().filter(|(record, _)| record.lsn < self.start);
        before.map(|(record, _)| record.seq).max().unwrap_or(0)
    }

    fn expected(&self, written: Lsn) -> Vec<Owned> {
        let kept = self.sent.iter().filter(|(record, end)| record.lsn >= self.start && *end <= written);
        kept.map(|(record, _)| record.clone()).collect()
    }

    fn reopen(&mut self) {
        let written = self.wal.written();
        self.epoch += 1;
        self.sent.retain(|(_, end)| *end <= written);
        let options = Options {
            start: self.start,
            durable_floor: self.start,
            next_seq: self.seq_before_start() + 1,
            ..options(self.epoch)
        };
        let (wal, replayed, shown) = open(&store(&self.disk), &options).expect("it opens");
        assert_eq!(shown, self.expected(written));
        assert_eq!(replayed.records, shown.len() as u64);
        // What was lost in memory gives its seqs back.
        self.next_seq = self.sent.iter().map(|(record, _)| record.seq).max().unwrap_or(0) + 1;
        assert_eq!(wal.last_seq() + 1, self.next_seq);
        assert_eq!(wal.durable(), wal.end());
        // An opening leaves its mark where there is anything.
        assert!(wal.end() > replayed.end || (replayed.groups == 0 && wal.end() == Lsn(4096)));
        self.wal = wal;
    }

    fn read_only(&self) {
        let options = Options { start: self.start, read_only: true, ..options(0) };
        let operations = self.disk.operations();
        let store = FileStore::open(self.disk.psync(), Path::new("/db"), true).expect("the store opens");
        let (wal, replayed, shown) = open(&store, &options).expect("it opens");
        assert_eq!(shown, self.expected(self.wal.written()));
        assert_eq!(wal.end(), replayed.end);
        assert!(matches!(wal.append(1, &[b"x"], true, Claim::Put), Err(Error::ReadOnly)));
        assert!(matches!(wal.flush_through(wal.end()), Err(Error::ReadOnly)));
        assert_eq!(self.disk.operations(), operations, "a reader writes nothing");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_the_list_of_what_was_appended(actions in proptest::collection::vec(action(), 1..60)) {
        let mut run = Run::new();
        for action in &actions {
            run.act(action);
        }
        run.reopen();
    }
}

#[test]
fn a_record_without_a_seq_may_fill_a_segment_and_no_more() {
    let mut run = Run::new();
    let max = usize::try_from(run.wal.record_bytes_max()).expect("small");
    assert_eq!(max, 61_372);
    for _ in 0..3 {
        run.append(max, 2, false, Claim::Put);
    }
    let end = run.wal.end();
    let refused = run.wal.append(1, &[&vec![0; max], b"1"], false, Claim::Put);
    assert!(matches!(refused, Err(Error::RecordTooLarge { bytes, max }) if bytes == max + 1));
    assert_eq!(run.wal.end(), end);
    run.wal.flush_through(end).expect("it is flushed");
    run.reopen();
    assert_eq!(run.sent.len(), 3);
}

#[test]
fn the_checkpoint_can_raise_the_next_seq() {
    let disk = SimDisk::new(0);
    let (wal, ..) = open(&store(&disk), &Options { next_seq: 100, ..options(1) }).expect("it opens");
    assert_eq!(common::commit(&wal, 1, b"a").seq, 100);
    drop(wal);
    let (wal, replayed, _) = open(&store(&disk), &Options { next_seq: 50, ..options(2) }).expect("it opens");
    assert_eq!((wal.last_seq(), replayed.last_seq), (100, 100));
}
