//! Known mistakes, put in on purpose, turn the tests red. One test, because a bug is on for the whole process.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{Home, Model, Trial, Updates, found, lost_write};
use index::Index;
use seeded::Bug;

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:06}").into_bytes()
}

/// Whether all keys read as the model says.
fn is_right(home: &Home, model: &Model) -> Trial {
    let keys: Vec<_> = (0..2_000).map(key).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    match found(&*home.tree.view(), &keys, u64::MAX) {
        Ok(values) if values.iter().zip(&keys).all(|(value, key)| *value == model.get(key, u64::MAX)) => Trial::Right,
        Ok(_) => Trial::Wrong,
        Err(_) => Trial::Found,
    }
}

fn flipped_value() -> Trial {
    let mut home = Home::new(1, 2, 0);
    let mut model = Model::default();
    let updates = Updates::puts((0..10).map(key), 1, &[1; 300]);
    home.apply(&updates, &[]).expect("a disk that works");
    model.apply(&updates);
    let leaf = home.verify().extents[0];
    assert!(home.disk.flip_bit(common::DATA, leaf.offset() + 2_000));
    is_right(&home, &model)
}

fn appends_to_cached_leaves() -> Trial {
    let mut home = Home::new(1, 2, 8 << 20);
    let mut model = Model::default();
    for seq in 1..6 {
        let updates = Updates::puts((0..1_000).step_by(7).map(|number| key(number + seq)), seq, &[1; 20]);
        // What a bug leaves behind may be caught by an assertion.
        match catch_unwind(AssertUnwindSafe(|| home.apply(&updates, &[]))) {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return Trial::Found,
        }
        model.apply(&updates);
        match is_right(&home, &model) {
            Trial::Right => {}
            other => return other,
        }
    }
    Trial::Right
}

fn lost_writes() -> Trial {
    let mut trials = (0..600).map(lost_write);
    if trials.any(|trial| trial == Trial::Wrong) { Trial::Wrong } else { Trial::Right }
}

#[test]
fn each_bug_is_noticed() {
    type Experiment = fn() -> Trial;
    let experiments: [(Bug, Experiment, Trial); 3] = [
        (Bug::RunChecksumSkipped, flipped_value, Trial::Found),
        (Bug::StaleCachedTail, appends_to_cached_leaves, Trial::Right),
        (Bug::IncarnationReused, lost_writes, Trial::Right),
    ];
    for (bug, experiment, expected) in experiments {
        assert_eq!(experiment(), expected, "without {bug:?}");
        seeded::set(Some(bug));
        let outcome = experiment();
        seeded::set(None);
        assert_eq!(outcome, Trial::Wrong, "with {bug:?}");
    }
}
