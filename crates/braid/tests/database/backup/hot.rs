//! Backups while threads commit.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use braid::{Error, Structure, WriteBatch};
use psync::sim::SimDisk;

use super::{Tables, assert_holds, database, full, on, table};

const ACCOUNTS: u32 = 500;
const EACH: u64 = 1000;
const THREADS: u32 = 3;
const BACKUPS: usize = 6;

fn a_backup_between_transfers_is_what_a_snapshot_shows_and_no_transfer_is_in_it_in_part(structure: Structure) {
    let db = database(&SimDisk::new(1));
    let halves = [table(&db, structure, "left"), table(&db, structure, "right")];
    let mut batch = WriteBatch::new();
    for account in 0..ACCOUNTS {
        halves.iter().for_each(|half| batch.put(half, account.to_be_bytes(), EACH.to_le_bytes()));
    }
    db.write(&batch).expect("writes");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (db, halves, done) = (&db, &halves, &done);
            scope.spawn(move || {
                let mut number = thread;
                while !done.load(Ordering::Relaxed) {
                    number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    // A transfer from one table to the other.
                    let (from, to) = ((number >> 8) % ACCOUNTS, (number >> 16) % ACCOUNTS);
                    let outcome = db.run(|transaction| {
                        let of = |value: Option<Vec<u8>>| {
                            u64::from_le_bytes(value.expect("it is there").try_into().expect("eight bytes"))
                        };
                        let left = of(transaction.get(&halves[0], from.to_be_bytes())?);
                        let right = of(transaction.get(&halves[1], to.to_be_bytes())?);
                        let amount = left.min(u64::from(number % 90));
                        transaction.put(&halves[0], from.to_be_bytes(), (left - amount).to_le_bytes())?;
                        transaction.put(&halves[1], to.to_be_bytes(), (right + amount).to_le_bytes())
                    });
                    assert!(matches!(outcome, Ok(()) | Err(Error::Conflict { .. })), "{outcome:?}");
                }
            });
        }
        let mut stream = Vec::new();
        let mut point = None;
        for _ in 0..BACKUPS {
            let backup = db.begin_backup().expect("begins");
            let summary = match &point {
                None => backup.stream(&mut stream, &mut on),
                Some(point) => backup.stream_since(point, &mut stream, &mut on),
            };
            point = Some(summary.expect("backs up").point);
            let shown = |half: &braid::Table| {
                let pairs = backup.snapshot().iter(half);
                (half.name().to_owned(), pairs.collect::<Result<_, _>>().expect("scans"))
            };
            let expected: Tables = halves.iter().map(shown).collect();
            let value = |value: &Vec<u8>| u64::from_le_bytes(value.as_slice().try_into().expect("eight bytes"));
            let sum: u64 = expected.values().flat_map(|content| content.values().map(value)).sum();
            assert_eq!(sum, 2 * EACH * u64::from(ACCOUNTS));
            assert_holds(&stream, &expected);
            assert_holds(&full(&backup), &expected);
        }
        done.store(true, Ordering::Relaxed);
    });
}

on_every_structure!(a_backup_between_transfers_is_what_a_snapshot_shows_and_no_transfer_is_in_it_in_part,);
