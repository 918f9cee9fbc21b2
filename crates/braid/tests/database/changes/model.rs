//! Random transactions on a simulated disk, and a follower that has to go through every state that they left.
//!
//! 1. A seed decides everything. After each change the model notes the seq that became visible, and what all tables
//!    hold then.
//! 2. A follower catches up now and then, a few changes at a time, with a feed that stays open or a new one. At each
//!    seq it has to
//!    hold exactly what the model noted.
//! 3. It may be told that what it lacks is not kept, if the statistics say so as well; then it begins anew with what is
//!    there.
//! 4. After a power cut the model learns whether the change that was under way is there. A follower that saw only
//!    durable commits goes on.

use std::{collections::BTreeMap, path::Path, time::Duration};

use braid::{Changes, Database, Durability, Error, Options, Seq, Structure, WriteBatch};
use psync::sim::SimDisk;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::replica::{Replica, Tables};
use crate::content::{Content, Outcome, read_all, verify};

const PATH: &str = "/db";
const STEPS: u32 = 150;

struct World {
    disk: SimDisk,
    options: Options,
    random: StdRng,
    db: Option<Database>,
    /// What the tables hold behind each seq.
    states: BTreeMap<u64, Tables>,
    /// What loads brought, by table.
    loads: BTreeMap<u32, Content>,
    /// What the change that is under way makes.
    doubtful: Option<Tables>,
    /// The table that is being loaded.
    loading: Option<u32>,
    /// Commits above this may be lost.
    durable: u64,
    follower: Replica,
    feed: Option<Changes>,
    keys: u32,
    /// How often the follower had to begin anew because the log was not kept.
    gone: u32,
}

/// Runs a seed; the error says what is wrong.
pub(crate) fn run(seed: u64) -> Outcome<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let retain = *[0, 100 << 10, 400 << 10, 64 << 20].choose(&mut random).expect("not empty");
    let options = Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(64 << 10)
        .segment_bytes(64 << 10)
        .leaf_pages([1, 2, 4][random.random_range(0..3)])
        .retain_log_bytes(retain);
    let mut world = World {
        disk: SimDisk::new(seed),
        options,
        keys: *[20, 100].choose(&mut random).expect("not empty"),
        random,
        db: None,
        states: BTreeMap::from([(0, Tables::new())]),
        loads: BTreeMap::new(),
        doubtful: None,
        loading: None,
        durable: 0,
        follower: Replica::default(),
        feed: None,
        gone: 0,
    };
    world.reopen().map_err(|problem| format!("seed {seed}: {problem}"))?;
    for step in 0..STEPS {
        let outcome = world.step();
        let outcome = if world.disk.is_crashed() { world.power_cut() } else { outcome };
        outcome.map_err(|problem| format!("seed {seed} step {step}: {problem}"))?;
    }
    let end = |world: &mut World| world.follow(usize::MAX).and_then(|()| verify(world.db()));
    let mut outcome = end(&mut world);
    if world.disk.is_crashed() {
        outcome = world.power_cut().and_then(|()| end(&mut world));
    }
    outcome.map_err(|problem| format!("seed {seed} at the end: {problem}"))?;
    if world.follower.seq.0 != world.newest() {
        return Err(format!("seed {seed}: the follower ends at {:?} of {}", world.follower.seq, world.newest()));
    }
    if retain >= 64 << 20 && world.gone > 0 {
        return Err(format!("seed {seed}: {} times the log was not kept", world.gone));
    }
    Ok(())
}

impl World {
    fn db(&self) -> &Database {
        self.db.as_ref().expect("it is open between two steps")
    }

    fn newest(&self) -> u64 {
        *self.states.keys().next_back().expect("never empty")
    }

    fn tables(&self) -> &Tables {
        self.states.values().next_back().expect("never empty")
    }

    fn step(&mut self) -> Outcome<()> {
        match self.random.random_range(0..100) {
            0..55 => self.commit(),
            55..59 => self.create(),
            59..61 => self.drop_table(),
            61..64 => self.load(),
            64..80 => {
                let most = *[1, 5, usize::MAX].choose(&mut self.random).expect("not empty");
                self.follow(most)
            }
            80..84 => self.db().drain().map_err(text),
            84..91 => {
                self.db().checkpoint().map_err(text)?;
                self.durable = self.newest();
                Ok(())
            }
            91..93 => self.db().compact().map(drop).map_err(text),
            93..95 => {
                self.feed = None;
                let closed = self.db.take().expect("it is open").close();
                closed.map_err(text)?;
                self.durable = self.newest();
                self.read_only()?;
                self.reopen()
            }
            95..97 => {
                self.disk.kill();
                self.recover()
            }
            _ => {
                let after = *[3, 30, 300].choose(&mut self.random).expect("not empty");
                self.disk.crash_after(self.random.random_range(0..after));
                Ok(())
            }
        }
    }

    /// Makes a change, which leaves the tables as given.
    fn change(
        &mut self, tables: Tables, durability: Durability, make: impl FnOnce(&Database) -> braid::Result<()>,
    ) -> Outcome<()> {
        self.doubtful = Some(tables);
        make(self.db()).map_err(text)?;
        let visible = self.db().stats().map_err(text)?.visible_seq;
        if visible != self.newest() + 1 {
            return Err(format!("seq {visible} follows {}", self.newest()));
        }
        self.states.extend(self.doubtful.take().map(|tables| (visible, tables)));
        if durability == Durability::Sync {
            self.durable = visible;
        }
        Ok(())
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.random_range(0..20) {
            0..2 => self.random.random_range(2049..9000),
            2..4 => self.random.random_range(500..2049),
            _ => self.random.random_range(0..100),
        };
        let first: u8 = self.random.random();
        (0..=u8::MAX).cycle().take(length).map(|step| first.wrapping_add(step)).collect()
    }

    fn key(&mut self) -> Vec<u8> {
        self.random.random_range(0..self.keys).wrapping_mul(2_654_435_761).to_be_bytes().to_vec()
    }

    fn commit(&mut self) -> Outcome<()> {
        let mut tables = self.tables().clone();
        let names: Vec<(u32, String)> = tables.iter().map(|(id, (name, _))| (*id, name.clone())).collect();
        if names.is_empty() {
            return self.create();
        }
        let mut batch = WriteBatch::new();
        for _ in 0..self.random.random_range(1..9) {
            let (id, name) = names.choose(&mut self.random).expect("not empty");
            let table = self.db().open_table(name).map_err(text)?;
            let key = self.key();
            let content = &mut tables.get_mut(id).expect("it is there").1;
            if self.random.random_bool(0.3) {
                batch.delete(&table, &key);
                content.remove(&key);
            } else {
                let value = self.value();
                batch.put(&table, &key, &value);
                content.insert(key, value);
            }
        }
        let durability = match self.random.random_range(0..10) {
            0..6 => Durability::Sync,
            6..8 => Durability::Os,
            _ => Durability::Lazy(Duration::from_secs(3600)),
        };
        self.change(tables, durability, |db| db.write_with(&batch, durability).map(drop))
    }

    fn create(&mut self) -> Outcome<()> {
        let name = format!("table {}", self.random.random_range(0..5));
        if self.tables().values().any(|(known, _)| *known == name) {
            return Ok(());
        }
        let structure = Structure::ALL[self.random.random_range(0..Structure::ALL.len())];
        let next = self.next_table();
        let mut tables = self.tables().clone();
        tables.insert(next, (name.clone(), Content::new()));
        self.change(tables, Durability::Sync, |db| db.table(&name, structure).map(drop))?;
        // A creation that a crash took may have used a number, or not.
        let id = self.db().tables().iter().find(|table| table.name == name).map(|table| table.id);
        let newest = self.newest();
        let tables = self.states.get_mut(&newest).expect("it was just made");
        let made = tables.remove(&next).expect("it was just made");
        tables.insert(id.ok_or("the table is not there")?, made);
        Ok(())
    }

    /// A number that no table has.
    fn next_table(&self) -> u32 {
        self.states.values().filter_map(|tables| tables.keys().next_back()).max().map_or(1, |id| id + 1)
    }

    fn drop_table(&mut self) -> Outcome<()> {
        let mut tables = self.tables().clone();
        let ids: Vec<u32> = tables.keys().copied().collect();
        let Some(id) = ids.choose(&mut self.random) else { return Ok(()) };
        let (name, _) = tables.remove(id).expect("it is there");
        self.change(tables, Durability::Sync, |db| db.drop_table(&name))
    }

    /// Loads a table that was never written to.
    fn load(&mut self) -> Outcome<()> {
        self.create()?;
        let tables = self.tables();
        let empty = tables.iter().find(|(id, (_, content))| content.is_empty() && !self.loads.contains_key(*id));
        let Some((id, name)) = empty.map(|(id, (name, _))| (*id, name.clone())) else { return Ok(()) };
        let count = self.random.random_range(1..200);
        let content: Content = (0..count).map(|_| (self.key(), self.value())).collect();
        let mut tables = self.tables().clone();
        tables.insert(id, (name.clone(), content.clone()));
        self.loads.insert(id, content.clone());
        self.loading = Some(id);
        self.change(tables, Durability::Sync, |db| db.open_table(&name)?.load(&content).map(drop))?;
        self.loading = None;
        Ok(())
    }

    /// Leads the follower on, by so many changes at most.
    fn follow(&mut self, most: usize) -> Outcome<()> {
        let mut left = most;
        while left > 0 {
            if self.feed.is_none() || self.random.random_bool(0.05) {
                self.feed = match self.db().changes(self.follower.seq) {
                    Ok(feed) => Some(feed),
                    Err(error) => return self.begin_anew(&error),
                };
            }
            let feed = self.feed.as_mut().expect("it was just opened");
            let change = match feed.next() {
                None => break,
                Some(Ok(change)) => change,
                Some(Err(error)) => return self.begin_anew(&error),
            };
            self.follower.take(change, |id| self.loads.get(&id).cloned())?;
            self.compare()?;
            left -= 1;
        }
        if left > 0 && self.follower.seq.0 != self.newest() {
            return Err(format!("the feed ends at {:?} of {}", self.follower.seq, self.newest()));
        }
        Ok(())
    }

    fn compare(&self) -> Outcome<()> {
        let seq = self.follower.seq.0;
        match self.states.get(&seq) {
            Some(tables) if *tables == self.follower.tables => Ok(()),
            Some(_) => Err(format!("the follower holds something else at seq {seq}")),
            None => Err(format!("the feed shows seq {seq}, and there is none")),
        }
    }

    /// The follower is told that the log does not hold what it lacks: if that is so, it gets a copy.
    fn begin_anew(&mut self, error: &Error) -> Outcome<()> {
        let oldest = self.db().stats().map_err(text)?.log.oldest_seq;
        match error {
            Error::ChangesGone { oldest: told, .. } if *told == oldest && self.follower.seq.0 + 1 < oldest => {}
            other => return Err(format!("after seq {}, with {oldest} the oldest: {other}", self.follower.seq.0)),
        }
        self.gone += 1;
        self.copy()
    }

    /// The follower gets a copy of what is there.
    fn copy(&mut self) -> Outcome<()> {
        self.feed = None;
        self.follower = Replica { seq: Seq(self.newest()), tables: self.tables().clone() };
        Ok(())
    }

    /// The same changes are there for who only reads.
    fn read_only(&mut self) -> Outcome<()> {
        let db = self.options.clone().read_only(true).open_on(self.disk.psync(), Path::new(PATH)).map_err(text)?;
        let oldest = db.stats().map_err(text)?.log.oldest_seq;
        let mut replica = Replica { seq: Seq(oldest - 1), tables: self.states[&(oldest - 1)].clone() };
        for change in db.changes(replica.seq).map_err(text)? {
            replica.take(change.map_err(text)?, |id| self.loads.get(&id).cloned())?;
            if self.states.get(&replica.seq.0) != Some(&replica.tables) {
                return Err(format!("a reader sees something else at seq {}", replica.seq.0));
            }
        }
        if replica.seq.0 == self.newest() { Ok(()) } else { Err(format!("a reader ends at {:?}", replica.seq)) }
    }

    fn power_cut(&mut self) -> Outcome<()> {
        self.disk.restart();
        let durable = self.durable;
        self.recover()?;
        // What was shown and not durable may be lost, and its seq be another's: nobody can go on from there.
        if self.follower.seq.0 > durable {
            self.copy()?;
        }
        Ok(())
    }

    /// Opens what is left after the storage of the open database went away.
    fn recover(&mut self) -> Outcome<()> {
        self.feed = None;
        self.db = None;
        self.reopen()
    }

    /// Opens the database, again if the power goes meanwhile, and finds out which changes are there.
    fn reopen(&mut self) -> Outcome<()> {
        let db = loop {
            match self.options.clone().open_on(self.disk.psync(), Path::new(PATH)) {
                Ok(db) => break db,
                Err(_) if self.disk.is_crashed() => self.disk.restart(),
                Err(error) => return Err(format!("open failed: {error}")),
            }
        };
        let visible = db.stats().map_err(text)?.visible_seq;
        if visible < self.durable || visible > self.newest() + u64::from(self.doubtful.is_some()) {
            return Err(format!("seq {visible} after a crash, {} was durable, {} made", self.durable, self.newest()));
        }
        if visible > self.newest() {
            self.states.extend(self.doubtful.take().map(|tables| (visible, tables)));
        }
        self.doubtful = None;
        drop(self.states.split_off(&(visible + 1)));
        self.check(&db)?;
        self.durable = visible;
        self.db = Some(db);
        // A process that is killed may lose lazy commits, which were shown.
        if self.follower.seq.0 > visible { self.copy() } else { Ok(()) }
    }

    /// The database holds what the newest state says. What only a crash decides is learnt from it: the number of a
    /// table, and whether a
    /// load that got its seq brought something.
    fn check(&mut self, db: &Database) -> Outcome<()> {
        let mut found = Tables::new();
        for info in db.tables() {
            let content = read_all(&db.open_table(&info.name).map_err(text)?)?;
            found.insert(info.id, (info.name, content));
        }
        let newest = self.newest();
        let mut expected = self.tables().clone();
        if let Some(id) = self.loading.take()
            && let (Some((_, expected)), Some((_, found))) = (expected.get_mut(&id), found.get(&id))
            && found.is_empty()
        {
            expected.clear();
            self.loads.insert(id, Content::new());
        }
        let by_name = |tables: &Tables| tables.values().cloned().collect::<BTreeMap<_, _>>();
        if by_name(&expected) != by_name(&found) {
            return Err(format!("the tables hold something else at seq {newest}"));
        }
        self.states.insert(newest, found);
        Ok(())
    }
}

fn text(error: Error) -> String {
    error.to_string()
}
