//! Readers in other threads see one version each, whole, while batches are applied and installed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use index::{Bounds, Direction, Index, Seq, View};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{Change, Home, Updates, change_of, found};

const KEYS: u64 = 3_000;
const BATCHES: u64 = 150;

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// What batch `seq` does to a key, or nothing.
fn change(number: u64, seq: u64) -> Option<Change> {
    let dice = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seq.wrapping_mul(0xc2b2_ae3d_27d4_eb4f));
    let dice = (dice ^ (dice >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
    match dice % 12 {
        0 => Some(Change::Put(seq.to_le_bytes().repeat(1 + (dice >> 8) as usize % 20))),
        1 => Some(Change::Delete),
        _ => None,
    }
}

/// What a key is after batch `through`.
fn expected(number: u64, through: u64) -> Option<(u64, Change)> {
    let newest = (1..=through).rev().find_map(|seq| change(number, seq).map(|change| (seq, change)));
    newest.filter(|(_, change)| *change != Change::Delete)
}

fn read(view: &Arc<dyn View>, through: u64, random: &mut StdRng) {
    let numbers: Vec<_> = (0..random.random_range(1..40)).map(|_| random.random_range(0..KEYS)).collect();
    let keys: Vec<_> = numbers.iter().copied().map(key).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let values = found(&**view, &keys, through).expect("whole");
    for (number, value) in numbers.iter().zip(values) {
        assert_eq!(value, expected(*number, through), "key {number} after batch {through}");
    }
    let direction = if random.random_bool(0.5) { Direction::Forward } else { Direction::Backward };
    let mut cursor = Arc::clone(view).cursor(&Bounds::all(), Seq(through).into(), direction).expect("whole");
    let mut live: Box<dyn Iterator<Item = u64>> = match direction {
        Direction::Forward => Box::new(0..KEYS),
        Direction::Backward => Box::new((0..KEYS).rev()),
    };
    for _ in 0..random.random_range(0..500) {
        let pair = cursor.next().expect("whole").map(|pair| (pair.key, (pair.seq.0, change_of(&pair.value))));
        let wanted = live.find_map(|number| expected(number, through).map(|value| (key(number), value)));
        assert_eq!(pair, wanted, "after batch {through}");
    }
}

#[test]
fn readers_see_whole_versions() {
    for cache_bytes in [0, 256 << 10, 16 << 20] {
        let mut home = Home::new(1, 2, cache_bytes);
        let newest = Mutex::new((home.tree.view(), 0));
        let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..3 {
                let (newest, done, reads) = (&newest, &done, &reads);
                threads.push(scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(thread);
                    let mut held = Vec::new();
                    while !done.load(Ordering::Relaxed) {
                        let (view, through) = newest.lock().expect("no reader panics").clone();
                        read(&view, through, &mut random);
                        held.push((view, through));
                        if held.len() > 5 {
                            let (view, through) = held.swap_remove(random.random_range(0..5));
                            read(&view, through, &mut random);
                        }
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }));
            }
            for seq in 1..=BATCHES {
                let changes = (0..KEYS).filter_map(|number| Some((key(number), seq, change(number, seq)?)));
                home.apply(&Updates::new(changes.collect()), &[]).expect("a disk that works");
                *newest.lock().expect("no reader panics") = (home.tree.view(), seq);
                // Every version is seen by somebody, whatever the machine does meanwhile.
                let before = reads.load(Ordering::Relaxed);
                while reads.load(Ordering::Relaxed) == before && !threads.iter().any(|thread| thread.is_finished()) {
                    std::thread::yield_now();
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        drop(newest);
        home.check_pages();
        home.log_is_durable();
        assert_eq!(home.pages.stats().retired_pages, 0);
    }
}
