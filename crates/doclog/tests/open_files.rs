//! Reads of more segments than the process may have files open. Alone in its process, whose limit it lowers.

use doclog::{DocImage, DocLog, DocPointer, Reads};
use psync::Psync;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use space::FileStore;

/// Files that the process may have open.
const LIMIT: u64 = 128;
const SEGMENTS: u32 = 600;

#[test]
fn documents_may_be_in_more_segments_than_files_may_be_open() {
    let limit = Rlimit { current: Some(LIMIT), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).expect("lowered");
    let directory = tempfile::tempdir().expect("created");
    let psync = Psync::new(None).expect("a backend");
    let store = FileStore::open(psync, directory.path(), false).expect("opens");
    let log = DocLog::open(&store, 1, &DocImage::default(), 1).expect("opens");

    let document = |number: u32| number.to_le_bytes().repeat(1000);
    let pointers: Vec<DocPointer> = (0..SEGMENTS)
        .map(|number| {
            let pointer = log.append(&[&document(number)]).expect("appended")[0];
            assert_eq!(log.take_unflushed().len(), 1);
            pointer
        })
        .collect();
    assert_eq!(log.stats().segments, u64::from(SEGMENTS));

    // Scattered, as the keys of a batch are.
    let scattered: Vec<u32> = (0..SEGMENTS).map(|number| number * 7 % SEGMENTS).collect();
    let wanted: Vec<DocPointer> = scattered.iter().map(|&number| pointers[number as usize]).collect();
    let expected: Vec<Vec<u8>> = scattered.iter().copied().map(document).collect();
    assert_eq!(log.read_many(&wanted).expect("read"), expected);
    assert!(log.check_many(&wanted).expect("checked").into_iter().all(|whole| whole));
    // Even where more are wanted at a time than may be open.
    for direct in [true, false] {
        let stored = log.read_stored(&wanted, Reads { in_flight: 1000, direct }).finish();
        assert_eq!(stored.into_iter().collect::<Result<Vec<_>, _>>().expect("read"), expected);
    }
    // Two at a time.
    let begun = [(); 2].map(|()| log.read_ahead(&wanted[..40]));
    for read in begun {
        assert_eq!(read.finish().into_iter().collect::<Result<Vec<_>, _>>().expect("read"), expected[..40]);
    }
}
