//! Every single operation of a small run fails once: with a full disk, and with an error of the device.
//!
//! 1. The run is the same each time: it creates the database, commits with each durability, in leaves and documents, in
//!    batches and
//!    transactions, deletes ranges, holds a snapshot meanwhile, drains, checkpoints, drops a table, closes and opens.
//!    Operation `n` of the disk fails, for every `n` there is.
//! 2. After the failure the database works on, or it only reads and every write says why, naming what the system said.
//!    It works on
//!    where all that failed was to make a file longer.
//! 3. Afterwards it is opened again, at once or after a power cut: it is behind one of the commits made, not below the
//!    last one that was acknowledged as durable; and so it is after one more power cut.

use std::path::Path;
use std::time::Duration;

use braid::{Database, Durability, Error, ErrorKind, Options, Snapshot, Structure, WriteBatch};
use psync::sim::{Fault, SimDisk};

use crate::model::{Change, Model, TABLES, key, puts, value};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn options() -> Options {
    Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(64 << 10)
        .segment_bytes(64 << 10)
        .leaf_pages(1)
}

fn open(disk: &SimDisk) -> braid::Result<Database> {
    options().open_on(disk.psync(), Path::new("/db"))
}

/// A step of the run.
enum Step {
    Commit(Vec<Change>, Durability),
    /// Deletes the keys between two as a range, in both tables.
    DeleteRange([u8; 2]),
    Drain,
    Checkpoint,
    /// Makes a table, writes to it, and drops it.
    Scratch,
    /// Reads everything.
    Read,
    /// Keeps what there is now.
    Keep,
    /// Reads what is kept.
    LookBack,
    Reopen,
}

fn script() -> Vec<Step> {
    use Durability::{Lazy, Os, Sync};
    let lazy = Lazy(Duration::from_secs(3600));
    let deletes = |numbers: std::ops::Range<u64>| numbers.map(|n| (usize::from(n % 3 == 0), key(n), None)).collect();
    vec![
        Step::Commit(puts(0..20, 100), Sync),
        Step::Commit(puts(20..24, 5000), Sync),
        Step::Keep,
        Step::Commit(puts(24..30, 10), Os),
        Step::Drain,
        Step::Commit(puts(30..60, 300), lazy),
        Step::Commit(deletes(0..10), Sync),
        Step::Checkpoint,
        Step::LookBack,
        Step::Commit(puts(10..25, 2000), Sync),
        Step::Scratch,
        Step::Commit(puts(60..62, 30_000), Os),
        Step::Commit(puts(62..90, 1500), Sync),
        Step::LookBack,
        Step::DeleteRange([0x20, 0x60]),
        Step::Commit(puts(40..50, 40), Sync),
        Step::Reopen,
        Step::Read,
        Step::Commit(puts(90..100, 2500), Sync),
        Step::Commit(deletes(15..70), Sync),
        Step::Drain,
        Step::Commit(puts(5..40, 60), lazy),
        Step::Checkpoint,
        Step::Commit(puts(100..103, 70), Sync),
        Step::DeleteRange([0x50, 0xb0]),
        Step::Commit(puts(103..106, 4000), Os),
        Step::Drain,
        Step::Checkpoint,
        Step::Read,
    ]
}

struct Run {
    structure: Structure,
    disk: SimDisk,
    errno: i32,
    db: Option<Database>,
    /// States behind commits, oldest first: the first one is durable, one of them is what a reader sees.
    states: Vec<Model>,
    /// A snapshot, and the states one of which it must hold.
    kept: Option<(Snapshot, Vec<Model>)>,
    read_only: bool,
}

impl Run {
    /// The error of an operation that the fault has struck.
    #[track_caller]
    fn assert_named(&self, error: &Error) {
        let text = error.to_string();
        assert!(text.contains(&format!("os error {}", self.errno)), "does not name the cause: {text}");
    }

    fn open(&mut self) {
        assert!(self.db.is_none());
        self.db = Some(open(&self.disk).unwrap_or_else(|error| {
            self.assert_named(&error);
            open(&self.disk).unwrap_or_else(|error| panic!("the second attempt to open: {error}"))
        }));
    }

    fn db(&self) -> &Database {
        self.db.as_ref().expect("open")
    }

    fn step(&mut self, step: &Step) -> braid::Result<()> {
        match step {
            Step::Commit(changes, durability) => self.commit(changes, *durability),
            Step::DeleteRange(range) => self.delete_range(*range),
            Step::Drain => self.db().drain(),
            Step::Checkpoint => self.db().checkpoint().map(|()| self.all_is_durable()),
            Step::Scratch => self.scratch(),
            Step::Keep => {
                self.kept = Some((self.db().snapshot(), self.states.clone()));
                Ok(())
            }
            Step::LookBack => {
                let (Some((snapshot, states)), [Ok(left), Ok(right)]) =
                    (&self.kept, TABLES.map(|name| self.db().open_table(name)))
                else {
                    return Ok(());
                };
                let tables = [left, right];
                let mut problems = Vec::new();
                for state in states {
                    problems.extend(state.difference_in(&tables, |table| snapshot.iter(table))?);
                }
                assert!(problems.len() < states.len(), "a snapshot shows none of the states: {problems:#?}");
                Ok(())
            }
            Step::Reopen => {
                self.kept = None;
                let closed = self.db.take().expect("open").close();
                if closed.is_ok() {
                    self.all_is_durable();
                }
                self.open();
                closed
            }
            Step::Read => {
                let [Ok(left), Ok(right)] = TABLES.map(|name| self.db().open_table(name)) else { return Ok(()) };
                let tables = [left, right];
                self.db().drop_caches();
                let mut problems = Vec::new();
                for state in &self.states {
                    problems.extend(state.difference(&tables)?);
                }
                assert!(problems.len() < self.states.len(), "reads show none of the states: {problems:#?}");
                Ok(())
            }
        }
    }

    fn all_is_durable(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    fn commit(&mut self, changes: &[Change], durability: Durability) -> braid::Result<()> {
        let mut model = self.states.last().expect("never empty").clone();
        let outcome = model.write(self.db(), changes, durability);
        match &outcome {
            Ok(()) => {
                self.states.push(model);
                if durability == Durability::Sync {
                    self.all_is_durable();
                }
            }
            // Nobody knows.
            Err(error) if error.kind() == ErrorKind::Failed => self.states.push(model.with(changes)),
            // Nothing of it was written.
            Err(_) => {}
        }
        outcome
    }

    fn delete_range(&mut self, [low, high]: [u8; 2]) -> braid::Result<()> {
        let mut model = self.states.last().expect("never empty").clone();
        model.delete_range(low, high);
        let mut batch = WriteBatch::new();
        for table in model.open(self.db())? {
            batch.delete_range(&table, [low]..[high]);
        }
        let outcome = self.db().write(&batch);
        match &outcome {
            Ok(_) => {
                self.states.push(model);
                self.all_is_durable();
            }
            // Nobody knows.
            Err(error) if error.kind() == ErrorKind::Failed => self.states.push(model),
            Err(_) => {}
        }
        outcome.map(drop)
    }

    fn scratch(&self) -> braid::Result<()> {
        let scratch = self.db().table("scratch", self.structure)?;
        for number in 0..10 {
            scratch.put_with(key(number), value(number, 3000), Durability::Os)?;
        }
        self.db().drain()?;
        drop(scratch);
        self.db().drop_table("scratch")
    }

    /// A step has failed: either it works when it is tried again, or nothing is written any more.
    fn after_failure(&mut self, step: &Step, error: &Error) {
        self.assert_named(error);
        if matches!(step, Step::Reopen) {
            return;
        }
        let known = self.states.len();
        match self.step(step) {
            Ok(()) => {
                let failed = error.kind() == ErrorKind::Failed;
                assert!(!failed, "nothing is written any more, and the next commit went in: {error}");
            }
            Err(again) => {
                assert!(!matches!(step, Step::Read | Step::LookBack), "{again}");
                assert_eq!(again.kind(), ErrorKind::Failed, "after {error}: {again}");
                self.assert_named(&again);
                let other = self.commit(&puts(0..1, 1), Durability::Lazy(Duration::from_secs(1)));
                self.assert_named(&other.expect_err("read-only"));
                self.states.truncate(known);
                self.read_only = true;
                self.step(&Step::Read).expect("reads go on");
            }
        }
    }

    /// The tables are behind one of the commits, and nothing is wrong with them. Returns which one.
    #[track_caller]
    fn check(&mut self) {
        let tables = self.states[0].open(self.db()).expect("the tables open");
        let differences: Vec<_> = self.states.iter().map(|state| state.difference(&tables).expect("scans")).collect();
        let Some(found) = differences.iter().position(Option::is_none) else {
            panic!("behind none of the commits: {differences:#?}");
        };
        self.states = vec![self.states[found].clone()];
        self.states[0].check(self.db());
    }

    fn reopen(&mut self, power_cut: bool) {
        (self.db, self.kept) = (None, None);
        if power_cut {
            self.disk.restart();
        }
        self.db = Some(open(&self.disk).unwrap_or_else(|error| panic!("the last opening: {error}")));
        self.check();
    }
}

/// Runs with operation `n` of a kind failing; false when there is no such operation.
fn run(structure: Structure, n: u64, fault: Fault, errno: i32, power_cut: bool) -> bool {
    let disk = SimDisk::new(n);
    disk.fail_operation(fault, n, errno);
    let states = vec![Model::new(structure)];
    let mut run = Run { structure, disk, errno, db: None, states, kept: None, read_only: false };
    run.open();
    for step in script() {
        if let Err(error) = run.step(&step) {
            run.after_failure(&step, &error);
        }
        if run.read_only {
            break;
        }
    }
    if run.disk.faults_left() > 0 {
        return false;
    }
    assert!(!run.read_only || fault != Fault::Growth, "a full disk is no failure");
    run.reopen(power_cut);
    run.commit(&puts(200..210, 3000), Durability::Sync).expect("writes again");
    run.reopen(true);
    true
}

fn every_operation(structure: Structure, fault: Fault, errno: i32, least: u64) {
    let mut failures = Vec::new();
    for n in 0.. {
        let mut more = true;
        for power_cut in [false, true] {
            match std::panic::catch_unwind(|| run(structure, n, fault, errno, power_cut)) {
                Ok(happened) => more = happened,
                Err(_) => failures.push((n, power_cut)),
            }
        }
        if !more {
            assert!(n >= least, "{n} operations are too few to say much");
            break;
        }
    }
    assert!(failures.is_empty(), "{} runs failed (operation, power cut afterwards): {failures:?}", failures.len());
}

fn a_disk_without_room_at_every_operation(structure: Structure) {
    every_operation(structure, Fault::Any, ENOSPC, 200);
}

fn a_device_error_at_every_operation(structure: Structure) {
    every_operation(structure, Fault::Any, EIO, 200);
}

fn no_room_to_grow_turns_nothing_read_only(structure: Structure) {
    every_operation(structure, Fault::Growth, ENOSPC, 20);
}

on_every_structure!(
    a_disk_without_room_at_every_operation,
    a_device_error_at_every_operation,
    no_room_to_grow_turns_nothing_read_only,
);
