//! A run of the length of a real load, to see where time goes: `cargo test --release -p braid-btree --test speed --
//! --ignored --nocapture`.
//! The directory is `$TMPDIR`, or the system's.

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use btree::{BTree, Shared};
use common::{TABLE, Updates};
use index::{Bounds, Direction, Horizon, Index, Seq};
use psync::{Psync, Request};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use space::{FileStore, PagedFile};

const KEYS: u64 = 2_000_000;
const BATCH: usize = 256 << 10;
const LEAF_PAGES: u32 = 4;

fn per(duration: Duration, count: usize) -> f64 {
    duration.as_secs_f64() * 1e6 / count as f64
}

fn open(directory: &Path, cache_bytes: u64) -> (Arc<PagedFile>, Arc<Shared>) {
    let psync = Psync::new(None).expect("a backend");
    println!("backend {}, PioMax {}", psync.backend(), psync.pio_max());
    let store = FileStore::open(psync, directory, false).expect("a directory");
    let pages = Arc::new(PagedFile::create(&store, "data").expect("a file"));
    (Arc::clone(&pages), Arc::new(Shared::new(pages, cache_bytes, 1)))
}

fn load(tree: &BTree, pages: &PagedFile, random: &mut StdRng) -> Vec<[u8; 16]> {
    let mut keys = Vec::new();
    let mut seq = 0;
    while (keys.len() as u64) < KEYS {
        let batch: Vec<[u8; 16]> = (0..BATCH).map(|_| random.random()).collect();
        keys.extend_from_slice(&batch);
        seq += 1;
        let updates = Updates::puts(batch.iter().map(|key| key.to_vec()), seq, &[9; 100]);
        let start = Instant::now();
        let applied = tree.apply(&updates, &Horizon::default(), &|_| {}).expect("room");
        let applied_in = start.elapsed();
        let flush = Request::flush(pages.file(), 0);
        pages.psync().run_all(vec![flush]).expect("a disk that works");
        let flushed_in = start.elapsed() - applied_in;
        tree.install(&applied);
        println!(
            "apply {:.2} us/op, flush {:.0} ms, redo {} bytes",
            per(applied_in, BATCH),
            flushed_in.as_secs_f64() * 1e3,
            applied.redo.len()
        );
    }
    keys
}

#[test]
#[ignore = "takes a minute and two gigabytes of disk"]
fn load_look_up_and_scan() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut random = StdRng::seed_from_u64(1);
    let (pages, shared) = open(directory.path(), 64 << 20);
    let tree = BTree::create(Arc::clone(&shared), TABLE, LEAF_PAGES);
    let mut keys = load(&tree, &pages, &mut random);
    // The hot ones are neighbours, so that their leaves stay in the cache.
    keys.sort_unstable();
    println!("{:?}\n{:?}", tree.shape().expect("whole"), shared.counters());
    let view = tree.view();
    for count in [1, 16, 128, 4096] {
        for (name, hot) in [("cold", false), ("hot", true)] {
            let range = if hot { 20_000 } else { keys.len() };
            let rounds = (200_000 / count).min(20_000);
            let wanted: Vec<Vec<&[u8]>> =
                (0..rounds).map(|_| (0..count).map(|_| &keys[random.random_range(0..range)][..]).collect()).collect();
            let start = Instant::now();
            let mut found = 0;
            for keys in &wanted {
                let mut out = vec![None; count];
                view.get_many(keys, Seq::MAX.into(), &mut out).expect("whole");
                found += out.iter().flatten().count();
            }
            assert_eq!(found, rounds * count);
            println!("get_many of {count}, {name}: {:.2} us/key", per(start.elapsed(), found));
        }
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let start = Instant::now();
        let mut cursor = tree.view().cursor(&Bounds::all(), Seq::MAX.into(), direction).expect("whole");
        let mut count = 0;
        while cursor.next().expect("whole").is_some() {
            count += 1;
        }
        println!("scan {direction:?}: {:.3} us/pair of {count}", per(start.elapsed(), count));
    }
}
