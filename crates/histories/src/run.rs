//! Runs plans against a store and records the results.
//!
//! 1. [`Runner::interleave`] has several transactions open in one thread and takes a step of one after the other, as a
//!    seed chooses: the same seed makes the same history. [`Runner::threads`] lets threads race.
//! 2. Both take the store in any state and add to the same history, so a store may be closed and opened between them.
//! 3. Every transaction that began is recorded with its operations until its end, for every kind of end.
//!
//! Invariant: the clock is read before a transaction begins and after the end, so recorded times are never too narrow.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{Failure, History, Isolation, Key, Operation, Outcome, Plan, Step, Store, Transaction, Txn, TxnId};

/// Carries out plans and records them.
#[derive(Debug, Default)]
pub struct Runner {
    clock: AtomicU64,
    recorded: Mutex<Vec<Transaction>>,
}

/// A transaction under way.
struct Open<T> {
    txn: T,
    plan: Plan,
    done: usize,
    began: u64,
    operations: Vec<Operation>,
}

impl Runner {
    /// A runner without recorded transactions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Carries out plans in one thread, with up to `open_max` transactions open. `between` runs before each step and
    /// may change the store.
    ///
    /// # Errors
    /// The description of a fault that the store reported itself.
    pub fn interleave<S: Store>(
        &self, store: &S, plans: Vec<Plan>, seed: u64, open_max: usize, between: &mut dyn FnMut(&S, &mut StdRng),
    ) -> Result<(), String> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut waiting = VecDeque::from(plans);
        let mut open: Vec<Open<S::Txn<'_>>> = Vec::new();
        while !(waiting.is_empty() && open.is_empty()) {
            between(store, &mut random);
            // A new transaction is as likely as a step of any open one.
            let room = usize::from(open.len() < open_max && !waiting.is_empty());
            let chosen = random.random_range(0..open.len() + room);
            if chosen < open.len() {
                let next = self.step(open.swap_remove(chosen))?;
                open.extend(next);
            } else if let Some(plan) = waiting.pop_front() {
                open.extend(self.begin(store, plan)?);
            }
        }
        Ok(())
    }

    /// Carries out plans in threads, each taking the next one.
    ///
    /// # Errors
    /// The description of a fault that the store reported itself.
    pub fn threads<S: Store + Sync>(&self, store: &S, plans: Vec<Plan>, threads: usize) -> Result<(), String> {
        let waiting = Mutex::new(VecDeque::from(plans));
        let work = || {
            loop {
                // The lock is released before the plan is carried out.
                let next = waiting.lock().pop_front();
                let Some(plan) = next else { return Ok(()) };
                let mut open = self.begin(store, plan)?;
                while let Some(txn) = open {
                    open = self.step(txn)?;
                }
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let panicked = |_| Err("a thread panicked".to_owned());
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked))
        })
    }

    /// Reads all keys below `keys` in a transaction of its own. A committed element that this read does not find is
    /// lost.
    ///
    /// # Errors
    /// The description of a fault that the store reported itself.
    pub fn read_everything<S: Store>(&self, store: &S, keys: u64, isolation: Isolation) -> Result<(), String> {
        let all = Step::ReadRange { from: Key(0), to: Key(keys.saturating_sub(1)), backward: false };
        let each = (0..keys).map(|key| Step::Read { key: Key(key), for_update: false });
        let plan = Plan { isolation, steps: std::iter::once(all).chain(each).collect(), aborts: false };
        self.interleave(store, vec![plan], 0, 1, &mut |_, _| {})
    }

    /// The recorded transactions, in the order of their ends.
    #[must_use]
    pub fn into_history(self) -> History {
        History { transactions: self.recorded.into_inner() }
    }

    /// Begins a transaction; `None` if the store cannot begin one now, and the plan is then given up.
    fn begin<'s, S: Store>(&self, store: &'s S, plan: Plan) -> Result<Option<Open<S::Txn<'s>>>, String> {
        let began = self.now();
        match store.begin(plan.isolation) {
            Ok(txn) => Ok(Some(Open { txn, plan, done: 0, began, operations: Vec::new() })),
            Err(Failure::Aborted(_)) => Ok(None),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// Takes the next step of a transaction; `None` after its end.
    fn step<T: Txn>(&self, mut open: Open<T>) -> Result<Option<Open<T>>, String> {
        let Some(step) = open.plan.steps.get(open.done).copied() else {
            let Open { txn, plan, began, operations, .. } = open;
            let (outcome, seq) = if plan.aborts {
                txn.abort();
                (Outcome::Aborted, None)
            } else {
                match txn.commit() {
                    Ok(seq) => (Outcome::Committed, seq),
                    Err(Failure::Aborted(_)) => (Outcome::Aborted, None),
                    Err(Failure::Unknown(_)) => (Outcome::Unknown, None),
                    Err(Failure::Broken(what)) => return Err(what),
                }
            };
            self.record(plan.isolation, operations, outcome, began, seq);
            return Ok(None);
        };
        open.done += 1;
        match carry_out(&mut open.txn, step) {
            Ok(operation) => {
                open.operations.push(operation);
                Ok(Some(open))
            }
            Err(Failure::Broken(what)) => Err(what),
            // Only a commit leaves its outcome open.
            Err(Failure::Aborted(_) | Failure::Unknown(_)) => {
                let Open { txn, plan, began, mut operations, .. } = open;
                txn.abort();
                // If a read shows the failed write all the same, its writer is known.
                operations.extend(attempted(step));
                self.record(plan.isolation, operations, Outcome::Aborted, began, None);
                Ok(None)
            }
        }
    }

    fn record(
        &self, isolation: Isolation, operations: Vec<Operation>, outcome: Outcome, began: u64, commit_seq: Option<u64>,
    ) {
        let mut recorded = self.recorded.lock();
        let id = TxnId(recorded.len() as u64 + 1);
        let ended = self.now();
        recorded.push(Transaction { id, isolation, operations, outcome, began, ended, commit_seq });
    }
}

fn carry_out(txn: &mut impl Txn, step: Step) -> Result<Operation, Failure> {
    Ok(match step {
        Step::Read { key, for_update } => {
            let found = if for_update { txn.read_for_update(key)? } else { txn.read(key)? };
            Operation::Read { key, found, for_update }
        }
        Step::ReadRange { from, to, backward } => {
            Operation::ReadRange { from, to, backward, found: txn.read_range(from, to, backward)? }
        }
        Step::Append { key, element } => {
            txn.append(key, element)?;
            Operation::Append { key, element }
        }
        Step::Write { key, value } => {
            txn.write(key, value)?;
            Operation::Write { key, value }
        }
        Step::Delete { key } => {
            txn.delete(key)?;
            Operation::Delete { key }
        }
    })
}

/// The write that a failed step attempted.
fn attempted(step: Step) -> Option<Operation> {
    match step {
        Step::Read { .. } | Step::ReadRange { .. } => None,
        Step::Append { key, element } => Some(Operation::Append { key, element }),
        Step::Write { key, value } => Some(Operation::Write { key, value }),
        Step::Delete { key } => Some(Operation::Delete { key }),
    }
}
