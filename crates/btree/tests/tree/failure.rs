//! Failed and interrupted batches: the version that they began with is unharmed, and they can be applied again.

use psync::sim::Fault;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::common::{Change, Home, Model, Updates};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn key(number: u64) -> Vec<u8> {
    format!("key/{number:06}").into_bytes()
}

/// A batch that appends, splits, shrinks and deletes.
fn random_batch(random: &mut StdRng, seq: u64) -> Updates {
    let count = random.random_range(1..600);
    let from = random.random_range(0..3_000);
    let width = random.random_range(1..3_000);
    let updates = (0..count).map(|_| {
        let change = match random.random_range(0..10) {
            0..4 => Change::Delete,
            4 => Change::Document(random.random()),
            _ => Change::Put(vec![7; random.random_range(0..200)]),
        };
        (key(from + random.random_range(0..width)), seq, change)
    });
    Updates::new(updates.collect())
}

/// A tree that went through some batches.
fn grown(seed: u64, random: &mut StdRng) -> (Home, Model, u64) {
    let (leaf_pages, cache_bytes) =
        ([1, 2, 3, 12][random.random_range(0..4)], [0, 32 << 10, 4 << 20][random.random_range(0..3)]);
    let mut home = Home::with_longer_leaves(seed, leaf_pages, cache_bytes, seed % 2 == 1);
    let mut model = Model::default();
    let batches = random.random_range(0..12);
    for seq in 1..=batches {
        let updates = random_batch(random, seq);
        home.apply(&updates, &[]).expect("a disk that works");
        model.apply(&updates);
        if random.random_bool(0.2) {
            home.checkpoint();
        }
    }
    (home, model, batches)
}

#[test]
fn a_batch_that_meets_an_error_changes_nothing_and_gives_everything_back() {
    let mut failures = 0;
    for seed in 0..150 {
        println!("seed {seed}");
        let random = &mut StdRng::seed_from_u64(seed);
        let (mut home, mut model, seq) = grown(seed, random);
        for seq in seq + 1..seq + 6 {
            let updates = random_batch(random, seq);
            let (fault, errno) =
                [(Fault::Write, EIO), (Fault::Read, EIO), (Fault::Growth, ENOSPC)][random.random_range(0..3)];
            home.disk.fail_operation(fault, random.random_range(0..20), errno);
            let documents = home.documents.clone();
            let failed = home.apply(&updates, &[]).is_err();
            if failed {
                failures += 1;
                home.documents = documents;
                home.check(&model, u64::MAX);
                home.check_pages();
                home.apply(&updates, &[]).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            } else {
                // Only a restart forgets a fault that did not happen.
                home.disk.restart();
                home.reopen();
            }
            model.apply(&updates);
            home.check(&model, u64::MAX);
            home.check_pages();
        }
    }
    assert!(failures > 50, "{failures} failures");
}

#[test]
fn after_a_power_cut_the_installed_version_is_whole_and_the_batch_can_be_applied_again() {
    let mut cuts = 0;
    for seed in 0..400 {
        println!("seed {seed}");
        let random = &mut StdRng::seed_from_u64(seed);
        let (mut home, mut model, seq) = grown(seed, random);
        let updates = random_batch(random, seq + 1);
        let documents = home.documents.clone();
        home.disk.crash_after(random.random_range(0..12));
        if home.apply(&updates, &[]).is_err() {
            cuts += 1;
            home.documents = documents;
            home.disk.restart();
            home.reopen();
            home.check(&model, u64::MAX);
            home.check_pages();
            // Another batch than the one that was torn: nothing of that may show through.
            let others = if random.random_bool(0.5) { updates } else { random_batch(random, seq + 1) };
            home.apply(&others, &[]).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            model.apply(&others);
        } else {
            home.disk.crash();
            home.disk.restart();
            home.reopen();
            model.apply(&updates);
        }
        home.check(&model, u64::MAX);
        home.check_pages();
    }
    assert!(cuts > 100, "{cuts} power cuts");
}

#[test]
fn a_full_disk_refuses_a_batch_and_deletes_make_room() {
    let mut home = Home::new(1, 2, 1 << 20);
    let mut model = Model::default();
    home.disk.set_capacity(Some(3 << 20));
    let mut seq = 0;
    let refused = loop {
        seq += 1;
        let updates = Updates::puts((0..200).map(|number| key(seq * 200 + number)), seq, &[1; 300]);
        match home.apply(&updates, &[]) {
            Ok(_) => model.apply(&updates),
            Err(error) => break (error, updates),
        }
        assert!(seq < 1_000, "the disk was never full");
    };
    assert!(matches!(&refused.0, index::Error::Space(error) if error.is_disk_full()), "{}", refused.0);
    home.check(&model, u64::MAX);
    home.check_pages();
    // A leaf at a time gives more back than it takes.
    let keys: Vec<_> = model.keys().take(2_000).cloned().collect();
    for keys in keys.chunks(20) {
        seq += 1;
        let gone = Updates::new(keys.iter().map(|key| (key.clone(), seq, Change::Delete)).collect());
        home.apply(&gone, &[]).expect("deletes need no room that they do not give back");
        model.apply(&gone);
    }
    home.apply(&refused.1, &[]).expect("there is room again");
    model.apply(&refused.1);
    home.check(&model, u64::MAX);
    home.check_pages();
}

#[test]
fn a_write_that_failed_is_told_though_the_disk_was_full_behind_it() {
    let (mut failed, mut full) = (0, 0);
    for room in 0..6 {
        let mut untold = Vec::new();
        for write in 0..60 {
            let mut home = Home::new(1, 2, 1 << 20);
            home.apply(&Updates::puts((0..10_000).map(key), 1, &[1; 100]), &[]).expect("a disk that works");
            let files = home.disk.files();
            let bytes: usize = files.iter().filter_map(|file| home.disk.read_file(file)).map(|file| file.len()).sum();
            home.disk.set_capacity(Some(bytes as u64 + room * (512 << 10)));
            home.disk.fail_operation(Fault::Write, write, EIO);
            let Err(error) = home.apply(&Updates::puts((0..20_000).map(key), 2, &[2; 200]), &[]) else { continue };
            let is_full = matches!(&error, index::Error::Space(error) if error.is_disk_full());
            failed += u32::from(!is_full);
            full += u32::from(is_full);
            untold.extend((is_full && home.disk.faults_left() == 0).then_some(write));
        }
        // A file that could not grow is cut again, which is tried once or twice, and nothing depends on.
        assert!(untold.len() <= 2, "with room {room}, writes {untold:?} failed and were not told");
    }
    assert!(failed > 20 && full > 50, "{failed} failed writes, {full} full disks");
}
