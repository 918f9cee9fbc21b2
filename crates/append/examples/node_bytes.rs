//! Bytes of nodes for URLs of about 100 bytes, by the length of chunks, beside a plain B+-tree of the same nodes: one
//! whose chunks are longer
//! than any key, so that it has no trie. Loaded in order in one batch, and then updated at random in batches. Numbers,
//! and pairs of numbers, show
//! what keys cost that have little to share.
//!
//! `cargo run --release -p braid-append --example node_bytes`

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use append::{KEY_BYTES_MAX, Shared, Trie};
use doclog::{DocImage, DocLog};
use index::testing::Updates;
use index::{Horizon, Index, TableId};
use psync::sim::SimDisk;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use space::{FileStore, StreamKind};

const KEYS: usize = 100_000;
const VALUE: [u8; 16] = [7; 16];
const BATCHES: u64 = 20;
const BATCH: usize = 1_000;

/// Pages of some hundred sites, each with directories and articles.
fn urls(random: &mut StdRng) -> Vec<Vec<u8>> {
    let word = |random: &mut StdRng, bytes: usize| -> String {
        (0..bytes).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect()
    };
    let some_word = |random: &mut StdRng| {
        let bytes = random.random_range(4..16);
        word(random, bytes)
    };
    let sites: Vec<_> = (0..300).map(|_| format!("https://www.{}.example.com", some_word(random))).collect();
    let sections: Vec<_> = (0..40).map(|_| format!("/{}/archive/{}", some_word(random), some_word(random))).collect();
    let mut urls = BTreeSet::new();
    while urls.len() < KEYS {
        let site = &sites[random.random_range(0..sites.len())];
        let section = &sections[random.random_range(0..sections.len())];
        let (year, article) = (random.random_range(2000..2025), random.random_range(0..1_000_000));
        urls.insert(format!("{site}{section}/{year}/article-{article:06}-{}.html", word(random, 12)).into_bytes());
    }
    urls.into_iter().collect()
}

/// A thousand users with a hundred things each, two numbers of 8 bytes.
fn pairs(random: &mut StdRng) -> Vec<Vec<u8>> {
    let mut pairs = BTreeSet::new();
    while pairs.len() < KEYS {
        let (user, thing) = (random.random_range(0..1000_u64), random.random_range(0..1_000_000_u64));
        pairs.insert([user.to_be_bytes(), thing.to_be_bytes()].concat());
    }
    pairs.into_iter().collect()
}

/// Numbers of 8 bytes, big-endian.
fn numbers(random: &mut StdRng) -> Vec<Vec<u8>> {
    let numbers: BTreeSet<u64> = (0..KEYS).map(|_| random.random()).collect();
    numbers.into_iter().map(|number| number.to_be_bytes().to_vec()).collect()
}

fn measure(name: &str, chunk_bytes: usize, keys: &[Vec<u8>]) {
    let disk = SimDisk::new(1);
    let store = FileStore::open(disk.psync(), Path::new("/db"), false).expect("a store");
    let shared = Arc::new(Shared::new(&store, 0));
    let documents = Arc::new(DocLog::open(&store, 1, &DocImage::default(), 1 << 20).expect("opens"));
    let trie = Trie::create(shared, TableId(1), documents, chunk_bytes).expect("a trie");
    let apply = |updates: &Updates| {
        let applied = trie.apply(updates, &Horizon::default(), &|_| {}).expect("a disk that works");
        trie.install(&applied);
    };
    apply(&Updates::puts(keys.iter().cloned(), 1, &VALUE));
    let stats = trie.view().stats().expect("whole");
    let node_bytes = trie.room().live_bytes as f64 / keys.len() as f64;
    let random = &mut StdRng::seed_from_u64(2);
    let before = store.counters(StreamKind::Node).snapshot().written_bytes;
    for seq in 0..BATCHES {
        let picked = (0..BATCH).map(|_| keys[random.random_range(0..keys.len())].clone());
        apply(&Updates::puts(picked, 2 + seq, &VALUE));
    }
    let written =
        (store.counters(StreamKind::Node).snapshot().written_bytes - before) as f64 / (BATCHES as f64 * BATCH as f64);
    let after = trie.room().live_bytes as f64 / keys.len() as f64;
    let figure = |name: &str| stats.figure(name).expect("a trie has it");
    println!(
        "| {name} | {node_bytes:.1} | {after:.1} | {} | {} | {} | {written:.0} |",
        figure("internal nodes"),
        figure("leaves"),
        figure("levels")
    );
}

fn main() {
    let random = &mut StdRng::seed_from_u64(1);
    for (what, keys) in [("URLs", urls(random)), ("pairs of numbers", pairs(random)), ("numbers", numbers(random))] {
        let bytes = keys.iter().map(Vec::len).sum::<usize>() as f64 / keys.len() as f64;
        println!("\n{KEYS} {what} of {bytes:.0} bytes on average, values of {} bytes\n", VALUE.len());
        println!(
            "| chunk | node bytes per key | after updates | internal nodes | leaves | height | bytes written per update, {BATCH} a batch |"
        );
        println!("|---|---|---|---|---|---|---|");
        for chunk_bytes in [2, 4, 8, 16, 24, 32, 48] {
            measure(&format!("{chunk_bytes}"), chunk_bytes, &keys);
        }
        measure("none: a B+-tree", KEY_BYTES_MAX, &keys);
    }
}
