//! Numbered commits to be killed in the middle, and the check of the records that must remain.
//!
//! 1. Each of several threads makes commits 1, 2, 3, … Commit `n` of a thread is one atomic batch over all tables. In
//!    each table the batch
//!    - puts [`ITEMS`] records,
//!    - deletes those of the commit [`WINDOW`] before,
//!    - overwrites the thread's `latest` record with `n`.
//!
//!    Every other commit is a transaction, made beside a transaction that is given up. Every 16th commit has values
//!    long enough for the document log.
//! 2. A commit that has returned is acknowledged, and only then does the thread begin the next. After a kill, a
//!    thread's last commit is therefore the last acknowledged one or its successor.
//! 3. [`check`] reads all tables and reports every record that is missing, incomplete, wrong, or back although
//!    deleted.
//!
//! Left to others: starting and killing the committing process.

use std::collections::BTreeSet;
use std::io;
use std::thread;

use braid::{Database, Durability, Isolation, Structure, Table, TransactionOptions, WriteBatch};

use crate::keys::{mix, stream};
use crate::{Error, Result};

/// Records that a commit puts into each table.
pub const ITEMS: u16 = 4;
/// Number of recent commits whose records are kept.
pub const WINDOW: u64 = 64;
/// The tables, one of each structure. Each commit writes to all.
pub const TABLES: [(&str, Structure); 3] =
    [("crash-btree", Structure::BTree), ("crash-append", Structure::Append), ("crash-lsm", Structure::Lsm)];
/// One commit in so many has long values.
const LONG_EVERY: u64 = 16;

/// Called after each commit with the thread and the number of the commit. An error ends that thread.
pub type Acknowledge<'a> = &'a (dyn Fn(u32, u64) -> io::Result<()> + Sync);

/// Makes commits on `threads` threads, each continuing after its last commit, until `acknowledge` fails.
///
/// # Errors
/// When the database fails. A failure of `acknowledge` is no error, because it means that the reader has gone.
pub fn write(database: &Database, threads: u32, durability: Durability, acknowledge: Acknowledge<'_>) -> Result<()> {
    let tables = tables(database)?;
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let tables = &tables;
                scope.spawn(move || write_one(database, tables, thread, durability, acknowledge))
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

fn write_one(
    database: &Database, tables: &[Table; TABLES.len()], thread: u32, durability: Durability,
    acknowledge: Acknowledge<'_>,
) -> Result<()> {
    let last = latest(&tables[0], thread)?.map_or(0, |number| number);
    for number in last + 1.. {
        if number.is_multiple_of(2) {
            let mut batch = WriteBatch::new();
            each_write(tables, thread, number, |table, key, value| {
                match value {
                    Some(value) => batch.put(table, key, value),
                    None => batch.delete(table, key),
                }
                Ok(())
            })?;
            database.write_with(&batch, durability)?;
        } else {
            transact(database, tables, thread, number, durability)?;
        }
        if acknowledge(thread, number).is_err() {
            break;
        }
    }
    Ok(())
}

/// Makes commit `number` as a serializable transaction, beside a transaction that is given up.
fn transact(
    database: &Database, tables: &[Table; TABLES.len()], thread: u32, number: u64, durability: Durability,
) -> Result<()> {
    let mut given_up = database.begin()?;
    given_up.put(&tables[0], record_key(thread, number + WINDOW, 0), b"never committed")?;
    let options = TransactionOptions::new().isolation(Isolation::Serializable).durability(durability);
    database.run_with(options, |transaction| {
        transaction.get(&tables[0], latest_key(thread))?;
        each_write(tables, thread, number, |table, key, value| match value {
            Some(value) => transaction.put(table, key, value),
            None => transaction.delete(table, key),
        })
    })?;
    Ok(())
}

/// Every key that commit `number` puts, with its value, or deletes.
fn each_write(
    tables: &[Table; TABLES.len()], thread: u32, number: u64,
    mut write: impl FnMut(&Table, Vec<u8>, Option<Vec<u8>>) -> braid::Result<()>,
) -> braid::Result<()> {
    for (side, table) in (0u8..).zip(tables) {
        for item in 0..ITEMS {
            write(table, record_key(thread, number, item), Some(record_value(side, thread, number, item)))?;
            if number > WINDOW {
                write(table, record_key(thread, number - WINDOW, item), None)?;
            }
        }
        write(table, latest_key(thread), Some(number.to_be_bytes().to_vec()))?;
    }
    Ok(())
}

/// The remains of one thread's commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The thread.
    pub thread: u32,
    /// Number of the thread's last commit found.
    pub last: u64,
}

/// Checks that the database holds, for each thread, exactly the result of its commits 1 to some number `n`, with
/// `acknowledged[thread] ≤ n ≤ acknowledged[thread] + 1`. Returns the numbers and the findings; without findings all is
/// well.
///
/// # Errors
/// When the database cannot be read.
pub fn check(database: &Database, acknowledged: &[u64]) -> Result<(Vec<Survivor>, Vec<String>)> {
    let tables = tables(database)?;
    let mut findings = Vec::new();
    let mut survivors = Vec::new();
    for (thread, &acknowledged) in (0u32..).zip(acknowledged) {
        let numbers = tables.each_ref().map(|table| latest(table, thread));
        let numbers = numbers.into_iter().collect::<Result<Vec<_>>>()?;
        let numbers: Vec<u64> = numbers.into_iter().map(|number| number.unwrap_or(0)).collect();
        let last = numbers.iter().copied().max().unwrap_or(0);
        if numbers.iter().any(|number| *number != last) {
            findings.push(format!("thread {thread}: commit {last} is in part: the tables' latest are {numbers:?}"));
        }
        if last < acknowledged {
            findings.push(format!(
                "thread {thread}: commit {acknowledged} was acknowledged and is lost; the last one found is {last}"
            ));
        }
        if last > acknowledged + 1 {
            findings.push(format!(
                "thread {thread}: found commit {last}, but only {acknowledged} were acknowledged before the kill"
            ));
        }
        for (side, table) in (0u8..).zip(&tables) {
            check_records(side, table, thread, last, &mut findings)?;
        }
        survivors.push(Survivor { thread, last });
    }
    Ok((survivors, findings))
}

fn check_records(side: u8, table: &Table, thread: u32, last: u64, findings: &mut Vec<String>) -> Result<()> {
    let name = table.name();
    let first = last.saturating_sub(WINDOW) + 1;
    let expected = (first..=last).flat_map(|number| (0..ITEMS).map(move |item| (number, item)));
    let mut missing: BTreeSet<_> = expected.collect();
    for pair in table.prefix(record_prefix(thread)) {
        let (key, value) = pair?;
        let Some((number, item)) = parse_record_key(&key) else {
            findings.push(format!("table {name}: a key of {} bytes that nobody wrote", key.len()));
            continue;
        };
        if !missing.remove(&(number, item)) {
            let what = if number > last { "is from a commit that is not there" } else { "was deleted and is back" };
            findings.push(format!("table {name}: record {item} of commit {number} of thread {thread} {what}"));
        }
        if value != record_value(side, thread, number, item) {
            findings
                .push(format!("table {name}: record {item} of commit {number} of thread {thread} has a wrong value"));
        }
    }
    for (number, item) in missing {
        findings.push(format!(
            "table {name}: record {item} of commit {number} of thread {thread} is missing; the last commit is {last}"
        ));
    }
    Ok(())
}

fn tables(database: &Database) -> Result<[Table; TABLES.len()]> {
    let [one, two, three] = TABLES.map(|(name, structure)| database.table(name, structure));
    Ok([one?, two?, three?])
}

fn latest(table: &Table, thread: u32) -> Result<Option<u64>> {
    let Some(value) = table.get(latest_key(thread))? else { return Ok(None) };
    let number = value.first_chunk().copied().map(u64::from_be_bytes);
    let wrong = || Error::WrongValue { table: table.name().to_owned(), index: u64::from(thread), bytes: value.len() };
    number.map(Some).ok_or_else(wrong)
}

fn latest_key(thread: u32) -> Vec<u8> {
    [b"latest/".as_slice(), &thread.to_be_bytes()].concat()
}

fn record_prefix(thread: u32) -> Vec<u8> {
    [b"record/".as_slice(), &thread.to_be_bytes()].concat()
}

fn record_key(thread: u32, number: u64, item: u16) -> Vec<u8> {
    [record_prefix(thread).as_slice(), &number.to_be_bytes(), &item.to_be_bytes()].concat()
}

fn parse_record_key(key: &[u8]) -> Option<(u64, u16)> {
    let (number, item) = key.get(record_prefix(0).len()..)?.split_first_chunk()?;
    Some((u64::from_be_bytes(*number), u16::from_be_bytes(item.try_into().ok()?)))
}

/// Up to 300 bytes, or up to 40 KiB for a long value.
fn record_value(side: u8, thread: u32, number: u64, item: u16) -> Vec<u8> {
    let seed = mix(mix(number) ^ u64::from(thread) << 32 ^ u64::from(item) << 8 ^ u64::from(side));
    let most = if number.is_multiple_of(LONG_EVERY) { 40_000 } else { 300 };
    let mut value = vec![0; usize::try_from(seed % most).expect("below 40,000")];
    stream(seed, &mut value);
    value
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn filled(commits: u64) -> (tempfile::TempDir, Database) {
        let directory = tempfile::tempdir().expect("temporary directory");
        let database = Database::open(directory.path().join("database")).expect("opened");
        let count = AtomicU64::new(0);
        let acknowledge = |_: u32, _: u64| {
            let done = count.fetch_add(1, Ordering::Relaxed) + 1;
            if done >= commits { Err(io::Error::other("enough")) } else { Ok(()) }
        };
        write(&database, 1, Durability::Os, &acknowledge).expect("written");
        (directory, database)
    }

    #[test]
    fn whole_commits_have_no_findings() {
        let (_directory, database) = filled(WINDOW + 20);
        let (survivors, findings) = check(&database, &[WINDOW + 19]).expect("read");
        assert_eq!(findings, Vec::<String>::new());
        assert_eq!(survivors, [Survivor { thread: 0, last: WINDOW + 20 }]);
    }

    #[test]
    fn every_kind_of_loss_is_found() {
        let found = |harm: &dyn Fn(&Table), acknowledged: u64| {
            let (_directory, database) = filled(WINDOW + 20);
            harm(&database.open_table(TABLES[1].0).expect("table"));
            check(&database, &[acknowledged]).expect("read").1.join("\n")
        };
        let last = WINDOW + 20;
        assert!(found(&|_| (), last + 1).contains("acknowledged and is lost"));
        assert!(found(&|_| (), last - 2).contains("only"));
        assert!(
            found(&|table| table.delete(record_key(0, last - 3, 1)).map(drop).expect("deleted"), last)
                .contains("is missing")
        );
        assert!(found(&|table| table.put(record_key(0, 3, 1), b"").map(drop).expect("put"), last).contains("is back"));
        assert!(
            found(&|table| table.put(record_key(0, last, 1), b"x").map(drop).expect("put"), last)
                .contains("wrong value")
        );
        assert!(
            found(&|table| table.put(record_key(0, last + 1, 0), b"").map(drop).expect("put"), last)
                .contains("not there")
        );
        assert!(
            found(&|table| table.put(latest_key(0), (last - 1).to_be_bytes()).map(drop).expect("put"), last)
                .contains("in part")
        );
    }
}
