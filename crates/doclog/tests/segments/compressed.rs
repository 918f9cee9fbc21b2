//! Documents that are compressed: they come back, are moved as they are stored, and damage to them is an error that
//! says where.

use std::path::Path;

use doclog::{Compression, DOCUMENT_BYTES_MAX, DocImage, DocLength, DocLog, DocPointer, Error, Reads, SegmentId};
use psync::sim::SimDisk;
use psync::{Buffer, Request};
use space::{FileDamage, FileStore, StreamKind};

const TABLE: u32 = 7;
const SEGMENT: u64 = 1 << 20;
const BOTH: [Compression; 2] = [Compression::Lz4, Compression::Zstd];

fn store(disk: &SimDisk) -> FileStore {
    FileStore::open(disk.psync(), Path::new("/db"), false).expect("opens")
}

fn open(disk: &SimDisk, image: &DocImage, compression: Compression) -> DocLog {
    DocLog::open(&store(disk), TABLE, image, SEGMENT).expect("opens").with_compression(compression)
}

/// Bytes that become shorter.
fn text(bytes: usize) -> Vec<u8> {
    (0_u32..).flat_map(|number| format!("{} bytes, ", number % 1009 * 31).into_bytes()).take(bytes).collect()
}

/// Bytes that do not.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33).to_le_bytes()[0]
    };
    (0..bytes).map(|_| next()).collect()
}

/// Empty ones, short ones, what is shorter than a block and longer than a segment, and what nothing makes shorter.
fn documents() -> Vec<Vec<u8>> {
    let lengths = [0, 1, 30, 257, 2049, 4096, 70_000, 1 << 20, 5 << 20];
    let mut documents: Vec<_> = lengths.into_iter().map(text).collect();
    documents.extend([noise(300), noise(4096), vec![0; 40 << 20], [noise(2000), vec![0; 2000]].concat()]);
    documents
}

fn append(log: &DocLog, documents: &[Vec<u8>]) -> Vec<DocPointer> {
    log.append(&documents.iter().map(Vec::as_slice).collect::<Vec<_>>()).expect("appends")
}

#[test]
fn documents_come_back_whatever_the_log_does_with_the_next_ones() {
    for compression in BOTH {
        let disk = SimDisk::new(1);
        let log = open(&disk, &DocImage::default(), compression);
        let documents = documents();
        let mut pointers = append(&log, &documents[..5]);
        let mut appender = log.appender();
        pointers.extend(documents[5..].iter().map(|document| appender.push(document).expect("there is room")));
        appender.finish().expect("writes");
        for (pointer, document) in pointers.iter().zip(&documents) {
            let (length, bytes) = (pointer.length, document.len() as u64);
            // Without I/O it is known how long a document is, and what it takes.
            assert_eq!(length.original(), bytes);
            // Nothing makes the very short ones shorter, nor noise.
            let is_as_it_was = document.len() < 100 || *document == noise(document.len());
            assert_eq!(length.stored() == bytes, is_as_it_was, "{compression}: {bytes} in {}", length.stored());
            assert_eq!(length == DocLength::from_bits(bytes), is_as_it_was, "as it is, it is stored as ever");
        }
        assert_eq!(log.read_many(&pointers).expect("reads"), documents);
        let ahead: Vec<_> = log.read_ahead(&pointers).finish().into_iter().map(|read| read.expect("reads")).collect();
        assert_eq!(ahead, documents);
        // After a crash, in a log that compresses otherwise, or not at all.
        store(&disk)
            .psync()
            .run_all(log.take_unflushed().iter().map(|file| Request::flush(file, 0)).collect())
            .expect("flushed");
        let image = log.image();
        disk.restart();
        for other in Compression::ALL {
            let log = open(&disk, &image, other);
            assert_eq!(log.check_many(&pointers).expect("reads"), vec![true; pointers.len()]);
            assert_eq!(log.read_many(&pointers).expect("reads"), documents);
            log.rewrite(&pointers[..6]).expect("rewrites");
            assert_eq!(log.read_many(&pointers).expect("reads"), documents);
        }
    }
}

#[test]
fn a_batch_is_written_in_one_psync_without_gaps() {
    let disk = SimDisk::new(1);
    let log = open(&disk, &DocImage::default(), Compression::Zstd);
    let documents: Vec<_> = (1..40).map(|number| text(number * 500)).collect();
    let slices: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    let packed = log.pack(&slices).expect("short enough");
    let store = store(&disk);
    let log = DocLog::open(&store, TABLE, &DocImage::default(), SEGMENT).expect("opens");
    let before = store.counters(StreamKind::Doc).snapshot();
    let pointers = log.append_packed(&packed).expect("appends");
    let after = store.counters(StreamKind::Doc).snapshot();
    let stored: u64 = pointers.iter().map(DocPointer::stored_bytes).sum();
    assert_eq!((after.writes - before.writes, after.written_bytes - before.written_bytes), (1, stored));
    assert_eq!(packed.stored_bytes(), stored);
    assert_eq!(log.stats().bytes, stored, "the room that is counted is that of what is stored");
    assert!(stored < documents.iter().map(|document| document.len() as u64).sum::<u64>() / 2);
    assert_eq!(log.read_many(&pointers).expect("reads"), documents);
}

#[test]
fn what_is_moved_stays_as_it_is_stored() {
    for compression in BOTH {
        let disk = SimDisk::new(1);
        let log = open(&disk, &DocImage::default(), compression);
        let documents = documents();
        let pointers = append(&log, &documents);
        // Another compression: what was compressed anew would be seen.
        let log = open(
            &disk,
            &log.image(),
            if compression == Compression::Lz4 { Compression::Zstd } else { Compression::None },
        );
        let reads = Reads { in_flight: 4, direct: true };
        let mut mover = log.mover();
        let mut moved = Vec::new();
        for (pointer, stored) in pointers.iter().zip(log.read_stored(&pointers, reads).finish()) {
            let stored = stored.expect("whole");
            assert_eq!(stored.len() as u64, pointer.length.stored());
            moved.push(mover.push_stored(&stored, pointer.length).expect("there is room"));
        }
        mover.finish().expect("writes");
        let lengths = |pointers: &[DocPointer]| pointers.iter().map(|pointer| pointer.length).collect::<Vec<_>>();
        assert_eq!(lengths(&moved), lengths(&pointers));
        assert_eq!(log.read_many(&moved).expect("reads"), documents);
    }
}

/// The bytes of a segment's file.
fn segment(disk: &SimDisk, log: &DocLog, pointer: &DocPointer) -> Vec<u8> {
    disk.read_file(log.path_of(pointer.segment)).expect("a file")
}

#[test]
fn every_flipped_bit_of_a_compressed_document_is_found_and_told() {
    for compression in BOTH {
        let disk = SimDisk::new(1);
        let log = open(&disk, &DocImage::default(), compression);
        let [before, pointer, behind] = append(&log, &[text(300), text(600), text(300)])[..] else { panic!("three") };
        assert!(pointer.length.stored() < 600);
        let (path, end) = (log.path_of(pointer.segment), pointer.offset + 24 + pointer.length.stored());
        let (whole, store) = (segment(&disk, &log, &pointer), store(&disk));
        let file = store.open_existing(StreamKind::Doc, "doc/7-1.doc", false).expect("a file");
        let put = |byte: u8, at: u64| {
            store.psync().run_all(vec![Request::write(&file, at, Buffer::from_slice(&[byte]), 0)]).expect("written");
        };
        for at in pointer.offset..end {
            for bit in 0..8 {
                let byte = whole[usize::try_from(at).expect("small")];
                put(byte ^ 1 << bit, at);
                let error = log.read_many(&[pointer]).expect_err("damaged");
                let Error::Corrupt(FileDamage { file, offset, .. }) = &error else { panic!("{error}") };
                assert!(*file == path && (pointer.offset..end).contains(offset), "{error}");
                assert_eq!(log.read_many(&[before, behind]).expect("whole"), [text(300), text(300)]);
                put(byte, at);
            }
        }
        assert_eq!(log.read_many(&[pointer]).expect("whole again"), [text(600)]);
    }
}

/// A document whose checksum is right, though it is none that the log makes: with this length, at the beginning of a
/// new segment.
fn forged(disk: &SimDisk, stored: &[u8], length: DocLength) -> (DocLog, DocPointer) {
    let segment = SegmentId(5);
    let mut pointer = DocPointer { segment, offset: 0, length, crc: 0 };
    let fields: [&[u8]; 4] =
        [&TABLE.to_le_bytes(), &segment.0.to_le_bytes(), &0_u64.to_le_bytes(), &length.bits().to_le_bytes()];
    pointer.crc = checksum::crc32c_append(checksum::crc32c(&fields.concat()), stored);
    let header: [&[u8]; 5] =
        [b"BDOC\x01\0\x01\0", &length.bits().to_le_bytes(), &TABLE.to_le_bytes(), &pointer.crc.to_le_bytes(), stored];
    let store = store(disk);
    let file = store.create(StreamKind::Doc, "doc/7-5.doc", false).expect("a new file");
    store.psync().run_all(vec![Request::write(&file, 0, Buffer::from_slice(&header.concat()), 0)]).expect("written");
    (DocLog::open(&store, TABLE, &DocImage::default(), SEGMENT).expect("opens"), pointer)
}

fn length(code: u64, stored: usize, original: u64) -> DocLength {
    DocLength::from_bits(stored as u64 | code << 32 | original << 34)
}

/// What of a document is stored.
fn stored(compression: Compression, document: &[u8]) -> Vec<u8> {
    let disk = SimDisk::new(1);
    let log = open(&disk, &DocImage::default(), compression);
    let pointer = append(&log, &[document.to_vec()])[0];
    assert!(pointer.length.stored() < pointer.length.original());
    let start = usize::try_from(pointer.offset).expect("small") + 24;
    let end = start + usize::try_from(pointer.length.stored()).expect("small");
    segment(&disk, &log, &pointer)[start..end].to_vec()
}

#[test]
fn what_does_not_decompress_to_what_its_pointer_says_is_damage() {
    for (code, compression) in [(1, Compression::Lz4), (2, Compression::Zstd)] {
        let (text, disk) = (text(3000), SimDisk::new(1));
        let bytes = stored(compression, &text);
        let (log, right) = forged(&disk, &bytes, length(code, bytes.len(), 3000));
        assert_eq!(log.read_many(&[right]).expect("as it should be"), [text]);
        // Shorter, longer, of the other compression, and of one that is not known.
        for other in [
            length(code, bytes.len(), 2999),
            length(code, bytes.len(), 3001),
            length(3 - code, bytes.len(), 3000),
            length(3, bytes.len(), 3000),
        ] {
            let disk = SimDisk::new(1);
            let (log, pointer) = forged(&disk, &bytes, other);
            let error = log.read_many(&[pointer]).expect_err("another length");
            let file = log.path_of(pointer.segment);
            assert!(
                matches!(&error, Error::Corrupt(FileDamage { file: of, offset, .. }) if *of == file && *offset <= 24),
                "{error}"
            );
        }
    }
}

#[test]
fn no_memory_is_spent_on_a_pointer_that_promises_too_much() {
    for code in [1, 2] {
        let most = DOCUMENT_BYTES_MAX;
        let zeros = stored(if code == 1 { Compression::Lz4 } else { Compression::Zstd }, &vec![0; 100_000]);
        for promised in [length(code, zeros.len(), most), length(code, zeros.len(), most + 1), length(code, 20, most)] {
            let disk = SimDisk::new(1);
            let (log, pointer) = forged(&disk, &zeros[..usize::try_from(promised.stored()).expect("few")], promised);
            let taken = allocation_counter::measure(|| {
                let error = log.read_many(&[pointer]).expect_err("refused");
                assert!(error.is_damage(), "{error}");
            });
            assert!(taken.bytes_max < 1 << 20, "{} bytes for {promised:?}", taken.bytes_max);
        }
    }
}

#[test]
fn what_checks_and_decompresses_to_nothing_sensible_is_found_by_a_verification() {
    for compression in BOTH {
        let log = open(&SimDisk::new(4), &DocImage::default(), compression);
        let document = text(5000);
        let whole = append(&log, &[document.clone(), noise(3000)]);
        let length = whole[0].length;
        let stored =
            log.read_stored(&whole[..1], Reads { direct: true, in_flight: 1 }).finish().remove(0).expect("reads");
        let mut mover = log.mover();
        // As one who writes it wrong would: the checksum is that of the wrong bytes.
        let wrong = mover.push_stored(&vec![0xa5; stored.len()], length).expect("there is room");
        mover.finish().expect("writes");
        assert!(log.check_many(&[wrong]).expect("reads")[0], "its checksum is right");
        let findings = |pointers: &[DocPointer]| {
            let (mut found, mut count) = (Vec::new(), 0);
            log.verify(pointers, &mut |error| found.push(error.to_string()), &mut |documents, _| count += documents);
            assert_eq!(count, pointers.len() as u64);
            found
        };
        assert_eq!(findings(&whole), [""; 0]);
        let found = findings(&[whole[0], wrong, whole[1]]);
        let place = format!("{}", wrong.offset + 24);
        assert!(found.len() == 1 && found[0].contains("stands for") && found[0].contains(&place), "{found:?}");
    }
}

#[test]
fn a_verification_of_many_large_documents_takes_them_in_turns() {
    let log = open(&SimDisk::new(5), &DocImage::default(), Compression::Lz4);
    let pointers = append(&log, &vec![noise(3 << 20); 5]);
    let (mut found, mut batches) = (Vec::new(), Vec::new());
    log.verify(&pointers, &mut |error| found.push(error.to_string()), &mut |documents, _| batches.push(documents));
    assert_eq!((found, batches), (Vec::<String>::new(), vec![2, 2, 1]));
}
