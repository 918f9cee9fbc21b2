use std::collections::BTreeMap;
use std::ops::Bound;

use index::{Expiry, Operation, Payload, TableId, Time, Update};
use proptest::prelude::*;
use psync::Buffer;
use space::PAGE;

use super::*;
use crate::filter::Link;
use crate::format::Pointer;
use crate::format::run::{Identity, Plan};

const TABLE: TableId = TableId(3);

/// An entry: key, seq, and its value, or none where it is a tombstone. Some values expire ([`expiry`]).
type Entry = (Vec<u8>, u64, Option<Vec<u8>>);

/// Values of an even number of bytes expire, at a time that their first byte says.
fn expiry(value: &[u8]) -> Option<Expiry> {
    let first = value.first().filter(|_| value.len().is_multiple_of(2))?;
    Expiry::at(1 + u64::from(first % 16))
}

/// A leaf with these runs, and its pointer.
fn leaf_of(runs: &[Vec<Entry>]) -> (Buffer, Pointer) {
    let mut bytes = Buffer::zeroed(runs.len() * PAGE);
    let pages = u32::try_from(runs.len()).expect("few runs");
    let mut pointer = Pointer { pages, ..Pointer::to_node(5, 9) };
    let identity = Identity { incarnation: 9, table: TABLE };
    for run in runs {
        let updates = || {
            run.iter().map(|(key, seq, value)| {
                let operation = value
                    .as_ref()
                    .map_or(Operation::Delete, |value| Operation::Put(Payload::Inline(value), expiry(value)));
                Update { key, seq: Seq(*seq), operation }
            })
        };
        let mut at = pointer.length as usize;
        let plan = Plan::fit(updates(), PAGE).expect("a run");
        assert_eq!(plan.count, run.len());
        if at % PAGE + plan.bytes > PAGE {
            at = at.next_multiple_of(PAGE);
        }
        let number = |value| u32::try_from(value).expect("small");
        let out = &mut bytes[at..at + plan.bytes];
        pointer.chain = plan.encode(updates(), &identity, number(at), pointer.chain, out);
        pointer.length = number(at + plan.bytes);
    }
    (bytes, pointer)
}

type Shown = (Vec<u8>, u64, Vec<u8>);

/// The pairs of a leaf, listed by a `Live` that showed another leaf before.
fn shown(live: &mut Live, runs: &[Vec<Entry>], bounds: &Bounds, at: Moment) -> Vec<Shown> {
    let (bytes, pointer) = leaf_of(runs);
    let mut spans = Vec::new();
    let leaf = Visible::check(&bytes, &pointer, pointer.all(), Link::default(), TABLE, &mut spans).expect("whole");
    live.fill(&leaf, bounds, at).expect("whole");
    let owned = |pair: PairRef<'_>| match pair {
        PairRef { key, seq, value: Payload::Inline(value), expiry: shown } => {
            assert_eq!(shown, expiry(value));
            (key.to_vec(), seq.0, value.to_vec())
        }
        PairRef { .. } => panic!("no documents here"),
    };
    let pairs: Vec<Shown> = (0..live.len()).map(|index| owned(live.pair(index, &bytes))).collect();
    // All of them in each direction, and from the middle on until there are two.
    for direction in [Direction::Forward, Direction::Backward] {
        for (range, enough) in [(0..live.len(), usize::MAX), (live.len() / 3..live.len(), 2)] {
            let seen: Vec<_> = live.pairs(range.clone(), direction, &bytes).take(enough).map(owned).collect();
            let mut all = pairs[range].to_vec();
            if direction == Direction::Backward {
                all.reverse();
            }
            all.truncate(enough);
            assert_eq!(seen, all);
        }
    }
    pairs
}

/// The same by the rule: the newest version at or below the seq, of equal ones the later run's, and neither tombstones
/// nor expired values.
fn expected(runs: &[Vec<Entry>], bounds: &Bounds, at: Moment) -> Vec<Shown> {
    let mut newest = BTreeMap::new();
    for (key, seq, value) in runs.iter().flatten().filter(|(key, seq, _)| *seq <= at.seq.0 && bounds.contains(key)) {
        let best = newest.entry(key.clone()).or_insert((*seq, value.clone()));
        if *seq >= best.0 {
            *best = (*seq, value.clone());
        }
    }
    let shown = |value: &Vec<u8>| expiry(value).is_none_or(|expiry| !expiry.is_over(at.now));
    newest.into_iter().filter_map(|(key, (seq, value))| Some((key, seq, value.filter(shown)?))).collect()
}

/// Keys of few letters, so that many are equal, begin with others, or differ only behind their first eight bytes.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let letters = prop::collection::vec(prop::sample::select(vec![0, 1, b'a', 255]), 1..4);
    let long = letters.clone().prop_map(|letters| [&[7; 9][..], &letters].concat());
    let number = (0..200_u16).prop_map(|number| number.to_be_bytes().to_vec());
    prop_oneof![2 => letters, 2 => long, 6 => number]
}

fn run() -> impl Strategy<Value = Vec<Entry>> {
    let value = prop::option::weighted(0.8, prop::collection::vec(any::<u8>(), 0..6));
    let many = prop_oneof![4 => 1..6_usize, 1 => 20..90_usize];
    many.prop_flat_map(move |many| prop::collection::vec((keys(), 1..12_u64, value.clone()), many)).prop_map(
        |mut run| {
            run.sort_by(|one, other| (&one.0, one.1).cmp(&(&other.0, other.1)));
            run.dedup_by(|one, other| (&one.0, one.1) == (&other.0, other.1));
            run
        },
    )
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        2 => Just(Bound::Unbounded),
        1 => keys().prop_map(Bound::Included),
        1 => keys().prop_map(Bound::Excluded)
    ]
}

/// Runs in no order, and in front of some of them the pieces of one that was written over several pages.
fn leaves() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let pieces = (prop::collection::btree_map(keys(), (1..12_u64, any::<bool>()), 10..120), 1..30_usize).prop_map(
        |(versions, size)| {
            let version = |(key, (seq, put)): (Vec<u8>, (u64, bool))| (key, seq, put.then(|| vec![1; 3]));
            let all: Vec<_> = versions.into_iter().map(version).collect();
            all.chunks(size).map(<[Entry]>::to_vec).collect::<Vec<_>>()
        },
    );
    let mixed = (prop::option::of(pieces), prop::collection::vec(run(), 1..10)).prop_map(|(pieces, runs)| {
        let mut all = pieces.unwrap_or_default();
        all.extend(runs);
        all
    });
    prop_oneof![3 => mixed, 1 => loaded(), 2 => of_one_shape()]
}

/// Runs in no order of keys and values that have one length each. Of every four neighbours the keys differ only at
/// their end.
fn of_one_shape() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let of_values = |bytes: usize| {
        let version = (0..200_u16, 1..12_u64).prop_map(move |(number, seq)| {
            let key = [&(number / 4).to_be_bytes()[..], &[9; 12], &number.to_be_bytes()].concat();
            (key, seq, Some(vec![number.to_le_bytes()[0]; bytes]))
        });
        let run = prop::collection::vec(version, 1..60).prop_map(|mut run| {
            run.sort();
            run.dedup_by(|one, other| (&one.0, one.1) == (&other.0, other.1));
            run
        });
        prop::collection::vec(run, 1..8)
    };
    // Some that expire, and some that do not.
    (20..22_usize).prop_flat_map(of_values)
}

/// Runs as a load makes them: puts of one shape and one seq, in key order.
fn loaded() -> impl Strategy<Value = Vec<Vec<Entry>>> {
    let numbers = prop::collection::btree_set(0..400_u16, 1..200);
    (numbers, 1..14_u64, 1..60_usize).prop_map(|(numbers, seq, size)| {
        let version = |number: u16| (number.to_be_bytes().to_vec(), seq, Some(vec![3; 5]));
        let all: Vec<_> = numbers.into_iter().map(version).collect();
        all.chunks(size).map(<[Entry]>::to_vec).collect()
    })
}

proptest! {
    #[test]
    fn a_leaf_shows_the_newest_versions(
        leaves in prop::collection::vec(leaves(), 1..3), lower in bound(), upper in bound(), seq in 0..14_u64, now in 0..18_u64,
        until in keys(), done: prop::sample::Index,
    ) {
        let bounds = Bounds { lower, upper };
        let mut live = Live::default();
        let at = Moment { seq: Seq(seq), now: Time(now) };
        for runs in &leaves {
            let pairs = shown(&mut live, runs, &bounds, at);
            prop_assert_eq!(&pairs, &expected(runs, &bounds, at));
            // How many are shown before a key, in both directions.
            let (bytes, _) = leaf_of(runs);
            let done = done.index(pairs.len() + 1);
            let rising = pairs[done..].iter().filter(|pair| pair.0 < until).count();
            prop_assert_eq!(live.before(&until, done, Direction::Forward, &bytes), rising);
            let falling = pairs[..pairs.len() - done].iter().filter(|pair| pair.0 > until).count();
            prop_assert_eq!(live.before(&until, done, Direction::Backward, &bytes), falling);
        }
    }
}

#[test]
fn the_longest_sequence_need_not_come_first() {
    let version = |number: u8, seq| (vec![number; 12], seq, Some(vec![number]));
    let runs = [
        vec![version(9, 3)],
        (0..5).map(|number| version(number, 1)).collect(),
        (5..10).map(|number| version(number, 2)).collect(),
        vec![version(0, 1), version(7, 9), (vec![8; 12], 9, None)],
    ];
    let (bytes, pointer) = leaf_of(&runs);
    let mut spans = Vec::new();
    let leaf = Visible::check(&bytes, &pointer, pointer.all(), Link::default(), TABLE, &mut spans).expect("whole");
    let survey = Survey::of(&leaf).expect("whole");
    assert_eq!((survey.prefix, survey.sequence), (0, 1..3));
    let pairs = shown(&mut Live::default(), &runs, &Bounds::all(), Seq::MAX.into());
    assert_eq!(pairs, expected(&runs, &Bounds::all(), Seq::MAX.into()));
    assert_eq!(pairs.iter().map(|pair| pair.1).collect::<Vec<_>>(), [1, 1, 1, 1, 1, 2, 2, 9, 3]);
}
