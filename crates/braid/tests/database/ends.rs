//! Ranges from both ends and from sought places, cursors that go both ways, and what every map has, against a map.

use std::{collections::BTreeMap, ops::Bound, path::Path};

use braid::{
    Cursor, Database, Durability, Error, ErrorKind, Options, Range, Structure, Swap, Table, Transaction, WriteBatch,
};
use proptest::prelude::*;
use psync::sim::SimDisk;

type Content = BTreeMap<Vec<u8>, Vec<u8>>;
type Pair = (Vec<u8>, Vec<u8>);

fn open(structure: Structure) -> (Database, Table) {
    let options = Options::new().background(false).leaf_pages(1).cache_bytes(1 << 20).segment_bytes(1 << 20);
    let db = options.open_on(SimDisk::new(1).psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", structure).expect("a table");
    (db, table)
}

fn key(number: u16) -> Vec<u8> {
    [b"k".as_slice(), &number.to_be_bytes()].concat()
}

/// Some values are documents.
fn value(number: u16) -> Vec<u8> {
    vec![u8::try_from(number % 251).expect("small"); if number.is_multiple_of(7) { 3000 } else { 20 }]
}

/// Every other key, some of them in the structure and some waiting.
fn filled(structure: Structure) -> (Database, Table, Content) {
    let (db, table) = open(structure);
    let mut content = Content::new();
    for part in 0..3 {
        let mut batch = WriteBatch::new();
        for number in (0..300).map(|number| 2 * number).filter(|number| number / 2 % 3 == part) {
            batch.put(&table, key(number), value(number));
            content.insert(key(number), value(number));
        }
        db.write_with(&batch, Durability::Os).expect("writes");
        if part < 2 {
            db.drain().expect("applies");
        }
    }
    (db, table, content)
}

/// A step on a range.
#[derive(Clone, Debug)]
enum Step {
    Next,
    NextBack,
    Seek(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![8 => Just(Step::Next), 8 => Just(Step::NextBack), 1 => (0..620_u16).prop_map(Step::Seek)];
    prop::collection::vec(step, 0..80)
}

/// What a range shows: the pairs left between its ends, in its order.
struct Model {
    all: Vec<Pair>,
    front: usize,
    back: usize,
    backward: bool,
}

impl Model {
    fn new(mut all: Vec<Pair>, backward: bool) -> Self {
        if backward {
            all.reverse();
        }
        Self { front: 0, back: all.len(), all, backward }
    }

    fn step(&mut self, step: &Step) -> Option<Option<Pair>> {
        let shown = match step {
            Step::Next if self.front < self.back => {
                self.front += 1;
                Some(self.all[self.front - 1].clone())
            }
            Step::NextBack if self.front < self.back => {
                self.back -= 1;
                Some(self.all[self.back].clone())
            }
            Step::Seek(number) => {
                let to = key(*number);
                let is_before = |pair: &Pair| if self.backward { pair.0 > to } else { pair.0 < to };
                self.front = self.all.partition_point(is_before).min(self.back.max(self.front));
                // What the back has shown is not shown again.
                self.front = self.front.min(self.back);
                return None;
            }
            _ => None,
        };
        Some(shown)
    }
}

fn check_range(mut range: Range, mut model: Model, steps: &[Step]) {
    for (number, step) in steps.iter().enumerate() {
        let shown = match step {
            Step::Next if number % 3 == 0 => {
                let pair = range.next_pair().expect("reads");
                Some(pair.map(|(key, value)| (key.to_vec(), value.to_vec())))
            }
            Step::Next => Some(range.next().transpose().expect("reads")),
            Step::NextBack => Some(range.next_back().transpose().expect("reads")),
            Step::Seek(number) => {
                range.seek(key(*number));
                None
            }
        };
        assert_eq!(shown, model.step(step), "step {number} of {steps:?}");
    }
}

fn within(content: &Content, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<Pair> {
    let is_within = |key: &Vec<u8>| std::ops::RangeBounds::contains(bounds, key);
    content.iter().filter(|(key, _)| is_within(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        1 => (0..620_u16).prop_map(|number| Bound::Included(key(number))),
        1 => (0..620_u16).prop_map(|number| Bound::Excluded(key(number))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn ranges_show_each_pair_once_whichever_end_it_is_taken_from(
        bounds in (bound(), bound()), backward: bool, steps in steps()
    ) {
        for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
            let (_db, table, content) = filled(structure);
            let range = table.range::<Vec<u8>>(bounds.clone());
            let range = if backward { range.rev() } else { range };
            check_range(range, Model::new(within(&content, &bounds), backward), &steps);
        }
    }

    #[test]
    fn ranges_of_transactions_do_too(
        bounds in (bound(), bound()), backward: bool, steps in steps(), own in prop::collection::vec((0..620_u16, any::<bool>()), 0..30)
    ) {
        let (db, table, mut content) = filled(Structure::BTree);
        let mut transaction: Transaction = db.begin().expect("begins");
        for (number, is_put) in own {
            if is_put {
                transaction.put(&table, key(number), "own").expect("puts");
                content.insert(key(number), b"own".to_vec());
            } else {
                transaction.delete(&table, key(number)).expect("deletes");
                content.remove(&key(number));
            }
        }
        let range = transaction.range::<Vec<u8>>(&table, bounds.clone());
        let mut range = if backward { range.rev() } else { range };
        let mut model = Model::new(within(&content, &bounds), backward);
        for step in &steps {
            let shown = match step {
                Step::Next => Some(range.next().transpose().expect("reads")),
                Step::NextBack => Some(range.next_back().transpose().expect("reads")),
                Step::Seek(number) => {
                    range.seek(key(*number));
                    None
                }
            };
            prop_assert_eq!(shown, model.step(step));
        }
    }

    #[test]
    fn cursors_go_both_ways(steps in prop::collection::vec((0..5_u8, 0..620_u16), 0..80)) {
        for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
            let (db, table, content) = filled(structure);
            let snapshot = db.snapshot();
            table.delete_range::<Vec<u8>>(..).expect("deletes");
            let mut cursor: Cursor = snapshot.cursor(&table);
            let pairs: Vec<(&Vec<u8>, &Vec<u8>)> = content.iter().collect();
            let mut place = 0;
            for (step, number) in &steps {
                let shown = match step {
                    0 => {
                        cursor.seek(key(*number));
                        place = pairs.partition_point(|(other, _)| **other < key(*number));
                        continue;
                    }
                    1 if number % 3 == 0 => {
                        cursor.seek_behind(key(*number));
                        place = pairs.partition_point(|(other, _)| **other <= key(*number));
                        continue;
                    }
                    1 if number % 3 == 1 => {
                        cursor.seek_first();
                        place = 0;
                        continue;
                    }
                    1 => {
                        cursor.seek_last();
                        place = pairs.len();
                        continue;
                    }
                    2 | 3 => cursor.next(),
                    _ => cursor.prev(),
                };
                let shown = shown.expect("reads").map(|(key, value)| (key.to_vec(), value.to_vec()));
                let expected = if *step == 4 {
                    place.checked_sub(1).inspect(|before| place = *before).map(|before| pairs[before])
                } else {
                    pairs.get(place).inspect(|_| place += 1).copied()
                };
                prop_assert_eq!(shown, expected.map(|(key, value)| (key.clone(), value.clone())));
            }
        }
    }
}

#[test]
fn a_range_shows_the_moment_of_its_making() {
    for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
        let (db, table, content) = filled(structure);
        let (range, back) = (table.iter(), table.iter().rev());
        table.delete_range::<Vec<u8>>(..key(300)).expect("deletes");
        table.put(key(1), "later").expect("puts");
        table.put(key(400), "later").expect("puts");
        db.checkpoint().expect("a checkpoint");
        let found: Content = range.collect::<Result<_, _>>().expect("reads");
        assert_eq!(found, content, "{structure}");
        let found: Content = back.collect::<Result<_, _>>().expect("reads");
        assert_eq!(found, content, "{structure}");
    }
}

#[test]
fn a_range_that_has_begun_cannot_be_reversed() {
    let (db, table, _) = filled(Structure::BTree);
    let mut range = table.iter();
    range.next().expect("there is one").expect("reads");
    let mut range = range.rev();
    assert!(matches!(range.next(), Some(Err(Error::RangeBegun))));
    assert!(range.next().is_none());
    let mut range = table.iter();
    range.next_back().expect("there is one").expect("reads");
    let mut range = range.rev();
    assert!(matches!(range.next(), Some(Err(Error::RangeBegun))));
    assert!(range.next().is_none());
    let mut transaction = db.begin().expect("begins");
    transaction.put(&table, "a", "own").expect("puts");
    let mut range = transaction.iter(&table);
    range.next_back().expect("there is one").expect("reads");
    assert!(matches!(range.rev().next(), Some(Err(Error::RangeBegun))));
    let mut range = transaction.iter(&table);
    range.next().expect("there is one").expect("reads");
    let error = range.rev().next().expect("it shows an error").expect_err("it has begun");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_range_of_a_foreign_table_shows_the_error() {
    let ((one, _), (_other, foreign)) = (open(Structure::BTree), open(Structure::BTree));
    foreign.put("a", "1").expect("puts");
    let snapshot = one.snapshot();
    assert!(matches!(snapshot.iter(&foreign).next(), Some(Err(Error::ForeignTable { .. }))));
    assert!(matches!(snapshot.iter(&foreign).next_back(), Some(Err(Error::ForeignTable { .. }))));
    let transaction = one.begin().expect("begins");
    let mut range = transaction.range(&foreign, "a"..);
    assert!(matches!(range.next(), Some(Err(Error::ForeignTable { .. }))));
    assert!(range.next().is_none());
    drop(range);
    transaction.commit().expect("it read nothing");
}

#[test]
fn every_read_refuses_a_key_that_no_table_can_have() {
    for (structure, longest) in
        [Structure::BTree, Structure::Append, Structure::Lsm].map(|structure| (structure, structure.key_bytes_max()))
    {
        let (db, table) = open(structure);
        let (snapshot, transaction) = (db.snapshot(), db.begin().expect("begins"));
        for key in [vec![], vec![1; longest + 1]] {
            let outcomes = [
                table.get(&key).map(drop),
                table.get_with(&key, |_| ()).map(drop),
                table.get_pinned(&key).map(drop),
                table.get_into(&key, &mut Vec::new()).map(drop),
                table.get_many(&[b"fine".to_vec(), key.clone()]).map(drop),
                table.contains_key(&key).map(drop),
                table.expiry(&key).map(drop),
                snapshot.get(&table, &key).map(drop),
                snapshot.contains_key(&table, &key).map(drop),
                snapshot.expiry(&table, &key).map(drop),
                transaction.get(&table, &key).map(drop),
                transaction.contains_key(&table, &key).map(drop),
                table.delete(&key).map(drop),
            ];
            for (number, outcome) in outcomes.into_iter().enumerate() {
                let error = outcome.expect_err("no such key");
                assert!(matches!(error, Error::KeyLength { .. }), "{structure} {number}: {error}");
            }
        }
        assert!(!table.contains_key([1]).expect("reads"));
    }
}

#[test]
fn a_table_has_what_every_map_has() {
    for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
        let (db, table, mut content) = filled(structure);
        assert!(!table.is_empty().expect("reads"));
        assert_eq!(table.approximate_len().expect("reads"), 300);
        assert_eq!(table.size_of(key(9)..key(9)).expect("reads"), 0);
        let mut read = vec![1; 10];
        for number in [0, 1, 14, 598] {
            let expected = content.get(&key(number));
            assert_eq!(table.contains_key(key(number)).expect("reads"), expected.is_some());
            assert_eq!(table.get_into(key(number), &mut read).expect("reads"), expected.is_some());
            assert_eq!(&read, expected.unwrap_or(&Vec::new()));
        }
        let mut popped = 0;
        while let Some(expected) = if popped % 2 == 0 { content.pop_first() } else { content.pop_last() } {
            let ends = (table.first().expect("reads"), table.last().expect("reads"));
            let end = if popped % 2 == 0 { ends.0 } else { ends.1 };
            assert_eq!(end.as_ref(), Some(&expected));
            let found = if popped % 2 == 0 { table.pop_first() } else { table.pop_last() };
            assert_eq!(found.expect("pops"), Some(expected));
            popped += 1;
            if popped == 100 {
                db.drain().expect("applies");
            }
        }
        assert!(table.is_empty().expect("reads"));
        assert_eq!((table.pop_first().expect("pops"), table.last().expect("reads")), (None, None));
    }
}

#[test]
fn the_size_of_a_part_is_about_its_share() {
    for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
        let (db, table) = open(structure);
        let mut batch = WriteBatch::new();
        // The larger keys have larger values, documents among them.
        for number in 0..8000 {
            batch.put(&table, key(number), vec![7; usize::from(number) / 40]);
        }
        (8000..8050).for_each(|number| batch.put(&table, key(number), vec![7; 10_000]));
        db.write_with(&batch, Durability::Os).expect("writes");
        let size = |from: u16, to: u16| table.size_of(key(from)..key(to)).expect("reads") as f64;
        // Where it waits, it is counted to the byte, but for large values.
        let waiting = (1000..2000_u16).map(|number| 2 + u64::from(number) / 40).sum::<u64>() as f64;
        let large = table.stats().expect("stats").document_live_bytes as f64;
        assert!((waiting..=waiting + large).contains(&size(1000, 2000)), "{structure}: {}", size(1000, 2000));
        db.drain().expect("applies");
        let whole = table.size_of::<Vec<u8>>(..).expect("reads") as f64;
        assert!(whole > 1_300_000.0 && whole < 2_600_000.0, "{structure}: {whole}");
        let sum = size(0, 2000) + size(2000, 4000) + size(4000, 8100);
        assert!((0.95..1.05).contains(&(sum / whole)), "{structure}: {sum} of {whole}");
        assert!(size(0, 2000) < size(2000, 4000) && size(2000, 4000) < size(4000, 8100), "{structure}");
    }
}

#[test]
fn each_pair_is_popped_once_and_each_update_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Options::new().durability(Durability::Os).open(directory.path().join("db")).expect("opens");
    let (jobs, sums) =
        (db.table("jobs", Structure::BTree).expect("a table"), db.table("sums", Structure::BTree).expect("a table"));
    (0..400_u16).for_each(|number| jobs.put(number.to_be_bytes(), "job").map(drop).expect("puts"));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some((key, _)) = jobs.pop_first().expect("pops") {
                    let add = |old: Option<&[u8]>| {
                        let old = old.map_or(0, |old| u64::from_be_bytes(old.try_into().expect("eight bytes")));
                        Some((old + u64::from(u16::from_be_bytes([key[0], key[1]]))).to_be_bytes().to_vec())
                    };
                    sums.update("all", add).expect("updates");
                }
            });
        }
    });
    let sum = sums.get("all").expect("reads").expect("is there");
    assert_eq!(u64::from_be_bytes(sum.try_into().expect("eight bytes")), (0..400).sum::<u64>());
}

#[test]
fn a_handle_may_have_a_durability_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = Options::new().open(directory.path().join("db")).expect("opens");
    let table = db.table("t", Structure::BTree).expect("a table");
    let quick = table.with_durability(Durability::Os);
    let flushes = || db.stats().expect("stats").log.flushes;
    let minute = std::time::Duration::from_secs(60);
    table.put("key", "value").expect("puts");
    let before = flushes();
    quick.put("key", "other").expect("puts");
    quick.put_expiring("short", "lived", minute).expect("puts");
    assert!(quick.renew("short", minute).expect("renews"));
    quick.update("key", |_| Some(b"third".to_vec())).expect("updates");
    assert_eq!(quick.compare_and_swap("key", Some(b"third"), Some(b"fourth")).expect("swaps"), Swap::Done);
    assert_eq!(quick.put_if_absent("absent", "there").expect("puts"), Swap::Done);
    assert!(quick.pop_first().expect("pops").is_some());
    quick.delete_range("s".."t").expect("deletes");
    quick.delete("absent").expect("deletes");
    assert_eq!(flushes(), before);
    table.update("key", |_| Some(b"fifth".to_vec())).expect("updates");
    assert!(flushes() > before);
    assert_eq!(table.get("key").expect("reads").as_deref(), Some(b"fifth".as_slice()));
}
