//! Documents that are appended one by one and name those before them.

use std::path::Path;

use doclog::{Content, DocImage, DocLog, DocPointer, Retained, SegmentId};
use psync::sim::SimDisk;
use space::{FileStore, StreamKind};

fn nodes(store: &FileStore, segment_bytes: u64) -> DocLog {
    DocLog::open_of(Content::Nodes, store, 3, &DocImage::default(), segment_bytes).expect("opens")
}

fn store(disk: &SimDisk) -> FileStore {
    FileStore::open(disk.psync(), Path::new("/db"), false).expect("opens")
}

#[test]
fn what_is_pushed_may_name_what_was_pushed_before_and_is_written_in_large_pieces() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let log = nodes(&store, 4 << 20);
    let mut appender = log.appender();
    let mut before: Option<DocPointer> = None;
    let mut pointers = Vec::new();
    for number in 0..5_000_u32 {
        let mut document = vec![number.to_le_bytes()[0]; 4_000];
        document[..28].copy_from_slice(&before.map_or([0; 28], |before| before.encode()));
        before = Some(appender.push(&document).expect("there is room"));
        pointers.extend(before);
    }
    let written = store.counters(StreamKind::Node).snapshot().writes;
    assert!(written > 0, "the first pieces are written while the last ones come");
    appender.finish().expect("writes");
    let writes = store.counters(StreamKind::Node).snapshot().writes;
    assert!(writes <= 25, "{writes} writes of 20 MB");
    let read = log.read_many(&pointers).expect("reads");
    for (index, document) in read.iter().enumerate().skip(1) {
        assert_eq!(document[..28], pointers[index - 1].encode());
    }

    let mut retained: Vec<Retained> = Vec::new();
    pointers.iter().for_each(|pointer| Retained::count(&mut retained, pointer));
    retained.iter().for_each(|retained| log.retain_in(retained).expect("retains"));
    let live: u64 = pointers.iter().map(DocPointer::stored_bytes).sum();
    let stats = log.stats();
    assert_eq!((stats.pending_documents, stats.live_bytes), (0, live));
    log.drop_in(SegmentId(1), retained[0].bytes).expect("drops");
    log.drop_in(SegmentId(1), 1).expect_err("nothing is left there");
    assert_eq!(log.stats().live_bytes, live - retained[0].bytes);
    let _ = log.image();
    assert_eq!(log.release_dead(u64::MAX).expect("releases"), [SegmentId(1)]);
    assert!(!disk.files().contains(&Path::new("/db/node/3-1.node").to_path_buf()), "{:?}", disk.files());
    DocLog::remove_table(Content::Nodes, &store, 3).expect("removes");
    assert_eq!(disk.files(), [""; 0].map(Path::new));
}

#[test]
fn what_its_caller_flushes_keeps_no_file_open_for_the_log() {
    let log = nodes(&store(&SimDisk::new(6)), 64 << 10);
    let mut appender = log.appender();
    for _ in 0..40 {
        appender.push(&[1; 10_000]).expect("there is room");
    }
    let files = appender.finish().expect("writes");
    assert!(files.len() > 5, "{} files", files.len());
    assert_eq!(log.take_unflushed().len(), 0, "nobody takes these who writes no commits");
}

#[test]
fn what_is_not_finished_leaves_nothing() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let log = nodes(&store, 1 << 20);
    let first = log.append(&[b"one"]).expect("appends")[0];
    let mut appender = log.appender();
    let second = appender.push(b"two").expect("there is room");
    appender.push(&vec![3; 2 << 20]).expect("there is room");
    drop(appender);
    assert_eq!(log.stats().pending_documents, 1);
    assert_eq!(log.append(&[b"three"]).expect("appends")[0].offset, second.offset, "its room is given out again");
    assert_eq!(log.read_many(&[first]).expect("reads"), [b"one"]);
}

#[test]
fn what_is_moved_shares_no_segment_with_what_is_new_and_waits_for_no_flush_of_theirs() {
    let disk = SimDisk::new(5);
    let log = DocLog::open(&store(&disk), 3, &DocImage::default(), 64 << 10).expect("opens");
    let new = log.append(&[&[1; 1000]]).expect("appends");
    let mut mover = log.mover();
    let moved = mover.push(&[2; 1000]).expect("pushes");
    let files = mover.finish().expect("writes");
    assert_ne!(moved.segment, new[0].segment);
    assert_eq!(log.take_unflushed().len(), 1, "only what is new waits for a flush");
    assert!(files.iter().all(|file| file.path() == log.path_of(moved.segment)));
    log.retain(&moved, 0).expect("there");
    let usage = |segment| log.usage().into_iter().find(|usage| usage.segment == segment).expect("there");
    assert!(!usage(moved.segment).is_settled && usage(moved.segment).live_bytes == moved.stored_bytes());
    log.seal();
    assert!(usage(moved.segment).is_settled, "nothing comes any more");
    assert!(!usage(new[0].segment).is_settled, "nobody said what becomes of a document");
    log.abandon(&new[0]);
    assert!(usage(new[0].segment).is_settled && usage(new[0].segment).live_bytes == 0);
    let next = log.append(&[&[3; 10]]).expect("appends");
    assert!(next[0].segment > moved.segment);
    assert_eq!(log.read_many(&[moved]).expect("reads"), [vec![2; 1000]]);
}
