//! Damage at rest: what is read is right, or an error that says where; never wrong, never a panic.

use index::{Direction, Error, Index, Seq};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{self, Change, Home, Model, Trial, Updates, all, found, lost_write};

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:06}").into_bytes()
}

/// A tree of two levels whose leaves have many runs, after a reopen.
fn sample(cache_bytes: u64) -> (Home, Model) {
    let mut home = Home::new(1, 3, cache_bytes);
    let mut model = Model::default();
    let mut random = StdRng::seed_from_u64(1);
    for seq in 1..20 {
        let updates = (0..60).map(|_| {
            let change = match random.random_range(0..8) {
                0 => Change::Delete,
                1 => Change::Document(random.random()),
                _ => Change::Put(vec![random.random(); random.random_range(0..300)]),
            };
            (key(random.random_range(0..700)), seq, change)
        });
        let updates = Updates::new(updates.collect());
        home.apply(&updates, &[]).expect("a disk that works");
        model.apply(&updates);
    }
    assert!(home.tree.shape().expect("whole").height >= 2);
    home.flush();
    home.checkpoint();
    home.reopen();
    (home, model)
}

fn corrupt_at(error: &Error, page: u64) -> bool {
    matches!(error, Error::Corrupt { file, offset, .. } if file == common::DATA && offset / 4096 == page)
}

#[test]
fn a_flipped_byte_is_harmless_or_found_where_it_is() {
    let (home, model) = sample(0);
    let extents = home.verify().extents;
    let keys: Vec<_> = model.keys().cloned().collect();
    let mut random = StdRng::seed_from_u64(2);
    let (mut found_in, mut harmless) = ([0; 2], 0);
    for trial in 0..1_500 {
        let extent = extents[random.random_range(0..extents.len())];
        let offset = extent.offset() + random.random_range(0..extent.bytes());
        println!("trial {trial}: byte {offset} of {extent}");
        assert!(home.disk.flip_bit(common::DATA, offset));
        let findings = home.verify().findings;
        for key in keys.iter().step_by(1 + trial % 37) {
            match found(&*home.tree.view(), &[key], u64::MAX) {
                Ok(value) => assert_eq!(value, [model.get(key, u64::MAX)]),
                // The page may not be the one of the byte: what was read does not say which part of a leaf lies.
                Err(error) => {
                    assert!((0..extent.pages).any(|page| corrupt_at(&error, extent.page.0 + u64::from(page))))
                }
            }
        }
        match home.tree.view().cursor(&all(), Seq::MAX.into(), Direction::Forward) {
            Err(_) => assert!(!findings.is_empty()),
            Ok(mut cursor) => {
                let mut expected = model.range(&all(), u64::MAX).into_iter();
                let failed = loop {
                    match cursor.next() {
                        Ok(Some(pair)) => {
                            assert_eq!(Some((pair.key, pair.seq.0)), expected.next().map(|(k, seq, _)| (k, seq)))
                        }
                        Ok(None) => break expected.next().is_some(),
                        Err(_) => break true,
                    }
                };
                assert_eq!(failed, !findings.is_empty());
            }
        }
        match findings.as_slice() {
            [] => harmless += 1,
            [finding] => {
                assert!(finding.contains(common::DATA), "{finding}");
                found_in[usize::from(extent.pages == 1)] += 1;
            }
            more => panic!("{more:?}"),
        }
        assert!(home.disk.flip_bit(common::DATA, offset));
    }
    assert!(found_in.iter().all(|count| *count > 20) && harmless > 20, "{found_in:?} {harmless}");
    home.check(&model, u64::MAX);
}

#[test]
fn a_damaged_leaf_stops_its_own_batch_and_nothing_else() {
    let (mut home, mut model) = sample(0);
    let extents = home.verify().extents;
    let leaf = *extents.iter().rfind(|extent| extent.pages == 3).expect("a leaf");
    assert!(home.disk.corrupt(common::DATA, leaf.offset()..leaf.offset() + leaf.bytes()));
    let keys: Vec<_> = model.keys().cloned().collect();
    let (mut bad, mut good) = (0, 0);
    for (seq, key) in (100..).zip(keys) {
        let updates = Updates::puts([key], seq, &[1; 40]);
        match home.apply(&updates, &[]) {
            Ok(_) => {
                model.apply(&updates);
                good += 1;
            }
            Err(error) => {
                assert!((0..3).any(|page| corrupt_at(&error, leaf.page.0 + page)), "{error}");
                bad += 1;
            }
        }
    }
    assert!(bad > 5 && good > 100, "{bad} {good}");
    assert_eq!(home.verify().findings.len(), 1);
}

#[test]
fn a_file_that_was_cut_is_found_out() {
    let (home, _) = sample(0);
    let last = home.verify().extents.iter().map(|extent| extent.offset() + extent.bytes()).max().expect("extents");
    home.pages.file().set_len(last / 2 / 4096 * 4096).expect("a disk that works");
    let findings = home.verify().findings;
    assert!(findings.iter().all(|finding| finding.contains("/db/data ends early")), "{findings:?}");
    assert!(!findings.is_empty());
}

#[test]
fn a_lost_write_is_never_wrong_data() {
    let trials: Vec<_> = (0..300).map(lost_write).collect();
    let count = |wanted| trials.iter().filter(|trial| **trial == wanted).count();
    assert_eq!(count(Trial::Wrong), 0);
    assert!(count(Trial::Found) > 50, "{} found", count(Trial::Found));
}

#[test]
fn roots_and_redos_of_others_are_refused() {
    let (home, _) = sample(0);
    let shared = || std::sync::Arc::clone(&home.shared);
    let root = home.tree.root();
    assert!(matches!(btree::BTree::open(shared(), index::TableId(8), &root), Err(Error::Corrupt { .. })));
    assert!(matches!(btree::BTree::open(shared(), common::TABLE, &root[1..]), Err(Error::Corrupt { .. })));
    assert!(matches!(home.tree.replay(&root), Err(Error::Corrupt { .. })));
}
