//! Two tables and what they must hold.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use braid::{
    Database, Durability, Error, ErrorKind, Isolation, Range, Structure, Table, TransactionOptions, WriteBatch,
};

pub(crate) const TABLES: [&str; 2] = ["left", "right"];
/// Written to both tables by every batch that puts: the number of the batch.
const COUNTER: &[u8] = &[0xff; 12];

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// A put, or a delete: table, key, value.
pub(crate) type Change = (usize, Vec<u8>, Option<Vec<u8>>);

/// What the tables must hold.
#[derive(Clone)]
pub(crate) struct Model {
    /// Of the tables.
    structure: Structure,
    pub(crate) tables: [Content; 2],
    number: u64,
    /// What is put, but for the counter, expires after so long.
    pub(crate) lifetime: Option<Duration>,
    /// What will.
    expiring: BTreeSet<(usize, Vec<u8>)>,
}

/// Key number `number`: rising numbers are spread over the key space.
pub(crate) fn key(number: u64) -> Vec<u8> {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes().to_vec()
}

/// Bytes that say whose they are.
pub(crate) fn value(number: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (number * 31 + at * 7 + at / 251).to_le_bytes()[0]).collect()
}

/// Puts of so many bytes under the keys numbered so, in both tables.
pub(crate) fn puts(numbers: std::ops::Range<u64>, bytes: usize) -> Vec<Change> {
    let put = |number| (usize::from(number % 3 == 0), key(number), Some(value(number, bytes)));
    numbers.map(put).collect()
}

impl Model {
    pub(crate) fn new(structure: Structure) -> Self {
        Self { structure, tables: Default::default(), number: 0, lifetime: None, expiring: BTreeSet::new() }
    }

    /// Opens the tables, creating them where they are missing.
    pub(crate) fn open(&self, db: &Database) -> braid::Result<[Table; 2]> {
        let [left, right] = TABLES.map(|name| db.table(name, self.structure));
        Ok([left?, right?])
    }

    /// Everything that expires has done so.
    pub(crate) fn expire(&mut self) {
        for (which, key) in std::mem::take(&mut self.expiring) {
            self.tables[which].remove(&key);
        }
    }

    /// The keys that begin with `low` up to below `high` are gone.
    pub(crate) fn delete_range(&mut self, low: u8, high: u8) {
        self.tables.iter_mut().for_each(|table| table.retain(|key, _| !(low..high).contains(&key[0])));
    }

    pub(crate) fn keys(&self) -> Vec<(usize, Vec<u8>)> {
        let of = |which: usize| self.tables[which].keys().map(move |key| (which, key.clone()));
        of(0).chain(of(1)).filter(|(_, key)| key != COUNTER).collect()
    }

    /// What the tables hold after these changes.
    pub(crate) fn with(&self, changes: &[Change]) -> Self {
        let mut next = self.clone();
        next.apply(changes);
        next
    }

    fn apply(&mut self, changes: &[Change]) {
        if puts_something(changes) {
            self.number += 1;
            for table in &mut self.tables {
                table.insert(COUNTER.to_vec(), self.number.to_le_bytes().to_vec());
            }
        }
        for (which, key, value) in changes {
            let name = (*which, key.clone());
            let expires = value.is_some() && self.lifetime.is_some();
            let _ = if expires { self.expiring.insert(name) } else { self.expiring.remove(&name) };
            match value {
                Some(value) => self.tables[*which].insert(key.clone(), value.clone()),
                None => self.tables[*which].remove(key),
            };
        }
    }

    /// Writes the changes as one batch, or every other time in a transaction that has read a range, and takes them over
    /// if that succeeds.
    pub(crate) fn write(&mut self, db: &Database, changes: &[Change], durability: Durability) -> braid::Result<()> {
        let tables = self.open(db)?;
        if self.number % 2 == 1 {
            self.transact(db, &tables, changes, durability)?;
            self.apply(changes);
            return Ok(());
        }
        let mut batch = WriteBatch::new();
        if puts_something(changes) {
            tables.iter().for_each(|table| batch.put(table, COUNTER, (self.number + 1).to_le_bytes()));
        }
        for (which, key, value) in changes {
            match value {
                Some(value) => match self.lifetime {
                    Some(lifetime) => batch.put_expiring(&tables[*which], key, value, lifetime),
                    None => batch.put(&tables[*which], key, value),
                },
                None => batch.delete(&tables[*which], key),
            }
        }
        db.write_with(&batch, durability)?;
        self.apply(changes);
        Ok(())
    }

    fn transact(
        &self, db: &Database, tables: &[Table; 2], changes: &[Change], durability: Durability,
    ) -> braid::Result<()> {
        let options = TransactionOptions::new().isolation(Isolation::Serializable).durability(durability);
        let mut transaction = db.begin_with(options)?;
        for table in tables {
            transaction.iter(table).take(10).try_for_each(|pair| pair.map(drop))?;
            if puts_something(changes) {
                transaction.put(table, COUNTER, (self.number + 1).to_le_bytes())?;
            }
        }
        for (which, key, value) in changes {
            match value {
                Some(value) => match self.lifetime {
                    Some(lifetime) => transaction.put_expiring(&tables[*which], key, value, lifetime)?,
                    None => transaction.put(&tables[*which], key, value)?,
                },
                None => transaction.delete(&tables[*which], key)?,
            }
        }
        transaction.commit().map(drop)
    }

    /// Compares everything, by scan and by key, has the database verify itself, and sees that no document is taken for
    /// dead that a key
    /// leads to.
    pub(crate) fn check(&self, db: &Database) {
        let tables = self.open(db).expect("the tables open");
        if let Some(problem) = self.difference(&tables).expect("scans") {
            panic!("{problem}");
        }
        for (table, expected) in tables.iter().zip(&self.tables) {
            let keys: Vec<_> = expected.keys().step_by(7).collect();
            let found = table.get_many(&keys).expect("reads");
            assert!(keys.iter().zip(&found).all(|(key, found)| expected.get(*key) == found.as_ref()));
            let documents = expected.values().filter(|value| value.len() > 2048);
            let least: usize = documents.map(|value| (value.len() + 24).next_multiple_of(8)).sum();
            let live = table.stats().expect("stats").document_live_bytes;
            assert!(live >= least as u64, "{live} bytes of documents are live in {}, not {least}", table.name());
        }
        let verification = db.verify().expect("verifies");
        assert!(verification.findings.is_empty(), "{:#?}", verification.findings);
    }

    /// What the tables hold that they should not, or lack.
    pub(crate) fn difference(&self, tables: &[Table; 2]) -> braid::Result<Option<String>> {
        self.difference_in(tables, Table::iter)
    }

    /// What is read of the tables by `range` that should not be there, or lacks.
    pub(crate) fn difference_in(
        &self, tables: &[Table; 2], range: impl Fn(&Table) -> Range,
    ) -> braid::Result<Option<String>> {
        for (table, expected) in tables.iter().zip(&self.tables) {
            let found: Content = range(table).collect::<Result<_, _>>()?;
            let keys = || expected.keys().chain(found.keys());
            if let Some(key) = keys().find(|key| expected.get(*key) != found.get(*key)) {
                let [wanted, there] = [expected.get(key), found.get(key)].map(|value| value.map(Vec::len));
                let counters = (self.number, found.get(COUNTER).cloned());
                return Ok(Some(format!(
                    "table {}: key {key:02x?} has {there:?} bytes instead of {wanted:?}; batches {counters:?}",
                    table.name()
                )));
            }
        }
        Ok(None)
    }
}

fn puts_something(changes: &[Change]) -> bool {
    changes.iter().any(|(_, _, value)| value.is_some())
}

/// Whether the disk was full; any other error is a bug.
#[track_caller]
pub(crate) fn is_full(outcome: braid::Result<()>) -> bool {
    match outcome {
        Ok(()) => false,
        Err(error) => {
            assert_full(&error);
            true
        }
    }
}

#[track_caller]
pub(crate) fn assert_full(error: &Error) {
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    assert!(error.is_retryable());
}
