//! Holds a tree against a map, for the tests of all trees.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use psync::Psync;

use crate::trees::{Setting, Shape, Tree};

/// The paper's entries, the large ones, and ones of which a page holds seven.
pub(super) const SHAPES: [Shape; 3] = [
    Shape { key_bytes: 8, value_bytes: 8 },
    Shape { key_bytes: 16, value_bytes: 100 },
    Shape { key_bytes: 4, value_bytes: 540 },
];

/// Something to do with a tree.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Put(u16, u8),
    /// Puts this many keys in a row.
    PutMany(u16, u8),
    Delete(u16),
    DeleteMany(u16, u8),
    Get(u16),
    Scan(u16, u16),
    Settle,
}

/// Steps over keys below `keys`.
pub(super) fn steps(keys: u16, count: usize) -> impl Strategy<Value = Vec<Step>> {
    let key = 0..keys;
    let step = prop_oneof![
        4 => (key.clone(), any::<u8>()).prop_map(|(key, value)| Step::Put(key, value)),
        2 => (key.clone(), any::<u8>()).prop_map(|(key, count)| Step::PutMany(key, count)),
        2 => key.clone().prop_map(Step::Delete),
        1 => (key.clone(), any::<u8>()).prop_map(|(key, count)| Step::DeleteMany(key, count)),
        2 => key.clone().prop_map(Step::Get),
        1 => (key.clone(), key).prop_map(|(first, end)| Step::Scan(first, end)),
        1 => Just(Step::Settle),
    ];
    vec(step, 0..count)
}

/// A setting in a directory of its own, which goes with it.
pub(super) fn setting(shape: Shape, memory_bytes: u64) -> (tempfile::TempDir, Setting) {
    let directory = tempfile::tempdir().expect("temporary directory");
    let psync = Psync::new(None).expect("opened");
    let setting = Setting { psync, directory: directory.path().to_owned(), shape, memory_bytes };
    (directory, setting)
}

/// A key: its number at the end, after zeros.
pub(super) fn key(shape: Shape, number: u16) -> Vec<u8> {
    let mut key = vec![0; shape.key_bytes];
    key[shape.key_bytes - 2..].copy_from_slice(&number.to_be_bytes());
    key
}

/// A value that says of which key it is.
pub(super) fn value(shape: Shape, number: u16, seed: u8) -> Vec<u8> {
    let [high, low] = number.to_be_bytes();
    [high, low, seed].into_iter().cycle().take(shape.value_bytes).collect()
}

/// Every third key below `keys`, as a tree is built from them, and as a map.
pub(super) fn loaded(shape: Shape, keys: u16) -> (impl FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool, Model) {
    let numbers = (0..keys).step_by(3);
    let model =
        Model { shape, map: numbers.clone().map(|number| (key(shape, number), value(shape, number, 0))).collect() };
    let mut numbers = numbers;
    let sorted = move |into_key: &mut Vec<u8>, into_value: &mut Vec<u8>| {
        let Some(number) = numbers.next() else { return false };
        *into_key = key(shape, number);
        *into_value = value(shape, number, 0);
        true
    };
    (sorted, model)
}

/// What the tree should hold.
pub(super) struct Model {
    shape: Shape,
    map: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Model {
    /// Takes the steps with the tree and the map, and holds what they say against one another; in the end all of it.
    pub(super) fn run(&mut self, tree: &dyn Tree, steps: Vec<Step>, keys: u16) {
        for step in steps {
            match step {
                Step::Put(number, seed) => self.put(tree, number, seed),
                Step::PutMany(number, count) => {
                    (number..number.saturating_add(count.into())).for_each(|number| self.put(tree, number, count));
                }
                Step::Delete(number) => self.delete(tree, number),
                Step::DeleteMany(number, count) => {
                    (number..number.saturating_add(count.into())).for_each(|number| self.delete(tree, number));
                }
                Step::Get(number) => self.get(tree, number),
                Step::Scan(first, end) => self.scan(tree, first, end),
                Step::Settle => tree.settle().expect("settled"),
            }
        }
        self.whole(tree, keys);
        tree.settle().expect("settled");
        self.whole(tree, keys);
    }

    fn whole(&self, tree: &dyn Tree, keys: u16) {
        (0..keys.saturating_add(300)).for_each(|number| self.get(tree, number));
        self.scan(tree, 0, u16::MAX);
    }

    fn put(&mut self, tree: &dyn Tree, number: u16, seed: u8) {
        let (key, value) = (key(self.shape, number), value(self.shape, number, seed));
        tree.put(&key, &value).expect("put");
        self.map.insert(key, value);
    }

    fn delete(&mut self, tree: &dyn Tree, number: u16) {
        let key = key(self.shape, number);
        tree.delete(&key).expect("deleted");
        self.map.remove(&key);
    }

    fn get(&self, tree: &dyn Tree, number: u16) {
        let key = key(self.shape, number);
        let mut value = vec![7];
        let is_there = tree.get(&key, &mut value).expect("got");
        assert_eq!(is_there.then_some(&value), self.map.get(&key), "key {number}");
    }

    fn scan(&self, tree: &dyn Tree, first: u16, end: u16) {
        let (first, end) = (key(self.shape, first.min(end)), key(self.shape, first.max(end)));
        let mut found = Vec::new();
        let count =
            tree.scan(&first, &end, &mut |key, value| found.push((key.to_vec(), value.to_vec()))).expect("scanned");
        assert_eq!(count, found.len() as u64);
        let expected = self.map.range(first..end).map(|(key, value)| (key.clone(), value.clone()));
        assert!(expected.eq(found), "a range has other entries than the map");
    }
}
