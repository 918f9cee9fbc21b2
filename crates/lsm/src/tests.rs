//! Files that are written, looked into and walked through, against the versions that went in.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use doclog::Compression;
use index::merge::Rules;
use index::{Bounds, Direction, Found, Horizon, Moment, Operation, Payload, Seq, TableId, Time, Update};
use proptest::prelude::*;
use psync::BLOCK;
use psync::sim::{Garble, SimDisk};
use space::{FileStore, StreamKind};

use crate::Shared;
use crate::files::Files;
use crate::format::footer::Written;
use crate::merged::Merged;
use crate::rewrite::{Input, Output, rewrite};
use crate::runs::Run;
use crate::scan::{Pace, Scan};
use crate::search::{Asked, find};
use crate::slices::Slice;
use crate::sst::Sst;
use crate::version::{BOTTOM, Change, Version as Tree};
use crate::writer::{Format, Writer};

const TABLE: TableId = TableId(3);
const PLAIN: Format = Format { compression: Compression::None, filter_tenths: 100, now: Time(0) };

/// A key, a seq, and the bytes of a value; none for a tombstone.
type Version = (Vec<u8>, u64, Option<Vec<u8>>);

fn update((key, seq, value): &Version) -> Update<'_> {
    let put = |value| Operation::Put(Payload::Inline(value), None);
    Update { key, seq: Seq(*seq), operation: value.as_deref().map_or(Operation::Delete, put) }
}

fn store(disk: &SimDisk) -> FileStore {
    FileStore::open(disk.psync(), Path::new("/db"), false).expect("a store")
}

/// Writes a file of these versions, which are in order.
fn written(store: &FileStore, number: u64, versions: &[Version], format: Format) -> Written {
    let file = Sst::create(store, StreamKind::Ln, TABLE, number).expect("a file");
    let mut writer = Writer::new(store.psync(), file, TABLE, number, format);
    for versions in versions.chunk_by(|one, other| one.0 == other.0) {
        writer.push(&versions.iter().map(update).collect::<Vec<_>>());
    }
    writer.finish().expect("room").expect("something was written")
}

/// The file of these versions.
fn write(store: &FileStore, number: u64, versions: &[Version], format: Format) -> Arc<Slice> {
    Arc::new(Slice::whole(StreamKind::Ln, number, &written(store, number, versions, format)))
}

fn get_many(shared: &Shared, sst: &Sst, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> index::Result<()> {
    let asked: Vec<_> = keys.iter().map(|key| Asked { key, at: at.seq, files: vec![sst] }).collect();
    find(shared, &asked, &mut |index, _, update| out[index] = Some(Found::of(update, at.now)))
}

/// The keys from `from` on, in this direction.
fn bounds(from: Option<&[u8]>, direction: Direction) -> Bounds {
    let from = from.map_or(Bound::Unbounded, |from| Bound::Included(from.to_vec()));
    match direction {
        Direction::Forward => Bounds { lower: from, upper: Bound::Unbounded },
        Direction::Backward => Bounds { lower: Bound::Unbounded, upper: from },
    }
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    value.iter_mut().zip(number.to_le_bytes().into_iter().cycle()).for_each(|(out, byte)| *out = byte);
    value
}

fn found(versions: &[Version], key: &[u8], seq: u64) -> Option<Found> {
    let first = versions.partition_point(|version| version.0.as_slice() < key);
    let of_key = versions[first..].iter().take_while(|version| version.0 == key);
    of_key.into_iter().find(|version| version.1 <= seq).map(|version| Found::of(&update(version), Time(0)))
}

fn walked(shared: &Arc<Shared>, sst: &Arc<Sst>, from: Option<&[u8]>, direction: Direction) -> Vec<Version> {
    let mut scan = Scan::new(shared, sst, &bounds(from, direction), direction).expect("reads");
    let mut walked = Vec::new();
    while scan.advance().expect("reads") {
        let Update { key, seq, operation } = scan.current().expect("there is one");
        let value = match operation {
            Operation::Put(Payload::Inline(value), _) => Some(value.to_vec()),
            _ => None,
        };
        walked.push((key.to_vec(), seq.0, value));
    }
    assert!(!scan.advance().expect("the end stays the end"));
    walked
}

fn check(versions: &[Version], probes: &[Vec<u8>], format: Format) {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let slice = write(&store, 7, versions, format);
    let sst = slice.sst();
    for cache_bytes in [0, 1 << 20] {
        let shared = Arc::new(Shared::new(&store, cache_bytes));
        let keys: Vec<&[u8]> = versions.iter().map(|version| &version.0).chain(probes).map(Vec::as_slice).collect();
        for seq in [0, 5, u64::MAX] {
            let mut out = vec![None; keys.len()];
            get_many(&shared, sst, &keys, Moment::from(Seq(seq)), &mut out).expect("reads");
            for (key, out) in keys.iter().zip(out) {
                assert_eq!(out, found(versions, key, seq), "{key:?} at {seq}");
            }
        }
        let all = versions.to_vec();
        let reversed: Vec<Version> = all.iter().rev().cloned().collect();
        assert!(walked(&shared, sst, None, Direction::Forward) == all);
        assert!(walked(&shared, sst, None, Direction::Backward) == reversed);
        for from in probes.iter().chain(versions.iter().map(|version| &version.0).step_by(versions.len() / 2 + 1)) {
            let ahead: Vec<_> = all.iter().filter(|version| version.0 >= *from).cloned().collect();
            let behind: Vec<_> = reversed.iter().filter(|version| version.0 <= *from).cloned().collect();
            assert!(walked(&shared, sst, Some(from), Direction::Forward) == ahead, "{from:?}");
            assert!(walked(&shared, sst, Some(from), Direction::Backward) == behind, "{from:?}");
        }
    }
    let again = Sst::find(&store, StreamKind::Ln, TABLE, 7).expect("its footer checks");
    assert_eq!((again.footer(), again.bytes()), (sst.footer(), sst.bytes()));
    assert_eq!((slice.low(), slice.high()), (&*versions[0].0, &*versions[versions.len() - 1].0));
    assert_eq!(sst.footer().entries, versions.len() as u64);
}

fn in_order(mut versions: Vec<Version>) -> Vec<Version> {
    versions.sort_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
    versions.dedup_by(|one, other| (&one.0, one.1) == (&other.0, other.1));
    versions
}

fn formats() -> impl Iterator<Item = Format> {
    let tenths = [0, 50, 100];
    Compression::ALL.into_iter().zip(tenths).map(|(compression, filter_tenths)| Format {
        compression,
        filter_tenths,
        now: Time(0),
    })
}

#[test]
fn files_of_all_lengths_have_what_was_put_in() {
    for (count, bytes) in [(1, 0), (10, 30), (1000, 100), (400, 2000), (60, 20_000), (6000, 8)] {
        let key = |number: u64| format!("key {:08}", number * 7 % (count * 3)).into_bytes();
        let versions =
            in_order((0..count).map(|number| (key(number), number % 11, Some(value(number, bytes)))).collect());
        let probes = [&b""[..], b"key", b"key 00000001", b"z"].map(<[u8]>::to_vec);
        formats().for_each(|format| check(&versions, &probes, format));
    }
}

#[test]
fn fences_that_stop_sharing_their_beginnings_still_have_room() {
    for (bytes, count) in [(1000, 300), (8000, 40)] {
        let key = |number: u64| [&vec![b'p'; bytes][..], &number.to_be_bytes()].concat();
        let mut versions: Vec<Version> = (0..count).map(|number| (key(number), 1, Some(value(number, 4000)))).collect();
        versions.insert(0, (b"a".to_vec(), 1, None));
        versions.push((b"q".to_vec(), 1, Some(value(1, 10))));
        formats().for_each(|format| check(&versions, &[key(count), b"pp".to_vec()], format));
    }
}

#[test]
fn a_key_with_more_versions_than_a_block_has_room_for_is_found_at_any_seq() {
    for before in [0, 100] {
        let key = |number: u64| number.to_be_bytes().to_vec();
        let mut versions: Vec<Version> = (0..before).map(|number| (key(number), 1, Some(value(number, 100)))).collect();
        versions.extend((0..40).map(|seq| (key(1000), seq, Some(value(seq, 9000)))));
        versions.extend((0..600).map(|seq| (vec![9; 8000], seq, (seq % 5 > 0).then(|| value(seq, 300)))));
        versions.extend((1001..1100).map(|number| (key(number), 3, None)));
        let versions = in_order(versions);
        let probes = [key(1), key(999), key(1000), key(1001), vec![9; 7999], vec![9; 8001]];
        formats().for_each(|format| check(&versions, &probes, format));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_versions_are_found(
        versions in prop::collection::vec(
            (prop::collection::vec(0..4_u8, 0..5), 0..10_u64, prop::option::of(0..6000_usize)), 1..300
        ),
        probe in prop::collection::vec(0..4_u8, 0..5)
    ) {
        let with_value = |(key, seq, bytes): (Vec<u8>, u64, Option<usize>)| {
            let value = bytes.map(|bytes| value(seq, bytes));
            (key, seq, value)
        };
        check(&in_order(versions.into_iter().map(with_value).collect()), &[probe], PLAIN);
    }
}

fn numbered(count: u64) -> Vec<Version> {
    (0..count).map(|number| (number.to_be_bytes().to_vec(), number, Some(value(number, 100)))).collect()
}

#[test]
fn a_cold_lookup_reads_a_page_once_fences_and_filters_are_in_memory() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let versions = numbered(30_000);
    let slice = write(&store, 1, &versions, PLAIN);
    let sst = slice.sst();
    let bytes: usize = versions.iter().map(|(key, _, value)| key.len() + value.as_ref().map_or(0, Vec::len)).sum();
    let (whole, user) = (sst.bytes(), bytes as u64);
    assert!(whole < user + user / 10, "{whole} bytes for {user}: fences, filters and padding are less than a tenth");
    let shared = Shared::new(&store, 1 << 30);
    let counted = || store.counters(StreamKind::Ln).snapshot();
    let look = |number: u64, seq| {
        let (key, before, mut out) = (number.to_be_bytes(), counted(), [None]);
        get_many(&shared, sst, &[&key], Moment::from(Seq(seq)), &mut out).expect("reads");
        let after = counted();
        (out[0].is_some(), after.reads - before.reads, after.read_bytes - before.read_bytes)
    };
    (0..30_000).step_by(30).for_each(|number| assert!(look(number, u64::MAX).0));
    let (mut reads, mut pages) = (0, 0);
    for number in (15..30_000).step_by(30) {
        let (is_there, read, bytes) = look(number, u64::MAX);
        assert!(is_there);
        (reads, pages) = (reads + read, pages + bytes.div_ceil(BLOCK as u64));
    }
    assert!(reads < 1000 && pages <= reads, "{reads} reads of {pages} pages for 1,000 lookups, half of them warm");
    let misled: u64 = (40_000..50_000).map(|number| look(number, u64::MAX).1).sum();
    assert!(misled <= 1, "keys behind the end are excluded: {misled} reads");
}

#[test]
fn what_does_not_check_is_told_and_nothing_else_fails() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let versions = numbered(5000);
    let slice = write(&store, 1, &versions, PLAIN);
    for how in [Garble::Bit, Garble::Elsewhere(4096), Garble::Elsewhere(-8192)] {
        for count in 1..6 {
            let shared = Shared::new(&store, 1 << 20);
            let keys: Vec<_> = (0..5000_u64).step_by(50).map(u64::to_be_bytes).collect();
            let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
            let look = |out: &mut Vec<Option<Found>>| {
                out.resize(keys.len(), None);
                get_many(&shared, slice.sst(), &keys, Moment::from(Seq::MAX), out)
            };
            disk.garble_read(count, how);
            let (mut first, mut then) = (Vec::new(), Vec::new());
            let outcome = look(&mut first);
            if let Err(error) = &outcome {
                assert!(error.to_string().contains("damaged"), "{error}");
            }
            look(&mut then).expect("the next read is whole");
            assert!(then.iter().zip(&keys).all(|(found, key)| *found == self::found(&versions, key, u64::MAX)));
            assert!(first.iter().zip(&then).all(|(one, other)| one.is_none() || one == other));
        }
    }
    let path = disk.files().into_iter().find(|path| path.ends_with("3-1.sst")).expect("the file");
    let bytes = disk.read_file(&path).expect("it is there").len() as u64;
    assert!(disk.flip_bit(&path, bytes - 20));
    let error = Sst::find(&store, StreamKind::Ln, TABLE, 1).map(drop).expect_err("its footer was changed");
    assert!(error.to_string().contains("3-1.sst"), "{error}");
}

/// Runs of files, cut after every so many keys, and what a walk through all of them shows: for each key its versions,
/// with their runs.
type Shown = Vec<(Vec<u8>, Vec<(usize, u64)>)>;

fn shown(runs: &[Vec<Version>], direction: Direction) -> Shown {
    let mut keys: Vec<&Vec<u8>> = runs.iter().flatten().map(|version| &version.0).collect();
    keys.sort_by(|one, other| direction.order(one, other));
    keys.dedup();
    let of_key = |key: &Vec<u8>| {
        let mut versions = Vec::new();
        for (run, all) in runs.iter().enumerate().rev() {
            let mut seqs: Vec<_> = all.iter().filter(|version| version.0 == *key).map(|version| version.1).collect();
            if direction == Direction::Backward {
                seqs.reverse();
            }
            versions.extend(seqs.into_iter().map(|seq| (run, seq)));
        }
        (key.clone(), versions)
    };
    keys.into_iter().map(of_key).collect()
}

fn merged(shared: &Arc<Shared>, runs: &[Run], from: Option<&[u8]>, direction: Direction) -> Shown {
    let mut walk = Merged::new(shared, runs, &bounds(from, direction), direction).expect("reads");
    let mut shown = Vec::new();
    while walk.advance().expect("reads") {
        let versions = walk.versions().map(|(run, update)| (run, update.seq.0));
        shown.push((walk.key().to_vec(), versions.collect()));
    }
    shown
}

/// What a reader at this moment sees, in a walk that passes over what it does not see, or not.
fn scanned(
    shared: &Arc<Shared>, runs: &[Run], from: &[u8], direction: Direction, at: Seq, passes: bool,
) -> Vec<(Vec<u8>, Seq)> {
    let bounds = bounds(Some(from), direction);
    let passes = passes.then_some(at);
    let mut walk = Merged::with_pace(shared, runs, &bounds, direction, Pace::SHORT, passes).expect("reads");
    let mut seen = Vec::new();
    while walk.advance().expect("reads") {
        let newest = walk.newest(at).filter(|update| update.operation != Operation::Delete);
        seen.extend(newest.map(|update| (update.key.to_vec(), update.seq)));
    }
    seen
}

#[test]
fn a_walk_passes_over_what_was_deleted_though_others_see_it() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let key = |number: u32| number.to_be_bytes().to_vec();
    let mut versions = vec![(key(0), 3, Some(value(0, 100)))];
    for number in 1..40_000 {
        if number == 20_000 {
            // Its versions take many blocks, and all but the first begin with a value.
            versions.push((key(number), 2001, None));
            versions.extend((10..2000).rev().map(|seq| (key(number), seq, Some(value(seq, 100)))));
        } else {
            versions.extend([(key(number), 9, None), (key(number), 3, Some(value(number.into(), 100)))]);
        }
    }
    versions.push((key(40_000), 3, Some(value(1, 100))));
    let run = Run::new(vec![write(&store, 7, &versions, PLAIN)]);
    let runs = [Run::default(), run];
    for at in [2001, 5000] {
        for (direction, from, first) in
            [(Direction::Forward, 1, 40_000), (Direction::Backward, 39_999, 0), (Direction::Forward, 30_000, 40_000)]
        {
            let shared = Arc::new(Shared::new(&store, 0));
            let before = disk.reads();
            let found = scanned(&shared, &runs, &key(from), direction, Seq(at), true);
            let reads = disk.reads() - before;
            assert_eq!(found, [(key(first), Seq(3))]);
            // The tops of the file and of a few partitions, and the blocks of the long key.
            assert!(reads < 150, "{reads} reads");
        }
    }
    let shared = Arc::new(Shared::new(&store, 1 << 20));
    for at in [0, 1, 3, 8, 9, 10, 1000, 2000] {
        for direction in [Direction::Forward, Direction::Backward] {
            let seen = |passes| scanned(&shared, &runs, &key(19_990), direction, Seq(at), passes);
            assert!(seen(true) == seen(false), "{direction:?} at {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn runs_are_walked_through_together(
        runs in prop::collection::vec(
            prop::collection::vec((prop::collection::vec(0..4_u8, 0..4), 0..6_u64, any::<bool>()), 1..60), 1..6
        ),
        cut in 1..20_usize, probe in prop::collection::vec(0..4_u8, 0..4)
    ) {
        let disk = SimDisk::new(1);
        let store = store(&disk);
        let with_value = |(key, seq, is_put): (Vec<u8>, u64, bool)| (key, seq, is_put.then(|| value(seq, 200)));
        let runs: Vec<Vec<Version>> =
            runs.into_iter().map(|run| in_order(run.into_iter().map(with_value).collect())).collect();
        let mut number = 0;
        let mut files = |versions: &Vec<Version>| {
            let of_keys: Vec<&[Version]> = versions.chunk_by(|one, other| one.0 == other.0).collect();
            let files = of_keys.chunks(cut).map(|keys| {
                number += 1;
                write(&store, number, &keys.concat(), PLAIN)
            });
            files.collect::<Vec<_>>()
        };
        let files: Vec<Vec<Arc<Slice>>> = runs.iter().map(&mut files).collect();
        let sorted: Vec<Run> = files.iter().map(|files| Run::new(files.clone())).collect();
        let shared = Arc::new(Shared::new(&store, 1 << 20));
        for direction in [Direction::Forward, Direction::Backward] {
            let all = shown(&runs, direction);
            prop_assert_eq!(&merged(&shared, &sorted, None, direction), &all);
            let is_ahead = |(key, _): &&(Vec<u8>, Vec<(usize, u64)>)| direction.order(key, &probe).is_ge();
            let ahead: Shown = all.iter().filter(is_ahead).cloned().collect();
            prop_assert_eq!(merged(&shared, &sorted, Some(&probe), direction), ahead);
            for at in 0..6 {
                let seen = |passes| scanned(&shared, &sorted, &probe, direction, Seq(at), passes);
                prop_assert_eq!(seen(true), seen(false));
            }
        }
        // Sublevels: no overlap within one, and of two files that overlap the newer one is in the newer sublevel.
        let all: Vec<Arc<Slice>> = files.concat();
        let sublevels = Run::sublevels(&all);
        prop_assert!(sublevels.len() <= files.len());
        prop_assert_eq!(sublevels.iter().map(|run| run.slices().len()).sum::<usize>(), all.len());
        for run in &sublevels {
            prop_assert!(run.slices().is_sorted_by(|one, next| one.high() < next.low()));
        }
        let level = |file: &Arc<Slice>| sublevels.iter().position(|run| run.slices().iter().any(|one| Arc::ptr_eq(one, file)));
        for (index, file) in all.iter().enumerate() {
            for older in &all[..index] {
                let overlap = file.low() <= older.high() && older.low() <= file.high();
                prop_assert!(!overlap || level(file) > level(older));
            }
            let low = file.low();
            let is_found = |run: &Run| run.slice_of(low).is_some_and(|found| Arc::ptr_eq(found, file));
            prop_assert!(sublevels.iter().any(is_found));
        }
        for (run, versions) in sorted.iter().zip(&runs) {
            let is_there = versions.iter().any(|version| version.0 == probe);
            prop_assert!(!is_there || run.slice_of(&probe).is_some());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_version_finds_the_newest_through_all_changes_of_its_files(
        changes in prop::collection::vec(
            (prop::collection::vec((prop::collection::vec(0..4_u8, 1..4), prop::option::of(0..300_usize)), 1..30), any::<bool>()),
            1..12
        )
    ) {
        let disk = SimDisk::new(1);
        let store = store(&disk);
        let shared = Arc::new(Shared::new(&store, 1 << 20));
        let mut tree = Tree::empty(Arc::clone(&shared), TABLE);
        let mut all: Vec<Version> = Vec::new();
        let probes: Vec<Vec<u8>> = (0..64_u8).map(|bits| vec![bits & 3, bits >> 2 & 3, bits >> 4]).collect();
        let change = |removed, added| Change { removed, added, expires: false };
        for (seq, (writes, compacts)) in (1..).zip(changes) {
            let with_value = |(key, bytes): (Vec<u8>, Option<usize>)| (key, seq, bytes.map(|bytes| value(seq, bytes)));
            let batch = in_order(writes.into_iter().map(with_value).collect());
            let number = 2 * seq;
            let redo = tree.redo(change(Vec::new(), vec![write(&store, number, &batch, PLAIN).entry(0)]));
            tree = tree.replay(&redo).expect("a new file of the first level");
            prop_assert!(tree.replay(&redo).is_err(), "the file is there already");
            all = in_order([all, batch].concat());
            if compacts {
                // Everything into one file of the last level.
                let removed: Vec<u64> = tree.all().map(|(_, slice)| slice.sst().number()).collect();
                let entry = write(&store, number + 1, &all, PLAIN).entry(BOTTOM);
                let redo = tree.redo(change(removed, vec![entry]));
                tree = tree.replay(&redo).expect("in place of all files");
                prop_assert_eq!(tree.runs().count(), 1);
                prop_assert!(tree.replay(&redo).is_err(), "the files are gone already");
            }
            let again = Tree::open(Arc::clone(&shared), TABLE, &tree.root()).expect("its own record");
            prop_assert_eq!(again.root(), tree.root());
            let keys: Vec<&[u8]> = all.iter().map(|version| &version.0).chain(&probes).map(Vec::as_slice).collect();
            for at in [1, seq / 2, seq] {
                let mut out = vec![None; keys.len()];
                let show = &mut |index: usize, update: &Update<'_>| out[index] = Some(Found::of(update, Time(0)));
                again.find(&keys, Moment::from(Seq(at)), show).expect("reads");
                for (key, out) in keys.iter().zip(out) {
                    prop_assert_eq!(out, found(&all, key, at));
                }
            }
        }
        let first = tree.all().next().map(|(_, slice)| slice.entry(1));
        let overlapping = first.into_iter().flat_map(|entry| [entry.clone(), entry]).collect();
        prop_assert!(tree.replay(&tree.redo(change(Vec::new(), overlapping))).is_err());
    }
}

/// What readers at these seqs see of a key.
fn seen(versions: &[Version], key: &[u8], seqs: &[u64]) -> Vec<Option<Option<Vec<u8>>>> {
    let newest = |seq: &u64| {
        let visible = versions.iter().filter(|version| version.0 == key && version.1 <= *seq);
        visible.max_by_key(|version| version.1).map(|version| version.2.clone())
    };
    seqs.iter().map(newest).collect()
}

/// As a reader sees it: a tombstone is nothing.
fn values(seen: Vec<Option<Option<Vec<u8>>>>) -> Vec<Option<Vec<u8>>> {
    seen.into_iter().map(Option::flatten).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn merged_runs_show_readers_what_they_showed_before(
        writes in prop::collection::vec(
            prop::collection::vec((prop::collection::vec(0..4_u8, 1..3), any::<bool>()), 1..40), 2..6
        ),
        merges in 0..6_usize, snapshots in prop::collection::btree_set(0..30_u64, 0..3), file_bytes in 1..4000_usize
    ) {
        let disk = SimDisk::new(1);
        let store = store(&disk);
        let shared = Arc::new(Shared::new(&store, 1 << 20));
        let mut seq = 0;
        let mut batch = |run: Vec<(Vec<u8>, bool)>| {
            let with_value = |(key, is_put): (Vec<u8>, bool)| {
                seq += 1;
                (key, seq, is_put.then(|| value(seq, 200)))
            };
            in_order(run.into_iter().map(with_value).collect())
        };
        let batches: Vec<Vec<Version>> = writes.into_iter().map(&mut batch).collect();
        let file = |(number, versions): (usize, &Vec<Version>)| {
            Run::new(vec![write(&store, number as u64, versions, PLAIN)])
        };
        let runs: Vec<Run> = batches.iter().enumerate().map(file).collect();
        let before = batches.concat();
        let (older, newer) = runs.split_at(merges.min(runs.len()));
        let horizon: Horizon = snapshots.iter().copied().map(Seq).collect();
        let rules = Rules { horizon: &horizon, through: Seq::MAX, is_all: true };
        let base = Tree::empty(Arc::clone(&shared), TABLE);
        let files = Arc::new(Files::find(&store, TABLE, 100).expect("a disk that works"));
        let output = Output::new(&base, &files, BOTTOM, PLAIN, file_bytes);
        let input = Input { runs: newer, older, bounds: &Bounds::all(), bytes: usize::MAX, counted: &[] };
        let rewritten = rewrite(&shared, &input, rules, output).expect("reads and writes");
        prop_assert!(rewritten.next.is_none());
        prop_assert_eq!(rewritten.made.written.len(), rewritten.made.files.len());
        let whole = |written: &Written| Arc::new(Slice::whole(StreamKind::Ln, written.number(), written));
        let made = Run::new(rewritten.made.written.iter().map(whole).collect());
        let mut after: Vec<Version> = batches[..older.len()].concat();
        for slice in made.slices() {
            after.extend(walked(&shared, slice.sst(), None, Direction::Forward));
        }
        let mut seqs: Vec<u64> = snapshots.into_iter().collect();
        seqs.push(u64::MAX);
        for key in before.iter().map(|version| &version.0) {
            prop_assert_eq!(values(seen(&before, key, &seqs)), values(seen(&after, key, &seqs)), "{:?}", key);
        }
        if older.is_empty() && seqs.len() == 1 {
            prop_assert!(after.iter().all(|version| version.2.is_some()), "no tombstone is left at the bottom");
            let keys: Vec<_> = after.iter().map(|version| &version.0).collect();
            prop_assert!(keys.is_sorted_by(|one, next| one < next), "nor an older version");
        }
    }
}

#[test]
fn golden_file() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let versions: Vec<Version> = [
        (b"a".to_vec(), 3, Some(b"one".to_vec())),
        (b"ab".to_vec(), 9, None),
        (b"ab".to_vec(), 2, Some(vec![7; 3])),
        (b"b".to_vec(), 4, Some(Vec::new())),
    ]
    .into();
    let slice = write(&store, 1, &versions, PLAIN);
    let path = disk.files().into_iter().find(|path| path.ends_with("3-1.sst")).expect("the file");
    let bytes = disk.read_file(&path).expect("it is there");
    let data = b"\x01\x04\0\0\0\x01\x01\x02\0\0\0\0\0\0\0\x01\0\x03\0\x05\0\x06\0\x03\0\x03\0\x06\0\x06\0\x01\x07\0\x02\x01\x02\x01\x01aababbone\x07\x07\x07";
    assert_eq!(bytes[..data.len()].escape_ascii().to_string(), data.escape_ascii().to_string());
    assert_eq!((bytes.len(), slice.sst().bytes()), (4096, 4096));
    assert_eq!(checksum::crc32c(&bytes), 2_800_074_496, "fences, filter, top and footer");
}
