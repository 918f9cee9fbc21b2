//! Histories of a seed.

#![allow(clippy::allow_attributes, dead_code, reason = "each test binary uses a part")]

use std::{
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
    time::Duration,
};

use braid::{Options, WriteBatch};
use histories::{History, Isolation, Model, Plan, Runner, Workload, check};
use psync::sim::SimDisk;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::store::BraidStore;

const PATH: &str = "/db";
/// Times that the database is opened for a history.
const LIVES: usize = 3;

fn workload(seed: u64, transactions: usize) -> Workload {
    let model = if seed.is_multiple_of(3) { Model::Registers } else { Model::Lists };
    let isolation: &[Isolation] = match seed % 4 {
        0 => &[Isolation::Snapshot],
        1 | 2 => &[Isolation::Serializable],
        _ => &[Isolation::Snapshot, Isolation::Serializable],
    };
    Workload::of_seed(seed, model, transactions, isolation)
}

fn options(random: &mut StdRng) -> Options {
    Options::new()
        .cache_bytes(64 << 10)
        .write_buffer_bytes(16 << 10 << random.random_range(0..3))
        .segment_bytes(64 << 10)
        .leaf_pages(random.random_range(1..=3))
}

fn open(disk: &SimDisk, options: &Options, lock_timeout: Duration) -> Result<BraidStore, String> {
    let db = options.clone().open_on(disk.psync(), Path::new(PATH)).map_err(|error| format!("open: {error}"))?;
    BraidStore::new(db, lock_timeout)
}

/// Closes it, kills it, or takes its power: what was committed is there whichever it is.
fn end(store: BraidStore, disk: &SimDisk, random: &mut StdRng) -> Result<(), String> {
    let BraidStore { db, tables, .. } = store;
    drop(tables);
    match random.random_range(0..3) {
        0 => return db.close().map_err(|error| format!("close: {error}")),
        1 => disk.kill(),
        _ => disk.restart(),
    }
    drop(db);
    Ok(())
}

/// What goes on in a database beside the transactions: other writes, which fill the write buffer, deletes of ranges,
/// checkpoints, compactions.
fn beside(store: &BraidStore, random: &mut StdRng) -> braid::Result<()> {
    match random.random_range(0..40) {
        0 => store.db.checkpoint(),
        1 => store.db.compact().map(drop),
        2 => {
            // Behind all that histories read.
            let low = [1 + random.random_range(0..3), random.random()];
            store.tables.choose(random).expect("two").delete_range(low..[low[0], u8::MAX]).map(drop)
        }
        3..=6 => {
            let mut batch = WriteBatch::new();
            for _ in 0..random.random_range(1..30) {
                let table = store.tables.choose(random).expect("two");
                // Behind all that histories read.
                let key = [1 + random.random_range(0..3), random.random(), random.random()];
                let bytes = random.random_range(0..300);
                batch.put(table, key, vec![7; bytes]);
            }
            store.db.write(&batch).map(drop)
        }
        _ => Ok(()),
    }
}

/// The plans of a history, a part for each life.
fn lives(workload: &Workload, seed: u64) -> Vec<Vec<Plan>> {
    let plans = workload.plans(seed);
    plans.chunks(plans.len().div_ceil(LIVES)).map(<[Plan]>::to_vec).collect()
}

/// Transactions of one thread, each open while others take their steps.
pub(crate) fn interleaved(seed: u64) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = SimDisk::new(seed);
    let (workload, options) = (workload(seed, 45), options(&mut random).background(false));
    let runner = Runner::new();
    for (life, plans) in (0..).zip(lives(&workload, seed)) {
        let store = open(&disk, &options, Duration::ZERO)?;
        let open_max = random.random_range(2..8);
        let mut trouble = None;
        let mut between = |store: &BraidStore, random: &mut StdRng| {
            trouble = trouble.take().or_else(|| beside(store, random).err());
        };
        runner.interleave(&store, plans, seed ^ life, open_max, &mut between).map_err(|what| of(seed, &what))?;
        if let Some(error) = trouble {
            return Err(of(seed, &error.to_string()));
        }
        runner.read_everything(&store, workload.keys, Isolation::Snapshot).map_err(|what| of(seed, &what))?;
        end(store, &disk, &mut random)?;
    }
    judge("steps", seed, &runner.into_history())
}

/// Transactions of several threads, while a worker applies what they write.
pub(crate) fn threads(seed: u64) -> Result<(), String> {
    let mut random = StdRng::seed_from_u64(seed);
    let disk = SimDisk::new(seed);
    let (workload, options) = (workload(seed, 600), options(&mut random));
    let runner = Runner::new();
    for plans in lives(&workload, seed) {
        let store = open(&disk, &options, Duration::from_secs(10))?;
        let trouble = std::thread::scope(|scope| {
            let racing = scope.spawn(|| runner.threads(&store, plans, 4));
            let mut trouble = None;
            while !racing.is_finished() {
                trouble = trouble.or_else(|| beside(&store, &mut random).err().map(|error| error.to_string()));
                std::thread::sleep(Duration::from_millis(1));
            }
            let panicked = |_| Err("a thread panicked".to_owned());
            racing.join().unwrap_or_else(panicked).err().or(trouble)
        });
        if let Some(what) = trouble {
            return Err(of(seed, &what));
        }
        runner.read_everything(&store, workload.keys, Isolation::Serializable).map_err(|what| of(seed, &what))?;
        end(store, &disk, &mut random)?;
    }
    judge("threads", seed, &runner.into_history())
}

fn of(seed: u64, what: &str) -> String {
    format!("seed {seed}: {what}")
}

/// Says what is wrong with a history, and where it is kept.
fn judge(made: &str, seed: u64, history: &History) -> Result<(), String> {
    let report = check(history).map_err(|error| of(seed, &error.to_string()))?;
    let Some(complaint) = report.complaint(history) else { return Ok(()) };
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("history-{made}-{seed}.jsonl"));
    let kept = fs::create_dir_all(env!("CARGO_TARGET_TMPDIR")).and_then(|()| File::create(&path));
    let kept = kept.map_err(|error| error.to_string());
    let kept = kept.and_then(|file| history.write_jsonl(BufWriter::new(file)).map_err(|error| error.to_string()));
    let kept = kept.map_or_else(|error| error, |()| path.display().to_string());
    Err(of(seed, &format!("{complaint}  the history: {kept}")))
}
