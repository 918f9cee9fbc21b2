//! Braid, as histories are made of it.
//!
//! The lists and registers of a workload lie in two tables, in three ways, so that every kind of read and write has a
//! part:
//!
//! 1. *Whole*: the list is the value of one key. Some are so long that they are documents.
//! 2. *Rows*: each element has a key of its own, and to append is to look for the last one. Of lists alone.
//! 3. *Moving*: the whole list again, under another key with each change; the old one is deleted, every other time as a
//!    range.
//!
//! A range of lists is a range of both tables.

use std::{collections::BTreeMap, iter::successors, time::Duration};

use braid::{Database, ErrorKind, Isolation, Structure, Table, Transaction, TransactionOptions};
use histories::{Element, Failure, Key, Store, Txn};

pub(crate) struct BraidStore {
    pub(crate) db: Database,
    pub(crate) tables: [Table; 2],
    lock_timeout: Duration,
}

impl BraidStore {
    /// `lock_timeout` is zero where one thread has all transactions: it would wait for itself.
    pub(crate) fn new(db: Database, lock_timeout: Duration) -> Result<Self, String> {
        // One of each structure: what a transaction is does not depend on it.
        let table = |name, structure| db.table(name, structure).map_err(|error| error.to_string());
        let tables = [table("one", Structure::BTree)?, table("other", Structure::Append)?];
        Ok(Self { db, tables, lock_timeout })
    }
}

impl Store for BraidStore {
    type Txn<'a> = BraidTxn<'a>;

    fn begin(&self, isolation: histories::Isolation) -> Result<BraidTxn<'_>, Failure> {
        let isolation = match isolation {
            histories::Isolation::ReadCommitted => return Err(Failure::Broken("Braid has no read committed".into())),
            histories::Isolation::Snapshot => Isolation::Snapshot,
            histories::Isolation::Serializable => Isolation::Serializable,
        };
        let options = TransactionOptions::new().isolation(isolation).lock_timeout(self.lock_timeout);
        let transaction = self.db.begin_with(options).map_err(failure)?;
        Ok(BraidTxn { store: self, transaction, writes: false })
    }
}

fn failure(error: braid::Error) -> Failure {
    let too_large = matches!(error, braid::Error::TransactionTooLarge { .. });
    match error.kind() {
        ErrorKind::Conflict | ErrorKind::DiskFull => Failure::Aborted(error.to_string()),
        _ if too_large => Failure::Aborted(error.to_string()),
        // Nothing makes a write or a flush fail here, so there is no commit of which nobody knows.
        _ => Failure::Broken(error.to_string()),
    }
}

/// How a list lies in its table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Whole,
    Rows,
    Moving,
}

/// Lists with this key are documents.
const LONG: u64 = 6;
const LONG_BYTES: usize = 2500;

fn way(key: Key) -> Way {
    [Way::Whole, Way::Rows, Way::Moving][usize::try_from(key.0 % 3).expect("below three")]
}

/// All that begins with this belongs to the key.
fn prefix(key: Key) -> [u8; 2] {
    [0, u8::try_from(key.0).expect("workloads have few keys")]
}

fn row(key: Key, number: u32) -> Vec<u8> {
    [&prefix(key)[..], &number.to_be_bytes()].concat()
}

fn value(key: Key, list: &[Element]) -> Vec<u8> {
    let count = u32::try_from(list.len()).expect("lists are short");
    let elements = list.iter().flat_map(|element| element.0.to_le_bytes());
    let mut value: Vec<u8> = count.to_le_bytes().into_iter().chain(elements).collect();
    if key.0 == LONG {
        value.resize(value.len() + LONG_BYTES, 0xa5);
    }
    value
}

/// The list in a value; an error where it is none that was written.
fn list(key: Key, bytes: &[u8]) -> Result<Vec<Element>, Failure> {
    let read = || {
        let (count, rest) = bytes.split_first_chunk::<4>()?;
        let count = usize::try_from(u32::from_le_bytes(*count)).ok()?;
        let (elements, _) = rest.get(..8 * count)?.as_chunks::<8>();
        Some(elements.iter().map(|bytes| Element(u64::from_le_bytes(*bytes))).collect::<Vec<_>>())
    };
    read()
        .filter(|list| value(key, list) == bytes)
        .ok_or_else(|| Failure::Broken(format!("{key} has the value {bytes:?}")))
}

pub(crate) struct BraidTxn<'a> {
    store: &'a BraidStore,
    transaction: Transaction,
    writes: bool,
}

/// The rows of a key, by number.
type Rows = BTreeMap<u32, Vec<u8>>;

impl BraidTxn<'_> {
    fn table(&self, key: Key) -> &Table {
        &self.store.tables[usize::try_from(key.0 / 3 % 2).expect("below two")]
    }

    fn rows(&self, key: Key) -> Result<Rows, Failure> {
        let found = self.transaction.prefix(self.table(key), prefix(key));
        found
            .map(|pair| row_of(pair.map_err(failure)?))
            .map(|row| row.map(|(_, number, value)| (number, value)))
            .collect()
    }

    /// The last row of a key.
    fn last_row(&self, key: Key) -> Result<Option<(u32, Vec<u8>)>, Failure> {
        let mut found = self.transaction.prefix(self.table(key), prefix(key)).rev();
        found.next().map(|pair| row_of(pair.map_err(failure)?).map(|(_, number, value)| (number, value))).transpose()
    }

    fn get(&self, key: Key) -> Result<Option<Vec<u8>>, Failure> {
        self.transaction.get(self.table(key), row(key, 0)).map_err(failure)
    }

    fn put(&mut self, key: Key, number: u32, value: &[u8]) -> Result<(), Failure> {
        self.writes = true;
        let table = self.table(key).clone();
        self.transaction.put(&table, row(key, number), value).map_err(failure)
    }

    fn remove(&mut self, key: Key, number: u32) -> Result<(), Failure> {
        self.writes = true;
        let table = self.table(key).clone();
        if way(key) == Way::Moving && !number.is_multiple_of(2) {
            // It is the only one. Whoever writes the key meanwhile writes within the range, or deletes there.
            return self.transaction.delete_range(&table, row(key, 0)..=row(key, number)).map_err(failure);
        }
        self.transaction.delete(&table, row(key, number)).map_err(failure)
    }

    /// Puts another list in place of the one that lies in some row.
    fn replace(&mut self, key: Key, list: &[Element]) -> Result<(), Failure> {
        if way(key) != Way::Moving {
            return self.put(key, 0, &value(key, list));
        }
        let old = self.last_row(key)?.map(|(number, _)| number);
        if let Some(old) = old {
            self.remove(key, old)?;
        }
        self.put(key, old.map_or(0, |old| old + 1), &value(key, list))
    }
}

/// Key, number and value of a row.
fn row_of((bytes, value): (Vec<u8>, Vec<u8>)) -> Result<(Key, u32, Vec<u8>), Failure> {
    match *bytes {
        [0, key, a, b, c, d] => Ok((Key(key.into()), u32::from_be_bytes([a, b, c, d]), value)),
        _ => Err(Failure::Broken(format!("a range shows {bytes:?}"))),
    }
}

/// The list in its rows.
fn assembled(key: Key, rows: &Rows, is_rows: bool) -> Result<Vec<Element>, Failure> {
    if is_rows {
        let numbers = successors(Some(0), |number| Some(number + 1)).take(rows.len());
        if !rows.keys().copied().eq(numbers) {
            return Err(Failure::Broken(format!("{key} has the rows {:?}", rows.keys())));
        }
        return rows.values().map(|value| list(key, value)).try_fold(Vec::new(), |all, one| Ok([all, one?].concat()));
    }
    match rows.len() {
        0 => Ok(Vec::new()),
        1 => rows.values().next().map_or(Ok(Vec::new()), |value| list(key, value)),
        _ => Err(Failure::Broken(format!("{key} has the rows {:?}", rows.keys()))),
    }
}

impl Txn for BraidTxn<'_> {
    fn read(&mut self, key: Key) -> Result<Vec<Element>, Failure> {
        match way(key) {
            Way::Whole => self.get(key)?.map_or(Ok(Vec::new()), |value| list(key, &value)),
            Way::Rows => assembled(key, &self.rows(key)?, true),
            Way::Moving => assembled(key, &self.rows(key)?, false),
        }
    }

    fn read_for_update(&mut self, key: Key) -> Result<Vec<Element>, Failure> {
        let list = if way(key) == Way::Whole { None } else { Some(self.read(key)?) };
        // The row that whoever writes the key has to write.
        let number = match (way(key), &list) {
            (Way::Rows, Some(list)) => u32::try_from(list.len()).expect("lists are short"),
            (Way::Moving, _) => self.last_row(key)?.map_or(0, |(number, _)| number),
            _ => 0,
        };
        let table = self.table(key).clone();
        if way(key) == Way::Rows {
            // And the one that whoever deletes the key has to delete.
            self.transaction.get_for_update(&table, row(key, 0)).map_err(failure)?;
        }
        let found = self.transaction.get_for_update(&table, row(key, number)).map_err(failure)?;
        list.map_or_else(|| found.map_or(Ok(Vec::new()), |value| self::list(key, &value)), Ok)
    }

    fn read_range(&mut self, from: Key, to: Key, backward: bool) -> Result<Vec<(Key, Vec<Element>)>, Failure> {
        let mut lists: BTreeMap<Key, Rows> = BTreeMap::new();
        for table in &self.store.tables {
            let bounds = row(from, 0)..=row(to, u32::MAX);
            let range = self.transaction.range(table, bounds);
            let range = if backward { range.rev() } else { range };
            let mut last: Option<Vec<u8>> = None;
            for pair in range {
                let (bytes, value) = pair.map_err(failure)?;
                let follows = |last: &Vec<u8>| if backward { *last > bytes } else { *last < bytes };
                if last.as_ref().is_some_and(|last| !follows(last)) {
                    return Err(Failure::Broken(format!("a range shows {bytes:?} after {last:?}")));
                }
                last = Some(bytes.clone());
                let (key, number, value) = row_of((bytes, value))?;
                lists.entry(key).or_default().insert(number, value);
            }
        }
        let lists = lists.into_iter().map(|(key, rows)| {
            // A register never lies in rows, but may be under a key whose lists do.
            let is_rows = way(key) == Way::Rows;
            Ok((key, assembled(key, &rows, is_rows)?))
        });
        let mut found = lists.collect::<Result<Vec<_>, _>>()?;
        if backward {
            found.reverse();
        }
        Ok(found)
    }

    fn append(&mut self, key: Key, element: Element) -> Result<(), Failure> {
        if way(key) == Way::Rows {
            let number = self.last_row(key)?.map_or(0, |(number, _)| number + 1);
            return self.put(key, number, &value(key, &[element]));
        }
        let mut list = self.read(key)?;
        list.push(element);
        self.replace(key, &list)
    }

    fn write(&mut self, key: Key, value: Element) -> Result<(), Failure> {
        self.replace(key, &[value])
    }

    fn delete(&mut self, key: Key) -> Result<(), Failure> {
        // Where there is nothing, what the next write will put: so a deletion has its place among the writes then, too.
        let row = if way(key) == Way::Moving { self.last_row(key)? } else { None };
        self.remove(key, row.map_or(0, |(number, _)| number))
    }

    fn commit(self) -> Result<Option<u64>, Failure> {
        let seq = self.transaction.commit().map_err(failure)?;
        Ok(self.writes.then_some(seq.0))
    }

    fn abort(self) {
        self.transaction.rollback();
    }
}
