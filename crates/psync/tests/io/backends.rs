//! What users of `Psync` rely on, on every backend.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use psync::{BLOCK, BackendKind, Buffer, Counters, Error, File, OpenOptions, Operation, Psync, Request};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;

/// Runs a check on every backend, with its name in any failure. Every machine that runs these tests must have all four.
fn on_every_backend(check: impl Fn(&Psync, &Path)) {
    for kind in BackendKind::ALL {
        println!("backend {kind}");
        let psync = Psync::new(Some(kind)).expect("backend");
        assert_eq!(psync.backend(), kind);
        let directory = TempDir::new().expect("directory");
        check(&psync, directory.path());
    }
}

fn create(psync: &Psync, path: &Path, direct: bool) -> File {
    let options = OpenOptions { write: true, create_new: true, direct, ..OpenOptions::default() };
    psync.open(path, &options).expect("create")
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SmallRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

fn write(psync: &Psync, file: &File, offset: u64, bytes: &[u8]) {
    psync.run_all(vec![Request::write(file, offset, Buffer::from_slice(bytes), 0)]).expect("write");
}

fn read(psync: &Psync, file: &File, offset: u64, len: usize) -> Vec<u8> {
    let buffers = psync.run_all(vec![Request::read(file, offset, Buffer::zeroed(len), 0)]).expect("read");
    buffers[0].as_ref().expect("buffer").to_vec()
}

/// Batches of writes to distinct places and reads elsewhere, against a model; more requests than may be in flight.
fn random_batches(psync: &Psync, file: &File, unit: usize) {
    let places = 300;
    let mut random = SmallRng::seed_from_u64(unit as u64);
    let mut model = pattern(1, places * unit);
    write(psync, file, 0, &model);
    for round in 0..20 {
        let mut order: Vec<usize> = (0..places).collect();
        for index in (1..places).rev() {
            order.swap(index, random.random_range(0..=index));
        }
        let mut expected = Vec::new();
        let mut requests = Vec::new();
        for (tag, place) in order.into_iter().take(random.random_range(0..places)).enumerate() {
            let offset = (place * unit) as u64;
            let bytes = place * unit..(place + 1) * unit;
            if random.random() {
                let written = pattern((round * places + place) as u64, unit);
                let buffer = Buffer::from_slice(&written);
                let durably = random.random_ratio(1, 100);
                let write = if durably { Request::write_durably } else { Request::write };
                requests.push(write(file, offset, buffer, tag as u64));
                model[bytes].copy_from_slice(&written);
                expected.push(None);
            } else {
                requests.push(Request::read(file, offset, Buffer::zeroed(unit), tag as u64));
                expected.push(Some(model[bytes].to_vec()));
            }
        }
        let completions = psync.run(requests);
        assert_eq!(completions.len(), expected.len());
        for (tag, (completion, expected)) in completions.into_iter().zip(expected).enumerate() {
            assert_eq!(completion.tag, tag as u64);
            completion.result.expect("request");
            let buffer = completion.buffer.expect("buffer");
            if let Some(expected) = expected {
                assert!(*buffer == expected[..], "read {tag} of round {round}");
            }
        }
    }
    assert!(read(psync, file, 0, model.len()) == model);
}

#[test]
fn random_direct_batches_do_what_the_model_does() {
    on_every_backend(|psync, directory| {
        let file = create(psync, &directory.join("file"), true);
        random_batches(&psync.clone().with_pio_max(64), &file, BLOCK);
        random_batches(&psync.clone().with_pio_max(3), &file, 2 * BLOCK);
    });
}

#[test]
fn random_buffered_batches_need_no_alignment() {
    on_every_backend(|psync, directory| {
        let file = create(psync, &directory.join("file"), false);
        assert!(!file.is_direct());
        random_batches(psync, &file, 777);
        random_batches(psync, &file, 1);
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// One write after another at any offset, compared with a growing vector.
    #[test]
    fn unaligned_writes_grow_a_file_as_they_grow_a_vector(
        writes in prop::collection::vec((0_usize..20_000, prop::collection::vec(any::<u8>(), 0..5000)), 1..12)
    ) {
        on_every_backend(|psync, directory| {
            let file = create(psync, &directory.join("file"), false);
            let mut model = Vec::new();
            for (offset, bytes) in &writes {
                write(psync, &file, *offset as u64, bytes);
                if !bytes.is_empty() {
                    model.resize(model.len().max(offset + bytes.len()), 0);
                    model[*offset..offset + bytes.len()].copy_from_slice(bytes);
                }
            }
            assert_eq!(file.len().expect("length"), model.len() as u64);
            assert!(read(psync, &file, 0, model.len()) == model);
        });
    }
}

#[test]
fn one_failure_leaves_the_others_alone() {
    on_every_backend(|psync, directory| {
        let good = create(psync, &directory.join("good"), true);
        write(psync, &good, 0, &pattern(1, 8 * BLOCK));
        let path = directory.join("good");
        let read_only = psync.open(&path, &OpenOptions::default()).expect("open");
        let mut requests: Vec<Request> =
            (0..8).map(|block| Request::read(&good, block * BLOCK as u64, Buffer::zeroed(BLOCK), block)).collect();
        requests.insert(3, Request::write(&read_only, 0, Buffer::from_slice(b"no"), 100));
        requests.insert(6, Request::read(&good, 1, Buffer::zeroed(BLOCK), 101));
        requests.insert(7, Request::read(&good, u64::MAX / BLOCK as u64 * BLOCK as u64, Buffer::zeroed(BLOCK), 102));
        let completions = psync.run(requests);
        for completion in completions {
            let buffer = completion.buffer.expect("every buffer comes back");
            match completion.tag {
                100 => {
                    let error = completion.result.expect_err("not open for writing");
                    assert_eq!(error.io().and_then(std::io::Error::raw_os_error), Some(libc::EBADF));
                    assert!(error.to_string().starts_with("cannot write 2 bytes at offset 0 of "), "{error}");
                    assert_eq!(&*buffer, b"no");
                }
                // Where the file system has no direct I/O (TMPDIR may be anywhere), any place will do.
                101 if !good.is_direct() => completion.result.expect("read"),
                101 => {
                    let error = completion.result.expect_err("direct");
                    assert!(matches!(error, Error::Misaligned { offset: 1, length: 4096, .. }), "{error}");
                }
                102 => assert!(matches!(completion.result, Err(Error::Io { operation: "read", .. }))),
                block => {
                    completion.result.expect("read");
                    let start = usize::try_from(block).expect("small") * BLOCK;
                    assert!(*buffer == pattern(1, 8 * BLOCK)[start..start + BLOCK]);
                }
            }
        }
    });
}

#[test]
fn a_read_past_the_end_is_short_and_gives_what_is_there() {
    on_every_backend(|psync, directory| {
        for direct in [false, true] {
            let file = create(psync, &directory.join(format!("{direct}")), direct);
            write(psync, &file, 0, &pattern(5, 2 * BLOCK));
            if !direct {
                file.set_len(5000).expect("cut");
            }
            let there = if direct { 2 * BLOCK } else { 5000 };
            for count in [1, 4] {
                let requests =
                    (0..count).map(|tag| Request::read(&file, BLOCK as u64, Buffer::zeroed(4 * BLOCK), tag)).collect();
                for completion in psync.run(requests) {
                    let Err(Error::ShortRead { offset, wanted, got, .. }) = completion.result else {
                        panic!("{:?} is no short read", completion.result);
                    };
                    assert_eq!((offset, wanted), (BLOCK as u64, 4 * BLOCK as u64));
                    assert_eq!(got, (there - BLOCK) as u64);
                    let buffer = completion.buffer.expect("buffer");
                    assert!(buffer[..there - BLOCK] == pattern(5, 2 * BLOCK)[BLOCK..there]);
                    assert!(buffer[there - BLOCK..].iter().all(|byte| *byte == 0));
                }
            }
        }
    });
}

#[test]
fn room_that_is_given_back_reads_as_zeros_and_can_be_had_again() {
    on_every_backend(|psync, directory| {
        for direct in [false, true] {
            let file = create(psync, &directory.join(format!("{direct}")), direct);
            write(psync, &file, 0, &pattern(3, 64 * BLOCK));
            psync.run_all(vec![Request::flush(&file, 0)]).expect("flush");
            let blocks = || std::fs::metadata(file.path()).expect("there").blocks();
            let before = blocks();
            let hole = (8 * BLOCK) as u64..(40 * BLOCK) as u64;
            // Where the file system has no holes (TMPDIR may be anywhere), nothing happens.
            if !file.punch(hole.clone()).expect("no error") {
                return;
            }
            assert_eq!(file.len().expect("a length"), (64 * BLOCK) as u64);
            assert!(blocks() < before, "{before} before");
            let read = Request::read(&file, 0, Buffer::zeroed(64 * BLOCK), 0);
            let found = psync.run_all(vec![read]).expect("read").remove(0).expect("a buffer");
            let mut expected = pattern(3, 64 * BLOCK);
            expected[8 * BLOCK..40 * BLOCK].fill(0);
            assert!(*found == expected);
            if file.reserve(hole).expect("room") {
                assert_eq!(blocks(), before);
            }
            assert_ne!(file.free_bytes(), Some(0), "there was room");
        }
    });
}

#[test]
fn a_direct_read_across_an_unaligned_end_is_short() {
    on_every_backend(|psync, directory| {
        let path = directory.join("file");
        std::fs::write(&path, pattern(6, BLOCK + 100)).expect("write");
        let options = OpenOptions { direct: true, ..OpenOptions::default() };
        let file = psync.open(&path, &options).expect("open");
        for count in [1, 2] {
            let requests = (0..count).map(|tag| Request::read(&file, 0, Buffer::zeroed(2 * BLOCK), tag));
            for completion in psync.run(requests.collect()) {
                let Err(Error::ShortRead { got, .. }) = completion.result else {
                    panic!("{:?} is no short read", completion.result);
                };
                assert_eq!(got, (BLOCK + 100) as u64);
            }
        }
    });
}

#[test]
fn a_stream_hands_out_every_completion_once() {
    on_every_backend(|psync, directory| {
        let file = create(psync, &directory.join("file"), true);
        let content = pattern(9, 256 * BLOCK);
        write(psync, &file, 0, &content);
        let mut stream = psync.stream(16);
        assert!(stream.next().is_none());
        let mut seen = HashSet::new();
        let mut check = |completion: psync::Completion| {
            completion.result.expect("read");
            let start = usize::try_from(completion.tag).expect("small") * BLOCK;
            assert!(*completion.buffer.expect("buffer") == content[start..start + BLOCK]);
            assert!(seen.insert(completion.tag), "twice");
        };
        // More than the depth at once, then one in for one out, then the rest.
        let mut tags = 0..256_u64;
        let request = |tag| Request::read(&file, tag * BLOCK as u64, Buffer::zeroed(BLOCK), tag);
        for tag in tags.by_ref().take(100) {
            stream.push(request(tag));
        }
        assert_eq!(stream.in_flight(), 100);
        for tag in tags.by_ref().take(100) {
            check(stream.next().expect("in flight"));
            stream.push(request(tag));
        }
        stream.submit();
        for tag in tags {
            stream.push(request(tag));
        }
        for completion in stream.by_ref() {
            check(completion);
        }
        assert_eq!(stream.in_flight(), 0);
        // It goes on after it ran dry, and a batch may run meanwhile.
        stream.push(request(7));
        assert!(read(psync, &file, 0, BLOCK) == content[..BLOCK]);
        let pair = psync.run(vec![request(1), request(2)]);
        assert!(pair.iter().all(|completion| completion.result.is_ok()));
        assert_eq!(stream.next().map(|completion| completion.tag), Some(7));
        assert_eq!(seen.len(), 256);
    });
}

#[test]
fn a_stream_outlives_the_thread_that_pushed() {
    on_every_backend(|psync, directory| {
        let file = create(psync, &directory.join("file"), true);
        let content = pattern(4, 64 * BLOCK);
        write(psync, &file, 0, &content);
        let request = |tag| Request::read(&file, tag * BLOCK as u64, Buffer::zeroed(BLOCK), tag);
        let mut stream = psync.stream(64);
        for round in 0..5_u64 {
            // Each thread hands requests to the system, takes half of what the last one left, and ends.
            stream = std::thread::scope(|scope| {
                let begin = || {
                    (0..64).for_each(|tag| stream.push(request(tag)));
                    stream.submit();
                    for _ in 0..(32 + 16 * round).min(64) {
                        let completion = stream.next().expect("in flight");
                        completion.result.expect("read");
                        let start = usize::try_from(completion.tag).expect("small") * BLOCK;
                        assert!(*completion.buffer.expect("buffer") == content[start..start + BLOCK]);
                    }
                    stream
                };
                scope.spawn(begin).join().expect("no panic")
            });
        }
        assert_eq!(stream.in_flight(), 32 + 16);
        assert!(stream.all(|completion| completion.result.is_ok()));
    });
}

#[test]
fn a_dropped_stream_completes_what_was_pushed() {
    on_every_backend(|psync, directory| {
        let counters = Arc::<Counters>::default();
        let options = OpenOptions {
            write: true,
            create_new: true,
            direct: true,
            counters: Some(Arc::clone(&counters)),
            ..OpenOptions::default()
        };
        let path = directory.join("file");
        let file = psync.open(&path, &options).expect("create");
        let content = pattern(2, 64 * BLOCK);
        let mut stream = psync.stream(8);
        for (tag, block) in content.chunks(BLOCK).enumerate() {
            stream.push(Request::write(&file, (tag * BLOCK) as u64, Buffer::from_slice(block), 0));
        }
        stream.push(Request::flush(&file, 0));
        drop(file);
        drop(stream);
        assert!(std::fs::read(&path).expect("read") == content);
        let counted = counters.snapshot();
        assert_eq!((counted.writes, counted.flushes, counted.reads), (64, 1, 0));
        assert_eq!(counted.written_bytes, content.len() as u64);
    });
}

#[test]
fn flushes_of_several_files_go_with_their_writes_in_one_batch() {
    on_every_backend(|psync, directory| {
        let files: Vec<File> =
            (0..3).map(|number| create(psync, &directory.join(number.to_string()), number == 1)).collect();
        let mut requests = Vec::new();
        for (number, file) in files.iter().enumerate() {
            for block in 0..10 {
                let bytes = pattern((number * 10 + block) as u64, BLOCK);
                let buffer = Buffer::from_slice(&bytes);
                requests.push(Request::write(file, (block * BLOCK) as u64, buffer, 1));
            }
        }
        requests.extend(files.iter().map(|file| Request::flush(file, 2)));
        requests.push(Request::read(&files[0], 0, Buffer::zeroed(BLOCK), 3));
        requests.push(Request::flush(&files[0], 4));
        let completions = psync.clone().with_pio_max(8).run(requests);
        let tags: Vec<u64> = completions.iter().map(|completion| completion.tag).collect();
        assert_eq!(tags, [[1; 30].as_slice(), &[2, 2, 2, 3, 4]].concat());
        for completion in completions {
            completion.result.expect("request");
            assert_eq!(completion.buffer.is_some(), completion.tag % 2 == 1);
        }
        for (number, file) in files.iter().enumerate() {
            let expected: Vec<u8> = (0..10).flat_map(|block| pattern(number as u64 * 10 + block, BLOCK)).collect();
            assert!(read(psync, file, 0, expected.len()) == expected);
            assert_eq!(file.counters().snapshot().flushes, if number == 0 { 2 } else { 1 });
        }
    });
}

#[test]
fn durable_writes_write_and_fail_as_others_do() {
    on_every_backend(|psync, directory| {
        for direct in [false, true] {
            let path = directory.join(format!("{direct}"));
            let file = create(psync, &path, direct);
            let content = pattern(8, 12 * BLOCK);
            let write = |block: usize| {
                let buffer = Buffer::from_slice(&content[block * BLOCK..(block + 1) * BLOCK]);
                Request::write_durably(&file, (block * BLOCK) as u64, buffer, block as u64)
            };
            psync.run_all(vec![write(0)]).expect("written");
            psync.run_all(vec![write(1), Request::flush(&file, 0)]).expect("written");
            psync.run_all((2..12).map(write).collect()).expect("written");
            assert!(read(psync, &file, 0, content.len()) == content);
            assert_eq!(file.counters().snapshot().written_bytes, content.len() as u64);

            let read_only = psync.open(&path, &OpenOptions { direct, ..OpenOptions::default() }).expect("open");
            let options = OpenOptions { write: true, ..OpenOptions::default() };
            let full = psync.open(Path::new("/dev/full"), &options).expect("open");
            for others in [0, 3] {
                let mut requests: Vec<Request> = (0..others).map(write).collect();
                requests.push(Request::write_durably(&read_only, 0, Buffer::zeroed(BLOCK), 100));
                requests.push(Request::write_durably(&full, 0, Buffer::zeroed(BLOCK), 101));
                requests.push(Request::write_durably(&file, 1, Buffer::zeroed(BLOCK - 1), 102));
                for completion in psync.run(requests) {
                    assert!(completion.buffer.is_some());
                    match (completion.tag, completion.result) {
                        (100, Err(Error::Io { source, .. })) => assert_eq!(source.raw_os_error(), Some(libc::EBADF)),
                        (101, Err(error)) => assert!(error.is_disk_full(), "{error}"),
                        (102, result) => assert_eq!(result.is_err(), file.is_direct()),
                        (_, result) => result.expect("written"),
                    }
                }
            }
        }
    });
}

#[test]
fn a_flush_of_what_cannot_be_flushed_fails_alone() {
    on_every_backend(|psync, directory| {
        let file = create(psync, &directory.join("file"), false);
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let zero = psync.open(Path::new("/dev/zero"), &options).expect("open");
        let completions = psync.run(vec![
            Request::flush(&zero, 0),
            Request::write(&file, 0, Buffer::from_slice(b"x"), 1),
            Request::flush(&file, 2),
            Request::flush(&zero, 3),
        ]);
        let results: Vec<bool> = completions.iter().map(|completion| completion.result.is_ok()).collect();
        assert_eq!(results, [false, true, true, false]);
    });
}

#[test]
fn a_full_disk_is_told_apart() {
    on_every_backend(|psync, _| {
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let full = psync.open(Path::new("/dev/full"), &options).expect("open");
        for count in [1, 5] {
            let requests = (0..count).map(|tag| Request::write(&full, 0, Buffer::zeroed(100), tag));
            for completion in psync.run(requests.collect()) {
                let error = completion.result.expect_err("full");
                assert!(error.is_disk_full(), "{error}");
                assert_eq!(completion.buffer.map(|buffer| buffer.len()), Some(100));
            }
        }
        assert_eq!(full.counters().snapshot(), psync::CountersSnapshot::default());
    });
}

#[test]
fn threads_do_not_disturb_one_another() {
    on_every_backend(|psync, directory| {
        let file = create(psync, &directory.join("file"), true);
        let region = 32;
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let (psync, file) = (psync.clone().with_pio_max(16), &file);
                scope.spawn(move || {
                    for round in 0..20 {
                        let content = pattern(thread * 100 + round, region * BLOCK);
                        let start = thread * (region * BLOCK) as u64;
                        let writes = content.chunks(BLOCK).enumerate().map(|(block, bytes)| {
                            let offset = start + (block * BLOCK) as u64;
                            Request::write(file, offset, Buffer::from_slice(bytes), 0)
                        });
                        psync.run_all(writes.collect()).expect("write");
                        let reads = (0..region).map(|block| {
                            let offset = start + (block * BLOCK) as u64;
                            Request::read(file, offset, Buffer::zeroed(BLOCK), 0)
                        });
                        let buffers = psync.run_all(reads.collect()).expect("read");
                        let found: Vec<u8> = buffers.into_iter().flatten().flat_map(|buffer| buffer.to_vec()).collect();
                        assert!(found == content, "thread {thread} round {round}");
                    }
                });
            }
        });
    });
}

#[test]
fn more_requests_than_any_queue_holds() {
    on_every_backend(|psync, directory| {
        let file = create(psync, &directory.join("file"), true);
        let psync = psync.clone().with_pio_max(psync::PIO_MAX_LIMIT);
        let content = pattern(4, 3000 * BLOCK);
        let writes = content
            .chunks(BLOCK)
            .enumerate()
            .map(|(block, bytes)| Request::write(&file, (block * BLOCK) as u64, Buffer::from_slice(bytes), 0));
        psync.run_all(writes.collect()).expect("write");
        let reads = (0..3000).map(|block| Request::read(&file, block * BLOCK as u64, Buffer::zeroed(BLOCK), 0));
        let buffers = psync.run_all(reads.clone().collect()).expect("read");
        // As many as may be in flight, all waited for at once: more than a submission queue holds.
        psync.run_all(reads.take(psync::PIO_MAX_LIMIT).collect()).expect("read");
        for (block, buffer) in buffers.into_iter().enumerate() {
            assert!(*buffer.expect("buffer") == content[block * BLOCK..(block + 1) * BLOCK]);
        }
    });
}

#[test]
fn requests_of_nothing_and_batches_of_nothing_succeed() {
    on_every_backend(|psync, directory| {
        let file = create(psync, &directory.join("file"), true);
        assert!(psync.run(Vec::new()).is_empty());
        let completions = psync.run(vec![
            Request::read(&file, 0, Buffer::zeroed(0), 0),
            Request::write(&file, BLOCK as u64, Buffer::zeroed(0), 1),
            Request { file: file.clone(), offset: 77, operation: Operation::Write(Buffer::zeroed(0)), tag: 2 },
        ]);
        assert!(completions[0].result.is_ok() && completions[1].result.is_ok());
        assert_eq!(matches!(completions[2].result, Err(Error::Misaligned { .. })), file.is_direct());
        assert_eq!(file.len().expect("length"), 0);
    });
}

#[test]
fn the_first_error_in_request_order_is_reported() {
    on_every_backend(|psync, directory| {
        let file = create(psync, &directory.join("file"), false);
        write(psync, &file, 0, b"12345678");
        let read = |offset, len, tag| Request::read(&file, offset, Buffer::zeroed(len), tag);
        let error = psync.run_all(vec![read(0, 8, 0), read(6, 9, 1), read(2, 20, 2)]).expect_err("two are short");
        assert!(matches!(error, Error::ShortRead { offset: 6, wanted: 9, got: 2, .. }), "{error}");
    });
}
