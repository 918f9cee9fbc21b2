//! What transactions promise: reads of one moment and of their own writes, conflicts that are found, locks, limits.

use std::{sync::Arc, thread, time::Duration};

use braid::{Database, Error, ErrorKind, Isolation, Options, Structure, Swap, Table, Transaction, TransactionOptions};

fn small() -> Options {
    Options::new().cache_bytes(1 << 20).write_buffer_bytes(256 << 10).segment_bytes(256 << 10)
}

fn scratch_with(structure: Structure, options: Options) -> (tempfile::TempDir, Database, Table) {
    let directory = tempfile::tempdir().expect("a directory");
    let db = options.open(directory.path()).expect("opens");
    let table = db.table("table", structure).expect("a table");
    (directory, db, table)
}

fn scratch(structure: Structure) -> (tempfile::TempDir, Database, Table) {
    scratch_with(structure, small())
}

fn serializable(db: &Database) -> Transaction {
    db.begin_with(TransactionOptions::new().isolation(Isolation::Serializable)).expect("begins")
}

fn keys(range: impl Iterator<Item = braid::Result<(Vec<u8>, Vec<u8>)>>) -> Vec<String> {
    range.map(|pair| String::from_utf8(pair.expect("reads").0).expect("text")).collect()
}

fn is_conflict<T: std::fmt::Debug>(outcome: braid::Result<T>) -> bool {
    let Err(error) = outcome else { return false };
    assert!(matches!(error, Error::Conflict { .. }), "{error}");
    assert!(error.is_retryable() && error.kind() == ErrorKind::Conflict);
    true
}

fn a_transaction_sees_its_own_writes_and_nobody_else_does(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    for key in ["b", "d", "f"] {
        table.put(key, "old").expect("put");
    }
    let mut tx = db.begin().expect("begins");
    tx.put(&table, "a", "new").expect("put");
    tx.put(&table, "d", "new").expect("put");
    tx.delete(&table, "f").expect("delete");
    tx.put(&table, "g", "new").expect("put");
    tx.delete(&table, "h").expect("delete");
    assert_eq!(tx.get(&table, "d").expect("get").as_deref(), Some(&b"new"[..]));
    assert_eq!(tx.get(&table, "f").expect("get"), None);
    let many = tx.get_many(&table, &["g", "b", "f", "x"]).expect("get_many");
    assert_eq!(many, [Some(b"new".to_vec()), Some(b"old".to_vec()), None, None]);
    assert_eq!(keys(tx.iter(&table)), ["a", "b", "d", "g"]);
    assert_eq!(keys(tx.iter(&table).rev()), ["g", "d", "b", "a"]);
    assert_eq!(keys(tx.range(&table, "b".."g").rev()), ["d", "b"]);
    assert_eq!(keys(tx.prefix(&table, "d")), ["d"]);
    assert_eq!(keys(tx.range(&table, "z".."a")), Vec::<String>::new());
    assert_eq!(keys(table.iter()), ["b", "d", "f"]);
    tx.commit().expect("commits");
    assert_eq!(keys(table.iter()), ["a", "b", "d", "g"]);
}

fn a_transaction_reads_one_moment_over_rounds(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    table.put("k", "1").expect("put");
    let tx = db.begin().expect("begins");
    for round in 0..5 {
        table.put("k", format!("later {round}")).expect("put");
        table.put("new", "later").expect("put");
        db.drain().expect("drains");
        assert_eq!(tx.get(&table, "k").expect("get").as_deref(), Some(&b"1"[..]));
        assert_eq!(keys(tx.iter(&table)), ["k"]);
    }
    table.compact().expect("compacts");
    assert_eq!(tx.get(&table, "k").expect("get").as_deref(), Some(&b"1"[..]));
    // It only reads: nobody is in its way.
    tx.commit().expect("commits");
}

fn a_refused_commit_leaves_no_documents(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    let long = vec![1; 300_000];
    for _ in 0..20 {
        let mut tx = db.begin().expect("begins");
        tx.put(&table, "k", &long).expect("put");
        table.put("k", "other").expect("put");
        assert!(is_conflict(tx.commit()));
    }
    assert_eq!(table.stats().expect("stats").document_bytes, 0);
}

fn dropping_it_rolls_back(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    let mut tx = db.begin().expect("begins");
    tx.put(&table, "k", "v").expect("put");
    drop(tx);
    assert_eq!(table.get("k").expect("get"), None);
    assert_eq!(db.stats().expect("stats").transaction_bytes, 0);
    assert_eq!(db.stats().expect("stats").snapshots.open, 0);
}

fn savepoints_take_back_what_came_after_them(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    let mut tx = db.begin().expect("begins");
    tx.put(&table, "a", "1").expect("put");
    let first = tx.savepoint();
    tx.put(&table, "a", "2").expect("put");
    tx.put(&table, "b", "2").expect("put");
    let second = tx.savepoint();
    tx.delete(&table, "a").expect("delete");
    tx.roll_back_to(&second).expect("there");
    assert_eq!(tx.get(&table, "a").expect("get").as_deref(), Some(&b"2"[..]));
    tx.delete(&table, "b").expect("delete");
    tx.roll_back_to(&first).expect("there");
    assert_eq!(keys(tx.iter(&table)), ["a"]);
    assert!(matches!(tx.roll_back_to(&second), Err(Error::NoSavepoint)));
    let mut other = db.begin().expect("begins");
    assert!(matches!(other.roll_back_to(&first), Err(Error::NoSavepoint)));
    tx.roll_back_to(&first).expect("still there");
    tx.commit().expect("commits");
    assert_eq!(table.get("a").expect("get").as_deref(), Some(&b"1"[..]));
    drop(other);
    assert_eq!(db.stats().expect("stats").transaction_bytes, 0);
}

fn of_two_that_write_the_same_key_the_first_to_commit_wins(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    table.put("k", "0").expect("put");
    let mut one = db.begin().expect("begins");
    let mut other = db.begin().expect("begins");
    one.put(&table, "k", "1").expect("put");
    other.put(&table, "k", "2").expect("put");
    one.commit().expect("the first");
    assert!(is_conflict(other.commit()));
    assert_eq!(table.get("k").expect("get").as_deref(), Some(&b"1"[..]));
}

/// Writes outside of transactions count as commits, wherever their versions are by then.
fn a_plain_write_is_in_the_way_too_even_when_it_was_applied_or_deleted_the_key(structure: Structure) {
    for applied in [false, true] {
        for deleted in [false, true] {
            let (_directory, db, table) = scratch(structure);
            table.put("k", "0").expect("put");
            let mut tx = db.begin().expect("begins");
            tx.put(&table, "k", "1").expect("put");
            if deleted { table.delete("k") } else { table.put("k", "2") }.expect("written");
            if applied {
                db.drain().expect("drains");
                table.compact().expect("compacts");
            }
            assert!(is_conflict(tx.commit()), "applied {applied}, deleted {deleted}");
        }
    }
}

/// Whoever inserts new keys beside others who do is in nobody's way, whatever shares a place with whom, and after
/// rounds too.
fn new_keys_are_no_conflict(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    let mut tx = serializable(&db);
    for key in 0..100_u32 {
        assert_eq!(tx.get(&table, [b"tx", key.to_be_bytes().as_slice()].concat()).expect("get"), None);
        tx.put(&table, [b"tx", key.to_be_bytes().as_slice()].concat(), "").expect("put");
    }
    for first in (0..50_000_u32).step_by(2000) {
        let mut batch = braid::WriteBatch::new();
        (first..first + 2000).for_each(|key| batch.put(&table, key.to_be_bytes(), ""));
        db.write_with(&batch, braid::Durability::Os).expect("written");
    }
    db.drain().expect("drains");
    tx.commit().expect("nobody was in its way");
}

fn a_key_that_came_and_went_is_in_the_way(structure: Structure) {
    for applied in [false, true] {
        let (_directory, db, table) = scratch(structure);
        table.put("other", "0").expect("put");
        let mut tx = db.begin().expect("begins");
        tx.put(&table, "k", "1").expect("put");
        table.put("k", "2").expect("put");
        if applied {
            db.drain().expect("drains");
        }
        table.delete("k").expect("delete");
        if applied {
            db.drain().expect("drains");
            table.compact().expect("compacts");
        }
        assert!(is_conflict(tx.commit()), "applied {applied}");
    }
}

/// Many keys share a place in the table of recent commits: one that was not changed is no conflict.
fn neighbours_are_not_in_the_way(structure: Structure) {
    let (_directory, db, table) = scratch_with(structure, small().write_buffer_bytes(8 << 20));
    table.put("k", "0").expect("put");
    table.put("other", "0").expect("put");
    for applied in [false, true] {
        let mut tx = serializable(&db);
        tx.get(&table, "other").expect("get");
        tx.put(&table, "k", "1").expect("put");
        let mut batch = braid::WriteBatch::new();
        for key in 0..100_000_u32 {
            batch.put(&table, key.to_be_bytes(), "");
            if batch.len() == 2000 {
                db.write_with(&batch, braid::Durability::Os).expect("written");
                batch.clear();
            }
        }
        if applied {
            db.drain().expect("drains");
        }
        tx.commit().expect("nobody was in its way");
    }
}

fn write_skew_is_found_where_it_was_asked_for(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    let skew = |begin: &dyn Fn() -> Transaction| {
        table.put("x", "1").expect("put");
        table.put("y", "1").expect("put");
        let (mut one, mut other) = (begin(), begin());
        one.get(&table, "x").expect("get");
        one.put(&table, "y", "0").expect("put");
        other.get(&table, "y").expect("get");
        other.put(&table, "x", "0").expect("put");
        one.commit().expect("the first");
        other.commit()
    };
    skew(&|| db.begin().expect("begins")).expect("snapshot isolation lets it be");
    assert!(is_conflict(skew(&|| serializable(&db))));
}

fn phantoms_are_found_from_both_ends_in_memory_and_after_rounds(structure: Structure) {
    for applied in [false, true] {
        for backward in [false, true] {
            let (_directory, db, table) = scratch(structure);
            for key in ["b", "d", "f", "h"] {
                table.put(key, "").expect("put");
            }
            // Each takes two pairs of the range from its end and writes elsewhere.
            let run = |phantom: &str| {
                let mut tx = serializable(&db);
                let range = tx.range(&table, "a".."i");
                let two = if backward { keys(range.rev().take(2)) } else { keys(range.take(2)) };
                assert_eq!(two, if backward { ["h", "f"] } else { ["b", "d"] });
                tx.put(&table, "z", "").expect("put");
                table.put(phantom, "").expect("put");
                if applied {
                    // More than the ring of recent commits keeps, so that the range is walked again.
                    for _ in 0..5 {
                        table.put("zz", vec![0; 1 << 20]).expect("put");
                    }
                    for number in 0..3000_u32 {
                        table.put_with(format!("zz{number}"), vec![0; 1500], braid::Durability::Os).expect("put");
                    }
                    db.drain().expect("drains");
                }
                let outcome = tx.commit();
                table.delete(phantom).expect("delete");
                outcome
            };
            run(if backward { "c" } else { "g" }).expect("behind what was read");
            assert!(is_conflict(run(if backward { "g" } else { "c" })), "applied {applied}, backward {backward}");
        }
    }
}

fn a_range_that_was_walked_to_its_end_counts_to_its_end(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    table.put("b", "").expect("put");
    let mut tx = serializable(&db);
    assert_eq!(keys(tx.range(&table, "a".."i")), ["b"]);
    tx.put(&table, "z", "").expect("put");
    table.put("h", "").expect("put");
    assert!(is_conflict(tx.commit()));
    // A range that was never walked shows nothing.
    let mut tx = serializable(&db);
    drop(tx.range(&table, "a".."i"));
    tx.put(&table, "z", "").expect("put");
    table.put("i", "").expect("put");
    tx.commit().expect("nothing was read");
}

fn a_load_is_in_the_way_of_whoever_found_the_table_empty(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    let other = db.table("other", structure).expect("a table");
    let mut writer = db.begin().expect("begins");
    writer.put(&table, "k", "").expect("put");
    let mut reader = serializable(&db);
    assert_eq!(reader.get(&table, "k").expect("get"), None);
    reader.put(&other, "k", "").expect("put");
    let snapshot = db.snapshot();
    table.load([("k", "loaded")]).expect("loads");
    assert!(is_conflict(writer.commit()));
    assert!(is_conflict(reader.commit()));
    assert_eq!(snapshot.get(&table, "k").expect("get"), None);
    assert_eq!(db.snapshot().get(&table, "k").expect("get").as_deref(), Some(&b"loaded"[..]));
}

fn a_locked_key_waits_for_its_holder(structure: Structure) {
    let (_directory, db, table) = scratch_with(structure, small().lock_timeout(Duration::from_secs(60)));
    table.put("k", [0]).expect("put");
    let mut tx = db.begin().expect("begins");
    assert_eq!(tx.get_for_update(&table, "k").expect("locks"), Some(vec![0]));
    let soon = TransactionOptions::new().lock_timeout(Duration::from_millis(1));
    let mut refused = db.begin_with(soon).expect("begins");
    let error = refused.get_for_update(&table, "k").expect_err("locked");
    assert!(matches!(error, Error::LockTimeout { .. }) && error.is_retryable(), "{error}");
    refused.put(&table, "k", [9]).expect("put");
    assert!(matches!(refused.commit(), Err(Error::LockTimeout { .. })));
    thread::scope(|scope| {
        let plain = scope.spawn(|| table.put("k", [5]));
        tx.put(&table, "k", [1]).expect("put");
        tx.commit().expect("nobody else could commit the key");
        plain.join().expect("no panic").expect("waited for the lock");
    });
    assert_eq!(table.get("k").expect("get"), Some(vec![5]));
}

fn a_lock_says_what_happened_to_its_key_and_may_be_waited_for_without_end(structure: Structure) {
    let (_directory, db, table) = scratch_with(structure, small().lock_timeout(Duration::MAX));
    let other = db.table("other", structure).expect("a table");
    let mut tx = db.begin().expect("begins");
    tx.get(&other, "k").expect("get");
    table.load([("k", "loaded")]).expect("loads");
    assert!(is_conflict(tx.get_for_update(&table, "k")));
    drop(tx);
    let mut tx = db.begin().expect("begins");
    let found = tx.get_many_for_update(&table, &["z", "k", "a", "k"]).expect("locks");
    assert_eq!(found, [None, Some(b"loaded".to_vec()), None, Some(b"loaded".to_vec())]);
    let held = db.stats().expect("stats").transaction_bytes;
    let soon = TransactionOptions::new().lock_timeout(Duration::from_millis(1));
    let mut refused = db.begin_with(soon).expect("begins");
    for _ in 0..20 {
        assert!(matches!(refused.get_for_update(&table, "a"), Err(Error::LockTimeout { .. })));
    }
    assert_eq!(db.stats().expect("stats").transaction_bytes, held);
    thread::scope(|scope| {
        let waits = scope.spawn(|| table.put("a", "plain"));
        drop(tx);
        waits.join().expect("no panic").expect("put");
    });
}

fn counters_under_locks_lose_nothing_and_never_conflict(structure: Structure) {
    let (_directory, db, table) = scratch_with(structure, small().lock_timeout(Duration::from_secs(60)));
    let add = |tx: &mut Transaction| -> braid::Result<()> {
        let value =
            tx.get_for_update(&table, "k")?.map_or(0, |value| u64::from_le_bytes(value.try_into().expect("8 bytes")));
        tx.put(&table, "k", (value + 1).to_le_bytes())
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut tx = db.begin().expect("begins");
                    add(&mut tx).expect("locks");
                    tx.commit().expect("no conflict");
                }
            });
        }
    });
    assert_eq!(table.get("k").expect("get"), Some(200_u64.to_le_bytes().to_vec()));
}

fn who_would_wait_for_each_other_are_told(structure: Structure) {
    let (_directory, db, table) = scratch_with(structure, small().lock_timeout(Duration::from_secs(60)));
    let db = Arc::new(db);
    // Each round both lock one key and then the other's.
    for _ in 0..20 {
        let barrier = std::sync::Barrier::new(2);
        let both = |mine: &str, other: &str| {
            let mut tx = db.begin().expect("begins");
            tx.get_for_update(&table, mine).expect("locks");
            barrier.wait();
            tx.get_for_update(&table, other).map(drop)
        };
        let (one, other) = thread::scope(|scope| {
            let one = scope.spawn(|| both("a", "b"));
            (both("b", "a"), one.join().expect("no panic"))
        });
        let told = [one, other].into_iter().filter(|outcome| matches!(outcome, Err(Error::Deadlock { .. }))).count();
        assert_eq!(told, 1, "one is told, the other has its lock");
    }
}

fn run_tries_again_until_it_commits(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    db.run(|tx| {
                        let value = tx.get(&table, "k")?.map_or(0, |value| value[0]);
                        tx.put(&table, "k", [value + 1])
                    })
                    .expect("commits");
                }
            });
        }
    });
    assert_eq!(table.get("k").expect("get"), Some(vec![200]));
    let refused = db.run(|tx| {
        tx.put(&table, "other", "")?;
        Err::<(), _>(Error::NoSavepoint)
    });
    assert!(matches!(refused, Err(Error::NoSavepoint)));
    assert_eq!(table.get("other").expect("get"), None);
}

fn conditional_writes_say_what_they_found(structure: Structure) {
    let (_directory, _db, table) = scratch(structure);
    assert_eq!(table.put_if_absent("k", "1").expect("put"), Swap::Done);
    assert_eq!(table.put_if_absent("k", "2").expect("put"), Swap::Refused(Some(b"1".to_vec())));
    assert_eq!(table.compare_and_swap("k", Some(b"1"), Some(b"3")).expect("swap"), Swap::Done);
    assert_eq!(table.compare_and_swap("k", Some(b"1"), None).expect("swap"), Swap::Refused(Some(b"3".to_vec())));
    assert_eq!(table.compare_and_swap("k", Some(b"3"), None).expect("swap"), Swap::Done);
    assert_eq!(table.compare_and_swap("k", Some(b"3"), None).expect("swap"), Swap::Refused(None));
    // Larger than all that transactions may hold together.
    let large = vec![1; 3 << 20];
    assert_eq!(table.put_if_absent("large", &large).expect("put"), Swap::Done);
    assert_eq!(table.get("large").expect("get"), Some(large));
    thread::scope(|scope| {
        let winners: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn({
                    let table = &table;
                    move || table.put_if_absent("once", [number]).expect("put") == Swap::Done
                })
            })
            .collect();
        let winners = winners.into_iter().filter_map(|winner| winner.join().ok()).filter(|won| *won).count();
        assert_eq!(winners, 1);
    });
}

fn limits_are_clear_errors_and_change_nothing(structure: Structure) {
    let (_directory, db, table) = scratch(structure);
    let mut tx = db.begin().expect("begins");
    tx.put(&table, "kept", "1").expect("put");
    let error = (0..100_000_u32).find_map(|key| tx.put(&table, key.to_be_bytes(), [0; 100]).err());
    let error = error.expect("more than a megabyte");
    assert!(matches!(error, Error::TransactionTooLarge { .. }) && error.kind() == ErrorKind::InvalidInput, "{error}");
    assert_eq!(tx.get(&table, "kept").expect("get").as_deref(), Some(&b"1"[..]));
    assert!(matches!(tx.put(&table, [], "v"), Err(Error::KeyLength { .. })));
    drop(tx);
    assert_eq!(db.stats().expect("stats").transaction_bytes, 0);

    let mut reader = serializable(&db);
    reader.put(&table, "k", "v").expect("put");
    let error = (0..100_000_u32).find_map(|key| reader.get(&table, key.to_be_bytes()).err()).expect("bounded too");
    assert!(matches!(error, Error::TransactionTooLarge { .. }), "{error}");
    reader.put(&table, "other", "v").expect_err("there is no room");
    assert!(matches!(reader.commit(), Err(Error::TransactionTooLarge { .. })), "what it read is not known any more");

    let (_elsewhere, foreign, _) = scratch(structure);
    let mut tx = foreign.begin().expect("begins");
    assert!(matches!(tx.put(&table, "k", "v"), Err(Error::ForeignTable { .. })));
    assert!(matches!(tx.get(&table, "k"), Err(Error::ForeignTable { .. })));
    assert!(matches!(foreign.snapshot().get(&table, "k"), Err(Error::ForeignTable { .. })));
    let mut tx = db.begin_with(TransactionOptions::new().read_only(true)).expect("begins");
    assert!(matches!(tx.put(&table, "k", "v"), Err(Error::ReadOnlyTransaction)));
}

fn a_transaction_over_two_tables_with_documents_survives_a_reopen_whole(structure: Structure) {
    let (directory, db, table) = scratch(structure);
    let other = db.table("other", structure).expect("a table");
    let long = vec![7; 100_000];
    db.run(|tx| {
        tx.put(&table, "k", &long)?;
        tx.put(&other, "k", "short")
    })
    .expect("commits");
    drop((db, table, other));
    let db = small().open(directory.path()).expect("opens");
    let (table, other) = (db.open_table("table").expect("there"), db.open_table("other").expect("there"));
    assert_eq!(table.get("k").expect("get"), Some(long));
    assert_eq!(other.get("k").expect("get").as_deref(), Some(&b"short"[..]));
}

on_every_kind!(
    a_transaction_sees_its_own_writes_and_nobody_else_does,
    a_transaction_reads_one_moment_over_rounds,
    a_refused_commit_leaves_no_documents,
    dropping_it_rolls_back,
    savepoints_take_back_what_came_after_them,
    of_two_that_write_the_same_key_the_first_to_commit_wins,
    a_plain_write_is_in_the_way_too_even_when_it_was_applied_or_deleted_the_key,
    new_keys_are_no_conflict,
    a_key_that_came_and_went_is_in_the_way,
    neighbours_are_not_in_the_way,
    write_skew_is_found_where_it_was_asked_for,
    phantoms_are_found_from_both_ends_in_memory_and_after_rounds,
    a_range_that_was_walked_to_its_end_counts_to_its_end,
    a_load_is_in_the_way_of_whoever_found_the_table_empty,
    a_locked_key_waits_for_its_holder,
    a_lock_says_what_happened_to_its_key_and_may_be_waited_for_without_end,
    counters_under_locks_lose_nothing_and_never_conflict,
    who_would_wait_for_each_other_are_told,
    run_tries_again_until_it_commits,
    conditional_writes_say_what_they_found,
    limits_are_clear_errors_and_change_nothing,
    a_transaction_over_two_tables_with_documents_survives_a_reopen_whole;
);

/// An error of a program's own.
#[derive(Debug)]
enum Own {
    Refused,
    Store(Error),
}

impl From<Error> for Own {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

#[test]
fn work_that_fails_with_an_error_of_its_own_is_rolled_back() {
    let (_directory, db, table) = scratch(Structure::BTree);
    let refused = db.run(|tx| {
        tx.put(&table, "key", "value")?;
        Err::<(), _>(Own::Refused)
    });
    assert!(matches!(refused, Err(Own::Refused)));
    assert_eq!(table.get("key").expect("reads"), None);
    let failed: Result<(), Own> = db.run(|tx| Ok(tx.put(&table, "", "value")?));
    assert!(matches!(failed, Err(Own::Store(Error::KeyLength { .. }))));
}

#[test]
fn work_runs_anew_after_a_conflict_that_it_met_and_wrapped() {
    let (_directory, db, table) = scratch(Structure::BTree);
    let table = &table;
    table.put("key", "0").expect("puts");
    let mut runs = 0;
    let seen = db.run(|tx| {
        runs += 1;
        let _snapshot_is_used = tx.get(table, "other")?;
        if runs < 3 {
            table.put("key", runs.to_string()).expect("another writer");
        }
        let value = tx.get_for_update(table, "key").map_err(Own::Store)?;
        Ok::<_, Own>(value)
    });
    assert_eq!((seen.expect("it ends"), runs), (Some(b"2".to_vec()), 3));
}

#[test]
fn a_hot_key_is_no_reason_to_give_up() {
    const THREADS: u64 = 16;
    const RUNS: u64 = 200;
    for isolation in [Isolation::Snapshot, Isolation::Serializable] {
        let (_directory, db, table) = scratch(Structure::BTree);
        let table = &table;
        let options = TransactionOptions::new().isolation(isolation);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..RUNS {
                        let counted = db.run_with(options, |tx| {
                            let old =
                                tx.get(table, "hot")?.map_or(0, |old| u64::from_be_bytes(old.try_into().expect("8")));
                            thread::yield_now();
                            tx.put(table, "hot", (old + 1).to_be_bytes())
                        });
                        counted.expect("it gets its turn");
                    }
                });
            }
        });
        let count = table.get("hot").expect("reads").expect("is there");
        assert_eq!(u64::from_be_bytes(count.try_into().expect("8")), THREADS * RUNS, "none is lost");
    }
}

#[test]
fn a_batch_over_contended_keys_gets_through() {
    let (_directory, db, table) = scratch(Structure::BTree);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        for number in 0..8_u8 {
            let (table, is_over) = (&table, &is_over);
            scope.spawn(move || {
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    table.update([number % 4], |old| Some([old.unwrap_or_default(), &[1]].concat())).expect("in turn");
                }
            });
        }
        let (db, table) = (&db, &table);
        let outcome = thread::spawn({
            let (db, table) = (db.clone(), table.clone());
            move || {
                for _ in 0..50 {
                    let mut batch = braid::WriteBatch::new();
                    (0..4_u8).for_each(|key| batch.put(&table, [key], ""));
                    db.write(&batch)?;
                }
                Ok::<_, Error>(())
            }
        });
        let outcome = outcome.join().expect("no panic");
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        outcome.expect("it gets its turn at all of them");
        assert!(db.tables().len() == 1 && !table.is_empty().expect("reads"));
    });
}
