use std::collections::BTreeMap;

use doclog::{DocLength, SegmentId};
use index::{DocPointer, Expiry, Operation, Payload, Stored, Time};
use proptest::prelude::*;

use super::*;

fn put<'a>(key: &'a [u8], seq: u64, value: &'a [u8]) -> Update<'a> {
    Update { key, seq: Seq(seq), operation: Operation::Put(Payload::Inline(value), None) }
}

#[test]
fn small_operations_take_about_three_times_their_bytes() {
    let mut opq = Opq::new(Sorting::Always);
    for number in 0..100_000_u64 {
        let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
        opq.append(&put(&key, number, &key), Lsn(number * 60));
    }
    let each = opq.bytes() / opq.len();
    assert!(each <= 56, "{each} bytes for an operation of 16");
}

#[test]
fn no_order_of_keys_takes_much_more() {
    let falling = |number: u64| u64::MAX - number;
    // Keys grouped by user, users in order, the newest key of each user first; and keys that approach the middle
    // from both ends.
    let of_users = |number: u64| ((number % 100) << 32) | ((1 << 20) - number);
    let from_both_ends = |number: u64| if number.is_multiple_of(2) { number } else { falling(number) };
    let key_of: [&dyn Fn(u64) -> u64; 4] = [&falling, &of_users, &from_both_ends, &|number| number << 32];
    for (which, rising) in [0, 64, 640, 650, 4096, 64 * 4096].into_iter().enumerate() {
        for (order, key_of) in key_of.iter().enumerate() {
            let mut opq = Opq::new(Sorting::Always);
            let keys = (0..rising).chain((0..40_000).map(|number| rising + key_of(number) / 2));
            for (seq, key) in (0..).zip(keys) {
                opq.append(&put(&key.to_be_bytes(), seq, &key.to_be_bytes()), Lsn(seq * 60));
            }
            let each = opq.bytes() / opq.len();
            assert!(each <= 72, "{each} bytes for an operation of 16, keys {which} and {order}");
        }
    }
}

#[test]
fn keys_that_rise_are_not_hashed() {
    let mut opq = Opq::new(Sorting::Always);
    let key = |number: u64| (2 * number).to_be_bytes();
    (0..3000).for_each(|number| opq.append(&put(&key(number), number + 1, b"v"), Lsn(number)));
    assert!(opq.is_rising() && opq.filtered == 0);
    assert!(opq.sorted_indexes().iter().copied().eq(0..3000));
    let seq_of = |opq: &Opq, key: &[u8]| opq.get(key, Seq::MAX.into()).map(|found| found.seq.0);
    assert!((0..3000).all(|number| seq_of(&opq, &key(number)) == Some(number + 1)));
    assert_eq!(seq_of(&opq, &3u64.to_be_bytes()), None);
    assert_eq!(seq_of(&opq, &9999u64.to_be_bytes()), None);

    // A key that is already there, and one that is not.
    opq.append(&put(&key(5), 4000, b"v"), Lsn(4000));
    opq.append(&put(&11u64.to_be_bytes(), 4001, b"v"), Lsn(4001));
    opq.append(&put(&key(2999), 4002, b"v"), Lsn(4002));
    assert!(!opq.is_rising() && opq.filtered == 1, "those that rose are not hashed");
    assert_eq!((seq_of(&opq, &key(5)), seq_of(&opq, &key(6))), (Some(4000), Some(7)));
    assert_eq!(opq.get(&key(5), Seq(3999).into()).map(|found| found.seq), Some(Seq(6)));
    assert_eq!(seq_of(&opq, &11u64.to_be_bytes()), Some(4001));
    let sorted = opq.sorted_indexes();
    assert_eq!(sorted.len(), 3003);
    assert!(sorted.windows(2).all(|pair| (opq.key(pair[0]), pair[0]) < (opq.key(pair[1]), pair[1])));
}

#[test]
fn keys_that_are_alike_for_long_are_sorted_too() {
    for sorting in [Sorting::Always, Sorting::Every(7)] {
        let mut opq = Opq::new(sorting);
        let mut model = BTreeMap::new();
        for number in 0..5000_u64 {
            let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let below = |limit: u64| usize::try_from((mixed >> 9) % limit).expect("small");
            // Long common prefixes, keys that end within them, zeros at the end, and repeated keys.
            let mut key = vec![7; 40 * below(3)];
            key.extend(&(mixed % 3000).to_be_bytes()[..below(9)]);
            opq.append(&put(&key, number + 1, b""), Lsn(number));
            model.insert((key, number), ());
            if number % 197 == 0 {
                let sorted = opq.sorted_indexes();
                let sorted = sorted.iter().map(|&index| (opq.key(index).to_vec(), u64::from(index)));
                assert!(sorted.eq(model.keys().cloned()), "{number}");
            }
        }
    }
}

/// The keys that a walk meets if it passes over keys below `end`, or above it, that have no version older than
/// `before` left.
fn met(opq: &Opq, direction: Direction, before: u64, end: Option<&[u8]>) -> Vec<Vec<u8>> {
    let passes = |key: &[u8]| match (direction, end) {
        (_, None) => true,
        (Direction::Forward, Some(end)) => key < end,
        (Direction::Backward, Some(end)) => key >= end,
    };
    let pass = |key: &[u8]| passes(key).then_some(Passed { before: Seq(before), end });
    let steps = opq.steps(&Bounds::all(), direction, None, usize::MAX, Seq::MAX.into(), &pass);
    steps.into_iter().map(|step| step.key).collect()
}

#[test]
fn a_walk_passes_over_what_is_gone() {
    let key = |number: u64| number.to_be_bytes().to_vec();
    let count = 20_000_u64;
    let (mut appended, mut operations) = (Opq::new(Sorting::Always), Sequence::default());
    for number in 0..count {
        let mixed = key(number.wrapping_mul(7919) % count);
        let update = Update { key: &mixed, seq: Seq(number + 1), operation: Operation::Delete };
        appended.append(&update, Lsn(number));
        operations.append(&update, Lsn(number));
    }
    for opq in [appended, Opq::of(operations, Sorting::Always)] {
        passes_over(opq, count);
    }
}

fn passes_over(mut opq: Opq, count: u64) {
    let key = |number: u64| number.to_be_bytes().to_vec();
    // Later operations are met, and so are all keys behind the end.
    [(700, 1), (9_000, 2), (15_000, 3)].iter().for_each(|&(number, more)| {
        opq.append(&put(&key(number), count + more, b"v"), Lsn(count + more));
    });
    // Of the deleted keys the walk meets a few: at its beginning, and behind each live key.
    let (end, few) = (key(10_000), 5 * DELETED_MAX);
    let check = |direction, before, end: Option<&[u8]>, newer: &[u64], behind: usize| {
        let met = met(&opq, direction, before, end);
        assert!(newer.iter().all(|&number| met.contains(&key(number))), "{newer:?}");
        assert!((behind + newer.len()..behind + newer.len() + few).contains(&met.len()), "{} keys", met.len());
        assert!(met.is_sorted_by(|one, other| direction.order(one, other).is_lt()));
    };
    check(Direction::Forward, count + 1, Some(&end), &[700, 9_000], 10_000);
    check(Direction::Backward, count + 2, Some(&end), &[15_000], 10_000);
    check(Direction::Forward, count + 1, None, &[700, 9_000, 15_000], 0);
    check(Direction::Backward, count + 3, None, &[15_000], 0);
    check(Direction::Forward, count + 4, None, &[], 0);
}

#[test]
fn a_reader_sees_the_version_of_its_seq() {
    let mut opq = Opq::new(Sorting::Always);
    opq.append(&put(b"k", 1, b"one"), Lsn(0));
    opq.append(&Update { key: b"k", seq: Seq(3), operation: Operation::Delete }, Lsn(8));
    let one = Found { seq: Seq(1), value: Some(Stored::Inline(b"one".to_vec())), expiry: None };
    assert_eq!(opq.get(b"k", Seq(0).into()), None);
    assert_eq!(opq.get(b"k", Seq(2).into()), Some(one));
    assert_eq!(opq.get(b"k", Seq(3).into()), Some(Found { seq: Seq(3), value: None, expiry: None }));
    assert_eq!(opq.get(b"x", Seq(3).into()), None);
}

#[test]
fn a_reader_sees_what_has_not_expired_by_its_time() {
    let mut opq = Opq::new(Sorting::Always);
    let document = DocPointer { segment: SegmentId(1), offset: 8, length: DocLength::plain(5000), crc: 3 };
    let expiry = Expiry::at(50);
    let operations = [
        (b"a", Operation::Put(Payload::Inline(b"one"), expiry)),
        (b"b", Operation::Put(Payload::Document(document), expiry)),
        (b"c", Operation::Put(Payload::Inline(b"stays"), None)),
    ];
    for (seq, (key, operation)) in (1..).zip(operations) {
        opq.append(&Update { key, seq: Seq(seq), operation }, Lsn(seq));
        let update = opq.updates().last().expect("it was appended").0;
        assert_eq!(update.operation, operation);
    }
    let at = |now| Moment { seq: Seq(9), now: Time(now) };
    let there = Found { seq: Seq(2), value: Some(Stored::Document(document)), expiry };
    assert_eq!(opq.get(b"b", at(49)), Some(there.clone()));
    assert_eq!(opq.get(b"b", at(50)), Some(Found { value: None, ..there }));
    let shown = |now| {
        let steps = opq.steps(&Bounds::all(), Direction::Forward, None, 9, at(now), &|_| None);
        steps.into_iter().filter(|step| step.found.value.is_some()).map(|step| step.key).collect::<Vec<_>>()
    };
    assert_eq!(shown(49), [b"a", b"b", b"c"]);
    assert_eq!(shown(50), [b"c"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn operations_in_order_at_once_are_as_if_they_came_one_by_one(
        keys in prop::collection::vec((prop::collection::vec(0u8..4, 0..5), 0usize..9), 0..600),
        rises: bool,
        at_once: prop::sample::Index,
        sorting in prop::sample::select(vec![Sorting::Always, Sorting::Every(50)]),
    ) {
        let mut keys: Vec<Vec<u8>> = keys.iter().map(|(key, more)| [key.as_slice(), &[7; 9][..*more]].concat()).collect();
        if rises {
            keys.sort();
            keys.dedup();
        }
        let (mut one, mut operations) = (Opq::new(sorting), Sequence::default());
        let seq = |index: usize| index as u64 / 2 + 1;
        let at_once = at_once.index(keys.len() + 1);
        for (index, key) in keys.iter().enumerate() {
            let update = put(key, seq(index), &[]);
            one.append(&update, Lsn(seq(index)));
            if index < at_once {
                operations.append(&update, Lsn(seq(index)));
            }
        }
        let mut other = Opq::of(operations, sorting);
        prop_assert_eq!(other.is_rising(), at_once == 0 || keys[..at_once].is_sorted_by(|one, other| one < other));
        for (index, key) in keys.iter().enumerate().skip(at_once) {
            other.append(&put(key, seq(index), &[]), Lsn(seq(index)));
        }
        prop_assert_eq!((one.first_lsn(), one.first_seq(), one.len()), (other.first_lsn(), other.first_seq(), other.len()));
        prop_assert!(one.sorted_indexes() == other.sorted_indexes());
        for (index, key) in keys.iter().enumerate() {
            prop_assert!(other.filter().may_have(key));
            for seq in [seq(index) - 1, seq(index), u64::MAX] {
                prop_assert_eq!(one.get(key, Seq(seq).into()), other.get(key, Seq(seq).into()));
            }
        }
        for direction in [Direction::Forward, Direction::Backward] {
            prop_assert_eq!(met(&one, direction, 0, None), met(&other, direction, 0, None));
        }
    }

    #[test]
    fn ranges_agree_with_a_map(
        keys in prop::collection::vec(prop::collection::vec(0u8..4, 0..5), 1..400),
        scale in 1usize..40,
        lower in prop::collection::vec(0u8..4, 0..4),
        upper in prop::collection::vec(0u8..4, 0..4),
        backward: bool,
        limit in 1usize..50,
        rising in prop::sample::select(vec![0u64, 3, 2000]),
        sorting in prop::sample::select(vec![Sorting::Always, Sorting::Every(50), Sorting::Every(5000)]),
    ) {
        let mut opq = Opq::new(sorting);
        let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut seq = 0;
        for number in 0..rising {
            seq += 1;
            let key = [(number / 600).to_be_bytes(), (number % 600).to_be_bytes()].concat();
            let before = opq.bytes();
            opq.append(&put(&key, seq, &seq.to_le_bytes()), Lsn(seq));
            prop_assert!(opq.bytes() >= before);
            model.insert(key, seq);
        }
        for round in 0..scale {
            for key in &keys {
                seq += 1;
                let mut long = key.clone();
                long.extend_from_slice(&(round as u64 % 3).to_be_bytes());
                let before = opq.bytes();
                opq.append(&put(&long, seq, &seq.to_le_bytes()), Lsn(seq));
                prop_assert!(opq.bytes() >= before);
                prop_assert_eq!(opq.get(&long, Seq::MAX.into()).map(|found| found.seq.0), Some(seq));
                model.insert(long, seq);
            }
        }
        let bounds = Bounds {
            lower: std::ops::Bound::Included(lower.clone()),
            upper: std::ops::Bound::Excluded(upper.clone()),
        };
        let direction = if backward { Direction::Backward } else { Direction::Forward };
        let mut expected: Vec<(Vec<u8>, u64)> =
            model.iter().filter(|(key, _)| bounds.contains(key)).map(|(key, seq)| (key.clone(), *seq)).collect();
        if backward {
            expected.reverse();
        }
        let mut seen = Vec::new();
        loop {
            let after = seen.last().map(|(key, _): &(Vec<u8>, u64)| key.clone());
            let steps = opq.steps(&bounds, direction, after.as_deref(), limit, Seq::MAX.into(), &|_| None);
            let done = steps.len() < limit;
            seen.extend(steps.into_iter().map(|step| (step.key, step.found.seq.0)));
            if done {
                break;
            }
        }
        prop_assert_eq!(seen, expected);
    }
}
