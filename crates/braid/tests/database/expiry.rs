//! Values that expire: who sees them until when, and that they go.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid::{
    ChangeEvent, ChangeOperation, Database, Entry, Error, Isolation, ManualClock, Options, Seq, Structure, Swap, Table,
    TransactionOptions, WriteBatch,
};
use psync::sim::SimDisk;

const BEGIN: u64 = 1_800_000_000_000;
const MINUTE: u64 = 60_000;

struct Home {
    disk: SimDisk,
    clock: ManualClock,
    db: Database,
    table: Table,
}

fn open_on(structure: Structure, disk: &SimDisk, clock: &ManualClock) -> (Database, Table) {
    let options = Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(256 << 10)
        .segment_bytes(64 << 10)
        .leaf_pages(1)
        .clock(clock.clone());
    let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = db.table("t", structure).expect("a table");
    (db, table)
}

impl Home {
    fn new(structure: Structure) -> Self {
        let (disk, clock) = (SimDisk::new(1), ManualClock::new(UNIX_EPOCH + Duration::from_millis(BEGIN)));
        let (db, table) = open_on(structure, &disk, &clock);
        Self { disk, clock, db, table }
    }

    fn reopen(self) -> Self {
        let Self { disk, clock, db, table } = self;
        let structure = table.structure();
        drop(table);
        db.close().expect("closes");
        let (db, table) = open_on(structure, &disk, &clock);
        Self { disk, clock, db, table }
    }

    /// The power goes, and when it is back the system's clock says it is `of_day`.
    fn crash(self, of_day: u64) -> Self {
        let Self { disk, clock, db, table } = self;
        let structure = table.structure();
        disk.restart();
        drop((db, table));
        clock.set(UNIX_EPOCH + Duration::from_millis(of_day));
        let (db, table) = open_on(structure, &disk, &clock);
        Self { disk, clock, db, table }
    }

    fn put(&self, key: &str, value: impl AsRef<[u8]>, minutes: u64) {
        self.table.put_expiring(key, value, Duration::from_millis(minutes * MINUTE)).expect("put");
    }

    fn pass(&self, minutes: u64) {
        self.clock.advance(Duration::from_millis(minutes * MINUTE));
    }

    fn keys(&self) -> Vec<String> {
        let keys = |range: braid::Range| {
            range.map(|pair| String::from_utf8(pair.expect("reads").0).expect("text")).collect::<Vec<_>>()
        };
        let rising = keys(self.table.iter());
        let mut falling = keys(self.table.iter().rev());
        falling.reverse();
        assert_eq!(rising, falling);
        assert_eq!(rising, keys(self.table.iter().keys_only()));
        let found = self.table.get_many(&["a", "b", "c", "d"]).expect("reads");
        for (key, found) in ["a", "b", "c", "d"].iter().zip(found) {
            assert_eq!(found.is_some(), rising.iter().any(|known| known == key), "key {key}");
            assert_eq!(self.table.get(key).expect("reads"), found);
        }
        rising
    }

    fn whole(&self) {
        assert_eq!(self.db.verify().expect("verifies").findings, [""; 0]);
    }
}

fn a_value_is_there_until_it_expires_wherever_it_lies(structure: Structure) {
    let mut home = Home::new(structure);
    home.put("a", "short", 1);
    home.put("b", [7; 5000], 2);
    home.put("c", "long", 3);
    home.table.put("d", "stays").expect("put");
    // It hides what was there before, also when it is gone.
    home.table.put("c", "before").expect("put");
    home.put("c", "after", 3);
    for (minutes, expected) in [(0, "abcd"), (1, "bcd"), (1, "cd"), (1, "d"), (1000, "d")] {
        home.pass(minutes);
        let expected: Vec<_> = expected.chars().map(String::from).collect();
        assert_eq!(home.keys(), expected, "in the queue");
        home.whole();
        home.db.drain().expect("applies");
        assert_eq!(home.keys(), expected, "in the tree");
        home = home.reopen();
        assert_eq!(home.keys(), expected, "opened again");
        home.whole();
    }
}

fn a_later_write_replaces_the_expiry_too(structure: Structure) {
    let home = Home::new(structure);
    let at = |minutes| SystemTime::UNIX_EPOCH + Duration::from_millis(BEGIN + minutes * MINUTE);
    home.put("a", "one", 5);
    assert_eq!(home.table.expiry("a").expect("reads"), Some(at(5)));
    home.put("a", "two", 9);
    assert_eq!(home.table.expiry("a").expect("reads"), Some(at(9)));
    home.table.put_expiring("b", "until", at(7)).expect("put");
    home.db.drain().expect("applies");
    assert_eq!(home.table.expiry("b").expect("reads"), Some(at(7)));
    home.table.put("a", "three").expect("put");
    assert_eq!(home.table.expiry("a").expect("reads"), None);
    home.pass(8);
    assert_eq!(home.keys(), ["a"]);
    assert_eq!(home.table.expiry("b").expect("reads"), None);
    let mut range = home.table.iter();
    let entry = range.next_entry().expect("reads");
    assert_eq!(entry, Some(Entry { key: b"a", value: b"three", expiry: None }));
    // A time that has passed is as a delete.
    home.table.put_expiring("a", "late", at(1)).expect("put");
    assert_eq!(home.keys(), [""; 0]);
    let error = home.table.put_expiring("a", "never", Duration::ZERO).expect_err("no time at all");
    assert!(matches!(error, Error::Option { option: "expires", .. }), "{error}");
    home.table.put_expiring("a", "always", Duration::MAX).expect("put");
    home.pass(1_000_000_000);
    assert_eq!(home.keys(), ["a"]);
}

fn a_snapshot_sees_what_was_there_when_it_was_taken(structure: Structure) {
    let home = Home::new(structure);
    for key in 0..3000_u32 {
        home.table.put_expiring(key.to_be_bytes(), [1; 40], Duration::from_secs(60)).expect("put");
    }
    home.table.put_expiring("document", [2; 9000], Duration::from_secs(60)).expect("put");
    let then = home.db.snapshot();
    home.pass(2);
    let now = home.db.snapshot();
    let sees = |snapshot: &braid::Snapshot| snapshot.iter(&home.table).count();
    let check = || {
        assert_eq!((sees(&then), sees(&now), home.table.iter().count()), (3001, 0, 0));
        assert_eq!(then.get(&home.table, "document").expect("reads"), Some(vec![2; 9000]));
        assert_eq!(now.get(&home.table, "document").expect("reads"), None);
        home.whole();
    };
    check();
    home.db.drain().expect("applies");
    check();
    home.pass(60);
    home.db.compact().expect("compacts");
    check();
    drop(then);
    home.pass(60);
    home.db.drain().expect("sweeps");
    assert_eq!((sees(&now), home.table.stats().expect("stats").entries), (0, 0));
    home.whole();
}

fn what_has_expired_gives_pages_and_documents_back_though_nobody_writes(structure: Structure) {
    let home = Home::new(structure);
    let entries = || home.table.stats().expect("stats").entries;
    for key in 0..8000_u32 {
        home.table.put_expiring(key.to_be_bytes(), [1; 60], Duration::from_secs(60)).expect("put");
    }
    // Half of these stay.
    for key in 8000..12_000_u32 {
        let ttl = Duration::from_secs(if key % 2 == 0 { 60 } else { 6000 });
        home.table.put_expiring(key.to_be_bytes(), [1; 60], ttl).expect("put");
    }
    for key in 12_000..20_000_u32 {
        home.table.put(key.to_be_bytes(), [1; 60]).expect("put");
    }
    for key in 0..40_u8 {
        home.table.put_expiring([255, key], vec![key; 20_000], Duration::from_secs(60)).expect("put");
    }
    home.db.checkpoint().expect("a checkpoint");
    let used = |home: &Home| {
        let stats = home.db.stats().expect("stats");
        let nodes: u64 = stats.tables.iter().map(|table| table.own_live_bytes).sum();
        (stats.space.total_pages - stats.space.free_pages) * stats.space.page_bytes + nodes
    };
    let before = used(&home);
    assert_eq!(entries(), 20_040);
    home.pass(2);
    home.db.checkpoint().expect("a checkpoint");
    // A leaf in which less than a quarter has expired stays as it is, and so does a file of an LSM tree.
    let most = if structure == Structure::Lsm { 10_800 } else { 10_040 };
    assert!((10_000..most).contains(&entries()), "{} entries left", entries());
    assert_eq!(home.table.iter().count(), 10_000);
    home.db.checkpoint().expect("lets go of documents");
    let after = used(&home);
    assert!(after < before * 3 / 4, "{before} {after}");
    let live = home.table.stats().expect("stats").document_live_bytes;
    assert!(live < 20 * 20_000, "{live} bytes of documents left");
    home.whole();
    let home = home.reopen();
    assert_eq!(home.table.iter().count(), 10_000);
    home.whole();
}

fn a_clock_that_is_set_back_brings_nothing_back(structure: Structure) {
    let home = Home::new(structure);
    home.put("a", "one", 5);
    home.put("b", "two", 20);
    home.pass(10);
    assert_eq!(home.keys(), ["b"]);
    home.clock.set(UNIX_EPOCH + Duration::from_millis(BEGIN));
    assert_eq!(home.keys(), ["b"]);
    home.db.checkpoint().expect("a checkpoint");
    let home = home.reopen();
    home.clock.set(UNIX_EPOCH + Duration::from_millis(BEGIN - 1000 * MINUTE));
    let home = home.reopen();
    assert_eq!(home.keys(), ["b"]);
    home.put("c", "three", 5);
    home.pass(4);
    assert_eq!(home.keys(), ["b", "c"]);
    home.pass(1);
    assert_eq!(home.keys(), ["b"]);
    home.pass(5);
    assert_eq!(home.keys(), [""; 0]);
}

fn a_crash_does_not_bring_back_what_was_told_to_be_gone(structure: Structure) {
    type Tell = fn(&Home);
    let tells: [(&str, Tell); 3] = [
        // What makes its flush-end durable says no time.
        ("a sweep", |home| {
            home.db.drain().expect("sweeps");
            home.db.table("other", Structure::BTree).expect("created");
        }),
        ("a commit", |home| home.table.put("b", "two").map(drop).expect("put")),
        ("a commit to another table", |home| {
            home.db.table("swept", Structure::BTree).expect("opened").delete("nothing").expect("deleted");
        }),
    ];
    for (what, tell) in tells {
        let home = Home::new(structure);
        let swept = home.db.table("swept", Structure::BTree).expect("created");
        swept.put_expiring("a", "one", Duration::from_millis(5 * MINUTE)).expect("put");
        home.put("a", "one", 5);
        // Too much beside it for a sweep of its leaf.
        for key in 0..20_u8 {
            home.table.put([b'c', key], "stays").expect("put");
        }
        home.db.checkpoint().expect("a checkpoint");
        home.pass(10);
        tell(&home);
        drop(swept);
        let home = home.crash(BEGIN);
        assert_eq!(home.table.get("a").expect("reads"), None, "after {what}");
        home.put("a", "again", 5);
        home.pass(4);
        assert!(home.table.get("a").expect("reads").is_some(), "after {what}");
        home.pass(1);
        assert_eq!(home.table.get("a").expect("reads"), None, "after {what}");
    }
}

fn conditional_writes_take_what_has_expired_for_absent(structure: Structure) {
    let home = Home::new(structure);
    home.put("a", "one", 5);
    assert_eq!(home.table.put_if_absent("a", "two").expect("reads"), Swap::Refused(Some(b"one".to_vec())));
    home.pass(5);
    let swap = home.table.compare_and_swap("a", Some(b"one"), Some(b"three")).expect("reads");
    assert_eq!(swap, Swap::Refused(None));
    assert_eq!(home.table.put_if_absent("a", "two").expect("put"), Swap::Done);
    assert_eq!(home.keys(), ["a"]);
}

fn a_transaction_reads_at_the_time_of_its_begin_and_expiry_is_no_conflict(structure: Structure) {
    let home = Home::new(structure);
    for serializable in [false, true] {
        home.put("a", "one", 5);
        home.put("b", "two", 5);
        let isolation = if serializable { Isolation::Serializable } else { Isolation::Snapshot };
        let begin = || home.db.begin_with(TransactionOptions::new().isolation(isolation)).expect("begins");
        let mut transaction = begin();
        assert_eq!(transaction.get(&home.table, "a").expect("reads"), Some(b"one".to_vec()));
        home.pass(5);
        assert_eq!(home.keys(), [""; 0]);
        home.db.drain().expect("applies");
        assert_eq!(transaction.iter(&home.table).count(), 2);
        transaction.put(&home.table, "a", "again").expect("put");
        transaction.put_expiring(&home.table, "c", "for a while", Duration::from_millis(MINUTE)).expect("put");
        assert_eq!(transaction.get(&home.table, "c").expect("reads"), Some(b"for a while".to_vec()));
        // The time counts from the commit on.
        home.pass(3);
        transaction.commit().expect("nobody was in the way");
        assert_eq!(home.keys(), ["a", "c"]);
        home.pass(1);
        assert_eq!(home.keys(), ["a"]);
        // Somebody else's commit is, also one that has expired since.
        let mut transaction = begin();
        assert_eq!(transaction.get(&home.table, "b").expect("reads"), None);
        home.put("b", "from outside", 1);
        home.pass(2);
        home.db.drain().expect("applies");
        transaction.put(&home.table, "b", "from inside").expect("put");
        let conflict = transaction.commit();
        assert!(matches!(conflict, Err(Error::Conflict { .. })), "{conflict:?}");
    }
}

fn batches_loads_and_changes_carry_the_expiry(structure: Structure) {
    let home = Home::new(structure);
    let mut batch = WriteBatch::new();
    batch.put_expiring(&home.table, "a", "one", Duration::from_millis(2 * MINUTE));
    batch.put(&home.table, "b", "two");
    // The time counts from when it is written.
    home.pass(1);
    home.db.write(&batch).expect("commits");
    let seq = home.db.snapshot().seq();
    let at = |minutes| Some(SystemTime::UNIX_EPOCH + Duration::from_millis(BEGIN + minutes * MINUTE));
    assert_eq!(home.table.expiry("a").expect("reads"), at(3));
    let change = home.db.changes(Seq(seq.0 - 1)).expect("kept").next().expect("a change").expect("reads");
    let ChangeEvent::Commit(operations) = change.event else { panic!("a commit") };
    let expiries = operations.iter().map(|operation| match operation {
        ChangeOperation::Put { expiry, .. } => *expiry,
        _ => panic!("no delete"),
    });
    assert_eq!(expiries.collect::<Vec<_>>(), [at(3), None]);

    let loaded = home.db.table("loaded", structure).expect("a table");
    let mut loader = loaded.loader().expect("empty");
    for key in 0..2000_u32 {
        let value = vec![3; if key % 500 == 0 { 4000 } else { 30 }];
        let ttl = Duration::from_millis(MINUTE * if key < 1000 { 1 } else { 3 });
        loader.push_expiring(key.to_be_bytes(), value, ttl).expect("pushes");
    }
    assert_eq!(loader.finish().expect("loads"), 2000);
    assert_eq!(loaded.expiry(0_u32.to_be_bytes()).expect("reads"), at(2));
    assert_eq!(loaded.iter().count(), 2000);
    home.pass(1);
    assert_eq!(loaded.iter().count(), 1000);
    // Leaves say when they are due to about a second.
    home.clock.advance(Duration::from_millis(2000));
    home.db.drain().expect("sweeps");
    let left = loaded.stats().expect("stats").entries;
    assert!((1000..1040).contains(&left), "{left} entries left");
    assert_eq!(loaded.iter().count(), 1000);
    home.whole();
}

on_every_structure!(
    a_value_is_there_until_it_expires_wherever_it_lies,
    a_later_write_replaces_the_expiry_too,
    a_snapshot_sees_what_was_there_when_it_was_taken,
    what_has_expired_gives_pages_and_documents_back_though_nobody_writes,
    a_clock_that_is_set_back_brings_nothing_back,
    a_crash_does_not_bring_back_what_was_told_to_be_gone,
    conditional_writes_take_what_has_expired_for_absent,
    a_transaction_reads_at_the_time_of_its_begin_and_expiry_is_no_conflict,
    batches_loads_and_changes_carry_the_expiry,
);

#[test]
fn conditional_writes_keep_an_expiry_or_set_one() {
    for structure in [Structure::BTree, Structure::Append, Structure::Lsm] {
        let home = Home::new(structure);
        let minutes = |count: u64| Duration::from_millis(count * MINUTE);
        let taken = home.table.put_if_absent_expiring("lease", "ada", minutes(10)).expect("puts");
        assert_eq!(taken, Swap::Done);
        let refused = home.table.put_if_absent_expiring("lease", "grace", minutes(10)).expect("looks");
        assert_eq!(refused, Swap::Refused(Some(b"ada".to_vec())));
        let expiry = || home.table.expiry("lease").expect("reads");
        let first = expiry().expect("it expires");
        // Neither a swap nor an update makes a value live longer unasked.
        home.pass(4);
        assert_eq!(home.table.compare_and_swap("lease", Some(b"ada"), Some(b"bob")).expect("swaps"), Swap::Done);
        home.table.update("lease", |old| old.map(|name| [name, b"!"].concat())).expect("updates");
        assert_eq!(expiry(), Some(first));
        let longer = home.table.compare_and_swap_expiring("lease", Some(b"bob!"), b"bob", minutes(10)).expect("swaps");
        assert_eq!(longer, Swap::Done);
        assert_eq!(expiry(), Some(first + minutes(4)));
        // Snapshots and transactions tell it too.
        let (then, mut transaction) = (home.db.snapshot(), home.db.begin().expect("begins"));
        home.table.put("lease", "for good").expect("puts");
        assert_eq!(then.expiry(&home.table, "lease").expect("reads"), Some(first + minutes(4)));
        assert_eq!(transaction.expiry(&home.table, "lease").expect("reads"), Some(first + minutes(4)));
        assert_eq!(expiry(), None);
        transaction.put_expiring(&home.table, "own", "", minutes(1)).expect("puts");
        assert_eq!(transaction.expiry(&home.table, "own").expect("reads"), Some(first - minutes(5)));
        transaction.put(&home.table, "own", "").expect("puts");
        assert_eq!(transaction.expiry(&home.table, "own").expect("reads"), None);
        drop(transaction);
        home.table.put_expiring("lease", "ada", minutes(1)).expect("puts");
        home.pass(2);
        assert_eq!(home.table.put_if_absent("lease", "grace").expect("puts"), Swap::Done);
        assert_eq!(expiry(), None);
    }
}

#[test]
fn a_life_with_the_clock_years_ahead_does_not_spoil_absolute_expiries() {
    let day = Duration::from_secs(24 * 3600);
    let (disk, now) = (SimDisk::new(1), UNIX_EPOCH + Duration::from_millis(BEGIN) + 365 * day);
    let clock = ManualClock::new(now + 3650 * day);
    let (db, table) = open_on(Structure::BTree, &disk, &clock);
    table.put_expiring("early", "", now + 30 * day).expect("puts");
    assert_eq!(table.get("early").expect("reads"), None, "by this clock it has expired");
    table.put("other", "").expect("puts");
    drop((table, db));
    clock.set(now);
    let (_db, table) = open_on(Structure::BTree, &disk, &clock);
    table.put_expiring("session", "ada", now + 30 * day).expect("puts");
    assert_eq!(table.get("session").expect("reads").as_deref(), Some(&b"ada"[..]));
    clock.advance(28 * day);
    assert!(table.get("session").expect("reads").is_some());
    clock.advance(2 * day);
    assert!(table.get("session").expect("reads").is_none());
}
