//! New expiries for values that stay as they are: seen by all, whatever becomes of the old place of the value, and
//! without a write of the value.

use std::{
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use braid::{Database, Durability, Error, ManualClock, Options, Structure, Table, TransactionOptions};
use psync::sim::SimDisk;

const MINUTE: Duration = Duration::from_secs(60);
const LONG: usize = 20_000;

fn begin() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn clock() -> ManualClock {
    ManualClock::new(begin())
}

fn open(disk: &SimDisk, clock: &ManualClock, structure: Structure) -> (Database, Table) {
    let options = Options::new().background(false).cache_bytes(1 << 20).segment_bytes(64 << 10).leaf_pages(1);
    let db = options.clock(clock.clone()).open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", structure).expect("a table");
    (db, table)
}

/// A value of each kind: in the queue, in a leaf, and a document.
fn values() -> Vec<(Vec<u8>, Vec<u8>)> {
    [8, 300, 2000, 3000, LONG].into_iter().map(|length| (length.to_string().into_bytes(), vec![7; length])).collect()
}

fn check(db: &Database) {
    let report = db.verify().expect("verifies");
    assert_eq!(report.findings, [""; 0]);
}

#[test]
fn a_renewed_value_is_there_until_its_new_expiry_wherever_it_lies() {
    for structure in Structure::ALL.iter().copied() {
        let (disk, clock) = (SimDisk::new(1), clock());
        let (mut db, mut table) = open(&disk, &clock, structure);
        for (key, value) in values() {
            table.put_expiring(&key, &value, 10 * MINUTE).expect("puts");
        }
        for step in 0..8 {
            for (key, _) in values() {
                let before = table.expiry(&key).expect("reads").expect("it expires");
                assert!(table.renew(&key, 10 * MINUTE).expect("renews"));
                assert!(table.expiry(&key).expect("reads").expect("it expires") >= before);
            }
            check(&db);
            match step {
                0 | 4 => db.drain().expect("applies"),
                1 | 5 => drop(table.compact().expect("compacts")),
                2 => {
                    drop(table);
                    disk.restart();
                    drop(db);
                    (db, table) = open(&disk, &clock, structure);
                }
                3 => {
                    drop(table);
                    db.close().expect("closes");
                    (db, table) = open(&disk, &clock, structure);
                }
                6 => db.checkpoint().expect("a checkpoint"),
                _ => {}
            }
            check(&db);
            clock.advance(6 * MINUTE);
            for (key, value) in values() {
                assert_eq!(table.get(&key).expect("reads").as_ref(), Some(&value), "{structure} step {step}");
            }
        }
        clock.advance(6 * MINUTE);
        for (key, _) in values() {
            assert_eq!(table.get(&key).expect("reads"), None);
            assert!(!table.renew(&key, MINUTE).expect("renews"), "what has expired is not there");
        }
        db.drain().expect("applies");
        table.compact().expect("compacts");
        check(&db);
    }
}

#[test]
fn the_value_is_neither_read_nor_written() {
    for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
        let (disk, clock) = (SimDisk::new(1), clock());
        let (db, table) = open(&disk, &clock, structure);
        table.put_expiring("key", vec![7; 4 << 20], MINUTE).expect("puts");
        db.checkpoint().expect("a checkpoint");
        let documents = || {
            let files = disk.files().into_iter().filter(|file| file.starts_with("/db/doc"));
            files.filter_map(|file| disk.read_file(file)).map(|bytes| bytes.len()).sum::<usize>()
        };
        let (written, logged) = (documents(), db.stats().expect("stats").log.retained_bytes);
        for _ in 0..10 {
            assert!(table.renew("key", MINUTE).expect("renews"));
        }
        assert!(db.stats().expect("stats").log.retained_bytes < logged + 10_000);
        assert_eq!(documents(), written);
        assert_eq!(table.get("key").expect("reads").map(|value| value.len()), Some(4 << 20));
    }
}

#[test]
fn snapshots_keep_the_old_expiry_and_others_wait_for_the_key() {
    let (disk, clock) = (SimDisk::new(1), clock());
    let (db, table) = open(&disk, &clock, Structure::BTree);
    table.put_expiring("key", vec![7; LONG], MINUTE).expect("puts");
    let snapshot = db.snapshot();
    let first = snapshot.expiry(&table, "key").expect("reads");
    let mut transaction = db.begin_with(TransactionOptions::new()).expect("begins");
    assert!(transaction.renew(&table, "key", 3 * MINUTE).expect("renews"));
    assert_eq!(transaction.expiry(&table, "key").expect("reads"), Some(clock.now() + 3 * MINUTE));
    assert_eq!(transaction.get(&table, "key").expect("reads").map(|value| value.len()), Some(LONG));
    assert_eq!(transaction.range::<&[u8]>(&table, ..).count(), 1);
    assert!(matches!(table.put("key", "another"), Err(Error::LockTimeout { .. })));
    // Its place may be given up meanwhile.
    db.drain().expect("applies");
    table.compact().expect("compacts");
    db.checkpoint().expect("a checkpoint");
    transaction.commit().expect("commits");
    db.drain().expect("applies");
    check(&db);
    assert_eq!(snapshot.expiry(&table, "key").expect("reads"), first);
    assert_eq!(table.expiry("key").expect("reads"), Some(clock.now() + 3 * MINUTE));
    drop(snapshot);
    table.compact().expect("compacts");
    check(&db);
    clock.advance(2 * MINUTE);
    assert_eq!(table.get("key").expect("reads").map(|value| value.len()), Some(LONG));
}

#[test]
fn other_writes_of_the_transaction_count_too() {
    for length in [10, LONG] {
        let (disk, clock) = (SimDisk::new(1), clock());
        let (db, table) = open(&disk, &clock, Structure::BTree);
        for key in ["deleted", "put", "renewed", "undone", "range"] {
            table.put(key, vec![1; length]).expect("puts");
        }
        let mut transaction = db.begin().expect("begins");
        let renew = |transaction: &mut braid::Transaction, key| transaction.renew(&table, key, MINUTE).expect("renews");
        assert!(!renew(&mut transaction, "absent"));
        assert!(renew(&mut transaction, "deleted"));
        transaction.delete(&table, "deleted").expect("deletes");
        assert!(!renew(&mut transaction, "deleted"));
        assert!(renew(&mut transaction, "put"));
        transaction.put(&table, "put", "new").expect("puts");
        assert!(renew(&mut transaction, "put"), "its own value");
        let savepoint = transaction.savepoint();
        assert!(renew(&mut transaction, "undone"));
        transaction.roll_back_to(&savepoint).expect("rolls back");
        assert_eq!(transaction.expiry(&table, "undone").expect("reads"), None);
        assert!(renew(&mut transaction, "renewed") && renew(&mut transaction, "range"));
        transaction.delete_range(&table, "range".."range0").expect("deletes");
        assert!(!renew(&mut transaction, "range"));
        assert_eq!(transaction.range::<&[u8]>(&table, ..).count(), 3);
        let refused = transaction.renew(&table, "renewed", Duration::ZERO);
        assert!(matches!(refused, Err(Error::Option { option: "expires", .. })));
        // A ticket is not waited for, and the value is there all the same.
        let ticket = transaction.submit().expect("submits");
        table.compact().expect("compacts");
        db.checkpoint().expect("a checkpoint");
        ticket.wait().expect("is durable");
        db.drain().expect("applies");
        check(&db);
        let left = |minutes: u32| {
            clock.advance(minutes * MINUTE);
            keys_left(&table)
        };
        assert_eq!(left(0), ["put", "renewed", "undone"]);
        assert_eq!(table.get("put").expect("reads").as_deref(), Some(b"new".as_slice()));
        assert_eq!(table.get("renewed").expect("reads"), Some(vec![1; length]));
        assert_eq!(left(2), ["undone"]);
    }
}

fn keys_left(table: &Table) -> Vec<String> {
    let keys = table.iter().map(|pair| pair.expect("reads").0);
    keys.map(|key| String::from_utf8(key).expect("text")).collect()
}

#[test]
fn a_renewed_document_is_not_written_beside_new_ones() {
    for structure in Structure::ALL.iter().copied() {
        let (disk, clock) = (SimDisk::new(1), clock());
        let (db, table) = open(&disk, &clock, structure);
        table.put("renewed", vec![1; LONG]).expect("puts");
        let mut transaction = db.begin().expect("begins");
        transaction.put(&table, "before", vec![2; LONG]).expect("puts");
        assert!(transaction.renew(&table, "renewed", MINUTE).expect("renews"));
        transaction.put(&table, "then", vec![3; LONG]).expect("puts");
        transaction.commit().expect("commits");
        for applied in [false, true] {
            for (key, fill) in [("before", 2), ("renewed", 1), ("then", 3)] {
                assert!(table.get(key).expect("reads") == Some(vec![fill; LONG]), "{structure} {key} {applied}");
            }
            check(&db);
            db.drain().expect("applies");
        }
    }
}

#[test]
fn a_document_may_be_moved_before_its_renewal_commits() {
    for structure in Structure::ALL.iter().copied() {
        let (disk, clock) = (SimDisk::new(1), clock());
        let (db, table) = open(&disk, &clock, structure);
        for (key, value) in values() {
            table.put_expiring(&key, &value, MINUTE).expect("puts");
        }
        for key in 0..40_u8 {
            table.put([key], vec![key; LONG]).expect("puts");
            table.delete([key]).expect("deletes");
        }
        db.drain().expect("applies");
        let mut transaction = db.begin().expect("begins");
        for (key, _) in values() {
            assert!(transaction.renew(&table, &key, 3 * MINUTE).expect("renews"));
        }
        let savepoint = transaction.savepoint();
        assert!(transaction.renew(&table, LONG.to_string(), 5 * MINUTE).expect("renews"));
        transaction.roll_back_to(&savepoint).expect("is one of its own");
        let compaction = db.compact().expect("compacts");
        assert!(compaction.documents > 0, "{structure}: none was moved");
        db.checkpoint().expect("is written");
        // The transaction keeps neither the old places of documents nor their segments.
        let documents = table.stats().expect("reads").document_bytes;
        assert!(documents < 10 * LONG as u64, "{structure}: {documents} bytes");
        transaction.commit().expect("commits");
        clock.advance(2 * MINUTE);
        for (key, value) in values() {
            assert!(table.get(&key).expect("reads") == Some(value), "{structure}");
        }
        check(&db);
        clock.advance(2 * MINUTE);
        assert_eq!(keys_left(&table), [""; 0], "{structure}");
    }
}

#[test]
fn a_power_cut_leaves_the_old_expiry_or_the_new_one() {
    for structure in Structure::ALL.iter().copied() {
        for seed in 0..60 {
            let (disk, clock) = (SimDisk::new(seed), clock());
            let (db, table) = open(&disk, &clock, structure);
            for (key, value) in values() {
                table.put_expiring(&key, &value, MINUTE).expect("puts");
            }
            if seed.is_multiple_of(2) {
                db.drain().expect("applies");
            }
            disk.crash_after(seed);
            let renewed: Vec<_> = values().into_iter().map(|(key, _)| table.renew(&key, 5 * MINUTE)).collect();
            let _ = (table.compact(), db.checkpoint());
            drop((table, db));
            disk.restart();
            let (db, table) = open(&disk, &clock, structure);
            check(&db);
            clock.advance(2 * MINUTE);
            for ((key, value), renewed) in values().into_iter().zip(renewed) {
                match table.get(&key).expect("reads") {
                    Some(found) => assert!(found == value),
                    None => assert!(renewed.is_err(), "{structure} seed {seed}: {key:?} was renewed"),
                }
            }
            table.put_with("more", vec![1; LONG], Durability::Sync).expect("puts");
            table.compact().expect("compacts");
            check(&db);
        }
    }
}
