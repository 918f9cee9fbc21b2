//! Trees beside a map: what to do with both, and whether they agree.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bench::trees::{Setting, Shape, Sorted, Tree};
use proptest::prelude::*;
use psync::sim::SimDisk;

pub(crate) const SHAPES: [Shape; 3] = [
    Shape { key_bytes: 8, value_bytes: 8 },
    Shape { key_bytes: 16, value_bytes: 100 },
    // Leaves of three or four entries, inner nodes of four or five children: every few operations split or merge
    // something.
    Shape { key_bytes: 700, value_bytes: 200 },
];

pub(crate) type Map = BTreeMap<u16, u64>;

pub(crate) fn key(shape: Shape, number: u16) -> Vec<u8> {
    let mut key = vec![b'k'; shape.key_bytes];
    key[..2].copy_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn value(shape: Shape, number: u64) -> Vec<u8> {
    let mut value = vec![b'v'; shape.value_bytes];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

pub(crate) fn setting(disk: &SimDisk, shape: Shape, memory_bytes: u64) -> Setting {
    let directory = PathBuf::from("/trees");
    disk.psync().create_directory(&directory).expect("made");
    Setting { psync: disk.psync(), directory, shape, memory_bytes }
}

pub(crate) type Build = fn(&Setting, &mut Sorted<'_>, f64) -> Box<dyn Tree>;

/// A tree with what the map has.
pub(crate) fn built(build: Build, setting: &Setting, map: &Map, fill: f64) -> Box<dyn Tree> {
    let shape = setting.shape;
    let mut entries = map.iter();
    let mut sorted = |into_key: &mut Vec<u8>, into_value: &mut Vec<u8>| {
        let Some((number, content)) = entries.next() else {
            return false;
        };
        *into_key = key(shape, *number);
        *into_value = value(shape, *content);
        true
    };
    build(setting, &mut sorted, fill)
}

/// Something to do with a tree.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Put(u16, u64),
    Delete(u16),
    /// Deletes all of a range.
    DeleteRange(u16, u16),
    Get(u16),
    Scan(u16, u16),
    WriteBack,
}

pub(crate) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let number = 0..400_u16;
    let operation = prop_oneof![
        8 => (number.clone(), any::<u64>()).prop_map(|(number, content)| Operation::Put(number, content)),
        4 => number.clone().prop_map(Operation::Delete),
        1 => (number.clone(), 0..200_u16).prop_map(|(first, length)| Operation::DeleteRange(first, first + length)),
        2 => number.clone().prop_map(Operation::Get),
        1 => (number, 0..100_u16).prop_map(|(first, length)| Operation::Scan(first, first + length)),
        1 => Just(Operation::WriteBack),
    ];
    prop::collection::vec(operation, 1..400)
}

pub(crate) fn carry_out(tree: &dyn Tree, shape: Shape, map: &mut Map, operation: &Operation) {
    match *operation {
        Operation::Put(number, content) => {
            tree.put(&key(shape, number), &value(shape, content)).expect("put");
            map.insert(number, content);
        }
        Operation::Delete(number) => {
            tree.delete(&key(shape, number)).expect("deleted");
            map.remove(&number);
        }
        Operation::DeleteRange(first, end) => {
            for number in first..end {
                tree.delete(&key(shape, number)).expect("deleted");
                map.remove(&number);
            }
        }
        Operation::Get(number) => {
            let mut found = Vec::new();
            let there = tree.get(&key(shape, number), &mut found).expect("got");
            assert_eq!(there.then_some(found), map.get(&number).map(|content| value(shape, *content)));
        }
        Operation::Scan(first, end) => check_scan(tree, shape, map, first, end),
        Operation::WriteBack => tree.write_back().expect("written"),
    }
}

pub(crate) fn check_scan(tree: &dyn Tree, shape: Shape, map: &Map, first: u16, end: u16) {
    let mut found = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
    let count = tree.scan(&key(shape, first), &key(shape, end), &mut visit).expect("scanned");
    let expected: Vec<_> =
        map.range(first..end).map(|(number, content)| (key(shape, *number), value(shape, *content))).collect();
    assert_eq!(count, expected.len() as u64);
    assert!(found == expected, "from {first} to {end}");
}
