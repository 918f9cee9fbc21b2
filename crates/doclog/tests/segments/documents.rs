//! What users of a document log rely on: what was appended is read, damage is an error, a full disk is not the end.

use std::path::Path;

use doclog::{DOCUMENT_BYTES_MAX, DocImage, DocLength, DocLog, DocPointer, Error, SEGMENT_BYTES_DEFAULT, SegmentId};
use psync::sim::{Fault, SimDisk};
use psync::{BackendKind, File, Psync, Request};
use space::{FileDamage, FileStore, StreamKind};

const TABLE: u32 = 7;
const SEGMENT: u64 = 1 << 20;

fn simulated(seed: u64) -> (SimDisk, FileStore) {
    let disk = SimDisk::new(seed);
    let store = store(&disk);
    (disk, store)
}

fn store(disk: &SimDisk) -> FileStore {
    FileStore::open(disk.psync(), Path::new("/db"), false).expect("opens")
}

fn open(store: &FileStore, image: &DocImage) -> DocLog {
    DocLog::open(store, TABLE, image, SEGMENT).expect("opens")
}

/// Bytes that say which document they are of.
fn document(number: usize, bytes: usize) -> Vec<u8> {
    let byte = |at: usize| (number * 31 + at * 7 + at / 251).to_le_bytes()[0];
    (0..bytes).map(byte).collect()
}

fn append(log: &DocLog, documents: &[Vec<u8>]) -> Vec<DocPointer> {
    let documents: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    log.append(&documents).expect("appends")
}

fn flush(store: &FileStore, files: &[File]) {
    let flushes = files.iter().map(|file| Request::flush(file, 0)).collect();
    store.psync().run_all(flushes).expect("flushes");
}

/// Sizes around everything that has a boundary: nothing, header, block, piece, half a segment, a segment, several.
const SIZES: [usize; 18] = [
    0,
    1,
    7,
    8,
    9,
    4071,
    4072,
    4073,
    4096,
    70_000,
    (1 << 19) - 25,
    (1 << 19) - 24,
    (1 << 19) - 23,
    (1 << 20) - 25,
    (1 << 20) - 24,
    1 << 20,
    (1 << 20) + 1,
    3_500_000,
];

#[test]
fn documents_of_every_size_come_back_on_every_backend() {
    let documents: Vec<_> = SIZES.iter().enumerate().map(|(number, bytes)| document(number, *bytes)).collect();
    for kind in BackendKind::ALL {
        let Ok(psync) = Psync::new(Some(kind)) else {
            continue;
        };
        let directory = tempfile::tempdir().expect("directory");
        let store = FileStore::open(psync, directory.path(), false).expect("opens");
        let log = open(&store, &DocImage::default());
        let pointers = append(&log, &documents);
        // At once: what is not on the device is read too, sealed segments directly and the active one through the
        // cache.
        assert_eq!(log.read_many(&pointers).expect("reads"), documents);
        pointers.iter().for_each(|pointer| log.retain(pointer, 1).expect("retains"));
        flush(&store, &log.take_unflushed());
        assert!(log.take_unflushed().is_empty());

        let log = open(&store, &log.image());
        assert!(log.damage().is_empty());
        assert_eq!(log.read_many(&pointers).expect("reads"), documents, "{kind}");
        for (pointer, document) in pointers.iter().zip(&documents) {
            assert_eq!(&log.read_many(&[*pointer]).expect("reads")[0], document);
        }
    }
}

#[test]
fn more_than_memory_is_set_aside_for_passes_through() {
    let directory = tempfile::tempdir().expect("directory");
    let psync = Psync::new(None).expect("a backend");
    let store = FileStore::open(psync, directory.path(), false).expect("opens");
    let log = DocLog::open(&store, TABLE, &DocImage::default(), SEGMENT_BYTES_DEFAULT).expect("opens");
    // More than is in flight at a time, in documents that share windows and span several, and one in a segment of its
    // own.
    let sizes = (0..60).map(|number| number * 30_011).chain([34 << 20]);
    let documents: Vec<_> = sizes.enumerate().map(|(number, bytes)| document(number, bytes)).collect();
    let pointers = append(&log, &documents);
    assert_eq!(log.stats().segments, 2);
    assert!(log.read_many(&pointers).expect("reads") == documents);
    let log = open(&store, &log.image());
    assert!(log.read_many(&pointers).expect("reads") == documents);
    assert!(log.check_many(&pointers).expect("known").iter().all(|whole| *whole));
}

#[test]
fn a_direct_read_sees_what_is_only_in_the_page_cache() {
    let directory = tempfile::tempdir().expect("directory");
    let store = FileStore::open(Psync::new(None).expect("a backend"), directory.path(), false).expect("opens");
    let mut log = open(&store, &DocImage::default());
    let mut pointers = Vec::new();
    let mut documents = Vec::new();
    for round in 0..40 {
        let some: Vec<_> = (0..20).map(|number| document(round * 20 + number, 1000 + number * 37)).collect();
        pointers.extend(append(&log, &some));
        documents.extend(some);
        // Nothing is ever flushed; reopening seals the segment, so that it is read directly where that is possible.
        log = open(&store, &log.image());
        assert_eq!(log.read_many(&pointers).expect("reads"), documents);
    }
}

#[test]
fn many_documents_are_one_psync_with_merged_reads() {
    let (_, store) = simulated(1);
    let log = open(&store, &DocImage::default());
    let documents: Vec<_> = (0..500).map(|number| document(number, 600)).collect();
    let pointers = append(&log, &documents);
    let written = store.counters(StreamKind::Doc).snapshot();
    assert_eq!(written.writes, 1, "neighbours are one write");
    let mut reversed = pointers.clone();
    reversed.reverse();
    let read = log.read_many(&reversed).expect("reads");
    assert!(read.iter().rev().eq(&documents));
    let after = store.counters(StreamKind::Doc).snapshot();
    assert_eq!(after.reads, 1, "neighbours are one read");
    // Far apart, they are not.
    let apart: Vec<_> = pointers.iter().copied().step_by(100).collect();
    log.read_many(&apart).expect("reads");
    assert_eq!(store.counters(StreamKind::Doc).snapshot().reads - after.reads, 5);
}

#[test]
fn a_document_that_is_asked_for_twice_is_read_once() {
    let (_, store) = simulated(1);
    let log = open(&store, &DocImage::default());
    let documents = [document(1, 3_000_000), document(2, 10)];
    let pointers = append(&log, &documents);
    let asked = [pointers[1], pointers[0], pointers[1], pointers[0]];
    let before = store.counters(StreamKind::Doc).snapshot().read_bytes;
    let read = log.read_many(&asked).expect("reads");
    assert_eq!(read, [&documents[1], &documents[0], &documents[1], &documents[0]].map(Clone::clone));
    let bytes = store.counters(StreamKind::Doc).snapshot().read_bytes - before;
    assert!(bytes < 3_100_000, "{bytes}");
    assert!(log.read_many(&[]).expect("nothing").is_empty());
    assert!(log.append(&[]).expect("nothing").is_empty());
}

/// What is handed over as it comes, each place once; in the order of the pointers.
fn as_they_come(log: &DocLog, pointers: &[DocPointer], in_flight: usize) -> Vec<Result<Vec<u8>, String>> {
    let mut read = vec![None; pointers.len()];
    log.read_as_they_come(pointers, in_flight, &mut |place, document| {
        let before = read[place].replace(document.map_err(|error| error.to_string()));
        assert_eq!(before, None, "handed over twice");
    });
    read.into_iter().map(|read| read.expect("handed over")).collect()
}

#[test]
fn what_comes_first_is_handed_over_first_and_all_of_it() {
    let (disk, store) = simulated(1);
    let log = open(&store, &DocImage::default());
    let sizes = SIZES.into_iter().chain((0..200).map(|number| 20 + number * 13));
    let documents: Vec<_> = sizes.enumerate().map(|(number, bytes)| document(number, bytes)).collect();
    let mut pointers = append(&log, &documents);
    let log = open(&store, &log.image());
    // One is asked for twice, one is nowhere.
    pointers.push(pointers[20]);
    pointers.push(DocPointer { segment: SegmentId(99), ..pointers[20] });
    let each = |pointers: &[DocPointer]| -> Vec<Result<Vec<u8>, String>> {
        log.read_each(pointers).into_iter().map(|read| read.map_err(|error| error.to_string())).collect()
    };
    let all: Vec<_> = documents.iter().chain([&documents[20]]).cloned().map(Ok).collect();
    for in_flight in [1, 3, 64, 1000] {
        let read = as_they_come(&log, &pointers, in_flight);
        assert_eq!(read[..all.len()], all);
        assert_eq!(read, each(&pointers));
    }
    let victim = pointers[30];
    assert!(disk.flip_bit(format!("/db/doc/7-{}.doc", victim.segment.0), victim.offset + 30));
    let read = as_they_come(&log, &pointers, 8);
    assert_eq!(read.iter().filter(|read| read.is_err()).count(), 2);
    assert_eq!(read, each(&pointers));
    for few in 0..4 {
        assert_eq!(as_they_come(&log, &pointers[29..29 + few], 8), each(&pointers[29..29 + few]));
    }
}

#[test]
fn too_large_a_document_is_refused_before_anything_is_written() {
    let (disk, store) = simulated(1);
    let log = open(&store, &DocImage::default());
    let operations = disk.operations();
    let large = vec![0; usize::try_from(DOCUMENT_BYTES_MAX).expect("fits") + 1];
    let error = log.append(&[b"small", &large]).expect_err("refused");
    assert!(matches!(error, Error::TooLarge { length } if length == DOCUMENT_BYTES_MAX + 1), "{error}");
    assert_eq!(disk.operations(), operations);
}

#[test]
fn every_flipped_bit_is_an_error_and_the_rest_stays_readable() {
    let (disk, store) = simulated(1);
    let log = open(&store, &DocImage::default());
    let documents: Vec<_> = (0..3).map(|number| document(number, 100)).collect();
    let pointers = append(&log, &documents);
    let log = open(&store, &log.image());
    let path = "/db/doc/7-1.doc";
    let victim = pointers[1];
    for offset in victim.offset..victim.offset + 124 {
        assert!(disk.flip_bit(path, offset));
        let error = log.read_many(&pointers).expect_err("damaged");
        let Error::Corrupt(FileDamage { file, offset: at, .. }) = &error else { panic!("{error}") };
        assert_eq!(file, Path::new(path));
        assert!((victim.offset..victim.offset + 124).contains(at), "{error}");
        assert_eq!(log.check_many(&pointers).expect("known"), [true, false, true]);
        let read = log.read_many(&[pointers[0], pointers[2]]).expect("undamaged");
        assert_eq!(read, [documents[0].clone(), documents[2].clone()]);
        assert!(disk.flip_bit(path, offset));
    }
    assert_eq!(log.read_many(&pointers).expect("reads"), documents);
}

#[test]
fn a_document_is_bound_to_its_table_segment_and_place() {
    let directory = tempfile::tempdir().expect("directory");
    let store = FileStore::open(Psync::new(None).expect("a backend"), directory.path(), false).expect("opens");
    let log = open(&store, &DocImage::default());
    let same = document(1, 1000);
    let pointers = append(&log, &[same.clone(), same.clone()]);
    let [first, second] = [pointers[0], pointers[1]];
    assert_ne!(first.crc, second.crc, "equal bytes at another place have another checksum");

    let name = |table: u32, segment: u64| directory.path().join(format!("doc/{table}-{segment}.doc"));
    let bytes = std::fs::read(name(TABLE, 1)).expect("reads");
    std::fs::write(name(TABLE, 2), &bytes).expect("writes");
    std::fs::write(name(8, 1), &bytes).expect("writes");
    let mut swapped = bytes.clone();
    swapped[1024..2048].copy_from_slice(&bytes[..1024]);
    std::fs::write(name(TABLE, 3), &swapped).expect("writes");

    let log = open(&store, &DocImage::default());
    assert_eq!(log.read_many(&[first]).expect("reads")[0], same);
    let other = DocLog::open(&store, 8, &DocImage::default(), SEGMENT).expect("opens");
    let refused = |log: &DocLog, pointer: DocPointer| {
        let error = log.read_many(&[pointer]).expect_err("refused");
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    };
    refused(&other, first);
    refused(&log, DocPointer { segment: SegmentId(2), ..first });
    refused(&log, DocPointer { segment: SegmentId(3), ..second });
    refused(&log, DocPointer { offset: second.offset, ..first });
    refused(&log, DocPointer { length: DocLength::plain(999), ..first });
    refused(&log, DocPointer { length: DocLength::plain(1001), ..first });
    refused(&log, DocPointer { crc: first.crc ^ 1, ..first });
    // Pointers that no memory is spent on.
    refused(&log, DocPointer { length: DocLength::from_bits(u64::MAX), ..first });
    refused(&log, DocPointer { length: DocLength::from_bits(DOCUMENT_BYTES_MAX), ..first });
    refused(&log, DocPointer { offset: u64::MAX - 7, ..first });
    refused(&log, DocPointer { offset: 4, ..first });
    refused(&log, DocPointer { segment: SegmentId(99), ..first });
    refused(&log, DocPointer { segment: SegmentId(0), ..first });
}

#[test]
fn a_failed_append_appends_nothing_and_can_be_tried_again() {
    let (disk, store) = simulated(1);
    let log = open(&store, &DocImage::default());
    let first = append(&log, &[document(0, 100)]);
    disk.set_capacity(Some(2 << 20));
    let large = document(1, 3 << 20);
    for _ in 0..5 {
        let error = log.append(&[b"with it", &large]).expect_err("full");
        assert!(error.is_disk_full(), "{error}");
    }
    // Attempts do not add up: they all used the same room, and gave it back.
    let bytes: usize = disk.files().iter().filter_map(|path| disk.read_file(path)).map(|file| file.len()).sum();
    assert!(bytes < 400, "{bytes}");
    assert!(disk.files().len() <= 2, "{:?}", disk.files());
    let stats = log.stats();
    assert_eq!((stats.pending_documents, stats.segments), (1, 1));
    log.append(&[b"small ones still fit"]).expect("appends");
    disk.set_capacity(None);
    let again = append(&log, std::slice::from_ref(&large));
    assert_eq!(log.read_many(&again).expect("reads")[0], large);

    disk.fail_operation(Fault::Write, 0, 5);
    let error = log.append(&[b"not this one"]).expect_err("fails");
    assert!(!error.is_disk_full() && !error.is_damage(), "{error}");
    disk.fail_operation(Fault::Name, 0, 5);
    log.append(&[&large]).expect_err("no file for it");
    assert_eq!(log.read_many(&first).expect("reads")[0], document(0, 100));
}

#[test]
fn attempts_on_a_full_disk_leave_one_file_however_often_it_is_sealed() {
    let (disk, store) = simulated(1);
    let log = open(&store, &DocImage::default());
    disk.set_capacity(Some(0));
    for _ in 0..5 {
        assert!(log.append(&[b"a small one"]).expect_err("full").is_disk_full());
        log.seal();
    }
    assert_eq!(disk.files().len(), 1, "{:?}", disk.files());
    disk.set_capacity(None);
    let pointers = append(&log, &[b"a small one".to_vec()]);
    assert_eq!(log.read_many(&pointers).expect("reads")[0], b"a small one");
    assert_eq!((log.stats().segments, disk.files().len()), (1, 1));
}

#[test]
fn an_error_of_the_device_is_not_taken_for_damage() {
    let (disk, store) = simulated(1);
    let log = open(&store, &DocImage::default());
    let pointers = append(&log, &[document(0, 100)]);
    disk.fail_operation(Fault::Read, 0, 5);
    let error = log.read_many(&pointers).expect_err("fails");
    assert!(!error.is_damage(), "{error}");
    disk.fail_operation(Fault::Read, 0, 5);
    log.check_many(&pointers).expect_err("nothing is known");
    assert_eq!(log.check_many(&pointers).expect("known"), [true]);
}

#[test]
fn a_read_only_store_reads_and_refuses_to_write() {
    let (disk, store) = simulated(1);
    let log = open(&store, &DocImage::default());
    let pointers = append(&log, &[document(0, 100)]);
    let image = log.image();
    let operations = disk.operations();
    let store = FileStore::open(disk.psync(), Path::new("/db"), true).expect("opens");
    let log = open(&store, &image);
    assert_eq!(log.read_many(&pointers).expect("reads")[0], document(0, 100));
    let error = log.append(&[b"no"]).expect_err("read-only");
    assert!(matches!(error, Error::Space(space::Error::ReadOnly { .. })), "{error}");
    assert_eq!(disk.operations(), operations);
}

#[test]
fn threads_append_and_read_side_by_side() {
    let directory = tempfile::tempdir().expect("directory");
    let store = FileStore::open(Psync::new(None).expect("a backend"), directory.path(), false).expect("opens");
    let log = open(&store, &DocImage::default());
    let all: Vec<(DocPointer, Vec<u8>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let log = &log;
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    for round in 0..30 {
                        let documents: Vec<_> =
                            (0..5).map(|number| document(thread * 1000 + round, number * 20_011)).collect();
                        let pointers = append(log, &documents);
                        assert_eq!(log.read_many(&pointers).expect("reads"), documents);
                        mine.extend(pointers.into_iter().zip(documents));
                    }
                    mine
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let log = open(&store, &log.image());
    let (pointers, documents): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    assert_eq!(log.read_many(&pointers).expect("reads"), documents);
}
