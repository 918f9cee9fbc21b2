//! A trie over power cuts: what the log knows of is there, whole, and nothing else is.

use std::collections::BTreeMap;

use index::testing::steps::Store;
use index::testing::{Change, Model, Updates};
use index::{Index, Upkeep};
use psync::sim::SimDisk;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::Home;

fn key(random: &mut StdRng) -> Vec<u8> {
    let number: u32 = random.random_range(0..3000);
    match number % 3 {
        0 => number.to_be_bytes().to_vec(),
        1 => format!("https://example.org/some/long/path/{number:06}/index.html").into_bytes(),
        _ => [vec![b'x'; number as usize % 200], number.to_le_bytes().to_vec()].concat(),
    }
}

fn batch(random: &mut StdRng, seq: u64) -> Updates {
    let count = random.random_range(1..400);
    let updates = (0..count).map(|_| {
        let change = match random.random_range(0..10) {
            0..3 => Change::Delete,
            3 => Change::Put(vec![random.random(); random.random_range(257..3000)]),
            _ => Change::Put(vec![random.random(); random.random_range(0..250)]),
        };
        (key(random), seq, change)
    });
    Updates::new(updates.collect())
}

/// Some lives of a trie, each ended by a power cut at a random moment of a batch or between two.
fn lives(seed: u64) {
    let random = &mut StdRng::seed_from_u64(seed);
    let disk = SimDisk::new(seed);
    let mut home = Home::new(disk.clone(), [2, 8][usize::from(random.random_bool(0.5))], 256 << 10, 256 << 10);
    let (mut model, mut seq) = (Model::default(), 0);
    for _ in 0..4 {
        for _ in 0..random.random_range(1..12) {
            seq += 1;
            let updates = batch(random, seq);
            if random.random_bool(0.1) {
                disk.crash_after(random.random_range(0..12));
            }
            match home.written(&updates, &[]) {
                Err(_) => break,
                Ok(applied) if random.random_bool(0.1) => home.trie.discard(&applied),
                Ok(applied) => {
                    home.logged(&updates, &applied);
                    model.apply(&updates);
                }
            }
            if random.random_bool(0.2) {
                home.checkpoint();
                // Made durable here: the layer above writes it before it releases anything.
                let released = home.trie.release_dead().is_ok() && home.values.release_dead(u64::MAX).is_ok();
                if !released {
                    break;
                }
            }
        }
        disk.crash();
        disk.restart();
        home.reopen();
        home.check(&model, seq);
    }
}

#[test]
fn what_was_logged_is_there_after_power_cuts() {
    for seed in 0..60 {
        lives(seed);
    }
}

#[test]
fn segments_without_live_nodes_go() {
    let mut home = Home::new(SimDisk::new(1), 8, 1 << 20, 64 << 10);
    let keys = || (0..2000_u32).map(|number| number.to_be_bytes().to_vec());
    let mut segments = 0;
    for seq in 1..40 {
        home.apply(&Updates::puts(keys(), seq, &[7; 30]), &[]);
        home.checkpoint();
        home.trie.release_dead().expect("a disk that works");
        segments = home.trie.room().segments.max(segments);
    }
    assert!(segments <= 8, "{segments} segments of 64 KiB for a trie of about 100 KiB");
    let stats = home.trie.room();
    let files = home.disk.files().iter().filter(|path| path.starts_with("/db/node")).count();
    assert_eq!(files as u64, stats.segments);
}

#[test]
fn damage_is_named_and_the_rest_stays_readable() {
    let mut home = Home::new(SimDisk::new(1), 8, 0, 1 << 20);
    let keys: Vec<_> = (0..4000_u32).map(|number| number.to_be_bytes().to_vec()).collect();
    home.apply(&Updates::puts(keys.clone(), 1, b"value"), &[]);
    let file = "/db/node/7-1.node";
    let bytes = home.trie.room().bytes;
    let (mut found, mut readable) = (0, BTreeMap::new());
    for offset in (40..bytes).step_by(4096 * 5) {
        assert!(home.disk.flip_bit(file, offset));
        let seen = home.verify();
        found += usize::from(seen.findings.iter().any(|finding| finding.contains(file)));
        let view = home.trie.view();
        let read = |key: &Vec<u8>| view.get_many(&[key], index::Seq::MAX.into(), &mut [None]).is_ok();
        readable.insert(offset, keys.iter().step_by(37).filter(|key| read(key)).count());
        assert!(home.disk.flip_bit(file, offset));
    }
    let places = readable.len();
    assert!(found >= places - 1, "{found} of {places}: padding alone is not checked");
    let mostly = readable.values().filter(|count| **count > keys.len() / 37 / 2).count();
    assert!(mostly >= places - 2, "{readable:?}");
}
