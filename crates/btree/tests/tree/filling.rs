//! How full leaves are where keys come in random order, and where packed ones are overwritten.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use space::PAGE;

use crate::common::{Home, Updates};

const VALUE: usize = 100;

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:012}").into_bytes()
}

/// Keys in random order, so many to a batch: what runs fill of the leaves at the end of each tenth, in percent.
fn fills(count: u64, batch: usize, leaf_pages: u32) -> Vec<u64> {
    let mut home = Home::new(1, leaf_pages, 1 << 20);
    let mut numbers: Vec<u64> = (0..count).collect();
    numbers.shuffle(&mut StdRng::seed_from_u64(4));
    let mut fills = Vec::new();
    for tenth in numbers.chunks(numbers.len() / 10) {
        for (seq, numbers) in (1..).zip(tenth.chunks(batch)) {
            let seq = 1000 * fills.len() as u64 + seq;
            let updates = Updates::puts(numbers.iter().copied().map(key), seq, &[5; VALUE]);
            home.apply(&updates, &[]).expect("a disk that works");
        }
        let stats = home.tree.shape().expect("whole");
        fills.push(100 * stats.run_bytes / (stats.leaf_pages * PAGE as u64));
    }
    home.check_pages();
    assert_eq!(home.verify().keys, count);
    fills
}

#[test]
fn leaves_of_random_keys_are_three_quarters_full_at_any_size() {
    for (batch, leaf_pages) in [(200, 4), (1000, 4), (4000, 4), (1000, 2)] {
        let fills = fills(60_000, batch, leaf_pages);
        // The first batches find hardly any neighbours.
        let later = &fills[3..];
        assert!(later.iter().all(|fill| *fill >= 70), "{batch} to a batch, {leaf_pages} pages: {fills:?} %");
        let mean = later.iter().sum::<u64>() / later.len() as u64;
        assert!(mean >= 73, "{batch} to a batch, {leaf_pages} pages: {fills:?} %");
    }
}

#[test]
fn packed_leaves_that_are_overwritten_are_cut_as_rows_and_not_each_into_halves() {
    const KEYS: u64 = 60_000;
    for (batch, leaf_pages) in [(1000, 4), (4000, 4), (1000, 1)] {
        let mut home = Home::new(1, leaf_pages, 1 << 20);
        let mut numbers: Vec<u64> = (0..KEYS).collect();
        for (seq, numbers) in (1..).zip(numbers.chunks(4000)) {
            let updates = Updates::puts(numbers.iter().copied().map(key), seq, &[5; VALUE]);
            home.apply(&updates, &[]).expect("a disk that works");
        }
        let packed = home.tree.shape().expect("whole").leaves;
        let mut most = 0;
        for turn in 1..4 {
            numbers.shuffle(&mut StdRng::seed_from_u64(turn));
            for (seq, numbers) in (1..).zip(numbers.chunks(batch)) {
                let updates = Updates::puts(numbers.iter().copied().map(key), 1_000_000 * turn + seq, &[6; VALUE]);
                home.apply(&updates, &[]).expect("a disk that works");
            }
            most = most.max(home.tree.shape().expect("whole").leaves);
        }
        home.check_pages();
        assert_eq!(home.verify().keys, KEYS);
        assert!(10 * most <= 16 * packed, "{batch} to a batch, {leaf_pages} pages: {packed} leaves became {most}");
    }
}
