//! Segments over the lives of a process: images, replay, release, crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use doclog::{DocImage, DocLog, DocPointer, Error, Retained, SegmentId};
use proptest::prelude::*;
use psync::sim::SimDisk;
use psync::{File, Request};
use space::FileStore;

const TABLE: u32 = 3;

fn store(disk: &SimDisk) -> FileStore {
    FileStore::open(disk.psync(), Path::new("/db"), false).expect("opens")
}

fn open(store: &FileStore, image: &DocImage) -> DocLog {
    DocLog::open(store, TABLE, image, 4096).expect("opens")
}

fn flush(store: &FileStore, files: &[File]) {
    let flushes = files.iter().map(|file| Request::flush(file, 0)).collect();
    store.psync().run_all(flushes).expect("flushes");
}

fn append(log: &DocLog, documents: &[Vec<u8>]) -> Vec<DocPointer> {
    let documents: Vec<&[u8]> = documents.iter().map(Vec::as_slice).collect();
    log.append(&documents).expect("appends")
}

fn ids(numbers: &[u64]) -> Vec<SegmentId> {
    numbers.iter().copied().map(SegmentId).collect()
}

#[test]
fn a_segment_goes_when_a_checkpoint_knows_that_it_is_dead() {
    let disk = SimDisk::new(1);
    let log = open(&store(&disk), &DocImage::default());
    let first = append(&log, &[vec![1; 2000], vec![2; 2000]]);
    first.iter().for_each(|pointer| log.retain(pointer, 1).expect("retains"));
    log.drop_document(&first[0]).expect("drops");
    assert_eq!(log.image().segments[0].live_bytes, first[1].stored_bytes());
    assert_eq!(log.release_dead(u64::MAX).expect("releases"), []);
    log.drop_document(&first[1]).expect("drops");
    assert_eq!(log.release_dead(u64::MAX).expect("releases"), [], "no image knows that it is dead");
    // It was not full, but nothing is appended to it any more.
    assert!(log.image().segments[0].sealed);

    let second = append(&log, &[vec![3; 2000]]);
    assert_eq!(second[0].segment, SegmentId(2));
    assert_eq!(log.release_dead(u64::MAX).expect("releases"), ids(&[1]));
    assert_eq!(disk.files(), [Path::new("/db/doc/3-2.doc")]);
    let error = log.read_many(&first).expect_err("gone");
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    assert_eq!(log.read_many(&second).expect("reads")[0], [3; 2000]);
}

#[test]
fn a_file_with_the_last_number_there_is_is_named_by_who_needs_another() {
    let disk = SimDisk::new(1);
    let path = format!("doc/{TABLE}-{}.doc", u64::MAX);
    store(&disk).create(space::StreamKind::Doc, &path, false).expect("made");
    let log = open(&store(&disk), &DocImage::default());
    let error = log.append(&[&[1; 2000]]).expect_err("no number is left");
    assert!(error.is_damage() && error.to_string().contains(&path), "{error}");
    assert_eq!(log.stats().pending_documents, 0);
}

#[test]
fn a_pinned_segment_stays_and_what_is_dead_in_it_is_no_garbage() {
    let disk = SimDisk::new(1);
    let log = open(&store(&disk), &DocImage::default());
    let documents = append(&log, &[vec![1; 1000], vec![2; 1000]]);
    documents.iter().for_each(|pointer| log.retain(pointer, 1).expect("retains"));
    let then: Vec<_> = log
        .image()
        .segments
        .iter()
        .map(|segment| Retained { segment: segment.id, bytes: segment.live_bytes, end: segment.length })
        .collect();
    log.pin(&then.iter().map(|retained| retained.segment).collect());
    log.seal();
    let later = append(&log, &[vec![3; 1000]]);
    log.retain(&later[0], 2).expect("retains");
    log.drop_document(&documents[0]).expect("drops");
    let half = documents[0].stored_bytes();
    assert_eq!((log.stats().pinned_bytes, log.usage()[0].bytes), (half, half), "there is nothing to be had");
    log.drop_document(&documents[1]).expect("drops");
    drop(log.image());
    assert_eq!((log.release_dead(u64::MAX).expect("releases"), log.dead()), (ids(&[]), vec![]));
    assert_eq!(log.read_many(&documents).expect("reads"), [vec![1; 1000], vec![2; 1000]]);

    // What lived then lives again, and what came later is dead.
    let (again, dead) = Retained::difference(&log.live(), &then);
    assert_eq!((again.clone(), dead.clone()), (then, vec![(later[0].segment, later[0].stored_bytes())]));
    again.iter().for_each(|retained| log.retain_in(retained).expect("retains"));
    dead.iter().for_each(|(segment, bytes)| log.drop_in(*segment, *bytes).expect("drops"));
    log.pin(&BTreeSet::new());
    drop(log.image());
    assert_eq!(log.release_dead(u64::MAX).expect("releases"), ids(&[2]));
    documents.iter().for_each(|document| log.drop_document(document).expect("drops"));
    drop(log.image());
    assert_eq!(log.release_dead(u64::MAX).expect("releases"), ids(&[1]));
}

#[test]
fn a_document_without_a_verdict_keeps_its_segment() {
    let disk = SimDisk::new(1);
    let log = open(&store(&disk), &DocImage::default());
    // Each has a segment of its own, sealed from the start.
    let pointers = append(&log, &[vec![1; 5000], vec![2; 5000]]);
    let _ = log.image();
    assert_eq!(log.release_dead(u64::MAX).expect("releases"), []);
    log.abandon(&pointers[0]);
    log.retain(&pointers[1], 1).expect("retains");
    let _ = log.image();
    assert_eq!(log.release_dead(u64::MAX).expect("releases"), ids(&[1]));
    assert_eq!(log.stats().segments, 1);
}

#[test]
fn what_a_kept_commit_names_stays_over_the_lives_of_a_process() {
    let disk = SimDisk::new(1);
    let log = open(&store(&disk), &DocImage::default());
    // Each has a segment of its own; a later commit names an earlier segment's document last.
    let pointers = append(&log, &[vec![1; 5000], vec![2; 5000], vec![3; 5000]]);
    for (pointer, commit) in pointers.iter().zip([7, 5, 6]) {
        log.retain(pointer, commit).expect("retains");
    }
    pointers.iter().for_each(|pointer| log.drop_document(pointer).expect("drops"));
    assert_eq!(log.dead(), [7, 5, 6].map(|commit| (commit, pointers[0].stored_bytes())));
    let image = DocImage::decode(&log.image().encode()).expect("whole");
    assert_eq!(log.release_dead(5).expect("releases"), []);
    assert_eq!(log.release_dead(6).expect("releases"), ids(&[2]));

    // A checkpoint says so to the next life, also of what is gone already.
    let log = open(&store(&disk), &image);
    assert_eq!(log.read_many(&pointers[2..]).expect("reads"), [vec![3; 5000]]);
    assert_eq!(log.dead().len(), 2);
    let _ = log.image();
    assert_eq!(log.release_dead(7).expect("releases"), ids(&[3]));
    assert_eq!(log.release_dead(8).expect("releases"), ids(&[1]));
    assert!(disk.files().is_empty());
}

#[test]
fn live_bytes_never_go_below_zero() {
    let disk = SimDisk::new(1);
    let log = open(&store(&disk), &DocImage::default());
    let pointers = append(&log, &[vec![1; 10]]);
    log.drop_document(&pointers[0]).expect_err("was never retained");
    log.retain(&pointers[0], 1).expect("retains");
    log.drop_document(&pointers[0]).expect("drops");
    let error = log.drop_document(&pointers[0]).expect_err("twice");
    assert!(matches!(error, Error::Corrupt { .. }) && error.to_string().contains("doc/3-1.doc"), "{error}");
    let outside = DocPointer { offset: 4000, ..pointers[0] };
    log.retain(&outside, 1).expect_err("there is nothing");
    let nowhere = DocPointer { segment: SegmentId(5), ..pointers[0] };
    log.retain(&nowhere, 1).expect_err("there is nothing");
    log.drop_document(&nowhere).expect_err("there is nothing");
    assert_eq!(log.stats().live_bytes, 0);
}

#[test]
fn a_new_life_writes_to_a_new_segment_and_adopts_the_ones_the_image_does_not_know() {
    let disk = SimDisk::new(1);
    let first = open(&store(&disk), &DocImage::default());
    let image = first.image();
    let old = append(&first, &[vec![1; 100]]);
    let second = open(&store(&disk), &image);
    assert!(second.image().segments.iter().all(|segment| segment.sealed));
    let new = append(&second, &[vec![2; 100]]);
    assert_eq!([old[0].segment, new[0].segment], [SegmentId(1), SegmentId(2)]);
    // The log's replay finds the commits of both.
    second.retain(&old[0], 1).expect("retains");
    second.retain(&new[0], 1).expect("retains");
    assert_eq!(second.read_many(&[old[0], new[0]]).expect("reads"), [vec![1; 100], vec![2; 100]]);
    assert_eq!(second.stats().live_bytes, old[0].stored_bytes() + new[0].stored_bytes());
    // An image keeps numbers from being used again, also when the files are gone.
    let image = second.image();
    second.destroy().expect("destroys");
    assert!(disk.files().is_empty());
    let mut forgotten = image.clone();
    forgotten.segments.clear();
    let third = open(&store(&disk), &forgotten);
    assert_eq!(append(&third, &[vec![3; 100]])[0].segment, SegmentId(3));
}

#[test]
fn a_table_that_was_dropped_leaves_no_files() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    append(&open(&store, &DocImage::default()), &[vec![1; 5000], vec![1; 10]]);
    let other = DocLog::open(&store, 33, &DocImage::default(), 4096).expect("opens");
    append(&other, &[vec![1; 10]]);
    DocLog::remove_table(doclog::Content::Documents, &store, TABLE).expect("removes");
    assert_eq!(disk.files(), [Path::new("/db/doc/33-1.doc")]);
}

#[test]
fn a_segment_shorter_than_the_image_says_is_reported_and_the_rest_is_readable() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let log = open(&store, &DocImage::default());
    let pointers = append(&log, &[vec![1; 100], vec![2; 100], vec![3; 5000], vec![4; 5000]]);
    pointers.iter().for_each(|pointer| log.retain(pointer, 1).expect("retains"));
    let image = log.image();
    log.take_unflushed()[0].set_len(200).expect("cuts");
    store.release("doc/3-2.doc").expect("removes");

    let log = open(&store, &image);
    let damage: Vec<String> = log.damage().iter().map(ToString::to_string).collect();
    assert_eq!(damage.len(), 2);
    assert!(
        damage[0].contains("3-1.doc is damaged at byte 200: length; expected at least 256 bytes, found at least 200"),
        "{damage:?}"
    );
    assert!(damage[1].contains("3-2.doc") && damage[1].contains("no file"), "{damage:?}");
    assert_eq!(log.check_many(&pointers).expect("known"), [true, false, false, true]);
    let mut found = Vec::new();
    let mut checked = (0, 0);
    log.verify(&pointers, &mut |error| found.push(error.to_string()), &mut |documents, bytes| {
        checked = (checked.0 + documents, checked.1 + bytes);
    });
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(checked, (4, 10_200));
    // What the damaged parts hold can still be dropped, so that the database can be repaired.
    pointers.iter().for_each(|pointer| log.drop_document(pointer).expect("drops"));
    let _ = log.image();
    assert_eq!(log.release_dead(u64::MAX).expect("releases"), ids(&[1, 2, 3]));
}

#[test]
fn what_was_not_flushed_may_be_lost_and_is_never_wrong() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..300_u64 {
        let disk = SimDisk::new(seed);
        let first_store = store(&disk);
        let log = open(&first_store, &DocImage::default());
        let image = log.image();
        let safe: Vec<Vec<u8>> = (0..5).map(|number| vec![number; 700 * usize::from(number)]).collect();
        let safe_pointers = append(&log, &safe);
        flush(&first_store, &log.take_unflushed());
        let risky: Vec<Vec<u8>> = (100..106).map(|number| vec![number; 13 * usize::from(number)]).collect();
        let risky_pointers = append(&log, &risky);
        if seed % 3 == 0 {
            // In the middle of an append, or of making its file.
            disk.crash_after(seed % 7);
            for _ in 0..6 {
                let _ = log.append(&[&[9; 3000]]);
            }
        }
        disk.restart();

        let log = open(&store(&disk), &image);
        assert!(log.damage().is_empty(), "seed {seed}");
        assert_eq!(log.read_many(&safe_pointers).expect("was flushed"), safe, "seed {seed}");
        let whole = log.check_many(&risky_pointers).expect("known");
        for ((pointer, document), whole) in risky_pointers.iter().zip(&risky).zip(whole) {
            match log.read_many(&[*pointer]) {
                Ok(read) => {
                    assert!(whole && read[0] == *document, "seed {seed}");
                    kept += 1;
                }
                Err(error) => {
                    assert!(!whole && matches!(error, Error::Corrupt { .. }), "seed {seed}: {error}");
                    lost += 1;
                }
            }
        }
        // And the next life writes elsewhere.
        let next = append(&log, &[vec![1; 10]]);
        assert!(next[0].segment > safe_pointers[4].segment);
    }
    assert!(kept > 100 && lost > 100, "{kept} kept and {lost} lost: the crashes test nothing");
}

#[derive(Clone, Debug)]
enum Step {
    Append { sizes: Vec<usize>, commit: bool },
    Drop { every: usize },
    Checkpoint,
    Reopen,
    Read { every: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let size = prop_oneof![0_usize..64, 0_usize..2100, Just(1_usize << 13)];
    prop_oneof![
        6 => (prop::collection::vec(size, 0..8), prop::bool::weighted(0.8))
            .prop_map(|(sizes, commit)| Step::Append { sizes, commit }),
        3 => (1_usize..4).prop_map(|every| Step::Drop { every }),
        1 => Just(Step::Checkpoint),
        1 => Just(Step::Reopen),
        2 => (1_usize..4).prop_map(|every| Step::Read { every }),
    ]
}

/// What the database above keeps: the last image, and a log of commits and drops since.
struct World {
    disk: SimDisk,
    store: FileStore,
    log: DocLog,
    image: DocImage,
    since: Vec<(DocPointer, bool)>,
    live: BTreeMap<DocPointer, Vec<u8>>,
    pending: u64,
    appended: u8,
}

impl World {
    fn new() -> Self {
        let disk = SimDisk::new(1);
        let store = store(&disk);
        let log = open(&store, &DocImage::default());
        Self { image: log.image(), disk, store, log, since: Vec::new(), live: BTreeMap::new(), pending: 0, appended: 0 }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Append { sizes, commit } => {
                let next = |size: &usize| {
                    self.appended = self.appended.wrapping_add(1);
                    vec![self.appended; *size]
                };
                let documents: Vec<_> = sizes.iter().map(next).collect();
                let pointers = append(&self.log, &documents);
                if !commit {
                    self.pending += pointers.len() as u64;
                    return;
                }
                flush(&self.store, &self.log.take_unflushed());
                for (pointer, document) in pointers.into_iter().zip(documents) {
                    self.log.retain(&pointer, 1).expect("retains");
                    self.since.push((pointer, true));
                    assert!(self.live.insert(pointer, document).is_none(), "a place is used once");
                }
            }
            Step::Drop { every } => {
                let gone: Vec<_> = self.live.keys().copied().step_by(*every).collect();
                for pointer in gone {
                    self.log.drop_document(&pointer).expect("drops");
                    self.since.push((pointer, false));
                    self.live.remove(&pointer);
                }
            }
            Step::Checkpoint => {
                self.image = DocImage::decode(&self.log.image().encode()).expect("whole");
                self.since.clear();
                self.log.release_dead(u64::MAX).expect("releases");
            }
            Step::Reopen => self.reopen(),
            Step::Read { every } => self.read(*every),
        }
    }

    /// The power goes; the next life replays the log.
    fn reopen(&mut self) {
        self.disk.restart();
        self.store = store(&self.disk);
        self.log = open(&self.store, &self.image);
        assert!(self.log.damage().is_empty(), "{:?}", self.log.damage());
        for (pointer, commit) in &self.since {
            if *commit {
                self.log.retain(pointer, 1).expect("retains");
            } else {
                self.log.drop_document(pointer).expect("drops");
            }
        }
        self.pending = 0;
    }

    fn read(&self, every: usize) {
        // Neither in order nor without gaps.
        let chosen: Vec<_> = self.live.iter().rev().step_by(every).collect();
        let pointers: Vec<_> = chosen.iter().map(|(pointer, _)| **pointer).collect();
        let read = self.log.read_many(&pointers).expect("reads");
        assert!(read.iter().eq(chosen.iter().map(|(_, document)| *document)));
        assert!(self.log.check_many(&pointers).expect("known").iter().all(|whole| *whole));
    }

    fn check(&self) {
        let stats = self.log.stats();
        let live: u64 = self.live.keys().map(DocPointer::stored_bytes).sum();
        assert_eq!((stats.live_bytes, stats.pending_documents), (live, self.pending));
        for segment in self.log.image().segments {
            let here = self.live.keys().filter(|pointer| pointer.segment == segment.id);
            assert_eq!(segment.live_bytes, here.map(DocPointer::stored_bytes).sum::<u64>());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn agrees_with_a_map(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.read(1);
        world.reopen();
        world.check();
        world.read(1);
        // When nothing is live, a checkpoint leaves no file but the active one.
        world.step(&Step::Drop { every: 1 });
        world.step(&Step::Checkpoint);
        prop_assert!(world.disk.files().is_empty(), "{:?}", world.disk.files());
    }
}
