//! Commits and lookups under way without a thread each: waited for or awaited, kept or dropped, until the power goes or
//! the disk fails.

use std::{
    future::Future,
    path::Path,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use braid::{
    Database, Durability, Error, ErrorKind, Options, Structure, Table, Ticket, TransactionOptions, WriteBatch,
};
use psync::sim::{Fault, SimDisk};

struct Unpark {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Waits for a future; polls it again only where its waker was woken.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let unpark = Arc::new(Unpark { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    loop {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        while !unpark.is_woken.swap(false, Ordering::SeqCst) {
            thread::park();
        }
    }
}

fn open(disk: &SimDisk, background: bool) -> (Database, Table) {
    let options = Options::new().cache_bytes(1 << 20).segment_bytes(1 << 20).background(background);
    let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", Structure::BTree).expect("a table");
    (db, table)
}

fn submit(db: &Database, table: &Table, key: u32, durability: Durability) -> braid::Result<Ticket> {
    let mut batch = WriteBatch::new();
    batch.put(table, key.to_be_bytes(), [7; 50]);
    db.submit(&batch, durability)
}

const ALL: [Durability; 3] = [Durability::Sync, Durability::Os, Durability::Lazy(Duration::from_secs(1000))];

#[test]
fn one_thread_has_a_thousand_commits_under_way_and_few_flushes() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    let before = db.stats().expect("figures").log.flushes;
    let tickets: Vec<Ticket> =
        (0..1000).map(|key| submit(&db, &table, key, Durability::Sync).expect("is placed")).collect();
    assert!(tickets.is_sorted_by(|one, next| one.seq() < next.seq()));
    let last = tickets.last().expect("the last").seq();
    for ticket in tickets {
        let seq = ticket.seq();
        assert_eq!(ticket.wait().expect("is done"), seq);
        assert!(db.snapshot().seq() >= seq, "who waited sees it");
    }
    assert_eq!(db.snapshot().seq(), last);
    assert!(db.stats().expect("figures").log.flushes - before < 1000);
    assert_eq!(table.iter().count(), 1000);
}

#[test]
fn awaited_commits_are_as_safe_as_asked_and_visible() {
    for background in [true, false] {
        for seed in 0..3 {
            let disk = SimDisk::new(seed);
            let (db, table) = open(&disk, background);
            let tickets: Vec<(Durability, Ticket)> = (0..300)
                .map(|key| {
                    let durability = ALL[(key as usize + usize::from(background)) % 3];
                    (durability, submit(&db, &table, key, durability).expect("is placed"))
                })
                .collect();
            for (durability, mut ticket) in tickets {
                let seq = block_on(&mut ticket).expect("is done");
                assert_eq!(seq, ticket.seq());
                assert!(durability != Durability::Sync || ticket.is_durable());
                assert!(db.snapshot().seq() >= seq);
                assert_eq!(block_on(&mut ticket).expect("asked again"), seq);
            }
            assert_eq!(table.iter().count(), 300);
        }
    }
}

#[test]
fn a_commit_happens_though_nobody_waits_for_it() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    for key in 0..100 {
        drop(submit(&db, &table, key, Durability::Sync).expect("is placed"));
    }
    while table.iter().count() < 100 {
        thread::yield_now();
    }
    disk.crash_after(0);
    drop((db, table));
    disk.restart();
    assert_eq!(open(&disk, true).1.iter().count(), 100, "what is visible under sync is durable");
}

#[test]
fn a_close_ends_what_is_under_way() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    let tickets: Vec<Ticket> =
        (0..200).map(|key| submit(&db, &table, key, ALL[key as usize % 3]).expect("is placed")).collect();
    db.close().expect("closes");
    for ticket in tickets {
        assert!(ticket.is_durable());
        block_on(ticket).expect("was done before the close ended");
    }
    drop(table);
    assert_eq!(open(&disk, true).1.iter().count(), 200);
}

#[test]
fn power_takes_no_commit_back_whose_ticket_was_done() {
    let mut lost = 0;
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let (db, table) = open(&disk, true);
        disk.crash_after(3 + seed % 20);
        let (mut tickets, mut made, mut done) = (Vec::new(), 0, 0);
        'life: while made < 2000 {
            for _ in 0..(1 + seed % 40) {
                let Ok(ticket) = submit(&db, &table, made, Durability::Sync) else { break 'life };
                tickets.push((made, ticket));
                made += 1;
            }
            for (key, ticket) in tickets.drain(..) {
                let outcome = if seed % 2 == 0 { ticket.wait() } else { block_on(ticket) };
                if outcome.is_err() {
                    break 'life;
                }
                done = key + 1;
            }
        }
        drop((tickets, table, db));
        disk.restart();
        let (_db, table) = open(&disk, true);
        let there: Vec<u32> = table
            .iter()
            .map(|pair| u32::from_be_bytes(pair.expect("reads").0.try_into().expect("four bytes")))
            .collect();
        assert!(there.iter().copied().eq(0..u32::try_from(there.len()).expect("few")), "seed {seed}: a prefix");
        assert!(there.len() >= done as usize, "seed {seed}: {done} were done, {} are there", there.len());
        lost += made as usize - there.len();
    }
    assert!(lost > 0, "the power went when nothing was under way");
}

#[test]
fn a_failed_flush_is_told_to_every_ticket_and_woken_for() {
    const EIO: i32 = 5;
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    disk.fail_operation(Fault::Flush, 0, EIO);
    let tickets: Vec<Ticket> = (0..100).map_while(|key| submit(&db, &table, key, Durability::Sync).ok()).collect();
    assert!(!tickets.is_empty());
    for (number, ticket) in tickets.into_iter().enumerate() {
        let outcome = if number % 2 == 0 { block_on(ticket) } else { ticket.wait() };
        assert!(matches!(outcome, Err(Error::OutcomeUnknown { .. })), "{outcome:?}");
    }
    let refused = submit(&db, &table, 7, Durability::Sync).expect_err("it no longer writes");
    assert_eq!(refused.kind(), ErrorKind::Failed);
}

#[test]
fn a_transaction_is_checked_when_it_is_submitted() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    let begin = || db.begin_with(TransactionOptions::new()).expect("begins");
    let (mut first, mut second) = (begin(), begin());
    first.put(&table, "key", "first").expect("puts");
    second.put(&table, "key", "second").expect("puts");
    let ticket = first.submit().expect("is first");
    let refused = second.submit().expect_err("is second");
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    let seq = block_on(ticket).expect("is done");
    assert_eq!(table.get("key").expect("reads").as_deref(), Some(&b"first"[..]));
    let nothing = begin().submit().expect("nothing to do");
    assert!(nothing.is_durable());
    assert_eq!(block_on(nothing).expect("is done"), seq);
}

#[test]
fn writes_tell_their_seqs_and_persist_makes_them_durable() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    let mut seqs = vec![
        table.put("a", "1").expect("puts"),
        table.put_with("b", "1", Durability::Os).expect("puts"),
        table.put_expiring("c", "1", Duration::from_secs(1000)).expect("puts"),
        table.delete("a").expect("deletes"),
        table.delete_range("x"..).expect("deletes"),
        table.delete_prefix("y").expect("deletes"),
    ];
    let mut batch = WriteBatch::new();
    batch.put(&table, "d", "1");
    batch.set_durability(Durability::Lazy(Duration::from_secs(1000)));
    seqs.push(db.write(&batch).expect("writes"));
    let again = batch.clone();
    seqs.push(db.write(&again).expect("writes"));
    assert!(seqs.is_sorted_by(|one, next| one < next), "{seqs:?}");
    assert_eq!(db.snapshot().seq(), *seqs.last().expect("the last"));
    db.persist().expect("flushes");
    disk.crash_after(0);
    drop((db, table, batch, again));
    disk.restart();
    let keys: Vec<Vec<u8>> = open(&disk, true).1.iter().map(|pair| pair.expect("reads").0).collect();
    assert_eq!(keys, [b"b", b"c", b"d"], "all were durable");
}

#[test]
fn a_batch_does_not_keep_its_database_open_and_belongs_to_one_opening() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    let mut batch = WriteBatch::new();
    batch.put(&table, "a", "1");
    db.write(&batch).expect("writes");
    drop((db, table));
    let (db, table) = open(&disk, true);
    assert_eq!(table.get("a").expect("reads").as_deref(), Some(&b"1"[..]));
    assert!(matches!(db.write(&batch), Err(Error::ForeignTable { .. })));
    assert!(matches!(db.submit(&batch, Durability::Os), Err(Error::ForeignTable { .. })));
}

#[test]
fn lookups_find_what_gets_find_and_gather() {
    for background in [true, false] {
        for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
            let disk = SimDisk::new(1);
            let options = Options::new().cache_bytes(1 << 20).background(background);
            let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
            let tables = ["one", "other"].map(|name| db.table(name, structure).expect("a table"));
            for key in 0..500_u32 {
                let value = vec![7; if key % 5 == 0 { 5000 } else { 50 }];
                tables[key as usize % 2].put_with(key.to_be_bytes(), value, Durability::Os).expect("puts");
            }
            db.checkpoint().expect("applies");
            db.drop_caches();
            let lookups: Vec<_> = (0..1000_u32).map(|key| tables[key as usize % 2].lookup(key.to_be_bytes())).collect();
            for (key, lookup) in (0..1000_u32).zip(lookups) {
                let found = block_on(lookup).expect("reads");
                assert_eq!(found, tables[key as usize % 2].get(key.to_be_bytes()).expect("reads"), "{structure} {key}");
            }
            let keys: Vec<_> = (0..600_u32).map(u32::to_be_bytes).collect();
            let found = block_on(tables[0].lookup_many(&keys)).expect("reads");
            assert_eq!(found, tables[0].get_many(&keys).expect("reads"));
            let refused = block_on(tables[0].lookup("")).expect_err("no such key");
            assert!(matches!(refused, Error::KeyLength { .. }));
            drop(tables[0].lookup("never polled"));
        }
    }
}

/// Polls futures until all are done; returns how many rounds that took.
fn join<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let unpark = Arc::new(Unpark { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    while outputs.iter().any(Option::is_none) {
        for (future, output) in futures.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none()) {
            if let Poll::Ready(ready) = Pin::new(future).poll(&mut Context::from_waker(&waker)) {
                *output = Some(ready);
            }
        }
        while outputs.iter().any(Option::is_none) && !unpark.is_woken.swap(false, Ordering::SeqCst) {
            thread::park();
        }
    }
    outputs.into_iter().flatten().collect()
}

#[test]
fn one_damaged_key_fails_its_own_lookup_alone() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    for key in 0..200_u32 {
        table.put_with(key.to_be_bytes(), vec![7; 5000], Durability::Os).expect("puts");
    }
    db.checkpoint().expect("applies");
    db.drop_caches();
    disk.fail_operation(Fault::Read, 20, 5);
    let outcomes = join((0..200_u32).map(|key| table.lookup(key.to_be_bytes())).collect());
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    // A batch that met the fault is read once more, a request at a time.
    assert!(failed <= 1, "{failed} failed");
    assert!(outcomes.into_iter().flatten().all(|found| found.as_deref() == Some(&[7; 5000][..])));
}

#[test]
fn lookups_are_answered_though_the_database_closes() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    for key in 0..100_u32 {
        table.put(key.to_be_bytes(), "value").expect("puts");
    }
    let mut lookups: Vec<_> = (0..200_u32).map(|key| table.lookup(key.to_be_bytes())).collect();
    let asked = lookups.split_off(100);
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(join(asked).into_iter().flatten().flatten().count(), 0));
        db.close().expect("closes");
    });
    assert_eq!(join(lookups).into_iter().flatten().flatten().count(), 100, "who asks later reads itself");
}

/// A waker that panics.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("the task is gone");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_from_being_woken() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    let (panics, mut left) = (Waker::from(Arc::new(Panics)), Vec::new());
    for key in 0..200_u32 {
        let mut first = submit(&db, &table, key, Durability::Sync).expect("is placed");
        let _may_be_done = Pin::new(&mut first).poll(&mut Context::from_waker(&panics));
        let second = submit(&db, &table, key, Durability::Sync).expect("is placed");
        let mut lookup = table.lookup(key.to_be_bytes());
        let _may_be_done = Pin::new(&mut lookup).poll(&mut Context::from_waker(&panics));
        left.push((first, lookup));
        block_on(second).expect("is done");
        assert!(block_on(table.lookup(key.to_be_bytes())).expect("reads").is_some());
    }
    table.put("last", "").expect("it goes on");
}

#[test]
fn a_ticket_for_nothing_takes_no_waker_of_another() {
    let disk = SimDisk::new(1);
    let (db, table) = open(&disk, true);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let is_over = &is_over;
        let reads = scope.spawn({
            let db = &db;
            move || {
                while !is_over.load(Ordering::SeqCst) {
                    let nothing = db.begin().expect("begins").submit().expect("nothing to do");
                    block_on(nothing).expect("is done");
                }
            }
        });
        for key in 0..3000_u32 {
            block_on(submit(&db, &table, key, Durability::Sync).expect("is placed")).expect("is done");
        }
        is_over.store(true, Ordering::SeqCst);
        reads.join().expect("no panic");
    });
}

#[test]
fn the_last_handle_may_go_with_a_task_that_the_database_wakes() {
    struct Holds(std::sync::Mutex<Option<Table>>, std::sync::mpsc::Sender<()>);
    impl Wake for Holds {
        fn wake(self: Arc<Self>) {
            let table = self.0.lock().expect("no panic").take();
            drop(table);
            self.1.send(()).expect("somebody waits");
        }
    }
    let disk = SimDisk::new(1);
    for round in 0..20_u32 {
        let (db, table) = open(&disk, true);
        let (told, woken) = std::sync::mpsc::channel();
        let mut ticket = submit(&db, &table, round, Durability::Sync).expect("is placed");
        let waker = Waker::from(Arc::new(Holds(std::sync::Mutex::new(Some(table)), told)));
        let is_pending = Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending();
        // The ticket itself is leaked into the waker's life: only the table of the waker is left.
        drop(db);
        if is_pending {
            woken.recv().expect("it is woken");
        }
        drop((ticket, waker));
        // The close goes on in a thread of its own.
        let options = || Options::new().cache_bytes(1 << 20).segment_bytes(1 << 20);
        let again = std::iter::repeat_with(|| options().open_on(disk.psync(), Path::new("/db")));
        let db = again.map(|opened| opened.inspect_err(|_| thread::yield_now())).find_map(Result::ok).expect("opens");
        assert!(db.open_table("t").expect("is there").contains_key(round.to_be_bytes()).expect("reads"));
    }
}
