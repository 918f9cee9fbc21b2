use std::ops::Range;

use doclog::{DocLength, SegmentId};
use index::Seq;
use proptest::prelude::*;

use super::super::tests::hex;
use super::plan::seq_width;
use super::*;

const IDENTITY: Identity = Identity { incarnation: 0x0102, table: TableId(3) };

const DOCUMENT: DocPointer =
    DocPointer { segment: SegmentId(0x21), offset: 0x31, length: DocLength::plain(0x41), crc: 0x5152_5354 };

fn put<'a>(key: &'a [u8], seq: u64, value: &'a [u8]) -> Update<'a> {
    Update { key, seq: Seq(seq), operation: Operation::Put(Payload::Inline(value), None) }
}

fn document(key: &[u8], seq: u64) -> Update<'_> {
    Update { key, seq: Seq(seq), operation: Operation::Put(Payload::Document(DOCUMENT), None) }
}

/// The same update, until `expiry`.
fn until(update: Update<'_>, expiry: u64) -> Update<'_> {
    match update.operation {
        Operation::Put(payload, _) => Update { operation: Operation::Put(payload, Expiry::at(expiry)), ..update },
        Operation::Delete => update,
    }
}

fn delete(key: &[u8], seq: u64) -> Update<'_> {
    Update { key, seq: Seq(seq), operation: Operation::Delete }
}

fn encode(updates: &[Update<'_>]) -> Vec<u8> {
    let plan = Plan::fit(updates.iter().copied(), PAGE).expect("they fit");
    assert_eq!(plan.count, updates.len());
    let mut out = vec![0xee; plan.bytes];
    plan.encode(updates.iter().copied(), &IDENTITY, 40, 7, &mut out);
    out
}

/// The entries of a run, read through each of the reading functions.
fn decode(run: &[u8]) -> Vec<Update<'_>> {
    let header = RunHeader::decode(run).expect("whole").expect("a run");
    header.check(run, &IDENTITY, 40, 7).expect("signed");
    assert_eq!(usize::from(header.length), run.len());
    let read = Run::new(run, &header);
    let entry = |index| {
        let entry = read.entry(index).expect("whole");
        assert_eq!(read.key(index), Some((entry.key, entry.seq)));
        let EntryPlace { seq, key_at, key_length, word } = read.place(index).expect("whole");
        let value_at = usize::from(key_at) + usize::from(key_length);
        let operation = word.operation(&run[value_at..value_at + word.bytes()]).expect("whole");
        assert_eq!(entry, Update { key: &run[usize::from(key_at)..value_at], seq: Seq(seq), operation });
        assert_eq!(word.expires(), operation.expiry().is_some());
        assert!(!word.expires() || read.expiry(&read.place(index).expect("whole")) == operation.expiry());
        assert_eq!(word.is_tombstone(), operation == Operation::Delete);
        entry
    };
    (0..read.count()).map(entry).collect()
}

/// Bytes of the general run and of the uniform run of some updates, computed from the documented format.
fn lengths(updates: &[Update<'_>]) -> (usize, usize) {
    let span = |seqs: &mut dyn Iterator<Item = u64>| {
        let (least, most) = seqs.fold((u64::MAX, 0), |(least, most), seq| (least.min(seq), most.max(seq)));
        most - least
    };
    let width = seq_width(span(&mut updates.iter().map(|update| update.seq.0)));
    let value = |update: &Update<'_>| match update.operation {
        Operation::Put(payload, expiry) => {
            let bytes = if let Payload::Inline(value) = payload { value.len() } else { 28 };
            bytes + if expiry.is_some() { 8 } else { 0 }
        }
        Operation::Delete => 0,
    };
    let entries: usize = updates.iter().map(|update| width + update.key.len() + value(update)).sum();
    (18 + 6 * updates.len() + entries, 22 + entries)
}

#[test]
fn a_general_run_is_golden() {
    let updates = [put(b"a", 1000, b"xy"), delete(b"bb", 1300), document(b"c", 1001)];
    let run = encode(&updates);
    assert_eq!(
        hex(&run),
        concat!(
            "4c00114589f701020300e803000000000000", // header
            "180021002900",                         // slots
            "010002100000617879",                   // a
            "020000202c016262",                     // bb
            "01001c30010063",                       // c, then its document
            "21000000000000003100000000000000410000000000000054535251",
        )
    );
    assert_eq!(decode(&run), updates);
}

#[test]
fn uniform_runs_are_golden() {
    let updates = [put(b"abc", 1000, b"xy"), put(b"abd", 1300, b"zz"), put(b"abe", 1000, b"..")];
    let run = encode(&updates);
    assert_eq!(
        hex(&run),
        concat!(
            "2b00588f73b402020300e803000000000000", // header
            "03000210",                             // keys of 3 bytes, values of 2
            "00006162637879",                       // abc
            "2c016162647a7a",                       // abd
            "00006162652e2e",                       // abe
        )
    );
    assert_eq!(decode(&run), updates);
    // Of one seq, as in a load; documents; tombstones.
    let updates = [document(b"a", 9), document(b"b", 9)];
    let run = encode(&updates);
    let pointer = "21000000000000003100000000000000410000000000000054535251";
    let head = "5000ff0e3e1302000200090000000000000001001c30";
    assert_eq!(hex(&run), format!("{head}61{pointer}62{pointer}"));
    assert_eq!(decode(&run), updates);
    let updates = [delete(b"keya", 9), delete(b"keyb", 9)];
    let run = encode(&updates);
    assert_eq!(hex(&run), concat!("1e0040ff6d940200020009000000000000000400", "0020", "6b657961", "6b657962"));
    assert_eq!(decode(&run), updates);
}

#[test]
fn entries_that_expire_are_golden() {
    let updates = [until(put(b"a", 9, b"xy"), 0x0102_0304_0506), until(document(b"c", 9), 7)];
    let run = encode(&updates);
    let pointer = "21000000000000003100000000000000410000000000000054535251";
    assert_eq!(
        hex(&run[6..]),
        format!(
            "010002000900000000000000160025000100024061787906050403020100000100{}63{pointer}0700000000000000",
            "1c50"
        )
    );
    assert_eq!(decode(&run), updates);
    let updates = [until(put(b"abc", 9, b"xy"), 0x11), until(put(b"abd", 9, b"zz"), 0x22)];
    let run = encode(&updates);
    let entries = "6162637879110000000000000061".to_owned() + "62647a7a2200000000000000";
    assert_eq!(hex(&run[6..]), format!("02000200090000000000000003000240{entries}"));
    assert_eq!(decode(&run), updates);
}

#[test]
fn an_entry_of_fixed_size_takes_what_it_holds() {
    let keys: Vec<_> = (0..1000_u64).map(u64::to_be_bytes).collect();
    let loaded: Vec<_> = keys.iter().map(|key| put(key, 77, b"8 bytes.")).collect();
    let plan = Plan::fit(loaded.iter().copied(), PAGE).expect("some fit");
    assert_eq!((plan.count, plan.bytes), ((PAGE - 22) / 16, 22 + 254 * 16));
    // Each update of a commit of its own.
    let grown: Vec<_> = (0..).zip(&keys).map(|(seq, key)| put(key, seq, b"8 bytes.")).collect();
    assert_eq!(Plan::fit(grown.iter().copied(), PAGE).expect("some fit").count, (PAGE - 22) / 17);
}

#[test]
fn an_entry_of_another_shape_makes_a_run_general_or_ends_it() {
    let keys: Vec<_> = (0..400_u16).map(u16::to_be_bytes).collect();
    for odd in 0..keys.len() {
        let update = |(index, key): (usize, &'_ [u8; 2])| (key.to_vec(), if index == odd { 15 } else { 14 });
        let updates: Vec<_> = keys.iter().enumerate().map(update).collect();
        let updates = || updates.iter().map(|(key, value)| put(key, 3, &[7; PAGE][..*value]));
        let plan = Plan::fit(updates(), PAGE).expect("some fit");
        // A general run holds 185 entries of 22 bytes, one of which may be a byte longer; a uniform run holds 254 of 16
        // bytes.
        let expected = match odd {
            0..185 => 185,
            185..254 => odd,
            _ => 254,
        };
        assert_eq!(plan.count, expected, "{odd}");
        let mut out = vec![0; plan.bytes];
        plan.encode(updates(), &IDENTITY, 40, 7, &mut out);
        assert!(decode(&out).into_iter().eq(updates().take(expected)), "{odd}");
    }
}

#[test]
fn no_page_holds_more_entries_than_a_pointer_counts_on() {
    // As many keys without values as a page can hold: of three bytes, of four, and of two with a seq each.
    let of = |count: u32, bytes: usize, step: u64| {
        let keys: Vec<_> = (0..count).map(u32::to_be_bytes).collect();
        let updates = keys.iter().zip(0..).map(|(key, seq)| put(&key[4 - bytes..], step * seq, b""));
        Plan::fit(updates, PAGE).expect("some fit").count
    };
    assert_eq!(of(5000, 4, 0), (PAGE - 22) / 4);
    assert_eq!(of(5000, 3, 0), (PAGE - 18) / 9);
    assert_eq!(of(5000, 2, 1), (PAGE - 18) / 10);
    assert!(of(5000, 4, 0) <= PAGE_ENTRIES_MAX && of(5000, 3, 0) <= PAGE_ENTRIES_MAX);
}

#[test]
fn a_run_that_grew_update_by_update_is_the_same_run() {
    let lists = [
        vec![put(b"a", 9, b"xy"), put(b"bb", 9, b""), document(b"c", 9)],
        vec![put(b"abc", 9, b"xy"), put(b"abd", 9, b"zz"), put(b"abe", 9, b"..")],
        vec![put(b"abc", 9, b"xy"), put(b"abd", 9, b"zz"), put(b"abe", 9, b"."), put(b"abf", 9, b"zz")],
        vec![document(b"a", 9), document(b"b", 9), put(b"c", 9, &[7; 28]), put(b"d", 9, b"")],
        vec![put(b"a", 9, b"x"), put(b"b", 9, b"y")],
        vec![until(put(b"abc", 9, b"xy"), 5), until(put(b"abd", 9, b"zz"), u64::MAX)],
        vec![put(b"abc", 9, b"xy"), until(put(b"abd", 9, b"zz"), 7), until(document(b"abe", 9), 8)],
    ];
    let mut run = OneSeqRun::new(Seq(9));
    for updates in lists.iter().cycle().take(2 * lists.len()) {
        grow(&mut run, updates);
    }
}

/// Adds updates to an empty run, and checks that the result is the run that they make together.
fn grow(run: &mut OneSeqRun, updates: &[Update<'_>]) {
    let mut page = vec![7; PAGE];
    for (index, update) in updates.iter().enumerate() {
        assert_eq!(run.count(), index);
        let size = updates[..=index].iter().fold(RunSize::new(), |size, update| size.with(update));
        assert_eq!(run.bytes_with(update), size.bytes());
        run.push(update);
    }
    let (bytes, crc) = run.finish(&IDENTITY, 40, 7, &mut page);
    let expected = encode(updates);
    assert_eq!(page[..bytes], expected);
    assert_eq!(crc.to_le_bytes(), expected[2..6]);
    assert!(page[bytes..].iter().all(|byte| *byte == 0) && run.is_empty());
}

#[test]
fn a_run_does_not_check_anywhere_else() {
    for run in [encode(&[put(b"k", 1, b"v")]), encode(&[put(b"key", 1, b"v")])] {
        let header = RunHeader::decode(&run).expect("whole").expect("a run");
        header.check(&run, &IDENTITY, 40, 7).expect("at home");
        header.check(&run, &IDENTITY, 41, 7).expect_err("another position");
        header.check(&run, &IDENTITY, 40, 8).expect_err("another run before it");
        let other = Identity { incarnation: 0x0103, ..IDENTITY };
        header.check(&run, &other, 40, 7).expect_err("another incarnation");
        let other = Identity { table: TableId(4), ..IDENTITY };
        header.check(&run, &other, 40, 7).expect_err("another table");
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    let general = encode(&[put(b"key", 9, b"value"), put(b"key2", 300, b"")]);
    let uniform = encode(&[put(b"key1", 9, b"value"), put(b"key2", 300, b"other")]);
    assert_eq!((general[6], uniform[6]), (TYPE_GENERAL, TYPE_UNIFORM));
    for run in [general, uniform] {
        for bit in 0..run.len() * 8 {
            let mut bad = run.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let seen = match RunHeader::decode(&bad) {
                Err(_) => true,
                Ok(None) => false,
                Ok(Some(header)) => {
                    let length = usize::from(header.length);
                    length != run.len() || header.check(&bad, &IDENTITY, 40, 7).is_err()
                }
            };
            assert!(seen, "bit {bit}");
        }
    }
}

#[test]
fn impossible_headers_of_uniform_runs_are_damage() {
    let good = encode(&[put(b"key1", 9, b"value"), put(b"key2", 300, b"other")]);
    let damage = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        let damage = RunHeader::decode(&bad).expect_err("no header of ours");
        (damage.offset, damage.what)
    };
    let entries = (8, "entries of a run");
    assert_eq!(damage(6, &[0]), (6, "type of a run"));
    assert_eq!(damage(6, &[3]), (6, "type of a run"));
    assert_eq!(damage(7, &[9]), (7, "seq width of a run"));
    assert_eq!(damage(7, &[1]), entries);
    assert_eq!(damage(8, &[0]), entries);
    assert_eq!(damage(8, &[1]), entries);
    assert_eq!(damage(8, &[3]), entries);
    assert_eq!(damage(8, &[255, 255]), entries);
    assert_eq!(damage(18, &[5]), entries);
    assert_eq!(damage(18, &[1, 4]), (18, "key length of a run"));
    assert_eq!(damage(18, &[0, 0, 3, 0x10]), (18, "key and value in a uniform run"));
    for word in [0x0005_u16, 0x1801, 0x2001, 0x301b, 0x301d, 0x4801, 0x501b, 0x6000, 0xf005] {
        assert_eq!(damage(20, &word.to_le_bytes()), (20, "word of a run"), "{word:x}");
    }
    assert_eq!(damage(20, &0x1006_u16.to_le_bytes()), entries);
    assert_eq!(damage(20, &0x2000_u16.to_le_bytes()), entries);
    assert_eq!(damage(20, &0x4005_u16.to_le_bytes()), entries);
    // A run that is a byte shorter: by its own length, and by the end of the page.
    assert_eq!(damage(0, &[good[0] - 1]), entries);
    for length in 2..good.len() {
        RunHeader::decode(&good[..length]).expect_err("cut");
    }
}

#[test]
fn a_plan_takes_what_fits() {
    let updates: Vec<_> = (0..100).map(|seq| put(b"0123456789", seq, b"0123456789")).collect();
    let plan = Plan::fit(updates.iter().copied(), 200).expect("some fit");
    assert_eq!(plan.count, (200 - UNIFORM_HEADER) / 21);
    assert!(Plan::fit(updates.iter().copied(), UNIFORM_HEADER + 19).is_none());
    assert_eq!(Plan::fit(updates.iter().copied(), UNIFORM_HEADER + 20).map(|plan| plan.count), Some(1));
    let values = [&b""[..], b"0"].into_iter().cycle();
    let updates: Vec<_> = (0..100).zip(values).map(|(seq, value)| put(b"0123456789", seq, value)).collect();
    let plan = Plan::fit(updates.iter().copied(), 200).expect("some fit");
    assert_eq!(plan.count, (200 - RUN_HEADER) * 2 / (17 + 18));
    assert_eq!([0, 1, 255, 256, u64::MAX].map(seq_width), [0, 1, 1, 2, 8]);
}

/// Key, seq, and the value unless the entry is a tombstone.
type Owned = (Vec<u8>, u64, Option<Vec<u8>>);

/// Updates by key and seq, most of them of one shape. The shape is a key length and a value length. Each update is odd
/// or not, and an odd one has lengths of its own or is a delete.
fn any_updates() -> impl Strategy<Value = Vec<Owned>> {
    let of_shape = |(key_bytes, value_bytes, odd_share, seqs): (usize, usize, f64, u64)| {
        let odd = (prop::bool::weighted(odd_share), 1..40_usize, 0..60_usize, any::<bool>());
        let update =
            (odd, any::<[u8; 8]>(), 0..=seqs).prop_map(move |((is_odd, odd_key, odd_value, is_delete), key, seq)| {
                let (key_bytes, value_bytes) = if is_odd { (odd_key, odd_value) } else { (key_bytes, value_bytes) };
                let key: Vec<u8> = key.into_iter().cycle().take(key_bytes).collect();
                let value = vec![key[0]; value_bytes];
                (key, 1000 + seq, (!(is_odd && is_delete)).then_some(value))
            });
        prop::collection::vec(update, 1..80)
    };
    let seqs = prop::sample::select(vec![0, 1, 300, u64::MAX - 1000]);
    let odd_share = prop::sample::select(vec![0.0, 0.03, 0.5]);
    let shape = (1..20_usize, 0..100_usize, odd_share, seqs);
    shape.prop_flat_map(of_shape).prop_map(|mut updates| {
        updates.sort();
        updates.dedup_by(|one, other| one.0 == other.0 && one.1 == other.1);
        updates
    })
}

fn borrowed(updates: &[Owned]) -> Vec<Update<'_>> {
    let updates = updates.iter().map(|(key, seq, value)| match value {
        Some(value) if value.len() == 28 => document(key, *seq),
        Some(value) => put(key, *seq, value),
        None => delete(key, *seq),
    });
    // Values of some lengths expire.
    let expires = |update: &Update<'_>| Shape::of(update).word.value_length().is_multiple_of(4);
    updates.map(|update| if expires(&update) { until(update, update.seq.0) } else { update }).collect()
}

proptest! {
    #[test]
    fn any_updates_come_back_in_runs_of_the_right_type_and_length(updates in any_updates(), room in 100..PAGE) {
        let updates = borrowed(&updates);
        let mut rest = &updates[..];
        while !rest.is_empty() {
            let Some(plan) = Plan::fit(rest.iter().copied(), room) else {
                prop_assert!(lengths(&rest[..1]).0 > room, "the first would have fitted");
                rest = &rest[1..];
                continue;
            };
            let (taken, left) = rest.split_at(plan.count);
            let mut run = vec![0xee; plan.bytes];
            plan.encode(rest.iter().copied(), &IDENTITY, 40, 7, &mut run);
            prop_assert_eq!(decode(&run), taken);
            prop_assert!(read_all(&run));
            let shape = Shape::of(&taken[0]);
            let uniform = shape.bytes() >= 4 && taken.iter().all(|update| Shape::of(update) == shape);
            prop_assert_eq!(run[6], if uniform { TYPE_UNIFORM } else { TYPE_GENERAL });
            let (general_bytes, uniform_bytes) = lengths(taken);
            prop_assert_eq!(plan.bytes, if uniform { uniform_bytes } else { general_bytes });
            // The run ends where one more update does not fit, and never before a general run would.
            if let Some(next) = left.first() {
                let longer = &rest[..taken.len() + 1];
                let size = longer.iter().fold(RunSize::new(), |size, update| size.with(update));
                prop_assert!(size.bytes() > room);
                let of_one_shape = uniform && Shape::of(next) == shape;
                let bytes = if of_one_shape { lengths(longer).1 } else { lengths(longer).0 };
                prop_assert!(bytes > room);
            }
            rest = left;
        }
    }

    #[test]
    fn a_size_grows_with_every_update_and_is_no_more_than_that_of_a_general_run(updates in any_updates()) {
        let updates = borrowed(&updates);
        let mut size = RunSize::new();
        for (index, update) in updates.iter().enumerate() {
            let next = size.with(update);
            prop_assert!(next.bytes() > size.bytes());
            prop_assert!(next.bytes() <= lengths(&updates[..=index]).0);
            size = next;
        }
    }

    #[test]
    fn any_run_of_one_seq_that_grew_is_the_same_run(updates in any_updates()) {
        let mut updates = borrowed(&updates);
        updates.iter_mut().for_each(|update| update.seq = Seq(9));
        updates.dedup_by(|one, other| one.key == other.key);
        let fits = Plan::fit(updates.iter().copied(), PAGE).expect("the first fits").count;
        grow(&mut OneSeqRun::new(Seq(9)), &updates[..fits]);
    }

    #[test]
    fn any_bytes_are_decoded_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 1..=2_u8) {
        let mut bytes = bytes;
        if bytes.len() > 22 {
            bytes[6] = kind;
            bytes[7] &= 15;
            bytes[0] = bytes[0].min(200);
            bytes[1] = 0;
        }
        read_all(&bytes);
        // A uniform run of the right length with arbitrary other bytes.
        if bytes.len() > 26 && kind == TYPE_UNIFORM {
            let kind = if bytes[19] % 2 == 0 { KIND_INLINE } else { KIND_INLINE_EXPIRING };
            let shape = Shape { key_length: u16::from(bytes[18] % 9), word: EntryWord(kind << LENGTH_BITS | u16::from(bytes[20] % 9)) };
            bytes[18..22].copy_from_slice(&shape.encode());
            bytes[7] %= 9;
            let stride = shape.bytes() + usize::from(bytes[7]);
            let count = (bytes.len() - UNIFORM_HEADER) / stride.max(1);
            bytes.truncate(UNIFORM_HEADER + count * stride);
            let length = short(bytes.len());
            bytes[..2].copy_from_slice(&length.to_le_bytes());
            bytes[8..10].copy_from_slice(&short(count).to_le_bytes());
            prop_assert_eq!(read_all(&bytes), count > 0 && shape.bytes() >= 4);
        }
    }

    #[test]
    fn a_changed_run_is_read_without_a_panic(
        updates in any_updates(), changes in prop::collection::vec((0..PAGE, any::<u8>()), 1..8),
    ) {
        let updates = borrowed(&updates);
        let fits = Plan::fit(updates.iter().copied(), PAGE).expect("the first fits").count;
        let mut run = encode(&updates[..fits]);
        let length = run.len();
        for (at, byte) in changes {
            run[at % length] = byte;
        }
        read_all(&run);
    }
}

/// Reads everything that may be a run at the start of `bytes`; returns whether there is one.
fn read_all(bytes: &[u8]) -> bool {
    let Ok(Some(header)) = RunHeader::decode(bytes) else { return false };
    let run = &bytes[..usize::from(header.length)];
    let _ = header.check(run, &IDENTITY, 0, 0);
    let run = Run::new(run, &header);
    for index in 0..run.count() {
        let (key, entry, place) = (run.key(index), run.entry(index), run.place(index));
        assert!(entry.is_none() || key == entry.map(|entry| (entry.key, entry.seq)));
        // An entry whose expiry is 0 has a place, and is malformed.
        let is_whole = place.is_some_and(|place| !place.word.expires() || run.expiry(&place).is_some());
        assert_eq!(entry.is_some(), is_whole);
    }
    let _ = run.ends();
    for first in [0, run.count() / 2, run.count() - 1] {
        for prefix in 0..20 {
            check_strip(&run, first..run.count(), prefix);
            check_strip(&run, first..first + 1, prefix);
        }
    }
    true
}

/// A strip, if there is one, has the same entries as the run.
fn check_strip(run: &Run<'_>, entries: Range<usize>, prefix: usize) {
    let Some(strip) = run.strip(entries.clone(), prefix) else { return };
    assert_eq!(strip.entries().len(), entries.len());
    for (number, (index, (seq, head))) in entries.zip(strip.entries()).enumerate() {
        let place = run.place(index).expect("a strip is of entries that are whole");
        let (key_at, key_length) = (usize::from(place.key_at), usize::from(place.key_length));
        assert_eq!((seq, strip.key_at + number * strip.stride), (place.seq, key_at));
        assert_eq!((strip.key_length, strip.word), (place.key_length, place.word));
        assert_eq!(head, index::head(&run.bytes()[key_at + prefix..key_at + key_length]));
    }
}
