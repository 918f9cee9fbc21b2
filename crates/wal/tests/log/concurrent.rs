//! Many committers at once: nothing is lost, nobody hangs, and one flush serves many.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use psync::sim::{Fault, SimDisk};
use psync::{BackendKind, Psync};
use space::FileStore;
use wal::{Claim, Error, FlushScheme, Lsn, Options, Wal};

use crate::common::{Owned, Random, append, open, options, store};

const THREADS: u64 = 8;
const EIO: i32 = 5;

/// A committer that hangs fails the test instead of stopping it.
const PATIENCE: Duration = Duration::from_secs(120);

/// Commits until `count` or an error; what was acknowledged, and the error.
fn committer(wal: &Wal, thread: u64, count: u64) -> (Vec<Owned>, Option<Error>) {
    let mut random = Random::new(thread);
    let mut acknowledged = Vec::new();
    for number in 0..count {
        let length = random.index(400);
        let payload = [&thread.to_le_bytes()[..], &number.to_le_bytes(), &random.bytes(length)].concat();
        let committed = wal.append(1, &[&payload], true, Claim::Put).and_then(|position| {
            if random.chance(20) {
                wal.write_through(position.end)?;
            }
            wal.flush_through(position.end)?;
            // In this order, for others move both on.
            let (durable, written) = (wal.durable(), wal.written());
            assert!(durable >= position.end && written >= durable);
            Ok(position)
        });
        match committed {
            Ok(position) => acknowledged.push(Owned { lsn: position.lsn, kind: 1, seq: position.seq, payload }),
            Err(error) => return (acknowledged, Some(error)),
        }
    }
    (acknowledged, None)
}

/// Runs all committers; what each acknowledged and how it ended.
fn commit_all(wal: &Arc<Wal>, count: u64) -> Vec<(Vec<Owned>, Option<Error>)> {
    let (sender, receiver) = mpsc::channel();
    for thread in 0..THREADS {
        let (wal, sender) = (Arc::clone(wal), sender.clone());
        thread::spawn(move || sender.send(committer(&wal, thread, count)).expect("the test waits"));
    }
    (0..THREADS).map(|_| receiver.recv_timeout(PATIENCE).expect("a committer hangs or panicked")).collect()
}

/// All that was acknowledged is there, and seqs rise with positions without a gap.
fn check(shown: &[Owned], acknowledged: &[Owned]) {
    for pair in shown.windows(2) {
        assert!(pair[0].lsn < pair[1].lsn);
        assert_eq!(pair[0].seq + 1, pair[1].seq);
    }
    for record in acknowledged {
        let found = shown.binary_search_by_key(&record.lsn, |shown| shown.lsn);
        assert_eq!(found.ok().map(|index| &shown[index]), Some(record));
    }
}

/// Options with one of the flush schemes.
fn scheme(of: u64, epoch: u64) -> Options {
    let flush_scheme = FlushScheme::ALL[usize::try_from(of).expect("small") % FlushScheme::ALL.len()];
    Options { flush_scheme, ..options(epoch) }
}

fn on_real_files(backend: BackendKind, flush_scheme: FlushScheme, count: u64) {
    let directory = tempfile::tempdir().expect("a directory");
    let psync = match Psync::new(Some(backend)) {
        Ok(psync) => psync,
        Err(psync::Error::Unsupported { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let store = FileStore::open(psync, directory.path(), false).expect("the store opens");
    let (wal, ..) = open(&store, &Options { flush_scheme, ..options(1) }).expect("it opens");
    let wal = Arc::new(wal);
    let outcomes = commit_all(&wal, count);
    assert!(outcomes.iter().all(|(_, error)| error.is_none()), "{outcomes:?}");
    let stats = wal.stats();
    assert_eq!(stats.records, THREADS * count);
    assert_eq!(stats.direct_records + stats.consolidated_records, stats.records, "{stats:?}");
    assert!(stats.flushes <= stats.flush_requests, "{stats:?}");
    let calls = THREADS * count;
    match flush_scheme {
        FlushScheme::PerCommit => {
            assert_eq!((stats.flushes, stats.sync_lock_acquisitions, stats.flush_requests), (calls, calls, calls));
        }
        FlushScheme::Existing | FlushScheme::ExistingAll => {
            assert_eq!((stats.sync_lock_acquisitions, stats.flush_requests), (calls, calls));
        }
        FlushScheme::Aggregated => assert!(stats.sync_lock_acquisitions <= stats.flush_requests, "{stats:?}"),
    }
    drop(wal);
    let (_, _, shown) = open(&store, &options(2)).expect("it opens");
    assert_eq!(shown.len() as u64, THREADS * count);
    for (acknowledged, _) in &outcomes {
        assert_eq!(acknowledged.len() as u64, count);
        check(&shown, acknowledged);
    }
}

#[test]
fn committers_on_real_files_lose_nothing() {
    for backend in [BackendKind::IoUring, BackendKind::Libaio, BackendKind::Threads, BackendKind::Sync] {
        on_real_files(backend, FlushScheme::Aggregated, 150);
    }
    for flush_scheme in FlushScheme::ALL {
        on_real_files(BackendKind::Threads, flush_scheme, 20);
    }
}

#[test]
fn trimming_and_preparing_go_on_beside_committers() {
    let disk = SimDisk::new(1);
    let store = store(&disk);
    let (wal, ..) = open(&store, &options(1)).expect("it opens");
    let wal = Arc::new(wal);
    let (done, start) = (AtomicBool::new(false), AtomicU64::new(0));
    let outcomes = thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                // A checkpoint that needs nothing below what is durable now.
                let durable = wal.durable();
                start.store(durable.0, Ordering::SeqCst);
                wal.trim(durable).expect("it trims");
                wal.prepare().expect("it prepares");
                thread::yield_now();
            }
        });
        let outcomes = commit_all(&wal, 600);
        done.store(true, Ordering::SeqCst);
        outcomes
    });
    assert!(outcomes.iter().all(|(_, error)| error.is_none()), "{outcomes:?}");
    drop(wal);
    let start = Lsn(start.into_inner());
    let (_, _, shown) = open(&store, &Options { start, ..options(2) }).expect("it opens");
    for (acknowledged, _) in outcomes {
        let from = acknowledged.partition_point(|record| record.lsn < start);
        check(&shown, &acknowledged[from..]);
    }
}

/// Everyone gets the failure, later calls too, and what was acknowledged survives the power loss that follows.
fn fails(seed: u64, fault: Fault) {
    let disk = SimDisk::new(seed);
    let (wal, ..) = open(&store(&disk), &scheme(seed, 1)).expect("it opens");
    let wal = Arc::new(wal);
    // Before the first segment is full: a failure to make the next one is no failure of the log.
    disk.fail_operation(fault, seed % 15, EIO);
    let outcomes = commit_all(&wal, u64::MAX);
    let operation = if fault == Fault::Flush { "flush" } else { "write" };
    for (_, error) in &outcomes {
        let Some(Error::Failed(failure)) = error else { panic!("{error:?} is no sticky failure") };
        assert_eq!(failure.operation, operation);
        assert!(failure.to_string().contains("Input/output error"), "{failure}");
    }
    let operations = disk.operations();
    assert!(matches!(wal.append(1, &[b"more"], true, Claim::Upkeep), Err(Error::Failed(_))));
    assert!(matches!(wal.write_through(wal.end()), Err(Error::Failed(_))));
    assert!(matches!(wal.flush_through(Lsn(0)), Err(Error::Failed(_))));
    assert!(matches!(wal.prepare(), Err(Error::Failed(_))));
    assert!(wal.failed().is_some());
    assert_eq!(disk.operations(), operations, "nothing is tried again");
    drop(wal);
    disk.restart();
    let (_, _, shown) = open(&store(&disk), &options(2)).expect("it opens");
    for (acknowledged, _) in outcomes {
        check(&shown, &acknowledged);
    }
}

#[test]
fn a_failed_flush_reaches_every_committer() {
    for seed in 0..40 {
        fails(seed, Fault::Flush);
    }
}

#[test]
fn a_failed_write_reaches_every_committer() {
    for seed in 0..40 {
        fails(seed, Fault::Write);
    }
}

#[test]
fn power_goes_while_many_commit() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (wal, ..) = open(&store(&disk), &scheme(seed, 1)).expect("it opens");
        let wal = Arc::new(wal);
        disk.crash_after(seed % 97);
        let outcomes = commit_all(&wal, u64::MAX);
        drop(wal);
        disk.restart();
        let (_, _, shown) = open(&store(&disk), &options(2)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for (acknowledged, _) in outcomes {
            check(&shown, &acknowledged);
        }
    }
}

#[test]
fn what_a_segment_cannot_have_is_no_failure_of_the_log() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    append(&wal, 1, &[7; 60_000]);
    disk.fail_operation(Fault::Name, 0, EIO);
    assert!(matches!(wal.prepare(), Err(Error::Space(_))));
    assert!(wal.failed().is_none());
    disk.fail_operation(Fault::Name, 0, EIO);
    let refused = wal.append(1, &[&[7; 60_000]], true, Claim::Put);
    assert!(matches!(refused, Err(Error::Space(_))), "an append does not wait until it is tried again");
    append(&wal, 1, &[7; 60_000]);
    wal.prepare().expect("it works now");
    assert_eq!(wal.stats().segments_spare, 3);
}

/// Panics at the flush with this number.
struct Panics(AtomicU64);

impl wal::Companions for Panics {
    fn take_unflushed(&self) -> Vec<psync::File> {
        assert!(self.0.fetch_sub(1, Ordering::SeqCst) > 0, "a companion's bug");
        Vec::new()
    }
}

#[test]
fn a_panic_in_a_flush_reaches_every_committer() {
    let disk = SimDisk::new(1);
    let accept = &mut |_: &wal::Group<'_>| Ok::<_, Error>(wal::Verdict::Accept);
    let companions = Arc::new(Panics(AtomicU64::new(9)));
    let (wal, _) = Wal::open(&store(&disk), &options(1), companions, accept).expect("it opens");
    for (_, error) in commit_all(&Arc::new(wal), u64::MAX) {
        let Some(Error::Failed(failure)) = error else { panic!("{error:?} is no sticky failure") };
        assert!(failure.to_string().contains("a companion's bug"), "{failure}");
    }
}
