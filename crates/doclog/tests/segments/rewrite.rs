//! A failed flush leaves pages that reads see and no later flush writes. What is rewritten is on the device after the
//! next flush.

use std::path::Path;

use doclog::{DocImage, DocLog, DocPointer, Error};
use psync::sim::{Fault, SimDisk};
use psync::{File, Psync, Request};
use space::{FileDamage, FileStore, StreamKind};

const TABLE: u32 = 7;
const SEGMENT: u64 = 1 << 20;

fn store(psync: Psync) -> FileStore {
    FileStore::open(psync, Path::new("/db"), false).expect("opens")
}

fn open(store: &FileStore) -> DocLog {
    DocLog::open(store, TABLE, &DocImage::default(), SEGMENT).expect("opens")
}

fn document(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number * 31 + at * 7 + at / 251).to_le_bytes()[0]).collect()
}

fn append(log: &DocLog, documents: &[Vec<u8>]) -> Vec<DocPointer> {
    let documents: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    log.append(&documents).expect("appends")
}

fn flush(store: &FileStore, files: &[File]) -> psync::Result<()> {
    store.psync().run_all(files.iter().map(|file| Request::flush(file, 0)).collect()).map(drop)
}

/// One process appends and its flush fails; the next one accepts what it reads, perhaps rewrites it, and flushes; then
/// the power
/// goes. Whether every document came through.
fn survives(seed: u64, rewrites: bool) -> bool {
    let disk = SimDisk::new(seed);
    let documents: Vec<_> =
        (0..12).map(|number| document(number, number * 5003)).chain([document(99, 700_000)]).collect();
    let pointers = {
        let store = store(disk.psync());
        let log = open(&store);
        let pointers = append(&log, &documents);
        let files = log.take_unflushed();
        assert_eq!(files.len(), 2);
        for _ in 0..2 {
            disk.fail_operation(Fault::Flush, 0, 5);
        }
        flush(&store, &files).expect_err("fails");
        pointers
    };
    {
        let store = store(disk.psync());
        let log = open(&store);
        assert_eq!(log.check_many(&pointers).expect("known"), vec![true; documents.len()]);
        let before = disk.read_file("/db/doc/7-1.doc");
        if rewrites {
            log.rewrite(&pointers).expect("rewrites");
        }
        assert_eq!(disk.read_file("/db/doc/7-1.doc"), before);
        let files = log.take_unflushed();
        assert_eq!(files.len(), if rewrites { 2 } else { 0 });
        let found: Vec<File> = ["doc/7-1.doc", "doc/7-2.doc"]
            .iter()
            .map(|name| store.open_existing(StreamKind::Doc, name, false).expect("opens"))
            .collect();
        flush(&store, if rewrites { &files } else { &found }).expect("flushes");
    }
    disk.restart();
    let log = open(&store(disk.psync()));
    let whole = log.check_many(&pointers).expect("known").into_iter().all(|whole| whole);
    assert!(!whole || log.read_many(&pointers).expect("reads") == documents);
    whole
}

#[test]
fn rewritten_documents_survive_a_flush_that_failed_before() {
    let lost = (0..40).filter(|seed| !survives(*seed, false)).count();
    assert!(lost > 10, "a flush alone must not be enough, or this tests nothing: {lost}");
    for seed in 0..40 {
        assert!(survives(seed, true), "seed {seed}");
    }
}

#[test]
fn rewriting_changes_nothing_and_touches_no_neighbour() {
    let disk = SimDisk::new(3);
    let store = store(disk.psync());
    let log = open(&store);
    let documents: Vec<_> = (0..40).map(|number| document(number, number * 977)).collect();
    let pointers = append(&log, &documents);
    let before = store.counters(StreamKind::Doc).snapshot();
    let some: Vec<_> = pointers.iter().copied().step_by(4).collect();
    // Asked for twice, and in any order.
    let asked: Vec<_> = some.iter().rev().chain(&some).copied().collect();
    log.rewrite(&asked).expect("rewrites");
    let after = store.counters(StreamKind::Doc).snapshot();
    let bytes: u64 = some.iter().map(|pointer| pointer.length.stored() + 24).sum();
    assert_eq!(after.written_bytes - before.written_bytes, bytes);
    assert_eq!(after.writes - before.writes, some.len() as u64);
    assert_eq!(log.read_many(&pointers).expect("reads"), documents);
    assert_eq!(log.take_unflushed().len(), 1, "one file, one handle");
    log.rewrite(&[]).expect("nothing");
    // Neighbours are one write, padding and all.
    let before = store.counters(StreamKind::Doc).snapshot();
    log.rewrite(&pointers[1..20]).expect("rewrites");
    assert_eq!(store.counters(StreamKind::Doc).snapshot().writes - before.writes, 1);
}

#[test]
fn more_than_a_batch_is_rewritten() {
    let directory = tempfile::tempdir().expect("directory");
    let store = FileStore::open(Psync::new(None).expect("a backend"), directory.path(), false).expect("opens");
    let log = DocLog::open(&store, TABLE, &DocImage::default(), 64 << 20).expect("opens");
    let sizes = (0..1500).map(|number| number % 77 * 11).chain([17 << 20, 34 << 20, 5]);
    let documents: Vec<_> = sizes.enumerate().map(|(number, bytes)| document(number, bytes)).collect();
    let pointers = append(&log, &documents);
    let log = DocLog::open(&store, TABLE, &log.image(), 64 << 20).expect("opens");
    let apart: Vec<_> = pointers.iter().copied().step_by(2).chain(pointers[1490..].iter().copied()).collect();
    log.rewrite(&apart).expect("rewrites");
    assert_eq!(log.take_unflushed().len(), 2);
    assert!(log.read_many(&pointers).expect("reads") == documents);
}

#[test]
fn what_is_not_whole_is_not_made_durable_in_silence() {
    let disk = SimDisk::new(1);
    let store = store(disk.psync());
    let log = open(&store);
    let pointers = append(&log, &[document(0, 100), document(1, 100)]);
    let log = open(&store);
    assert!(disk.flip_bit("/db/doc/7-1.doc", pointers[1].offset + 30));
    let error = log.rewrite(&pointers).expect_err("damaged");
    assert!(matches!(error, Error::Corrupt(FileDamage { offset, .. }) if offset == pointers[1].offset), "{error}");
    assert!(log.take_unflushed().is_empty());
    log.rewrite(&pointers[..1]).expect("the other one is whole");

    let missing = DocPointer { offset: 4096, ..pointers[0] };
    assert!(log.rewrite(&[missing]).expect_err("nothing there").is_damage());
    disk.fail_operation(Fault::Write, 0, 5);
    assert!(!log.rewrite(&pointers[..1]).expect_err("fails").is_damage());
    disk.fail_operation(Fault::Read, 0, 5);
    assert!(!log.rewrite(&pointers[..1]).expect_err("fails").is_damage());

    let store = FileStore::open(disk.psync(), Path::new("/db"), true).expect("opens");
    let error = open(&store).rewrite(&pointers[..1]).expect_err("read-only");
    assert!(matches!(error, Error::Space(space::Error::ReadOnly { .. })), "{error}");
}
