//! Models: the log with the primitives of the model checker, which runs threads in many orders and reports a hang.
//!
//! A model runs the log itself, on a simulated disk. The models cover:
//!
//! - joining, closing, filling and leaving of slots;
//! - the writer's wait for a group that is being copied, and the announcements before that;
//! - the queues of flush requests.
//!
//! Each model runs in a bounded number of orders; a failing model prints the order that repeats the failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use psync::sim::{Fault, SimDisk};
use seeded::Bug;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};
use space::FileStore;

use crate::array::Array;
use crate::format::record_space;
use crate::record::NewRecord;
use crate::slot::Joined;
use crate::{Alone, Claim, Error, FlushScheme, Lsn, Options, Position, Verdict, Wal};

const DATABASE: [u8; 16] = *b"sixteen bytes id";
const THREADS: u8 = 3;
const COMMITS: u8 = 2;

/// Models take turns, because the switch of known bugs belongs to the process.
static TURN: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

fn run(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    // Blocks are encoded on the stack.
    config.stack_size = 1 << 20;
    Runner::new(scheduler, config).run(model);
}

/// Runs a model in random orders, and in orders with few preemptions at the worst places.
pub(crate) fn check(orders: usize, model: impl Fn() + Clone + Send + Sync + 'static) {
    let _turn = TURN.lock();
    run(RandomScheduler::new(orders), model.clone());
    run(PctScheduler::new(3, orders), model);
}

/// Whether the model finds a known bug.
pub(crate) fn finds(bug: Bug, orders: usize, model: impl Fn() + Send + Sync + 'static) -> bool {
    let _turn = TURN.lock();
    seeded::set(Some(bug));
    let found = catch_unwind(AssertUnwindSafe(|| run(RandomScheduler::new(orders), model)));
    seeded::set(None);
    found.is_err()
}

fn options(epoch: u64, flush_scheme: FlushScheme) -> Options {
    Options { segment_bytes: 64 << 10, flush_scheme, ..Options::new(DATABASE, epoch) }
}

/// Records, by seq and content.
type Shown = Vec<(u64, Vec<u8>)>;

fn open(disk: &SimDisk, options: &Options) -> (Wal, Shown) {
    let store = FileStore::open(disk.psync(), Path::new("/db"), false).expect("the store opens");
    let mut shown = Vec::new();
    let (wal, _) = Wal::open(&store, options, Arc::new(Alone), &mut |group| {
        shown.extend(group.records().map(|record| (record.seq, record.payload.to_vec())));
        Ok::<_, Error>(Verdict::Accept)
    })
    .expect("it opens");
    (wal, shown)
}

/// Announced records, by seq and end.
type Announced = sync::Mutex<Vec<(u64, Lsn)>>;

/// Checks that every durable record was announced, as far as gaps in the seqs show.
fn look(announced: &Announced, durable: Lsn) {
    let mut announced = announced.lock();
    announced.sort_unstable();
    let known = announced.iter().filter(|(_, end)| *end <= durable).map(|(seq, _)| *seq);
    assert!((1..).zip(known).all(|(seq, known)| seq == known), "durable up to {durable:?}, announced {announced:?}");
}

/// Commits from several threads. Returns, for each thread, its acknowledged records and its error.
fn committers(wal: &Arc<Wal>, record_bytes: usize) -> Vec<(Shown, Option<Error>)> {
    let announced = Arc::new(Announced::default());
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (wal, announced) = (Arc::clone(wal), Arc::clone(&announced));
            thread::spawn(move || {
                let mut acknowledged = Vec::new();
                for commit in 0..COMMITS {
                    let payload = vec![THREADS * commit + thread; record_bytes + usize::from(thread)];
                    let announce = &mut |position: &Position| announced.lock().push((position.seq, position.end));
                    let appended = wal.append_announced(1, &[&payload], true, Claim::Put, announce);
                    let committed = appended.and_then(|position: Position| {
                        wal.commit(&position, &|| look(&announced, wal.durable()))?;
                        assert!(wal.durable() >= position.end, "a commit returns when it is durable");
                        Ok(position)
                    });
                    match committed {
                        Ok(position) => acknowledged.push((position.seq, payload)),
                        Err(error) => return (acknowledged, Some(error)),
                    }
                }
                (acknowledged, None)
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
}

/// Power goes when all threads have returned. Acknowledged records are in the log, in the order of seqs, without a gap.
fn commit_and_lose_power(scheme: FlushScheme, record_bytes: usize) {
    let disk = SimDisk::new(1);
    let wal = Arc::new(open(&disk, &options(1, scheme)).0);
    let outcomes = committers(&wal, record_bytes);
    let stats = wal.stats();
    assert_eq!(stats.direct_records + stats.consolidated_records, u64::from(THREADS * COMMITS));
    drop(wal);
    disk.restart();
    let (_, shown) = open(&disk, &options(2, scheme));
    assert_eq!(shown.iter().map(|(seq, _)| *seq).collect::<Vec<_>>(), (1..=shown.len() as u64).collect::<Vec<_>>());
    for (acknowledged, error) in outcomes {
        assert!(error.is_none(), "{error:?}");
        assert!(acknowledged.iter().all(|record| shown.contains(record)), "{acknowledged:?} of {shown:?}");
    }
}

#[test]
fn what_threads_commit_is_durable_whoever_runs_when() {
    check(400, || commit_and_lose_power(FlushScheme::Aggregated, 30));
    // A segment holds few of these records: slots close, and leaders go on in the next segment.
    check(100, || commit_and_lose_power(FlushScheme::Aggregated, 14_000));
}

#[test]
fn the_other_schemes_keep_the_same_promise() {
    for scheme in [FlushScheme::PerCommit, FlushScheme::Existing, FlushScheme::ExistingAll] {
        check(100, move || commit_and_lose_power(scheme, 30));
    }
}

#[test]
fn a_failure_reaches_every_thread() {
    for fault in [Fault::Flush, Fault::Write] {
        for scheme in [FlushScheme::Aggregated, FlushScheme::Existing] {
            check(75, move || {
                let disk = SimDisk::new(1);
                let wal = Arc::new(open(&disk, &options(1, scheme)).0);
                disk.fail_operation(fault, 0, 5);
                for (acknowledged, error) in committers(&wal, 30) {
                    assert!(acknowledged.is_empty(), "{acknowledged:?}");
                    assert!(matches!(error, Some(Error::Failed(_))), "{error:?}");
                }
            });
        }
    }
}

/// The members of an array copy their records into slots. Each joined record is in one group, once, and the groups hold
/// nothing else.
fn members_of(slots: usize) {
    let array = Arc::new(Array::<(u64, Joined)>::of_slots(slots, 512));
    let end = Arc::new(sync::Mutex::new(0u64));
    let copied = Arc::new(sync::Mutex::new(Vec::new()));
    let threads: Vec<_> = (1..=4u8)
        .map(|thread| {
            let (array, end, copied) = (Arc::clone(&array), Arc::clone(&end), Arc::clone(&copied));
            thread::spawn(move || {
                let payload = [thread; 9];
                let record = NewRecord { kind: thread, payload: &[&payload], payload_len: 9, sequenced: true };
                let Some(seat) = array.join(record_space(9), Claim::Put) else {
                    let mut end = end.lock();
                    *end += 1;
                    array.keep_open();
                    drop(end);
                    copied.lock().push((thread, None));
                    return;
                };
                if seat.place.leads() {
                    let mut end = end.lock();
                    let joined = array.close(seat);
                    *end += u64::from(joined.members);
                    array.tell(seat, Ok((*end, joined)));
                }
                let (_, joined) = array.outcome(seat).expect("the leader got space");
                let mut bytes = Vec::new();
                let last = array.copy(seat, &record);
                if last {
                    array.empty(seat, joined, &mut bytes);
                }
                copied.lock().push((thread, last.then_some(bytes)));
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    let copied = copied.lock();
    let groups = copied.iter().filter_map(|(_, bytes)| bytes.as_deref());
    let mut kinds: Vec<u8> = groups.flat_map(|bytes| bytes.chunks(record_space(9)).map(|record| record[8])).collect();
    let alone = 4 - kinds.len();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len() + alone, 4, "no record is lost and none is there twice");
    assert!(copied.iter().filter(|(_, bytes)| bytes.is_none()).count() >= alone);
    assert_eq!(*end.lock(), 4, "space for all, once");
}

#[test]
fn slots_hold_each_record_once_and_are_used_again() {
    for slots in [1, 2] {
        check(1500, move || members_of(slots));
    }
}

#[test]
fn known_bugs_are_found() {
    assert!(finds(Bug::SlotWakeDropped, 20_000, || members_of(2)), "a dropped wake-up stays hidden");
    let commits = || commit_and_lose_power(FlushScheme::Aggregated, 30);
    assert!(finds(Bug::CompletedBeforeFlush, 2000, commits), "a completion before its flush stays hidden");
    assert!(finds(Bug::CallDropped, 2000, commits), "a request that nobody leads stays hidden");
}
