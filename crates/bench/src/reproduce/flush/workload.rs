//! The work of the clients, and the contents that the table must have afterwards.
//!
//! 1. Loaded entries have the indexes below `entries`. Entries that belong to a client come after them, in round-robin
//!    order: position `p` of client `c` of `n` is index `entries + p * n + c`, so that the keys of all clients grow
//!    together.
//! 2. Every transaction goes through one [`Client`], which counts the transaction when its commit has returned.
//! 3. [`check`] reads the whole table afterwards: every committed entry is present, no other entry is, and every value
//!    is right.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use braid::{Database, Table, WriteBatch};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::scale::SHAPE;
use crate::reproduce::stock::entry;
use crate::slice::{Shared, Tally};
use crate::{Error, Result, keys, values};

/// Entries that a client of the transactional workload owns at any time.
const OWN: u64 = 16;

/// One of the paper's workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Puts of new keys (figure 5a).
    Insert,
    /// Updates and searches of loaded keys in random order, equally many of each (figure 5b).
    UpdateSearch,
    /// An update, a delete and an insert as one atomic transaction (figure 6).
    Oltp,
}

impl Work {
    /// Loaded entries that any client may update.
    pub(super) const fn loaded(self, entries: u64) -> u64 {
        match self {
            Self::Insert => 0,
            Self::UpdateSearch | Self::Oltp => entries,
        }
    }

    /// Loaded entries of each client.
    pub(super) const fn own(self) -> u64 {
        match self {
            Self::Insert | Self::UpdateSearch => 0,
            Self::Oltp => OWN,
        }
    }

    /// The range of positions that a client has in the table after so many transactions.
    const fn held(self, done: u64) -> (u64, u64) {
        match self {
            Self::Insert => (0, done),
            Self::UpdateSearch => (0, 0),
            Self::Oltp => (done, done + OWN),
        }
    }
}

/// The state shared by the clients of a run.
pub(super) struct Stage<'a> {
    pub(super) database: &'a Database,
    pub(super) table: &'a Table,
    pub(super) work: Work,
    /// Entries that any client may update.
    pub(super) loaded: u64,
    /// Transactions of each client.
    pub(super) transactions: u64,
    pub(super) seed: u64,
    /// Completed transactions of each client.
    pub(super) done: Vec<AtomicU64>,
}

impl Stage<'_> {
    /// One client, which works until its transactions are done or the time is over.
    pub(super) fn client(&self, number: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let mut client = Client {
            stage: self,
            number: number as u64,
            random: SmallRng::seed_from_u64(keys::mix(self.seed) ^ number as u64),
            key: Vec::new(),
            value: Vec::new(),
        };
        let mut done = 0;
        while done < self.transactions && shared.goes_on() {
            client.transaction(done, tally)?;
            done += 1;
            self.done[number].store(done, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The index at a position of a client.
    fn index(&self, client: u64, position: u64) -> u64 {
        self.loaded + position * self.done.len() as u64 + client
    }
}

struct Client<'a> {
    stage: &'a Stage<'a>,
    number: u64,
    random: SmallRng,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Client<'_> {
    fn transaction(&mut self, position: u64, tally: &mut Tally) -> Result<()> {
        match self.stage.work {
            Work::Insert => self.insert(position, tally),
            Work::UpdateSearch if self.random.random_bool(0.5) => self.update(tally),
            Work::UpdateSearch => self.search(tally),
            Work::Oltp => self.oltp(position, tally),
        }
    }

    fn insert(&mut self, position: u64, tally: &mut Tally) -> Result<()> {
        entry(SHAPE, self.stage.index(self.number, position), &mut self.key, &mut self.value);
        let begun = Instant::now();
        self.stage.table.put(&self.key, &self.value)?;
        tally.call(begun, 1);
        Ok(())
    }

    /// Draws the key and a new value of a random loaded entry.
    fn changed(&mut self) {
        let (index, nonce) = (self.random.random_range(0..self.stage.loaded), self.random.random());
        entry(SHAPE, index, &mut self.key, &mut self.value);
        values::write(index, nonce, &mut self.value);
    }

    fn update(&mut self, tally: &mut Tally) -> Result<()> {
        self.changed();
        let begun = Instant::now();
        self.stage.table.put(&self.key, &self.value)?;
        tally.call(begun, 1);
        Ok(())
    }

    fn search(&mut self, tally: &mut Tally) -> Result<()> {
        let index = self.random.random_range(0..self.stage.loaded);
        self.key.resize(SHAPE.key_bytes, 0);
        keys::write(index, &mut self.key);
        let begun = Instant::now();
        let found = self.stage.table.get(&self.key)?;
        tally.call(begun, 1);
        check_value(self.stage.table, index, found.as_deref().unwrap_or_default())
    }

    /// Updates a loaded entry, deletes the client's oldest entry and inserts a new one.
    fn oltp(&mut self, position: u64, tally: &mut Tally) -> Result<()> {
        let table = self.stage.table;
        let mut batch = WriteBatch::new();
        self.changed();
        batch.put(table, &self.key, &self.value);
        batch.delete(table, keys::key(self.stage.index(self.number, position), SHAPE.key_bytes));
        entry(SHAPE, self.stage.index(self.number, position + OWN), &mut self.key, &mut self.value);
        batch.put(table, &self.key, &self.value);
        let begun = Instant::now();
        self.stage.database.write(&batch)?;
        tally.call(begun, 1);
        Ok(())
    }
}

fn check_value(table: &Table, index: u64, value: &[u8]) -> Result<()> {
    if value.len() == SHAPE.value_bytes && values::is_right(index, value) {
        return Ok(());
    }
    Err(Error::WrongValue { table: table.name().to_owned(), index, bytes: value.len() })
}

/// Reads the whole table and compares the contents with the clients' completed transactions.
pub(super) fn check(stage: &Stage<'_>) -> Result<()> {
    let clients = stage.done.len() as u64;
    let held: Vec<_> = stage.done.iter().map(|done| stage.work.held(done.load(Ordering::Relaxed))).collect();
    let mut next: Vec<u64> = held.iter().map(|(first, _)| *first).collect();
    let mut loaded = 0;
    let visited = stage.table.iter().visit(|key, value| {
        let expected = keys::index(key).filter(|index| match index.checked_sub(stage.loaded) {
            None => std::mem::replace(&mut loaded, index + 1) == *index,
            Some(dealt) => {
                let client = usize::try_from(dealt % clients).expect("below the number of clients");
                let due = next[client] == dealt / clients && next[client] < held[client].1;
                next[client] += 1;
                due
            }
        });
        match expected.map(|index| check_value(stage.table, index, value)) {
            Some(Ok(())) => ControlFlow::Continue(()),
            Some(Err(wrong)) => ControlFlow::Break(wrong),
            None => ControlFlow::Break(unlike(key)),
        }
    })?;
    if let ControlFlow::Break(wrong) = visited {
        return Err(wrong);
    }
    let is_complete = loaded == stage.loaded && next.iter().zip(&held).all(|(next, (_, end))| next == end);
    if is_complete { Ok(()) } else { Err(Error::Invalid("the table lacks entries whose commits returned".into())) }
}

fn unlike(key: &[u8]) -> Error {
    Error::Invalid(format!("the table has the key {key:02x?} where its clients' commits leave another, or none"))
}
