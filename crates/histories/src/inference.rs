//! Inference of dependencies from the reads of a history.
//!
//! 1. Every write is listed by key. An element is written once to a key, so a read names its writers.
//! 2. Three groups of transactions take part: the committed ones; those of unknown outcome, if a participant saw one of
//!    their writes; and the aborted ones, as readers alone, if the options ask for that.
//! 3. The operations of each transaction are walked in order. A read without the transaction's own writes is its
//!    *base*: the version found in the store. A read that contradicts the transaction's own writes or earlier reads is
//!    reported at once.
//! 4. Bases and writes of one key give dependencies: `lists`, `registers`. The search for cycles begins when all
//!    dependencies are known: `cycles`.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    Element, History, HistoryError, Isolation, Key, Kind, Operation, Outcome, Report, Transaction,
    anomaly::versus,
    cycles,
    findings::{Base, Findings, OfKey, Part, Write},
    history::shown,
    lists, registers,
};

/// Assumptions of a check.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A transaction that ended before another began comes before the other.
    pub real_time: bool,
    /// The isolation promised to a transaction holds for its reads even if the transaction aborts.
    pub aborted_reads: bool,
}

impl Default for Options {
    /// Both, because a single node whose transactions read a snapshot promises both.
    fn default() -> Self {
        Self { real_time: true, aborted_reads: true }
    }
}

/// Searches a history for anomalies, with the default [`Options`].
///
/// # Errors
/// As [`check_with`].
pub fn check(history: &History) -> Result<Report, HistoryError> {
    check_with(history, Options::default())
}

/// Searches a history for anomalies.
///
/// # Errors
/// [`HistoryError::Workload`] if the history cannot be checked: an element was written twice to one key, or a key is
/// both list and register.
pub fn check_with(history: &History, options: Options) -> Result<Report, HistoryError> {
    let mut keys = writes_by_key(history)?;
    let parts = parts(history, &keys, options);
    let mut findings = Findings { history, anomalies: Vec::new(), edges: Vec::new(), known: HashSet::new() };
    for (txn, transaction) in history.transactions.iter().enumerate() {
        if parts[txn] != Part::None {
            read_bases(txn, transaction, &mut keys, &mut findings);
        }
    }
    for (key, of_key) in &keys {
        let infer = if of_key.is_register { registers::infer } else { lists::infer };
        infer(*key, of_key, &parts, &mut findings);
    }
    let Findings { mut anomalies, edges, .. } = findings;
    let dependencies = edges.len();
    anomalies.extend(cycles::search(history, &parts, edges, options.real_time));
    let transactions = parts.iter().filter(|part| **part != Part::None).count();
    Ok(Report { anomalies, transactions, dependencies })
}

fn writes_by_key(history: &History) -> Result<BTreeMap<Key, OfKey<'_>>, HistoryError> {
    let mut keys: BTreeMap<Key, OfKey<'_>> = BTreeMap::new();
    let mut written: HashSet<(Key, Element)> = HashSet::new();
    let mut models: HashMap<Key, bool> = HashMap::new();
    for (txn, transaction) in history.transactions.iter().enumerate() {
        for operation in &transaction.operations {
            let (key, element, is_register) = match operation {
                Operation::Append { key, element } => (*key, Some(*element), false),
                Operation::Write { key, value } => (*key, Some(*value), true),
                Operation::Delete { key } => (*key, None, true),
                Operation::Read { key, .. } => {
                    keys.entry(*key).or_default();
                    continue;
                }
                Operation::ReadRange { found, .. } => {
                    found.iter().for_each(|(key, _)| _ = keys.entry(*key).or_default());
                    continue;
                }
            };
            if element.is_some_and(|element| !written.insert((key, element))) {
                let what = format!("{operation} of {}: it was written to that key before", transaction.id);
                return Err(HistoryError::Workload(what));
            }
            if *models.entry(key).or_insert(is_register) != is_register {
                return Err(HistoryError::Workload(format!("{key} is both a list and a register")));
            }
            let of_key = keys.entry(key).or_default();
            of_key.is_register = is_register;
            for before in of_key.writes.iter_mut().filter(|before| before.txn == txn) {
                before.intermediate = true;
            }
            of_key.writes.push(Write { txn, element, intermediate: false });
        }
    }
    Ok(keys)
}

/// The part of each transaction. A transaction of unknown outcome takes part if a participant saw one of its writes.
fn parts(history: &History, keys: &BTreeMap<Key, OfKey<'_>>, options: Options) -> Vec<Part> {
    let writers: BTreeMap<Key, HashMap<Element, Write>> =
        keys.iter().map(|(key, of_key)| (*key, of_key.writers())).collect();
    let of = |outcome| match outcome {
        Outcome::Committed => Part::Whole,
        Outcome::Aborted if options.aborted_reads => Part::Reader,
        Outcome::Aborted | Outcome::Unknown => Part::None,
    };
    let mut parts: Vec<_> = history.transactions.iter().map(|txn| of(txn.outcome)).collect();
    let mut looked_at = vec![false; parts.len()];
    while let Some(txn) = (0..parts.len()).find(|txn| parts[*txn] != Part::None && !looked_at[*txn]) {
        looked_at[txn] = true;
        let mut see = |key: &Key, found: &[Element]| {
            let of_key = writers.get(key);
            for write in found.iter().filter_map(|element| of_key?.get(element)) {
                if history.transactions[write.txn].outcome == Outcome::Unknown {
                    parts[write.txn] = Part::Whole;
                }
            }
        };
        for operation in &history.transactions[txn].operations {
            match operation {
                Operation::Read { key, found, .. } => see(key, found),
                Operation::ReadRange { found, .. } => found.iter().for_each(|(key, found)| see(key, found)),
                Operation::Append { .. } | Operation::Write { .. } | Operation::Delete { .. } => {}
            }
        }
    }
    parts
}

/// A transaction's own writes of a key, and the base of its reads.
#[derive(Default)]
struct Own<'h> {
    written: Vec<Option<Element>>,
    base: Option<&'h [Element]>,
}

/// A read of one key.
struct Seen<'h> {
    key: Key,
    found: &'h [Element],
    absent: bool,
    promised: Isolation,
}

fn read_bases<'h>(
    txn: usize, transaction: &'h Transaction, keys: &mut BTreeMap<Key, OfKey<'h>>, findings: &mut Findings<'_>,
) {
    let mut own: BTreeMap<Key, Own<'h>> = BTreeMap::new();
    for operation in &transaction.operations {
        match operation {
            Operation::Append { key, element } | Operation::Write { key, value: element } => {
                own.entry(*key).or_default().written.push(Some(*element));
            }
            Operation::Delete { key } => own.entry(*key).or_default().written.push(None),
            Operation::Read { key, found, for_update } => {
                // A read for update by an aborted transaction keeps no promise: another write of the key may be the
                // reason of the abort.
                let is_kept = *for_update && transaction.outcome != Outcome::Aborted;
                let promised = if is_kept { Isolation::Serializable } else { transaction.isolation };
                let seen = Seen { key: *key, found, absent: false, promised };
                see(txn, &seen, own.entry(*key).or_default(), keys, findings);
            }
            Operation::ReadRange { from, to, backward, found } => {
                check_range(txn, transaction, operation, (*from, *to, *backward), found, findings);
                let shown: BTreeMap<Key, &'h [Element]> = found.iter().map(|(key, list)| (*key, &list[..])).collect();
                let within: BTreeSet<Key> = keys.keys().copied().filter(|key| from <= key && key <= to).collect();
                for key in within {
                    let list = shown.get(&key).copied();
                    let promised = transaction.isolation;
                    let seen = Seen { key, found: list.unwrap_or_default(), absent: list.is_none(), promised };
                    see(txn, &seen, own.entry(key).or_default(), keys, findings);
                }
            }
        }
    }
}

fn check_range(
    txn: usize, transaction: &Transaction, operation: &Operation, (from, to, backward): (Key, Key, bool),
    found: &[(Key, Vec<Element>)], findings: &mut Findings<'_>,
) {
    let rises = found.windows(2).all(|pair| if backward { pair[0].0 > pair[1].0 } else { pair[0].0 < pair[1].0 });
    let whole = found.iter().all(|(key, list)| from <= *key && *key <= to && !list.is_empty());
    if !rises || !whole {
        let what = format!("{}: {operation}", transaction.id);
        findings.tell(Kind::BadRange, transaction.isolation, &[txn], what);
    }
}

/// Compares a read with the transaction's own writes and earlier base, and records its base.
fn see<'h>(
    txn: usize, seen: &Seen<'h>, own: &mut Own<'h>, keys: &mut BTreeMap<Key, OfKey<'h>>, findings: &mut Findings<'_>,
) {
    let Seen { key, found, absent, promised } = *seen;
    let Some(of_key) = keys.get_mut(&key) else { return };
    let id = findings.transaction(txn).id;
    let written: Vec<Element> = match (of_key.is_register, own.written.last()) {
        (true, Some(last)) => last.iter().copied().collect(),
        (true, None) => Vec::new(),
        (false, _) => own.written.iter().filter_map(|element| *element).collect(),
    };
    let is_covered = of_key.is_register && !own.written.is_empty();
    let base = found.strip_suffix(&written[..]).filter(|base| !is_covered || base.is_empty());
    let Some(base) = base else {
        let what = format!("{id} wrote {} to {key} and then read {}", shown(&written), shown(found));
        findings.tell(Kind::Internal, promised, &[txn], what);
        return;
    };
    if is_covered {
        return;
    }
    if let Some(before) = own.base.filter(|before| *before != base) {
        let what = format!("{id} found {key} = {}", versus(before, base));
        // A read for update may show a version committed since the snapshot.
        let promised = findings.transaction(txn).isolation;
        findings.tell(Kind::FuzzyRead, promised, &[txn], what);
    }
    own.base = Some(base);
    of_key.bases.push(Base { txn, found: base, absent, promised });
}
