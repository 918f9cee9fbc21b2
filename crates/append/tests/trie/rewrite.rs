//! Tries that are loaded, made anew stretch by stretch, and looked through for what has expired.

use std::ops::Bound;

use index::testing::steps::Store;
use index::testing::{Change, Updates};
use index::{
    Bounds, Described, Direction, Expiry, History as _, Horizon, Index, LeafKeys, Moment, Part, Payload, Seq, Time,
    Upkeep,
};
use psync::sim::SimDisk;

use crate::common::Home;

fn home() -> Home {
    Home::new(SimDisk::new(5), append::CHUNK_BYTES_DEFAULT, 1 << 20, 1 << 20)
}

fn key(number: u32) -> Vec<u8> {
    format!("https://example.org/{:04}/{number:06}", number % 7).into_bytes()
}

fn keys(home: &Home, at: u64) -> Vec<Vec<u8>> {
    home.pairs(at).into_iter().map(|(key, ..)| key).collect()
}

fn load(home: &Home, count: u32, expiry: impl Fn(usize) -> Option<Expiry>) -> Vec<Vec<u8>> {
    let mut sorted: Vec<_> = (0..count).map(key).collect();
    sorted.sort();
    let mut load = home.trie.begin_load(Seq(4)).expect("it is empty");
    let ready = || Ok::<(), index::Error>(());
    for (number, key) in sorted.iter().enumerate() {
        load.push(key, Payload::Inline(&vec![7; number % 400]), expiry(number), &ready).expect("room");
    }
    let loaded = load.finish(&ready).expect("room");
    home.flush(&loaded.files).expect("a disk that works");
    home.trie.install(&home.trie.take_loaded(loaded, Seq(9)));
    sorted
}

/// All stretches of a part, each installed; how many.
fn rewrite(home: &mut Home, until: Option<&[u8]>, bytes: usize, now: Time) -> usize {
    let (mut from, mut stretches) = (Some(Vec::new()), 0);
    while let Some(low) = from {
        let part = Part { from: &low, until, bytes, ..Part::whole() };
        let horizon = Horizon::new(Vec::new(), now);
        let Some(compacted) = home.trie.compact(part, Seq::MAX, &horizon).expect("room") else { break };
        home.flush(&compacted.applied.files).expect("a disk that works");
        home.logged(&Updates::default(), &compacted.applied);
        assert!(compacted.next.as_ref().is_none_or(|next| *next > low), "each stretch goes on");
        from = compacted.next.filter(|next| until.is_none_or(|until| next.as_slice() < until));
        stretches += 1;
    }
    stretches
}

#[test]
fn what_is_loaded_is_there_for_who_is_not_older() {
    let home = home();
    let sorted = load(&home, 20_000, |_| None);
    assert_eq!(keys(&home, 9), sorted);
    assert_eq!(keys(&home, 8), Vec::<Vec<u8>>::new());
    let mut found = vec![None];
    home.trie.view().get_many(&[&sorted[3]], Moment::from(Seq(8)), &mut found).expect("whole");
    assert_eq!(found, [None]);
    let seen = home.verify();
    assert_eq!((seen.findings, seen.keys), (Vec::new(), 20_000));
    assert_eq!(home.trie.room().pending_documents, 0);
    assert!(home.trie.begin_load(Seq(9)).is_none(), "it is not empty any more");
    // Batches of a load leave only their right edges behind.
    let room = home.trie.room();
    assert!(room.bytes < room.live_bytes * 11 / 10, "{room:?}");
}

#[test]
fn a_long_load_keeps_few_files_open() {
    let home = Home::new(SimDisk::new(5), append::CHUNK_BYTES_DEFAULT, 1 << 20, 32 << 10);
    let mut load = home.trie.begin_load(Seq(4)).expect("it is empty");
    let ready = || Ok::<(), index::Error>(());
    for number in 0..40_000_u32 {
        load.push(&number.to_be_bytes(), Payload::Inline(&[7; 200]), None, &ready).expect("room");
    }
    let loaded = load.finish(&ready).expect("room");
    let (left, all) = (loaded.files.len(), home.disk.files().len());
    assert!(left < 100 && all > 200, "{left} of {all} files");
}

#[test]
fn a_load_that_is_given_up_leaves_an_empty_trie() {
    let home = home();
    let mut load = home.trie.begin_load(Seq(1)).expect("it is empty");
    for number in 0..9000_u32 {
        let pushed = load.push(&number.to_be_bytes(), Payload::Inline(&[1; 300]), None, &|| Ok::<(), index::Error>(()));
        pushed.expect("room");
    }
    drop(load);
    assert_eq!((home.trie.room().pending_documents, home.values.stats().pending_documents), (0, 0));
    assert!(home.trie.is_empty());
}

#[test]
fn a_trie_made_anew_has_what_it_had_and_nothing_that_nobody_sees() {
    let mut home = home();
    for round in 0..6_u8 {
        let changes = (0..4000).map(|number| {
            let number = (number * 7919) % 4000;
            let change = if number % 5 == 1 { Change::Delete } else { Change::Put(vec![round; 30]) };
            (key(number), u64::from(round) + 1, change)
        });
        let mut changes: Vec<_> = changes.collect();
        changes.sort_by(|one, other| one.0.cmp(&other.0));
        let updates = Updates::new(changes);
        home.try_apply(&updates, &[1, 2, 3, 4, 5, 6]).expect("room");
    }
    let (before, versions) = (home.pairs(6), home.trie.view().stats().expect("whole").entries);
    assert!(versions > 20_000, "{versions}");
    let stretches = rewrite(&mut home, None, 20_000, Time(0));
    assert!(stretches > 10, "{stretches}");
    assert_eq!(home.pairs(6), before);
    let stats = home.trie.view().stats().expect("whole");
    assert_eq!(stats.entries, before.len() as u64, "one version of each key");
    assert_eq!(home.verify().findings, Vec::<String>::new());
    home.open_again().expect("whole");
    assert_eq!(home.pairs(6), before);
}

/// A batch that comes to a leaf looks at the keys that it changes. What has expired beside them has not been looked at
/// by anybody.
#[test]
fn leaves_stay_due_when_batches_come_to_them() {
    let mut home = home();
    let sorted = load(&home, 5000, |number| if (1000..2000).contains(&number) { Expiry::at(50 << 10) } else { None });
    let due = |home: &Home| home.trie.due(Time(60 << 10), 100).expect("whole");
    let before = due(&home);
    assert!(!before.is_empty());
    let change = |number: usize| (sorted[number].clone(), 9, Change::Put(vec![9; 20]));
    let updates = Updates::new((1000..2000).step_by(10).map(change).collect());
    let horizon = Horizon::new(Vec::new(), Time(60 << 10));
    let applied = home.trie.apply(&updates, &horizon, &|_| {}).expect("room");
    home.flush(&applied.files).expect("a disk that works");
    home.logged(&updates, &applied);
    let covered = |keys: &[LeafKeys]| {
        let covers =
            |key: &&Vec<u8>| keys.iter().any(|keys| keys.low <= **key && index::is_below(key, keys.high.as_deref()));
        sorted[1000..2000].iter().filter(covers).count()
    };
    assert!(covered(&due(&home)) * 10 >= covered(&before) * 9, "{} of {}", covered(&due(&home)), covered(&before));
}

#[test]
fn what_expires_makes_its_leaves_due_and_goes_when_they_are_made_anew() {
    let mut home = home();
    let at = |seconds: u64| Expiry::at(seconds << 10);
    let sorted = load(&home, 5000, |number| if (1000..2000).contains(&number) { at(50) } else { None });
    assert!(home.trie.expires());
    assert_eq!(home.trie.due(Time(49 << 10), 100).expect("whole"), []);
    let due = home.trie.due(Time(50 << 10), 100).expect("whole");
    assert!(!due.is_empty());
    let covers =
        |key: &[u8]| due.iter().any(|keys| keys.low.as_slice() <= key && index::is_below(key, keys.high.as_deref()));
    let missed = sorted[1000..2000].iter().filter(|key| !covers(key)).count();
    assert!(missed < 40, "those at both ends, which are no quarter of their leaves: {missed}");
    assert!(!covers(&sorted[0]) && !covers(&sorted[4999]));
    for keys in &due {
        let part = Part { from: &keys.low, until: keys.high.as_deref(), ..Part::whole() };
        let horizon = Horizon::new(Vec::new(), Time(50 << 10));
        let compacted = home.trie.compact(part, Seq::MAX, &horizon).expect("room").expect("not empty");
        home.flush(&compacted.applied.files).expect("a disk that works");
        home.logged(&Updates::default(), &compacted.applied);
    }
    assert_eq!(home.trie.due(Time(60 << 10), 100).expect("whole"), []);
    let bounds = Bounds { lower: Bound::Unbounded, upper: Bound::Unbounded };
    let now = Moment { seq: Seq::MAX, now: Time(0) };
    let mut cursor = home.trie.view().cursor(&bounds, now, Direction::Forward).expect("whole");
    let mut left = 0;
    while cursor.advance().expect("whole") {
        left += 1;
    }
    assert_eq!(left, 4000 + missed);
}

#[test]
fn a_trie_goes_back_to_a_version_whose_segments_are_pinned() {
    let mut home = Home::new(SimDisk::new(5), append::CHUNK_BYTES_DEFAULT, 1 << 20, 64 << 10);
    load(&home, 5_000, |_| None);
    let (root, then) = (home.trie.root(), home.pairs(9));
    home.trie.protect(&mut [root.as_slice()].into_iter()).expect("its own");
    let described = home.trie.describe(&root).expect("its own");
    assert_eq!(described.keys, 5_000);
    // All of it is made anew, and what there was is dead.
    rewrite(&mut home, None, 64 << 10, Time(0));
    home.trie.root();
    home.trie.release_dead().expect("released");
    let view = home.trie.at(&root).expect("its own");
    let mut seen = index::testing::Seen::default();
    view.verify(&mut seen).expect("reads");
    assert_eq!((seen.findings, seen.keys), (vec![], 5_000));

    let number = home.trie.describe(&home.trie.root()).expect("its own").number;
    let applied = home.trie.roll_back(&root).expect("room");
    home.flush(&applied.files).expect("a disk that works");
    home.logged(&Updates::default(), &applied);
    let check = |home: &Home, what: &str| {
        assert!(home.pairs(9) == then, "{what}");
        assert_eq!(home.verify().findings, [""; 0], "{what}");
        let now = home.trie.describe(&home.trie.root()).expect("its own");
        assert_eq!(now, Described { number: number + 1, ..described }, "{what}");
    };
    check(&home, "at once");
    home.trie.protect(&mut std::iter::empty()).expect("none");
    home.trie.root();
    home.trie.release_dead().expect("released");
    check(&home, "with nothing pinned");
    assert_eq!(home.trie.room().pinned_bytes, 0);
}

#[test]
fn a_rollback_is_replayed_as_it_was() {
    let mut home = Home::new(SimDisk::new(6), append::CHUNK_BYTES_DEFAULT, 1 << 20, 64 << 10);
    load(&home, 3_000, |_| None);
    home.checkpoint();
    let (root, then) = (home.trie.root(), home.pairs(9));
    home.trie.protect(&mut [root.as_slice()].into_iter()).expect("its own");
    rewrite(&mut home, None, 64 << 10, Time(0));
    let applied = home.trie.roll_back(&root).expect("room");
    home.flush(&applied.files).expect("a disk that works");
    home.logged(&Updates::default(), &applied);
    rewrite(&mut home, None, 64 << 10, Time(0));
    let live = home.trie.room().live_bytes;
    home.open_again().expect("opens");
    assert!(home.pairs(9) == then);
    assert_eq!(home.verify().findings, [""; 0]);
    assert_eq!(home.trie.room().live_bytes, live);
}
