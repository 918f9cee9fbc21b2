//! Scans read ahead: how much, what becomes of it when a scan ends early, and where errors come out.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use btree::{BTree, Shared};
use index::{Bounds, Cursor, Direction, Error, Horizon, Index, ReadAhead, Seq, View};
use psync::sim::{Fault, SimDisk};
use psync::{BackendKind, Psync, Request};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use space::{FileStore, PagedFile};

use crate::common::{self, Change, Home, Model, TABLE, Updates, all, change_of, found};

const EIO: i32 = 5;
const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

type Pairs = Vec<(Vec<u8>, u64, Change)>;

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:012}").into_bytes()
}

/// What a scan shows until its end or an error.
fn walk(cursor: &mut dyn Cursor) -> (Pairs, Option<Error>) {
    let mut pairs = Pairs::new();
    loop {
        match cursor.next() {
            Ok(Some(pair)) => pairs.push((pair.key, pair.seq.0, change_of(&pair.value))),
            Ok(None) => return (pairs, None),
            Err(error) => {
                assert!(cursor.current().is_none());
                assert!(!cursor.advance().expect("an error ends a scan"));
                return (pairs, Some(error));
            }
        }
    }
}

/// A scan of everything. An `eager` one has two ends, and all between them will be asked for.
fn scan_all(view: Arc<dyn View>, direction: Direction, eager: bool) -> Box<dyn Cursor> {
    let bounds =
        if eager { Bounds { lower: Bound::Included(vec![]), upper: Bound::Included(vec![255]) } } else { all() };
    let mut cursor = view.cursor(&bounds, Seq::MAX.into(), direction).expect("nothing is read yet");
    if eager {
        cursor.expect_all();
    }
    cursor
}

fn turned(mut pairs: Pairs, direction: Direction) -> Pairs {
    if direction == Direction::Backward {
        pairs.reverse();
    }
    pairs
}

/// A tree of leaves in no order on the device, whose runs overlap; nothing is cached.
fn scattered(cache_bytes: u64) -> (Home, Model) {
    let mut home = Home::new(1, 2, cache_bytes);
    let mut model = Model::default();
    let mut random = StdRng::seed_from_u64(6);
    for seq in 1..40_u64 {
        let updates = (0..400).map(|_| {
            let change =
                if random.random_bool(0.1) { Change::Delete } else { Change::Put(seq.to_le_bytes().repeat(10)) };
            (key(random.random_range(0..10_000)), seq, change)
        });
        let updates = Updates::new(updates.collect());
        home.apply(&updates, &[]).expect("a disk that works");
        model.apply(&updates);
    }
    (home, model)
}

#[test]
fn a_scan_asks_ahead_for_as_much_as_it_went_through() {
    let (home, model) = scattered(8 << 20);
    let view = home.tree.view();
    let stats = home.tree.shape().expect("whole");
    let count = model.range(&all(), u64::MAX).len();
    for direction in BOTH {
        home.shared.cache().clear();
        let before = home.shared.counters().leaf_reads;
        let asked = || (home.shared.counters().leaf_reads - before) as f64;
        let mut cursor = Arc::clone(&view).cursor(&all(), Seq::MAX.into(), direction).expect("whole");
        assert_eq!(asked(), 0.0);
        let (mut shown, mut ahead) = (0, 0.0_f64);
        // Pieces are leaves and parts of leaves, not all of one size.
        let pieces = (stats.leaves as f64, stats.leaf_pages as f64);
        while cursor.advance().expect("whole") {
            shown += 1;
            let through = pieces.1 * shown as f64 / count as f64;
            assert!(shown > 10 || asked() <= 2.0, "{} pieces for {shown} pairs", asked());
            let growing = (5.5 * through).min(1.1 * through + 64.0);
            assert!(asked() <= growing.max(2.2 * through) + 6.0, "{} pieces for {through}", asked());
            ahead = ahead.max(asked() - through);
        }
        assert!((pieces.0..=pieces.1).contains(&asked()), "{} pieces, {stats:?}", asked());
        assert!(ahead > 8.0, "a long scan reads ahead");
    }
}

#[test]
fn a_short_scan_reads_the_pages_that_it_shows_and_one_more_at_most() {
    let mut packed = Home::new(1, 4, 0);
    packed.apply(&Updates::puts((0..20_000).map(key), 1, &[5; 100]), &[]).expect("a disk that works");
    let (grown, _) = scattered(0);
    let mut random = StdRng::seed_from_u64(8);
    for (home, whole_leaves) in [(&packed, false), (&grown, true)] {
        let view = home.tree.view();
        let stats = home.tree.shape().expect("whole");
        let per = |pages: u64| (stats.entries / pages).max(1);
        for _ in 0..300 {
            let (count, direction) = (random.random_range(1..=100_u64), BOTH[random.random_range(0..2)]);
            let from = Bound::Included(key(random.random_range(2_000..8_000)));
            let bounds = match direction {
                Direction::Forward => Bounds { lower: from, upper: Bound::Unbounded },
                Direction::Backward => Bounds { lower: Bound::Unbounded, upper: from },
            };
            let before = home.shared.counters().leaf_read_bytes;
            let mut cursor = Arc::clone(&view).cursor(&bounds, Seq::MAX.into(), direction).expect("whole");
            for _ in 0..count {
                assert!(cursor.advance().expect("whole"));
            }
            let pages = (home.shared.counters().leaf_read_bytes - before) / 4096;
            // Pages, or leaves of two, are not all equally full: half as many pairs as the mean are in the emptiest.
            let needed = match whole_leaves {
                true => 2 * (2 * count / per(stats.leaves) + 2),
                false => 2 * count / per(stats.leaf_pages) + 2,
            };
            assert!(pages <= needed + 1, "{pages} pages for {count} pairs {direction:?}, {stats:?}");
        }
    }
}

#[test]
fn a_scan_of_all_between_two_ends_asks_for_much_at_once() {
    let (home, model) = scattered(8 << 20);
    let expected = model.range(&all(), u64::MAX);
    for direction in BOTH {
        for shown in [0, 1, 200] {
            // What scans before it began with.
            home.shared.cache().clear();
            let before = home.shared.counters().leaf_read_bytes;
            let mut cursor = scan_all(home.tree.view(), direction, true);
            (0..shown).for_each(|_| assert!(cursor.advance().expect("whole")));
            let asked = home.shared.counters().leaf_read_bytes - before;
            // PioMax leaves of two pages are less than 256 KiB.
            let wanted = if shown == 0 { 0..=0 } else { 128 << 10..=400 << 10 };
            assert!(wanted.contains(&asked), "{asked} bytes for {shown} pairs");
        }
        let (pairs, error) = walk(&mut *scan_all(home.tree.view(), direction, true));
        assert!(error.is_none());
        assert_eq!(pairs, turned(expected.clone(), direction));
    }
}

#[test]
fn leaves_that_lie_side_by_side_are_read_together() {
    for direction in BOTH {
        let mut home = Home::new(1, 2, 8 << 20);
        let updates = Updates::puts((0..20_000).map(key), 1, &[5; 30]);
        home.apply(&updates, &[]).expect("a disk that works");
        let leaves = home.tree.shape().expect("whole").leaves;
        let before = home.pages.file().counters().snapshot().reads;
        let mut cursor = home.tree.view().cursor(&all(), Seq::MAX.into(), direction).expect("whole");
        let (pairs, error) = walk(&mut *cursor);
        assert!(error.is_none() && pairs.len() == 20_000);
        assert!(pairs.is_sorted_by(|one, other| (one.0 < other.0) == (direction == Direction::Forward)));
        let requests = home.pages.file().counters().snapshot().reads - before;
        assert!(requests * 3 < leaves, "{requests} requests for {leaves} leaves");
    }
}

#[test]
fn damage_comes_out_where_it_is_and_after_everything_before_it() {
    for cache_bytes in [0, 8 << 20] {
        let (home, model) = scattered(cache_bytes);
        let expected = model.range(&all(), u64::MAX);
        let extents = home.verify().extents;
        let mut failed = 0;
        for extent in extents.iter().filter(|extent| extent.pages > 1) {
            // The first run of the leaf.
            assert!(home.disk.flip_bit(common::DATA, extent.offset() + 100));
            for direction in BOTH {
                // What a scan begins with may be cached.
                home.shared.cache().clear();
                let mut cursor = home.tree.view().cursor(&all(), Seq::MAX.into(), direction).expect("whole");
                let (pairs, error) = walk(&mut *cursor);
                let expected = turned(expected.clone(), direction);
                assert_eq!(pairs, expected[..pairs.len()]);
                let Some(error) = error else { panic!("{extent} is damaged") };
                // Pairs that are missing first are in the damaged leaf, so nothing before them was lost: lookups meet
                // the damage in
                // its first part.
                let view = home.tree.view();
                let mut missing = expected[pairs.len()..].iter().take(600);
                assert!(missing.any(|pair| found(&*view, &[&pair.0], u64::MAX).is_err()), "its leaf is damaged");
                assert!(
                    matches!(&error, Error::Corrupt { offset, .. } if (extent.offset()..extent.offset() + extent.bytes()).contains(offset)),
                    "{error}"
                );
                failed += usize::from(!pairs.is_empty() && pairs.len() + 200 < expected.len());
            }
            assert!(home.disk.flip_bit(common::DATA, extent.offset() + 100));
        }
        assert!(failed > 50, "{failed} in the middle");
    }
}

#[test]
fn a_read_that_fails_comes_out_after_everything_before_it() {
    let (home, model) = scattered(0);
    let expected = model.range(&all(), u64::MAX);
    for (direction, eager) in BOTH.into_iter().flat_map(|direction| [(direction, false), (direction, true)]) {
        let expected = turned(expected.clone(), direction);
        let (mut lengths, mut again, mut count) = (Vec::new(), 0, 0);
        loop {
            home.disk.fail_operation(Fault::Read, count, EIO);
            let (pairs, error) = walk(&mut *scan_all(home.tree.view(), direction, eager));
            assert_eq!(pairs, expected[..pairs.len()]);
            if home.disk.faults_left() > 0 {
                assert!(error.is_none() && pairs.len() == expected.len());
                break;
            }
            match error {
                Some(error) => lengths.push((pairs.len(), matches!(error, Error::Io(_)))),
                // Leaves that were asked for together are asked for again one by one.
                None => {
                    assert_eq!(pairs.len(), expected.len());
                    again += 1;
                }
            }
            count += 1;
        }
        assert!(lengths.iter().all(|(_, io)| *io));
        lengths.sort_unstable();
        lengths.dedup();
        assert!(lengths.len() > 20 && again > 0, "{lengths:?} {again}");
    }
}

/// A tree of `count` pairs in leaves in no order, in a directory of this backend, whose scans may read so many bytes
/// ahead.
fn on_backend(psync: Psync, directory: &Path, count: u64, read_ahead: u64) -> (BTree, Arc<Shared>) {
    let store = FileStore::open(psync, directory, false).expect("a directory");
    let pages = Arc::new(PagedFile::create(&store, "data").expect("a file"));
    let shared = Shared::new(Arc::clone(&pages), 64 << 10, 1);
    let shared = Arc::new(shared.with_read_ahead(Arc::new(ReadAhead::new(read_ahead))));
    let tree = BTree::create(Arc::clone(&shared), TABLE, 2);
    for seq in 0..8 {
        let numbers = (0..count).filter(|number| number.wrapping_mul(0x9e37_79b9) >> 7 & 7 == seq);
        let updates = Updates::puts(numbers.map(key), seq + 1, &[7; 40]);
        let applied = tree.apply(&updates, &Horizon::default(), &|_| {}).expect("room");
        pages.psync().run_all(vec![Request::flush(pages.file(), 0)]).expect("flushed");
        tree.install(&applied);
    }
    (tree, shared)
}

fn shows(cursor: &mut dyn Cursor, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let pair = cursor.next().expect("whole").expect("a pair");
        assert_eq!(pair.key, key(number));
    }
}

#[test]
fn scans_share_a_bound_of_what_they_read_ahead() {
    const COUNT: u64 = 20_000;
    const BOUND: u64 = 256 << 10;
    let (tree, shared) = on_backend(SimDisk::new(1).psync().with_pio_max(64), Path::new("/db"), COUNT, BOUND);
    let read_ahead = shared.read_ahead();
    let scan = || tree.view().cursor(&all(), Seq::MAX.into(), Direction::Forward).expect("whole");
    let mut cursors: Vec<_> = (0..40).map(|_| scan()).collect();
    let mut most = 0;
    for shown in 0..COUNT {
        for cursor in &mut cursors {
            shows(&mut **cursor, std::iter::once(shown));
        }
        most = most.max(read_ahead.held_bytes());
    }
    // A leaf and the next one each, whatever the bound.
    assert!((BOUND / 2..BOUND + 40 * 4 * 8192).contains(&most), "{most}");
    drop(cursors);
    assert_eq!(read_ahead.held_bytes(), 0);
    let mut alone = scan();
    shows(&mut *alone, 0..COUNT / 2);
    assert!((BOUND / 2..=BOUND).contains(&read_ahead.held_bytes()), "{}", read_ahead.held_bytes());
}

#[test]
fn a_scan_that_is_dropped_or_goes_to_another_thread_leaves_nothing_behind() {
    const COUNT: u64 = 20_000;
    let directory = tempfile::tempdir().expect("a directory");
    let backends = BackendKind::ALL.into_iter().filter_map(|kind| Psync::new(Some(kind)).ok());
    let places: Vec<_> = backends.map(|psync| (directory.path().join(psync.backend().name()), psync)).collect();
    assert!(places.len() >= 2);
    for (place, psync) in places.into_iter().chain([("/db".into(), SimDisk::new(1).psync())]) {
        println!("{}", place.display());
        let (tree, shared) = on_backend(psync.with_pio_max(32), &place, COUNT, u64::MAX);
        for direction in BOTH {
            let number = move |step| if direction == Direction::Forward { step } else { COUNT - 1 - step };
            let before = shared.counters().leaf_reads;
            let mut cursor: Box<dyn Cursor> = tree.view().cursor(&all(), Seq::MAX.into(), direction).expect("whole");
            // Dropped after a first window, and with many in flight.
            for shown in [1, 700, 5_000] {
                let mut cursor = tree.view().cursor(&all(), Seq::MAX.into(), direction).expect("whole");
                shows(&mut *cursor, (0..shown).map(number));
            }
            assert!(shared.counters().leaf_reads - before > 50);
            // Each thread shows a part and ends while the next part is in flight.
            for part in 0..4 {
                let steps = part * COUNT / 4..(part + 1) * COUNT / 4;
                cursor = std::thread::spawn(move || {
                    shows(&mut *cursor, steps.map(number));
                    cursor
                })
                .join()
                .expect("no panic");
            }
            assert!(!cursor.advance().expect("whole"));
        }
    }
}

#[test]
fn many_scans_at_once_do_not_disturb_one_another() {
    let (home, model) = scattered(64 << 10);
    let view = home.tree.view();
    let mut scans: Vec<_> = (0..40)
        .map(|number| {
            let direction = BOTH[number % 2];
            let cursor = Arc::clone(&view).cursor(&all(), Seq::MAX.into(), direction).expect("whole");
            (cursor, turned(model.range(&all(), u64::MAX), direction).into_iter())
        })
        .collect();
    let mut random = StdRng::seed_from_u64(7);
    while !scans.is_empty() {
        let number = random.random_range(0..scans.len());
        let (cursor, expected) = &mut scans[number];
        for _ in 0..random.random_range(0..300) {
            let pair = cursor.next().expect("whole").map(|pair| (pair.key, pair.seq.0, change_of(&pair.value)));
            assert_eq!(pair, expected.next());
        }
        if expected.len() == 0 || random.random_bool(0.01) {
            scans.swap_remove(number);
        }
    }
}

/// Also where a leaf is larger than what a short scan may leave in the cache, and a piece as a whole, because something
/// was appended to it.
#[test]
fn short_scans_of_large_leaves_are_answered_from_the_cache_the_next_time() {
    let mut home = Home::new(1, 32, 32 << 20);
    // The last of them are appended.
    for (seq, tenths) in [(1, 0..5), (2, 5..9), (3, 9..10)] {
        let updates =
            Updates::puts((0..20_000).filter(|number| tenths.contains(&(number % 10))).map(key), seq, &[5; 100]);
        home.apply(&updates, &[]).expect("a disk that works");
    }
    assert!(home.tree.shape().expect("whole").leaf_pages > 32 * 8);
    home.shared.cache().clear();
    let few = |from: u64| {
        let bounds = Bounds { lower: Bound::Included(key(from).to_vec()), upper: Bound::Unbounded };
        let mut cursor = home.tree.view().cursor(&bounds, Seq::MAX.into(), Direction::Forward).expect("whole");
        (0..3).for_each(|_| assert!(cursor.advance().expect("whole")));
    };
    let reads = [(); 2].map(|()| {
        let before = home.shared.counters().leaf_reads;
        (0..20_000).step_by(100).for_each(few);
        home.shared.counters().leaf_reads - before
    });
    assert!(reads[0] > 15 && reads[1] * 5 <= reads[0], "{reads:?} reads");
}
