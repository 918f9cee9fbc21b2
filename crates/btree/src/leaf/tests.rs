use index::{Operation, Payload};
use proptest::prelude::*;
use psync::Buffer;

use super::*;
use crate::format::run::{Plan, sign};

const TABLE: TableId = TableId(3);

/// A leaf of two pages with these runs, and its pointer.
fn leaf_of(runs: &[Vec<(Vec<u8>, u64)>]) -> (Buffer, Pointer) {
    let mut bytes = Buffer::zeroed(2 * PAGE);
    let mut pointer = Pointer { pages: 2, appended: true, ..Pointer::to_node(5, 9) };
    let identity = Identity { incarnation: 9, table: TABLE };
    for run in runs {
        let updates = || {
            run.iter().map(|(key, seq)| Update {
                key,
                seq: Seq(*seq),
                operation: Operation::Put(Payload::Inline(&key[..key.len() / 2]), None),
            })
        };
        let mut at = pointer.length as usize;
        let plan = Plan::fit(updates(), PAGE).expect("a run");
        if at % PAGE + plan.bytes > PAGE {
            at = at.next_multiple_of(PAGE);
        }
        let out = &mut bytes[at..at + plan.bytes];
        let number = |value| u32::try_from(value).expect("small");
        pointer.chain = plan.encode(updates(), &identity, number(at), pointer.chain, out);
        pointer.length = number(at + plan.bytes);
        pointer.entries += number(plan.count);
    }
    (bytes, pointer)
}

fn sample() -> (Buffer, Pointer) {
    let key = |number: u8| vec![b'a' + number; 100];
    let run = |from: u8, seq: u64| (from..from + 12).map(|number| (key(number), seq)).collect();
    leaf_of(&[run(0, 1), run(3, 2), run(5, 2), run(1, 9)])
}

#[test]
fn the_newest_version_at_or_below_a_seq_is_found() {
    let (bytes, pointer) = sample();
    assert!(pointer.length as usize > PAGE);
    let leaf = Leaf::parse(&bytes, &pointer, pointer.all(), Link::default(), TABLE).expect("whole");
    let visible = leaf.visible(&pointer).expect("this leaf");
    let find = |letter: u8, at| visible.find(&[letter; 100], Seq(at)).expect("whole").map(|update| update.seq.0);
    assert_eq!(find(b'a', 99), Some(1));
    assert_eq!(find(b'g', 99), Some(9));
    assert_eq!(find(b'g', 8), Some(2));
    assert_eq!(find(b'g', 1), Some(1));
    assert_eq!(find(b'g', 0), None);
    assert_eq!(find(b'Z', 99), None);
    assert_eq!(find(b'z', 99), None);
}

#[test]
fn an_older_pointer_sees_the_first_runs_of_a_younger_image() {
    let key = |seq| vec![(b"key".to_vec(), seq)];
    let (_, old) = leaf_of(&[key(1), key(2)]);
    let (bytes, new) = leaf_of(&[key(1), key(2), key(3)]);
    let (other, _) = leaf_of(&[key(1), key(7), key(3)]);
    let leaf = Leaf::parse(&bytes, &new, new.all(), Link::default(), TABLE).expect("whole");
    let newest = |pointer| leaf.visible(pointer).map(|visible| visible.find(b"key", Seq::MAX).expect("whole"));
    assert_eq!(newest(&new).flatten().map(|update| update.seq.0), Some(3));
    assert_eq!(newest(&old).flatten().map(|update| update.seq.0), Some(2));
    assert!(leaf.visible(&Pointer { chain: old.chain ^ 1, ..old }).is_none());
    assert!(leaf.visible(&Pointer { length: old.length + 1, ..old }).is_none());
    Leaf::parse(&other, &new, new.all(), Link::default(), TABLE).err().expect("another history");
}

#[test]
fn of_a_version_that_was_written_again_the_later_run_counts() {
    let mut bytes = Buffer::zeroed(PAGE);
    let (identity, mut pointer) = (Identity { incarnation: 9, table: TABLE }, leaf_of(&[]).1);
    for value in [b"first", b"later"] {
        let update = Update { key: b"k", seq: Seq(4), operation: Operation::Put(Payload::Inline(value), None) };
        let plan = Plan::fit([update].into_iter(), PAGE).expect("a run");
        let at = pointer.length as usize;
        let out = &mut bytes[at..at + plan.bytes];
        pointer.chain = plan.encode([update].into_iter(), &identity, pointer.length, pointer.chain, out);
        pointer.length += u32::try_from(plan.bytes).expect("small");
    }
    let leaf = Leaf::parse(&bytes, &pointer, pointer.all(), Link::default(), TABLE).expect("whole");
    let found = leaf.visible(&pointer).and_then(|visible| visible.find(b"k", Seq(4)).expect("whole"));
    assert_eq!(found.map(|update| update.operation), Some(Operation::Put(Payload::Inline(b"later"), None)));
}

#[test]
fn bytes_behind_the_published_ones_are_not_looked_at() {
    let (mut bytes, pointer) = sample();
    bytes[pointer.length as usize..].fill(0xa5);
    Leaf::parse(&bytes, &pointer, pointer.all(), Link::default(), TABLE).expect("whole");
}

#[test]
fn every_flipped_byte_of_a_leaf_is_seen() {
    let (bytes, pointer) = sample();
    for index in 0..pointer.length as usize {
        let mut bad = bytes.clone();
        bad[index] ^= 0x40;
        let padding = bytes[index..PAGE.max(index)].iter().all(|byte| *byte == 0);
        let parsed = Leaf::parse(&bad, &pointer, pointer.all(), Link::default(), TABLE);
        assert!(parsed.is_err() || padding, "byte {index}");
        if let Ok(leaf) = parsed {
            assert!(leaf.visible(&pointer).is_some());
        }
    }
}

#[test]
fn a_last_page_is_checked_as_far_as_it_can_be() {
    let (bytes, pointer) = sample();
    check_tail(&bytes[PAGE..], &pointer, TABLE).expect("whole");
    check_tail(&bytes[..PAGE], &pointer, TABLE).expect_err("another page");
    check_tail(&vec![0; PAGE], &pointer, TABLE).expect_err("an empty page");
    let other = Pointer { chain: 1, ..pointer };
    check_tail(&bytes[PAGE..], &other, TABLE).expect_err("another chain");
}

proptest! {
    #[test]
    fn a_version_is_found_however_its_keys_are_spread(
        entries in prop::collection::btree_set(
            (prop_oneof![0..3_u64, 0..u64::MAX, (0..60_u64).prop_map(|root| root.pow(9))], 0..3_u32, 1..4_u64), 1..70,
        ),
        others in prop::collection::vec((any::<u64>(), 0..3_u32), 0..20),
    ) {
        let key = |head: u64, rest: u32| [&head.to_be_bytes()[..], &rest.to_be_bytes()].concat();
        let run: Vec<_> = entries.iter().map(|(head, rest, seq)| (key(*head, *rest), *seq)).collect();
        let (bytes, pointer) = leaf_of(std::slice::from_ref(&run));
        let leaf = Leaf::parse(&bytes, &pointer, pointer.all(), Link::default(), TABLE).expect("whole");
        let visible = leaf.visible(&pointer).expect("this leaf");
        let others = others.into_iter().map(|(head, rest)| key(head, rest));
        for wanted in run.iter().map(|(key, _)| key.clone()).chain(others) {
            for at in 0..5 {
                let expected = run.iter().filter(|(key, seq)| *key == wanted && *seq <= at).map(|(_, seq)| *seq).max();
                let found = visible.find(&wanted, Seq(at)).expect("whole").map(|update| update.seq.0);
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn damage_that_the_crc_does_not_see_is_no_panic(
        changes in prop::collection::vec((0..1500_usize, any::<u8>()), 1..8),
    ) {
        let key = |number: u8| (vec![number; 40], u64::from(number));
        let (mut bytes, mut pointer) = leaf_of(&[(0..20).map(key).collect()]);
        let length = pointer.length as usize;
        for (at, byte) in changes {
            // The length of the run stays, so that the run can be signed.
            bytes[2 + at % (length - 2)] = byte;
        }
        let identity = Identity { incarnation: 9, table: TABLE };
        pointer.chain = sign(&mut bytes[..length], &identity, 0, 0);
        let Ok(leaf) = Leaf::parse(&bytes, &pointer, pointer.all(), Link::default(), TABLE) else { return Ok(()) };
        let Some(visible) = leaf.visible(&pointer) else { return Ok(()) };
        let _ = visible.sorted();
        let _ = visible.entries(&mut Vec::new());
        let _ = visible.check_order();
        for number in 0..20 {
            let _ = visible.find(&[number; 40], Seq::MAX);
        }
    }
}
