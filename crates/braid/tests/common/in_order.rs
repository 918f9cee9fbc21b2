//! A table that is filled in order on a simulated disk that loses power at random.
//!
//! 1. A seed decides everything, as in the other simulated crashes. Keys rise, or fall, or rise below a few prefixes;
//!    now and then a commit overwrites
//!    an old key, or deletes one, so that a queue whose keys rose gets one that does not.
//! 2. Commit number `n` is a function of the seed and `n`. What is found after a crash must be what the first so many
//!    commits make, and no fewer than were
//!    acknowledged as durable.
//! 3. While it is filled, lookups and ranges in both directions are compared with the model.
//! 4. Some seeds write so much in a round that the data file grows by room that is only reserved.

use std::{collections::BTreeMap, ops::Range, path::Path};

use braid::{Database, Durability, Options, Structure, Table, WriteBatch};
use psync::sim::SimDisk;
use rand::{Rng, SeedableRng, rngs::StdRng};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

const LIVES: u32 = 4;
const PATH: &str = "/db";

#[derive(Clone, Copy)]
enum Order {
    Rising,
    Falling,
    /// Rising below each of so many prefixes, in turns.
    Prefixes(u64),
}

struct Fill {
    seed: u64,
    structure: Structure,
    order: Order,
    /// Keys of a commit, and bytes of a value.
    keys: u64,
    value_bytes: usize,
    options: Options,
}

fn choose<T>(all: &[T], number: u64) -> &T {
    let count = all.len() as u64;
    &all[usize::try_from(number % count).expect("below a length")]
}

impl Fill {
    fn new(seed: u64) -> Self {
        let is_large = seed % 8 == 7;
        let (keys, value_bytes, buffer) = if is_large { (300, 1000, 8 << 20) } else { (1 + seed % 90, 60, 96 << 10) };
        let segment_bytes = if is_large { 512 << 10 } else { 64 << 10 };
        let options = Options::new()
            .background(false)
            .cache_bytes(1 << 20)
            .write_buffer_bytes(buffer)
            .segment_bytes(segment_bytes << (seed % 3))
            .leaf_pages(*choose(&[1, 2, 4], seed / 2));
        let order = match seed / 3 % 4 {
            0 => Order::Falling,
            1 => Order::Prefixes(3),
            _ => Order::Rising,
        };
        Self { seed, structure: *choose(Structure::ALL, seed ^ seed >> 3), order, keys, value_bytes, options }
    }

    fn key(&self, number: u64) -> Vec<u8> {
        match self.order {
            Order::Rising => number.to_be_bytes().to_vec(),
            Order::Falling => (u64::MAX - number).to_be_bytes().to_vec(),
            Order::Prefixes(count) => [(number % count).to_be_bytes(), (number / count).to_be_bytes()].concat(),
        }
    }

    /// What commit `number` does: keys with values, or deleted.
    fn commit(&self, number: u64) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut random = StdRng::seed_from_u64(self.seed << 32 | number);
        let value = |random: &mut StdRng| {
            let length = random.random_range(0..=self.value_bytes);
            Some((0..length).map(|_| random.random()).collect())
        };
        let first = number * self.keys;
        let mut commit: Vec<_> =
            (first..first + self.keys).map(|number| (self.key(number), value(&mut random))).collect();
        if number > 0 && random.random_bool(0.05) {
            let old = self.key(random.random_range(0..first));
            let new = if random.random_bool(0.5) { value(&mut random) } else { None };
            commit.push((old, new));
        }
        commit
    }

    fn carry_out(&self, number: u64, content: &mut Content) {
        for (key, value) in self.commit(number) {
            match value {
                Some(value) => content.insert(key, value),
                None => content.remove(&key),
            };
        }
    }
}

/// Runs a seed; the error says what was lost or wrong.
pub(crate) fn run(seed: u64) -> Result<(), String> {
    let (fill, disk, mut random) = (Fill::new(seed), SimDisk::new(seed), StdRng::seed_from_u64(seed));
    // The first `made` commits are there; as many as `durable` have to be after a crash, and after a kill as many as
    // `written`.
    let (mut made, mut kept, mut content) = (0, 0..0, Content::new());
    for life in 0..LIVES {
        let is_last = life + 1 == LIVES;
        if !is_last {
            let scale = [20, 200, 1500][random.random_range(0..3)];
            disk.crash_after(random.random_range(0..scale));
        }
        let outcome = live(&fill, &disk, &mut random, &mut made, &mut kept, &mut content);
        match outcome {
            Err(problem) if !disk.is_crashed() => return Err(format!("seed {seed} life {life}: {problem}")),
            _ => {}
        }
        if !disk.is_crashed() && random.random_bool(0.4) {
            disk.kill();
            kept.start = kept.end;
        } else {
            disk.restart();
            kept.end = kept.start;
        }
    }
    Ok(())
}

/// Opens, checks and goes on filling until the power goes.
fn live(
    fill: &Fill, disk: &SimDisk, random: &mut StdRng, made: &mut u64, kept: &mut Range<u64>, content: &mut Content,
) -> Result<(), String> {
    let db = fill.options.clone().open_on(disk.psync(), Path::new(PATH)).map_err(|error| format!("open: {error}"))?;
    let table = db.table("t", fill.structure).map_err(|error| format!("the table: {error}"))?;
    let found: Content = table.iter().collect::<Result<_, _>>().map_err(|error| format!("a scan: {error}"))?;
    // Behind which commit it is.
    content.clear();
    let mut number = 0;
    while *content != found || number < kept.end {
        if number > *made {
            return Err(format!("what is found is behind none of the commits from {} to {made}", kept.end));
        }
        fill.carry_out(number, content);
        number += 1;
    }
    (*made, *kept) = (number, number..number);
    let verified = db.verify().map_err(|error| format!("verify: {error}"))?;
    if let Some(finding) = verified.findings.first() {
        return Err(format!("verify: {finding}"));
    }
    for _ in 0..random.random_range(5..40) {
        step(fill, &db, &table, random, made, kept, content)?;
    }
    Ok(())
}

fn step(
    fill: &Fill, db: &Database, table: &Table, random: &mut StdRng, made: &mut u64, kept: &mut Range<u64>,
    content: &mut Content,
) -> Result<(), String> {
    let say = |what: &'static str| move |error: braid::Error| format!("{what}: {error}");
    match random.random_range(0..20) {
        0 => db.drain().map_err(say("drain"))?,
        1 => {
            db.checkpoint().map_err(say("checkpoint"))?;
            *kept = *made..*made;
        }
        2 => db.drop_caches(),
        3..6 => compare(table, random, content)?,
        _ => {
            let mut batch = WriteBatch::new();
            for (key, value) in fill.commit(*made) {
                match value {
                    Some(value) => batch.put(table, key, value),
                    None => batch.delete(table, key),
                }
            }
            let is_durable = random.random_bool(0.3);
            // Whether it is there when the power goes during it is not known.
            fill.carry_out(*made, content);
            *made += 1;
            let durability = if is_durable { Durability::Sync } else { Durability::Os };
            db.write_with(&batch, durability).map_err(say("a write"))?;
            kept.end = *made;
            if is_durable {
                kept.start = *made;
            }
        }
    }
    Ok(())
}

/// Looks at some keys, and at some ranges.
fn compare(table: &Table, random: &mut StdRng, content: &Content) -> Result<(), String> {
    let keys: Vec<&Vec<u8>> = content.keys().collect();
    let mut some: Vec<Vec<u8>> =
        (0..40).filter_map(|_| Some(keys.get(random.random_range(0..keys.len().max(1)))?.to_vec())).collect();
    some.extend((0..5).map(|_| random.random::<u64>().to_be_bytes().to_vec()));
    let found = table.get_many(&some).map_err(|error| format!("get_many: {error}"))?;
    if let Some((key, _)) = some.iter().zip(found).find(|(key, found)| content.get(*key) != found.as_ref()) {
        return Err(format!("key {key:?} reads otherwise"));
    }
    for start in &some[..some.len().min(4)] {
        let of = |pairs: Vec<(Vec<u8>, Vec<u8>)>, what: &str, expected: Vec<(&Vec<u8>, &Vec<u8>)>| {
            let same = pairs.iter().map(|(key, value)| (key, value)).eq(expected);
            if same { Ok(()) } else { Err(format!("a range {what} from {start:?} shows something else")) }
        };
        let read =
            |range: braid::Range| range.take(50).collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string());
        of(read(table.range(start.clone()..))?, "forward", content.range(start.clone()..).take(50).collect())?;
        of(
            read(table.range(..start.clone()).rev())?,
            "backward",
            content.range(..start.clone()).rev().take(50).collect(),
        )?;
    }
    Ok(())
}
