//! A table that changes, its model, and the states that were retained of it.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use braid::{Database, ManualClock, Options, Seq, Structure, Table, TableOptions, WriteBatch};
use psync::sim::SimDisk;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::whole::{Content, check_whole, content};

const BEGIN: u64 = 1_800_000_000_000;
const KEYS: u32 = 300;

/// Values, and when they expire.
pub(crate) type Model = BTreeMap<Vec<u8>, (Arc<[u8]>, Option<u64>)>;

pub(crate) struct World {
    pub(crate) disk: SimDisk,
    clock: ManualClock,
    now: u64,
    random: StdRng,
    pub(crate) model: Model,
    /// What there was behind each commit.
    pub(crate) states: BTreeMap<Seq, Model>,
    pub(crate) db: Database,
    pub(crate) table: Table,
}

fn options(clock: &ManualClock) -> Options {
    Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(128 << 10)
        .segment_bytes(64 << 10)
        .retain_log_bytes(256 << 10)
        .clock(clock.clone())
}

fn at(model: &Model, now: u64) -> Content {
    let there = model.iter().filter(|(_, (_, expiry))| expiry.is_none_or(|expiry| expiry > now));
    there.map(|(key, (value, _))| (key.clone(), value.to_vec())).collect()
}

impl World {
    pub(crate) fn new(seed: u64, history: u32) -> Self {
        let (disk, clock) = (SimDisk::new(seed), ManualClock::new(UNIX_EPOCH + Duration::from_millis(BEGIN)));
        let db = options(&clock).open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = db.table_with("t", Structure::Append, &TableOptions::new().history(history)).expect("created");
        let random = StdRng::seed_from_u64(seed);
        let states = BTreeMap::from([(Seq(0), Model::new())]);
        Self { disk, clock, now: BEGIN, random, model: Model::new(), states, db, table }
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.random.random_range(0..KEYS);
        format!("{:02}/of the table/{number:04}", number % 7).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        let length = match self.random.random_range(0..10) {
            0..5 => self.random.random_range(0..200),
            5..8 => self.random.random_range(257..2000),
            _ => self.random.random_range(2049..9000),
        };
        let first: u8 = self.random.random();
        (0..=u8::MAX).cycle().take(length).map(|step| first.wrapping_add(step)).collect()
    }

    /// One commit of several operations.
    pub(crate) fn commit(&mut self) -> braid::Result<()> {
        let (table, mut batch, mut model) = (self.table.clone(), WriteBatch::new(), self.model.clone());
        if self.random.random_bool(0.15) {
            let (from, to) = (self.key(), self.key());
            if from < to {
                batch.delete_range(&table, &from[..]..&to[..]);
                let gone: Vec<_> = model.range(from..to).map(|(key, _)| key.clone()).collect();
                gone.iter().for_each(|key| drop(model.remove(key)));
            }
        }
        for _ in 0..self.random.random_range(1..8) {
            let key = self.key();
            if self.random.random_bool(0.2) {
                batch.delete(&table, &key);
                model.remove(&key);
                continue;
            }
            let value = self.value();
            let expiry = self.random.random_bool(0.2).then(|| self.random.random_range(1..100_000));
            match expiry {
                Some(after) => batch.put_expiring(&table, &key, &value, Duration::from_millis(after)),
                None => batch.put(&table, &key, &value),
            }
            model.insert(key, (value.into(), expiry.map(|after| self.now + after)));
        }
        self.db.write(&batch)?;
        self.model = model;
        self.note();
        Ok(())
    }

    pub(crate) fn change(&mut self, commits: usize) {
        (0..commits).for_each(|_| self.commit().expect("writes"));
    }

    /// It gets later.
    pub(crate) fn pass(&mut self, millis: u64) {
        self.now += millis;
        self.clock.advance(Duration::from_millis(millis));
    }

    /// Retains the state as it is now.
    pub(crate) fn retain(&mut self) -> Seq {
        self.db.checkpoint().expect("a checkpoint");
        let newest = self.table.history().last().expect("a state").seq;
        assert!(*self.then(newest) == self.model);
        newest
    }

    /// Something was committed that the model knows.
    pub(crate) fn note(&mut self) {
        self.states.insert(self.db.snapshot().seq(), self.model.clone());
    }

    /// What there was at a seq.
    pub(crate) fn then(&self, seq: Seq) -> &Model {
        self.states.range(..=seq).next_back().expect("it begins with nothing").1
    }

    pub(crate) fn roll_back(&mut self, to: Seq) {
        let seq = self.table.roll_back(to).expect("rolls back");
        self.model = self.then(to).clone();
        self.states.insert(seq, self.model.clone());
    }

    pub(crate) fn now(&self) -> Content {
        at(&self.model, self.now)
    }

    /// The table and every state are as they should be.
    #[track_caller]
    pub(crate) fn check(&self) {
        self.db.drop_caches();
        assert!(content(&self.table) == self.now(), "the content is another");
        for header in self.table.history() {
            self.check_state(header.seq);
        }
        check_whole(&self.db);
    }

    #[track_caller]
    pub(crate) fn check_state(&self, seq: Seq) {
        let then = self.table.at(seq).expect("retained");
        let millis = then.header().time.duration_since(UNIX_EPOCH).expect("later").as_millis();
        let expected = at(self.then(seq), u64::try_from(millis).expect("soon"));
        let found: Content = then.iter().collect::<Result<_, _>>().expect("scans");
        assert!(found == expected, "the state at {seq:?} is another");
        let keys: Vec<_> = self.then(seq).keys().chain(self.model.keys()).collect();
        let values = then.get_many(&keys).expect("reads");
        assert!(keys.iter().zip(values).all(|(key, value)| value.as_ref() == expected.get(*key)), "by key {seq:?}");
    }

    pub(crate) fn open(disk: &SimDisk, clock: &ManualClock) -> (Database, Table) {
        let db = options(clock).open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = db.open_table("t").expect("there");
        (db, table)
    }

    pub(crate) fn clock(&self) -> ManualClock {
        self.clock.clone()
    }

    /// Closes it, or the power goes, and opens it again.
    pub(crate) fn reopen(self, crash: bool) -> Self {
        let Self { disk, clock, now, random, model, states, db, table } = self;
        drop(table);
        if crash {
            disk.crash();
            drop(db);
            disk.restart();
        } else {
            db.close().expect("closes");
        }
        let (db, table) = Self::open(&disk, &clock);
        Self { disk, clock, now, random, model, states, db, table }
    }

    /// Disk space of the table's files.
    pub(crate) fn files(&self) -> usize {
        let of_table = |path: &&std::path::PathBuf| path.starts_with("/db/doc") || path.starts_with("/db/node");
        self.disk.files().iter().filter(of_table).count()
    }
}
