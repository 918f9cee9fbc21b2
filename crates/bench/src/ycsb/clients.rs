//! The client threads of a workload.
//!
//! 1. A load inserts records one after another, from one counter, so that the present records have no gap, even after a
//!    stopped load.
//! 2. In a mix each client draws the kind of an operation and the record from separate random numbers. So if the number
//!    of operations is given, the number of operations of each kind depends on the seed alone.
//! 3. Every value that is read is checked, those of scans too. A missing record that was acknowledged is an error.
//!
//! Left to others: slices, limits and the report (`run`).

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use braid::{Database, Table, WriteBatch};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::calls::{LatencyFrom, YcsbReport};
use super::pace::Pace;
use super::{Acknowledged, Core, Kind, Requests, SCAN_RECORDS_MAX, Shape, TABLE};
use crate::slice::{Shared, Tally};
use crate::{Config, Error, Result, Workload, keys};

const MISSING: &str = "is not there, though its insert returned (after a power cut: load again)";
const WRONG_VALUE: &str = "has a value that no workload wrote";
const FOREIGN: &str = "was not written by any workload";
const DISORDER: &str = "came in a scan behind a key that is not smaller";

/// Records read back in one call.
const READ_BACK_BATCH: usize = 128;

/// One workload on one table.
pub(crate) struct Clients<'a> {
    database: &'a Database,
    table: &'a Table,
    config: &'a Config,
    shape: Shape,
    /// Records when the workload began.
    records: u64,
    acknowledged: Acknowledged,
    /// Counts slices, so that each slice draws other numbers.
    slices: AtomicU64,
}

impl<'a> Clients<'a> {
    /// Clients of a table with `records` records.
    pub(crate) fn new(database: &'a Database, table: &'a Table, config: &'a Config, records: u64) -> Self {
        let acknowledged = Acknowledged::new(records);
        let shape = config.ycsb.shape;
        Self { database, table, config, shape, records, acknowledged, slices: AtomicU64::new(0) }
    }

    /// Called once before each slice.
    pub(crate) fn next_slice(&self) {
        self.slices.fetch_add(1, Ordering::Relaxed);
    }

    /// The work of one thread for one slice.
    pub(crate) fn work(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        match self.config.workload {
            Workload::Ycsb(core) => Client::new(self, core, thread, shared).run(shared, tally),
            _ => self.load(thread, shared, tally),
        }
    }

    fn random(&self, thread: usize, purpose: u64) -> SmallRng {
        let slice = self.slices.load(Ordering::Relaxed);
        SmallRng::seed_from_u64(keys::mix(self.config.seed ^ keys::mix(slice << 18 | (thread as u64) << 2 | purpose)))
    }

    /// Inserts until the table has the configured number of records.
    fn load(&self, thread: usize, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let mut random = self.random(thread, 0);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut taken = Vec::new();
        while shared.goes_on() {
            let mut batch = WriteBatch::new();
            taken.clear();
            while taken.len() < self.config.batch {
                let index = self.acknowledged.take();
                if index >= self.config.num {
                    break;
                }
                taken.push(index);
                let number = self.shape.number(index);
                self.shape.write_key(number, &mut key);
                self.shape.write_value(number, &mut random, &mut value);
                tally.put_bytes += (key.len() + value.len()) as u64;
                batch.put(self.table, &key, &value);
            }
            if taken.is_empty() {
                break;
            }
            let begun = Instant::now();
            self.database.write_with(&batch, self.config.durability)?;
            tally.call(begun, taken.len() as u64);
            shared.progress(taken.len() as u64);
            for index in &taken {
                self.acknowledged.acknowledge(*index)?;
            }
        }
        Ok(())
    }

    /// Reads every `step`th record back and returns how many that were; a missing or wrong record is an error.
    pub(crate) fn read_back(&self, step: u64) -> Result<u64> {
        let step = usize::try_from(step).unwrap_or(usize::MAX);
        let mut indexes = (0..self.acknowledged.count()).step_by(step).peekable();
        let mut read = 0;
        while indexes.peek().is_some() {
            let portion: Vec<u64> = indexes.by_ref().take(READ_BACK_BATCH).collect();
            let batch: Vec<_> = portion.iter().map(|index| key(&self.shape, *index)).collect();
            for (index, value) in portion.iter().zip(self.table.get_many(&batch)?) {
                self.check(*index, value.as_deref())?;
            }
            read += portion.len() as u64;
        }
        Ok(read)
    }

    fn check(&self, index: u64, value: Option<&[u8]>) -> Result<()> {
        match value {
            Some(value) if self.shape.is_right(self.shape.number(index), value) => Ok(()),
            Some(_) => Err(wrong(&key(&self.shape, index), WRONG_VALUE)),
            None => Err(wrong(&key(&self.shape, index), MISSING)),
        }
    }

    /// The further contents of the report, with `tally` of all slices.
    pub(crate) fn report(&self, tally: &Tally) -> YcsbReport {
        let settings = &self.config.ycsb;
        let core = if let Workload::Ycsb(core) = self.config.workload { Some(core) } else { None };
        let target = settings.target.filter(|_| core.is_some());
        let from = if target.is_some() { LatencyFrom::DueTime } else { LatencyFrom::ClosedLoop };
        YcsbReport {
            field_count: self.shape.field_count,
            field_length: self.shape.field_length,
            write_all_fields: settings.write_all_fields,
            insert_order: self.shape.insert_order.to_string(),
            zero_padding: self.shape.zero_padding,
            request_distribution: core.map(|core| settings.distribution(core).to_string()),
            target_ops_per_second: target,
            latency_from: core.map(|_| from),
            overdue: tally.kinds.overdue,
            records_scanned: tally.kinds.scanned,
            records_at_end: self.acknowledged.count(),
            operations: tally.kinds.report(),
        }
    }
}

/// The key of record `index`.
fn key(shape: &Shape, index: u64) -> Vec<u8> {
    let mut key = Vec::new();
    shape.write_key(shape.number(index), &mut key);
    key
}

/// Number of records in the table, or none in an empty table.
///
/// # Errors
/// When the table holds anything else, or records of another shape, or cannot be read.
pub(crate) fn existing_records(table: &Table, shape: &Shape) -> Result<Option<u64>> {
    let Some(first) = table.iter().next() else { return Ok(None) };
    let foreign = || Error::ForeignTable { table: TABLE.into(), made_with: made_with(shape) };
    shape.number_of(&first?.0).ok_or_else(foreign)?;
    let value = table.get(key(shape, 0))?.ok_or_else(foreign)?;
    if !shape.is_right(shape.number(0), &value) {
        return Err(foreign());
    }
    // Records have no gap, so their end is found by bisection.
    let is_there = |index: u64| Ok::<_, Error>(table.get(key(shape, index))?.is_some());
    let mut there = 0;
    let mut beyond = 1;
    while is_there(beyond)? {
        there = beyond;
        beyond *= 2;
    }
    while beyond - there > 1 {
        let middle = u64::midpoint(there, beyond);
        if is_there(middle)? {
            there = middle;
        } else {
            beyond = middle;
        }
    }
    Ok(Some(beyond))
}

fn made_with(shape: &Shape) -> String {
    let Shape { field_count, field_length, insert_order, zero_padding } = shape;
    format!(
        "--field-count {field_count} --field-length {field_length} --insert-order {insert_order} --zero-padding {zero_padding}"
    )
}

#[cold]
fn wrong(key: &[u8], problem: &'static str) -> Error {
    Error::WrongRecord { table: TABLE.into(), key: String::from_utf8_lossy(key).into_owned(), problem }
}

/// One thread in one slice of a mix.
struct Client<'a> {
    clients: &'a Clients<'a>,
    core: Core,
    requests: Requests,
    /// Operations to do, if their number is given.
    operations: u64,
    pace: Option<Pace>,
    /// Chooses the kind of each operation, and nothing else.
    kinds: SmallRng,
    random: SmallRng,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Client<'a> {
    fn new(clients: &'a Clients<'a>, core: Core, thread: usize, shared: &Shared<'_>) -> Self {
        let Config { threads, ycsb, .. } = clients.config;
        let share = shared.total().map(|total| keys::share(total, thread, *threads));
        // Where only the time is given, as many operations as records are expected.
        let expected = ycsb.operations.unwrap_or(clients.records);
        Self {
            clients,
            core,
            requests: Requests::new(ycsb.distribution(core), core, clients.records, expected),
            operations: share.map_or(u64::MAX, |share| share.end - share.start),
            pace: ycsb.target.map(|target| Pace::new(shared.begin(), target, thread, *threads)),
            kinds: clients.random(thread, 1),
            random: clients.random(thread, 2),
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    fn run(mut self, shared: &Shared<'_>, tally: &mut Tally) -> Result<()> {
        let mut done = 0;
        while done < self.operations {
            let due = self.pace.as_ref().map(|pace| pace.due(done));
            if !due.map_or_else(|| shared.goes_on(), |due| shared.sleep_until(due)) {
                break;
            }
            let kind = self.core.choose(self.kinds.random());
            self.carry_out(kind, due, tally)?;
            shared.progress(1);
            done += 1;
        }
        if let (Some(pace), Some(end)) = (&self.pace, shared.passed_deadline()) {
            tally.kinds.overdue += pace.due_before(end).min(self.operations).saturating_sub(done);
        }
        Ok(())
    }

    fn carry_out(&mut self, kind: Kind, due: Option<Instant>, tally: &mut Tally) -> Result<()> {
        let clients = self.clients;
        let called = |begun: Instant, tally: &mut Tally| {
            tally.call(due.unwrap_or(begun), 1);
            tally.kinds.call(kind, due, begun);
        };
        if kind == Kind::Insert {
            let index = clients.acknowledged.take();
            let number = self.choose_key(index);
            clients.shape.write_value(number, &mut self.random, &mut self.value);
            let begun = Instant::now();
            self.put(tally)?;
            called(begun, tally);
            return clients.acknowledged.acknowledge(index);
        }
        let index = self.requests.next(clients.acknowledged.count(), &mut self.random);
        let number = self.choose_key(index);
        let begun = match kind {
            Kind::Read => {
                let begun = Instant::now();
                let value = clients.table.get(&self.key)?;
                called(begun, tally);
                return clients.check(index, value.as_deref());
            }
            Kind::Scan => {
                let records = self.random.random_range(1..=SCAN_RECORDS_MAX);
                let begun = Instant::now();
                tally.kinds.scanned += self.scan(records)?;
                begun
            }
            _ => {
                let begun = Instant::now();
                if kind == Kind::ReadModifyWrite {
                    let value = clients.table.get(&self.key)?;
                    clients.check(index, value.as_deref())?;
                }
                self.update(index, number)?;
                self.put(tally)?;
                begun
            }
        };
        called(begun, tally);
        Ok(())
    }

    /// Makes the key of a record, and returns its number.
    fn choose_key(&mut self, index: u64) -> u64 {
        let shape = &self.clients.shape;
        let number = shape.number(index);
        shape.write_key(number, &mut self.key);
        number
    }

    /// Makes the value that an update puts.
    fn update(&mut self, index: u64, number: u64) -> Result<()> {
        let Clients { table, config, shape, .. } = self.clients;
        if config.ycsb.write_all_fields {
            shape.write_value(number, &mut self.random, &mut self.value);
            return Ok(());
        }
        self.value = table.get(&self.key)?.ok_or_else(|| wrong(&self.key, MISSING))?;
        self.clients.check(index, Some(&self.value))?;
        let field = self.random.random_range(0..shape.field_count);
        shape.write_field(number, field, self.random.random(), &mut self.value);
        Ok(())
    }

    fn put(&self, tally: &mut Tally) -> Result<()> {
        self.clients.table.put_with(&self.key, &self.value, self.clients.config.durability)?;
        tally.put_bytes += (self.key.len() + self.value.len()) as u64;
        Ok(())
    }

    /// Reads up to `records` from the key on, checks them, and returns how many there were.
    fn scan(&self, records: u64) -> Result<u64> {
        let Clients { table, shape, .. } = self.clients;
        let mut last = Vec::new();
        let mut seen = 0;
        let ended = table.range(self.key.as_slice()..).visit(|key, value| {
            let problem = match shape.number_of(key) {
                _ if seen == 0 && key != self.key => return ControlFlow::Break(Err(wrong(&self.key, MISSING))),
                _ if seen > 0 && key <= last.as_slice() => Some(DISORDER),
                None => Some(FOREIGN),
                Some(number) if !shape.is_right(number, value) => Some(WRONG_VALUE),
                Some(_) => None,
            };
            if let Some(problem) = problem {
                return ControlFlow::Break(Err(wrong(key, problem)));
            }
            last.clear();
            last.extend_from_slice(key);
            seen += 1;
            if seen < records { ControlFlow::Continue(()) } else { ControlFlow::Break(Ok(())) }
        })?;
        match ended {
            ControlFlow::Break(Err(error)) => Err(error),
            _ if seen == 0 => Err(wrong(&self.key, MISSING)),
            _ => Ok(seen),
        }
    }
}
