//! Logs of many segments: every record is shown once, in order, whether another thread checks them or not.

use std::sync::Arc;

use psync::Psync;
use psync::sim::SimDisk;
use space::FileStore;
use wal::{Alone, Error, Group, Verdict, Wal};

use crate::common::{self, Owned, append, options, owned, store};

const DOCUMENT: u8 = 2;

/// What is shown of a log where a group with a document waits until it is known whether it was durable, and the one of
/// this seq is not whole.
fn shown(store: &FileStore, epoch: u64, missing: u64) -> (Vec<Owned>, usize) {
    let (mut shown, mut waits) = (Vec::new(), 0);
    let replay = &mut |group: &Group<'_>| {
        let names = |seq: u64| group.records().any(|record| record.kind == DOCUMENT && record.seq >= seq);
        if group.durable.is_none() && names(0) {
            waits += 1;
            return Ok::<_, Error>(Verdict::Wait);
        }
        if group.durable == Some(false) && names(missing) {
            return Ok(Verdict::Tail);
        }
        shown.extend(owned(group));
        Ok(Verdict::Accept)
    };
    Wal::open(store, &options(epoch), Arc::new(Alone), replay).expect("it opens");
    (shown, waits)
}

/// A log of 12 segments of which the first are flushed, and its records; those of these numbers are documents.
fn filled(store: &FileStore, documents: &[usize]) -> Vec<Owned> {
    let (wal, ..) = common::open(store, &options(1)).expect("it opens");
    let mut records = Vec::new();
    for number in 0..700 {
        let kind = if documents.contains(&number) { DOCUMENT } else { 1 };
        records.push(append(&wal, kind, &vec![u8::try_from(number % 251).expect("small"); 1000]));
        if number % 7 == 0 {
            wal.write_through(wal.end()).expect("writes");
        }
        if number == 100 {
            wal.flush_through(wal.end()).expect("flushes");
        }
    }
    wal.write_through(wal.end()).expect("writes");
    records
}

fn check(store: &mut dyn FnMut() -> FileStore) {
    for (documents, missing, waits) in [
        // None; one that was durable; some at the end; one with more than can be kept behind it; the same, not whole.
        (vec![], u64::MAX, 0..1),
        (vec![50], u64::MAX, 0..3),
        (vec![650, 660, 699], u64::MAX, 1..4),
        (vec![150, 300, 699], u64::MAX, 1..9),
        (vec![150, 300, 699], 301, 1..9),
    ] {
        let store = store();
        let records = filled(&store, &documents);
        let (seen, waited) = shown(&store, 2, missing);
        assert!(waits.contains(&waited), "{waited} waits for {documents:?}");
        let end = records.iter().position(|record| record.kind == DOCUMENT && record.seq >= missing);
        let expected = &records[..end.unwrap_or(records.len())];
        // A group that is not accepted takes those before it with it that are in it too.
        assert!(expected.starts_with(&seen) && expected.len() - seen.len() < 7, "{documents:?}");
        let (again, _) = shown(&store, 3, u64::MAX);
        assert_eq!(again, seen, "{documents:?}");
    }
}

#[test]
fn on_a_simulated_disk() {
    check(&mut || store(&SimDisk::new(1)));
}

#[test]
fn on_a_file_system() {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut number = 0;
    check(&mut || {
        number += 1;
        let path = scratch.path().join(number.to_string());
        FileStore::open(Psync::new(None).expect("a backend"), &path, false).expect("the store opens")
    });
}

#[test]
fn who_fails_is_shown_nothing_more() {
    let scratch = tempfile::tempdir().expect("a directory");
    let store = FileStore::open(Psync::new(None).expect("a backend"), scratch.path(), false).expect("the store opens");
    let records = filled(&store, &[]);
    let mut seen = 0;
    let failed = Wal::open(&store, &options(2), Arc::new(Alone), &mut |group: &Group<'_>| {
        seen += group.records().count();
        if seen > 200 { Err(Error::InvalidOptions("enough".to_owned())) } else { Ok(Verdict::Accept) }
    });
    assert!(failed.is_err() && (201..220).contains(&seen), "{seen}");
    assert_eq!(shown(&store, 3, u64::MAX).0, records);
}
