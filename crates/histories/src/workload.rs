//! Plans of transactions from a seed.
//!
//! Transactions meet because there are few keys, the lower ones hotter. Each transaction has few operations. The plans
//! of a seed write each element at most once, even if the transaction of that element aborts.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::{Element, Isolation, Key};

/// The model of all keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// Lists, which are appended to.
    Lists,
    /// Registers, which are overwritten and deleted.
    Registers,
}

/// One operation of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look at a key.
    Read {
        /// The key.
        key: Key,
        /// Whether the commit depends on the read under every isolation.
        for_update: bool,
    },
    /// Look at all keys from `from` to `to`, both included.
    ReadRange {
        /// The least.
        from: Key,
        /// The greatest.
        to: Key,
        /// Whether from the greatest to the least.
        backward: bool,
    },
    /// Append to a list.
    Append {
        /// The list's key.
        key: Key,
        /// The element to append.
        element: Element,
    },
    /// Write a register.
    Write {
        /// The register's key.
        key: Key,
        /// The element to write.
        value: Element,
    },
    /// Make a register absent.
    Delete {
        /// The register's key.
        key: Key,
    },
}

/// A planned transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The isolation to ask for.
    pub isolation: Isolation,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Whether the transaction aborts at the end.
    pub aborts: bool,
}

/// The shape of plans. Shares are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// The model of all keys.
    pub model: Model,
    /// Number of keys.
    pub keys: u64,
    /// Number of transactions.
    pub transactions: usize,
    /// Most operations of a transaction, at least 1.
    pub operations_max: usize,
    /// Share of operations that read.
    pub reads: f64,
    /// Share of reads that are ranges.
    pub ranges: f64,
    /// Share of reads of one key that the commit depends on.
    pub for_update: f64,
    /// Share of writes of registers that delete.
    pub deletes: f64,
    /// Share of transactions that abort at the end.
    pub aborts: f64,
    /// Isolations to ask for: each transaction draws one of these.
    pub isolation: Vec<Isolation>,
}

impl Workload {
    /// A workload of `transactions` transactions whose other figures come from a seed.
    #[must_use]
    pub fn of_seed(seed: u64, model: Model, transactions: usize, isolation: &[Isolation]) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut one_of = |shares: &[f64]| *shares.choose(&mut random).expect("there is one");
        let [reads, ranges] = [one_of(&[0.3, 0.5, 0.7]), one_of(&[0.0, 0.2, 0.6])];
        let [for_update, deletes, aborts] = [one_of(&[0.0, 0.0, 0.3]), one_of(&[0.0, 0.2, 0.4]), one_of(&[0.0, 0.1])];
        Self {
            model,
            keys: random.random_range(2..=12),
            transactions,
            operations_max: random.random_range(2..=8),
            reads,
            ranges,
            for_update,
            deletes,
            aborts,
            isolation: isolation.to_vec(),
        }
    }

    /// The plans of a seed.
    #[must_use]
    pub fn plans(&self, seed: u64) -> Vec<Plan> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut written = 0;
        (0..self.transactions).map(|_| self.plan(&mut random, &mut written)).collect()
    }

    fn plan(&self, random: &mut StdRng, written: &mut u64) -> Plan {
        let isolation = *self.isolation.choose(random).expect("a workload asks for some isolation");
        let count = random.random_range(1..=self.operations_max);
        let steps = (0..count).map(|_| self.step(random, written)).collect();
        Plan { isolation, steps, aborts: random.random_bool(self.aborts) }
    }

    fn step(&self, random: &mut StdRng, written: &mut u64) -> Step {
        let key = self.key(random);
        if random.random_bool(self.reads) {
            if random.random_bool(self.ranges) {
                let other = self.key(random);
                let (from, to) = (key.min(other), key.max(other));
                return Step::ReadRange { from, to, backward: random.random_bool(0.5) };
            }
            return Step::Read { key, for_update: random.random_bool(self.for_update) };
        }
        *written += 1;
        let element = Element(*written);
        match self.model {
            Model::Lists => Step::Append { key, element },
            Model::Registers if random.random_bool(self.deletes) => Step::Delete { key },
            Model::Registers => Step::Write { key, value: element },
        }
    }

    /// The lower of two drawn keys.
    fn key(&self, random: &mut StdRng) -> Key {
        let mut draw = || random.random_range(0..self.keys);
        Key(draw().min(draw()))
    }
}
