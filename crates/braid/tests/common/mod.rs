//! A database on a simulated disk that loses power at random, held against a model.
//!
//! 1. A seed decides everything: options, operations, where the power goes, what survives. The database runs without
//!    background threads, so a seed repeats exactly.
//! 2. Every commit also writes its number to both tables. What is found after a crash must be the state behind some
//!    commit, one
//!    and the same in both tables, not below the newest commit that was acknowledged as durable.
//!    Values expire, by a clock that only the seed moves. It may be set back while the database is closed: then what is
//!    found is that state as of a time at
//!    which it was there, and not before anything durable.
//!    Half of the commits are transactions; some tables retain states and go back to them ([`retained`]); a snapshot
//!    may be held over rounds and compactions, and a chain of backups grows over all lives.
//! 3. Between crashes reads are compared with the model; a crash also strikes while the database opens.
//! 4. Some seeds damage the data file as a crash never does: flipped bits, a write that was acknowledged and lost. Then
//!    an
//!    error that says so is right, and a wrong answer is not.

pub(crate) mod backups;
pub(crate) mod content;
mod retained;
mod values;

use std::{
    collections::BTreeMap,
    ops::{Bound, ControlFlow, Range},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use backups::Backups;
use braid::{
    Compression, Database, Durability, ErrorKind, Isolation, ManualClock, Options, Snapshot, Structure, Table,
    TableOptions, TransactionOptions, WriteBatch,
};
use content::{Content, Outcome, compare_many, compare_range, difference, read_all, verify};
use psync::sim::SimDisk;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
use retained::Retained;
use values::value;

const TABLES: [&str; 2] = ["left", "right"];
/// Sorts behind every other key.
const COUNTER: &[u8] = &[0xff; 12];
const LIVES: u32 = 4;
const PATH: &str = "/db";
/// When the clock begins, in milliseconds since the beginning of 1970.
const BEGIN: u64 = 1_800_000_000_000;

/// What the tables hold after each commit that may still turn out to have happened.
#[derive(Clone, Default)]
struct State {
    number: u64,
    /// What each table has as its number: that of an earlier commit, once it was rolled back.
    counters: [u64; 2],
    /// When it was committed, in milliseconds since the clock began.
    time: u64,
    tables: [Content; 2],
    /// When what expires does so.
    expiries: [BTreeMap<Vec<u8>, u64>; 2],
    expired: [Expired; 2],
}

impl State {
    fn put(&mut self, which: usize, key: &[u8], value: &[u8], expiry: Option<u64>) {
        self.tables[which].insert(key.to_vec(), value.to_vec());
        self.expired[which].remove(key);
        match expiry {
            Some(expiry) => self.expiries[which].insert(key.to_vec(), expiry),
            None => self.expiries[which].remove(key),
        };
    }

    fn delete(&mut self, which: usize, is_deleted: impl Fn(&Vec<u8>) -> bool) {
        self.tables[which].retain(|key, _| !is_deleted(key));
        self.expiries[which].retain(|key, _| !is_deleted(key));
        self.expired[which].retain(|key, _| !is_deleted(key));
    }

    fn expire(&mut self, now: u64) {
        for which in 0..2 {
            self.expiries[which].retain(|key, expiry| {
                let stays = *expiry > now;
                if !stays {
                    let value = self.tables[which].remove(key).expect("it was put");
                    self.expired[which].insert(key.clone(), (value, *expiry));
                }
                stays
            });
        }
    }

    /// What a table held at an earlier time, had it been committed by then.
    fn as_of(&self, which: usize, time: u64) -> Content {
        let mut content = self.tables[which].clone();
        let back = self.expired[which].iter().filter(|(_, (_, expiry))| *expiry > time);
        content.extend(back.map(|(key, (value, _))| (key.clone(), value.clone())));
        content
    }
}

/// Values that have expired, and when.
type Expired = BTreeMap<Vec<u8>, (Vec<u8>, u64)>;

/// Which table, and what of it is put, until when, or deleted.
type Write = (usize, Vec<u8>, Option<Vec<u8>>, Option<u64>);

/// What a commit does: ranges of keys that it deletes, of which table, and then its writes.
type Commit = (Vec<(usize, Range<Vec<u8>>)>, Vec<Write>);

enum Step {
    Done,
    Crashed,
}

struct World {
    seed: u64,
    /// Of the tables.
    structures: [Structure; 2],
    options_of: [TableOptions; 2],
    random: StdRng,
    disk: SimDisk,
    options: Options,
    /// States behind commits, oldest first: the first one is durable, the last one is what a reader sees.
    states: Vec<State>,
    /// The newest commit that the operating system has: a killed process does not take it back.
    written: u64,
    damaged: bool,
    keys: u32,
    value_bytes: usize,
    clock: ManualClock,
    /// Milliseconds since the clock began, now and whenever it was moved.
    now: u64,
    times: Vec<u64>,
    /// A time that a crash does not take back.
    told: u64,
    /// The share of values that expire.
    expiring: f64,
    /// A snapshot, and what it must hold.
    kept: Option<(Snapshot, State)>,
    retained: Retained,
    /// What there was before the last step.
    before: Option<State>,
    /// Of all lives.
    backups: Backups,
}

/// Each structure with each other, and with itself.
fn structures(seed: u64) -> [Structure; 2] {
    [0, 1].map(|table| Structure::ALL[usize::try_from(seed >> table).unwrap_or(0) % Structure::ALL.len()])
}

/// Each compression with each other, and with itself.
fn options_of(seed: u64) -> [TableOptions; 2] {
    let compression = |number: u64| Compression::ALL[usize::try_from(number).unwrap_or(0) % Compression::ALL.len()];
    [seed / 4, seed / 12].map(|number| TableOptions::new().compression(compression(number)))
}

/// Runs a seed; the error says what was lost or wrong.
pub(crate) fn run(seed: u64) -> Outcome<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let clock = ManualClock::new(UNIX_EPOCH + Duration::from_millis(BEGIN));
    let options = Options::new()
        .background(false)
        .clock(clock.clone())
        .cache_bytes(1 << 20)
        .write_buffer_bytes(64 << 10)
        .segment_bytes(64 << 10 << random.random_range(0..3))
        .retain_log_bytes([0, 1 << 20][random.random_range(0..2)])
        .leaf_pages([1, 2, 3, 4, 12][random.random_range(0..5)]);
    let mut world = World {
        seed,
        structures: structures(seed),
        options_of: retained::options(seed, structures(seed), options_of(seed)),
        disk: SimDisk::new(seed),
        options,
        states: vec![State::default()],
        written: 0,
        damaged: false,
        keys: *[20, 200, 3000].choose(&mut random).expect("not empty"),
        value_bytes: *[0, 20, 100, 700].choose(&mut random).expect("not empty"),
        clock: clock.clone(),
        now: 0,
        times: vec![0],
        told: 0,
        expiring: *[0.0, 0.1, 0.8].choose(&mut random).expect("not empty"),
        kept: None,
        retained: Retained::default(),
        before: None,
        backups: Backups::new(clock),
        random,
    };
    for life in 0..LIVES {
        world.live(life).map_err(|problem| format!("seed {} life {life}: {problem}", world.seed))?;
        if world.damaged {
            break;
        }
    }
    Ok(())
}

impl World {
    fn live(&mut self, life: u32) -> Outcome<()> {
        let last = life + 1 == LIVES;
        if !last || self.random.random_bool(0.5) {
            let scale = *[10, 100, 1000].choose(&mut self.random).expect("not empty");
            self.disk.crash_after(self.random.random_range(0..scale));
        }
        let open = match self.open()? {
            None => None,
            Some(db) => {
                let mut step = self.check_recovered(&db)?;
                let commits = self.random.random_range(1..120);
                for _ in 0..commits {
                    if matches!(step, Step::Crashed) {
                        break;
                    }
                    step = self.step(&db)?;
                    if matches!(step, Step::Done) {
                        step = self.note_step(&db)?;
                    }
                }
                self.kept = None;
                if matches!(step, Step::Done) && self.random.random_bool(0.3) {
                    let closed = db.close();
                    if closed.is_ok() {
                        self.states.drain(..self.states.len() - 1);
                        self.told = self.now;
                    } else if !self.disk.is_crashed() {
                        return Err(format!("close failed: {closed:?}"));
                    }
                    None
                } else {
                    Some(db)
                }
            }
        };
        if !last && !self.disk.is_crashed() && self.random.random_bool(0.4) {
            self.disk.kill();
        } else {
            self.disk.restart();
            self.written = 0;
        }
        // Its storage is gone by now, so closing gets nothing more done.
        drop(open);
        if last {
            self.damage_and_check()?;
        }
        Ok(())
    }

    /// Opens the database; none when the power went meanwhile. The system's clock may be behind.
    fn open(&mut self) -> Outcome<Option<Database>> {
        if self.random.random_bool(0.3) {
            self.clock.set(
                UNIX_EPOCH + Duration::from_millis(BEGIN + self.times.choose(&mut self.random).expect("not empty")),
            );
        }
        match self.options.clone().open_on(self.disk.psync(), Path::new(PATH)) {
            Ok(db) => Ok(Some(db)),
            Err(_) if self.disk.is_crashed() => Ok(None),
            Err(error) => Err(format!("open failed: {error}")),
        }
    }

    fn tables(&self, db: &Database) -> Outcome<Option<[Table; 2]>> {
        let mut tables = Vec::new();
        for (index, name) in TABLES.into_iter().enumerate() {
            match db.table_with(name, self.structures[index], &self.options_of[index]) {
                Ok(table) => tables.push(table),
                Err(_) if self.disk.is_crashed() => return Ok(None),
                Err(error) => return Err(format!("table {name}: {error}")),
            }
        }
        Ok(tables.try_into().ok())
    }

    /// Finds out behind which commit the crash left the database, and that it left exactly that.
    fn check_recovered(&mut self, db: &Database) -> Outcome<Step> {
        let Some(tables) = self.tables(db)? else { return Ok(Step::Crashed) };
        if self.disk.is_crashed() {
            // While something was made ready for later.
            return Ok(Step::Crashed);
        }
        let counter = |table: &Table| -> Outcome<u64> {
            let value = table.get(COUNTER).map_err(|error| format!("reading the counter: {error}"))?;
            Ok(value.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("eight bytes"))))
        };
        let (left, right) = (counter(&tables[0])?, counter(&tables[1])?);
        let Some(found) = self.states.iter().position(|state| state.counters == [left, right]) else {
            let known: Vec<[u64; 2]> = self.states.iter().map(|state| state.counters).collect();
            return Err(format!("the tables are behind commits {left} and {right}, which is not one of {known:?}"));
        };
        let number = self.states[found].number;
        if number < self.written {
            return Err(format!("a killed process took back commit {}: the database is behind {number}", self.written));
        }
        self.check_retained(&tables)?;
        self.states = vec![self.states[found].clone()];
        self.before = self.states.last().cloned();
        self.written = number;
        self.compare_recovered(&tables)?;
        self.clock.set(UNIX_EPOCH + Duration::from_millis(BEGIN + self.now));
        self.compare_all(&tables)?;
        if self.random.random_bool(0.3) {
            verify(db)?;
        }
        Ok(Step::Done)
    }

    /// What was found is the state as of one time, at which what is durable had been told.
    fn compare_recovered(&self, tables: &[Table; 2]) -> Outcome<()> {
        let (state, mut found) = (&self.states[0], [read_all(&tables[0])?, read_all(&tables[1])?]);
        found.iter_mut().for_each(|found| drop(found.remove(COUNTER)));
        let problem = |time| (0..2).find_map(|which| difference(&state.as_of(which, time), &found[which]));
        let earliest = self.told.max(state.time);
        if self.times.iter().any(|&time| time >= earliest && problem(time).is_none()) {
            return Ok(());
        }
        let problem = problem(earliest).unwrap_or_default();
        Err(format!("the tables are as at no time from {earliest} to {}; at the first, {problem}", self.now))
    }

    fn compare_all(&mut self, tables: &[Table; 2]) -> Outcome<()> {
        for (which, table) in tables.iter().enumerate() {
            let expected = &self.states.last().expect("never empty").tables[which];
            let mut found = read_all(table)?;
            found.remove(COUNTER);
            if let Some(problem) = difference(expected, &found) {
                return Err(format!("table {}: {problem}", table.name()));
            }
        }
        Ok(())
    }

    /// Learns what a step has retained.
    fn note_step(&mut self, db: &Database) -> Outcome<Step> {
        let Some(tables) = self.tables(db)? else { return Ok(Step::Crashed) };
        self.note_retained(&tables).map(|()| Step::Done).or_else(|problem| self.unless_crashed(problem))
    }

    fn step(&mut self, db: &Database) -> Outcome<Step> {
        let Some(tables) = self.tables(db)? else { return Ok(Step::Crashed) };
        let outcome = match self.random.random_range(0..100) {
            0..70 => self.commit(db, &tables),
            70..76 => return self.read(&tables).map(|()| Step::Done).or_else(|problem| self.unless_crashed(problem)),
            76..78 => {
                self.kept = Some((db.snapshot(), self.states.last().expect("never empty").clone()));
                Ok(())
            }
            78..80 => {
                return self.look_back(&tables).map(|()| Step::Done).or_else(|problem| self.unless_crashed(problem));
            }
            80..84 => db.drain(),
            84..87 => {
                let outcome = db.checkpoint();
                if outcome.is_ok() {
                    self.states.drain(..self.states.len() - 1);
                    self.told = self.now;
                }
                outcome
            }
            87..89 => self.drop_and_create(db),
            89..90 => self.compact(&tables),
            90..91 => return verify(db).map(|()| Step::Done).or_else(|problem| self.unless_crashed(problem)),
            91..92 => return self.back_up(db),
            92..94 => {
                self.pass();
                Ok(())
            }
            94..96 => self.roll_back(&tables),
            96..97 => {
                return self
                    .read_retained(&tables)
                    .map(|()| Step::Done)
                    .or_else(|problem| self.unless_crashed(problem));
            }
            _ => self.commit_many(db, &tables),
        };
        match outcome {
            Ok(()) => Ok(Step::Done),
            Err(_) if self.disk.is_crashed() => Ok(Step::Crashed),
            Err(error) => Err(format!("an operation failed: {error}")),
        }
    }

    /// What a backup has is durable, and what it is restored to is what there is.
    fn back_up(&mut self, db: &Database) -> Outcome<Step> {
        let disk = self.disk.clone();
        if !self.backups.take(db, || disk.is_crashed())? {
            return Ok(Step::Crashed);
        }
        self.states.drain(..self.states.len() - 1);
        self.backups.compare(TABLES.into_iter().zip(&self.states[0].tables), COUNTER)?;
        Ok(Step::Done)
    }

    fn unless_crashed(&self, problem: String) -> Outcome<Step> {
        if self.disk.is_crashed() { Ok(Step::Crashed) } else { Err(problem) }
    }

    /// Time goes by, as it does for each state that may turn out to be the one. What is kept stays at its time.
    fn pass(&mut self) {
        let millis = *[1, 900, 30_000, 400_000].choose(&mut self.random).expect("not empty");
        self.clock.advance(Duration::from_millis(millis));
        self.now += millis;
        self.times.push(self.now);
        self.states.iter_mut().for_each(|state| state.expire(self.now));
    }

    fn expiry(&mut self) -> Option<u64> {
        let millis = *[1, 1000, 20_000, 100_000, 2_000_000].choose(&mut self.random).expect("not empty");
        self.random.random_bool(self.expiring).then_some(self.now + millis)
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.random_range(0..self.keys);
        let mut key = number.wrapping_mul(2_654_435_761).to_be_bytes().to_vec();
        key.extend(std::iter::repeat_n(b'k', (number % 40) as usize * usize::from(self.keys == 200)));
        key
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.random_range(0..1000) {
            0..30 => self.random.random_range(2049..9000),
            30..60 => self.random.random_range(0..2048),
            // With it what a trie has as documents are documents from the commit on.
            60 => 64 << 10,
            _ => self.value_bytes,
        };
        value(self.random.random(), length)
    }

    fn commit(&mut self, db: &Database, tables: &[Table; 2]) -> braid::Result<()> {
        let operations = self.random.random_range(1..12);
        self.write(db, tables, operations)
    }

    fn commit_many(&mut self, db: &Database, tables: &[Table; 2]) -> braid::Result<()> {
        // Some commits take several segments of the log.
        let is_long = self.value_bytes >= 100 && self.random.random_bool(0.15);
        let operations = if is_long { 100_000 / self.value_bytes..200_000 / self.value_bytes } else { 30..60 };
        let operations = self.random.random_range(operations).min(1000);
        self.write(db, tables, operations)
    }

    fn write(&mut self, db: &Database, tables: &[Table; 2], operations: usize) -> braid::Result<()> {
        let mut state = self.states.last().expect("never empty").clone();
        (state.number, state.time) = (state.number + 1, self.now);
        state.counters = [state.number; 2];
        let counter = state.number.to_le_bytes().to_vec();
        let mut writes: Vec<Write> = [0, 1].map(|which| (which, COUNTER.to_vec(), Some(counter.clone()), None)).into();
        let mut ranges = Vec::new();
        if self.random.random_bool(0.1) {
            let which = self.random.random_range(0..2);
            let (one, other) = (self.key(), self.key());
            let range = one.clone().min(other.clone())..one.max(other);
            state.delete(which, |key| range.contains(key));
            ranges.push((which, range));
        }
        let deletes = self.random.random_bool(0.1);
        for _ in 0..operations {
            let which = self.random.random_range(0..2);
            let key = self.key();
            if self.random.random_bool(if deletes { 0.9 } else { 0.1 }) {
                state.delete(which, |other| *other == key);
                writes.push((which, key, None, None));
            } else {
                let (value, expiry) = (self.value(), self.expiry());
                state.put(which, &key, &value, expiry);
                writes.push((which, key, Some(value), expiry));
            }
        }
        let durability = match self.random.random_range(0..10) {
            0..6 => Durability::Sync,
            6..9 => Durability::Os,
            _ => Durability::Lazy(Duration::from_secs(3600)),
        };
        self.states.push(state);
        let commit = (ranges, writes);
        if self.random.random_bool(0.5) {
            write(db, tables, &commit, durability)
        } else {
            transact(db, tables, &commit, durability)
        }?;
        if durability == Durability::Sync {
            self.states.drain(..self.states.len() - 1);
        }
        if !matches!(durability, Durability::Lazy(_)) {
            self.written = self.states.last().map_or(0, |state| state.number);
        }
        Ok(())
    }

    /// Loads a table, or begins to.
    fn load(&mut self, table: &Table, db: &Database) -> braid::Result<()> {
        let mut loader = table.loader()?;
        let mut sorted: Vec<_> = (0..self.random.random_range(0..300)).map(|_| self.key()).collect();
        sorted.sort_unstable();
        sorted.dedup();
        for key in sorted {
            loader.push(&key, self.value())?;
        }
        if self.random.random_bool(0.3) {
            db.checkpoint()?;
        }
        if self.random.random_bool(0.3) {
            return Ok(());
        }
        loader.finish().map(drop)
    }

    /// Compacts a table, or a part of one.
    fn compact(&mut self, tables: &[Table; 2]) -> braid::Result<()> {
        let (which, mut left) = (self.random.random_range(0..2), self.random.random_range(1..8));
        let stop = &mut |_| {
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        tables[which].compact_with(&braid::CompactOptions::new(), stop).map(drop)
    }

    fn drop_and_create(&mut self, db: &Database) -> braid::Result<()> {
        let scratch = db.table_with("scratch", self.structures[0], &self.options_of[0])?;
        for _ in 0..self.random.random_range(0..20) {
            let (key, value) = (self.key(), self.value());
            scratch.put_with(&key, &value, Durability::Os)?;
        }
        if self.random.random_bool(0.5) {
            db.drain()?;
        }
        drop(scratch);
        db.drop_table("scratch")?;
        self.load(&db.table_with("scratch", self.structures[0], &self.options_of[0])?, db)?;
        db.drop_table("scratch")
    }

    /// Reads what was kept, if anything was.
    fn look_back(&mut self, tables: &[Table; 2]) -> Outcome<()> {
        let which = self.random.random_range(0..2);
        let keys: Vec<Vec<u8>> = (0..self.random.random_range(1..40)).map(|_| self.key()).collect();
        let Some((snapshot, state)) = &self.kept else { return Ok(()) };
        let source = (snapshot, &tables[which]);
        compare_many(&source, &keys, &state.tables[which])?;
        // The counter is in the table and not in the state.
        let bounds = (Bound::Included(keys[0].clone()), Bound::Excluded(COUNTER.to_vec()));
        compare_range(&source, &bounds, self.random.random_bool(0.5), 100, &state.tables[which])
    }

    fn read(&mut self, tables: &[Table; 2]) -> Outcome<()> {
        let which = self.random.random_range(0..2);
        let table = &tables[which];
        let keys: Vec<Vec<u8>> = (0..self.random.random_range(1..40)).map(|_| self.key()).collect();
        let expected = &self.states.last().expect("never empty").tables[which];
        compare_many(table, &keys, expected)?;
        let (lower, upper) =
            (keys[0].clone().min(keys[keys.len() - 1].clone()), keys[0].clone().max(keys[keys.len() - 1].clone()));
        let backward = self.random.random_bool(0.5);
        let limit = self.random.random_range(1..60);
        compare_range(table, &(Bound::Included(lower), Bound::Included(upper)), backward, limit, expected)
    }

    /// Opens what the last crash left, and once more after damage that a crash does not do.
    fn damage_and_check(&mut self) -> Outcome<()> {
        let Some(db) = self.open()? else { return Err("the power went although nobody cut it".into()) };
        self.check_recovered(&db)?;
        verify(&db)?;
        match self.random.random_range(0..3) {
            0 => self.flip_bits(db),
            1 => self.lose_writes(db),
            _ => Ok(()),
        }
    }

    fn flip_bits(&mut self, db: Database) -> Outcome<()> {
        let tables = self.tables(&db)?.ok_or("no power cut was asked for")?;
        db.checkpoint().map_err(|error| format!("checkpoint: {error}"))?;
        self.damaged = true;
        let data = PathBuf::from(PATH).join("data");
        let length = self.disk.read_file(&data).map_or(0, |bytes| bytes.len() as u64);
        let used = db.stats().map_err(|error| error.to_string())?.space;
        let end = length.min((used.total_pages - used.free_pages) * 2 * 4096).max(8192);
        for _ in 0..self.random.random_range(1..200) {
            self.disk.flip_bit(&data, self.random.random_range(4096..end));
        }
        db.drop_caches();
        self.compare_or_noticed(&tables)
    }

    fn lose_writes(&mut self, mut db: Database) -> Outcome<()> {
        self.damaged = true;
        for _ in 0..6 {
            let tables = self.tables(&db)?.ok_or("no power cut was asked for")?;
            self.disk.lose_write(PathBuf::from(PATH).join("data"), self.random.random_range(0..30));
            for _ in 0..20 {
                let many = self.random.random_bool(0.5);
                let outcome = if many { self.commit_many(&db, &tables) } else { self.commit(&db, &tables) };
                match outcome {
                    Ok(()) => {}
                    // The batch update met the damage: the database says so and goes read-only.
                    Err(error) if matches!(error.kind(), ErrorKind::Failed | ErrorKind::Corrupt) => return Ok(()),
                    Err(error) => return Err(format!("a commit failed: {error}")),
                }
            }
            if db.checkpoint().is_err() {
                return Ok(());
            }
            self.states.drain(..self.states.len() - 1);
            drop((tables, db));
            self.disk.restart();
            db = match self.options.clone().open_on(self.disk.psync(), Path::new(PATH)) {
                Ok(db) => db,
                Err(error) if error.kind() == ErrorKind::Corrupt => return Ok(()),
                Err(error) => return Err(format!("opening after a lost write: {error}")),
            };
            let tables = self.tables(&db)?.ok_or("no power cut was asked for")?;
            self.compare_or_noticed(&tables)?;
        }
        Ok(())
    }

    /// Every read answers what the model says, or that something is damaged.
    fn compare_or_noticed(&mut self, tables: &[Table; 2]) -> Outcome<()> {
        for (which, table) in tables.iter().enumerate() {
            for (key, value) in &self.states.last().expect("never empty").tables[which] {
                match table.get(key) {
                    Ok(found) if found.as_ref() == Some(value) => {}
                    Ok(found) => return Err(format!("damage went unnoticed: key {key:?} reads {found:?}")),
                    Err(error) if error.kind() == ErrorKind::Corrupt => {}
                    Err(error) => return Err(format!("reading damaged data: {error}")),
                }
            }
        }
        Ok(())
    }
}

/// The time of day so many milliseconds after the clock began.
fn time(millis: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(BEGIN + millis)
}

fn write(db: &Database, tables: &[Table; 2], commit: &Commit, durability: Durability) -> braid::Result<()> {
    let (ranges, writes) = commit;
    let mut batch = WriteBatch::new();
    for (which, range) in ranges {
        batch.delete_range(&tables[*which], range.clone());
    }
    for (which, key, value, expiry) in writes {
        match (value, expiry) {
            (Some(value), Some(expiry)) => batch.put_expiring(&tables[*which], key, value, time(*expiry)),
            (Some(value), None) => batch.put(&tables[*which], key, value),
            (None, _) => batch.delete(&tables[*which], key),
        }
    }
    db.write_with(&batch, durability).map(drop)
}

fn transact(db: &Database, tables: &[Table; 2], commit: &Commit, durability: Durability) -> braid::Result<()> {
    let (ranges, writes) = commit;
    let isolation = if writes.len().is_multiple_of(2) { Isolation::Snapshot } else { Isolation::Serializable };
    let options = TransactionOptions::new().durability(durability).isolation(isolation);
    let mut transaction = db.begin_with(options)?;
    for (which, range) in ranges {
        transaction.delete_range(&tables[*which], range.clone())?;
    }
    for (which, key, value, expiry) in writes {
        match (value, expiry) {
            (Some(value), Some(expiry)) => transaction.put_expiring(&tables[*which], key, value, time(*expiry))?,
            (Some(value), None) => transaction.put(&tables[*which], key, value)?,
            (None, _) => transaction.delete(&tables[*which], key)?,
        }
    }
    transaction.commit().map(drop)
}
