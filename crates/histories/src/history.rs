//! Records of transactions: their operations and the results of their reads.
//!
//! A [`History`] is kept as JSON Lines, one transaction per line. A failed history can therefore be looked at, cut down
//! and checked again.
//!
//! Invariants: `began` was taken before the transaction began, `ended` after its end, both from one clock. If `a.ended
//! < b.began`, transaction `a` had ended before `b` began.

use std::{
    fmt,
    io::{self, BufRead, Write},
};

use serde::{Deserialize, Serialize};

/// A key of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(pub u64);

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "k{}", self.0)
    }
}

/// A value appended to a list or written to a register: never the same to one key twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Element(pub u64);

impl fmt::Display for Element {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Number of a transaction in its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TxnId(pub u64);

impl fmt::Display for TxnId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "T{}", self.0)
    }
}

/// The isolation promised to a transaction, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Each read sees the commits up to that read.
    ReadCommitted,
    /// All reads see one moment, and no other transaction has written the same keys since.
    Snapshot,
    /// The result is as if no other transaction ran at the same time.
    Serializable,
}

impl fmt::Display for Isolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::ReadCommitted => "read committed",
            Self::Snapshot => "snapshot",
            Self::Serializable => "serializable",
        })
    }
}

/// An operation and its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Operation {
    /// Looked at a key.
    Read {
        /// The key.
        key: Key,
        /// The list, or at most one element of a register.
        found: Vec<Element>,
        /// Whether no other transaction may write the key until the commit, under every isolation.
        #[serde(default)]
        for_update: bool,
    },
    /// Looked at all keys from `from` to `to`, both included.
    ReadRange {
        /// The least.
        from: Key,
        /// The greatest.
        to: Key,
        /// Whether the read went from the greatest to the least.
        backward: bool,
        /// The keys found, in the order in which the read showed them.
        found: Vec<(Key, Vec<Element>)>,
    },
    /// Appended to a list.
    Append {
        /// The list's key.
        key: Key,
        /// The appended element.
        element: Element,
    },
    /// Wrote a register.
    Write {
        /// The register's key.
        key: Key,
        /// The new element of the register.
        value: Element,
    },
    /// Made a register absent.
    Delete {
        /// The register's key.
        key: Key,
    },
}

/// A list as text.
pub(crate) fn shown(list: &[Element]) -> String {
    let elements: Vec<_> = list.iter().map(ToString::to_string).collect();
    format!("[{}]", elements.join(" "))
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { key, found, for_update } => {
                let what = if *for_update { "read for update" } else { "read" };
                write!(formatter, "{what} {key} = {}", shown(found))
            }
            Self::ReadRange { from, to, backward, found } => {
                let (first, last) = if *backward { (to, from) } else { (from, to) };
                let pairs: Vec<_> = found.iter().map(|(key, list)| format!("{key} = {}", shown(list))).collect();
                write!(formatter, "read {first}..{last}: {{{}}}", pairs.join(", "))
            }
            Self::Append { key, element } => write!(formatter, "append {element} to {key}"),
            Self::Write { key, value } => write!(formatter, "write {value} to {key}"),
            Self::Delete { key } => write!(formatter, "delete {key}"),
        }
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Its commit succeeded.
    Committed,
    /// No effect of the transaction may ever be seen.
    Aborted,
    /// Its commit failed without a known outcome: the writes may have happened.
    Unknown,
}

/// A transaction with its operations up to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transaction {
    /// Its number.
    pub id: TxnId,
    /// The isolation promised to the transaction.
    pub isolation: Isolation,
    /// Its operations, in order.
    pub operations: Vec<Operation>,
    /// How it ended.
    pub outcome: Outcome,
    /// Time on the history's clock before the begin.
    pub began: u64,
    /// Time on the history's clock after the end.
    pub ended: u64,
    /// Its place in the order of commits, if the store tells one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_seq: Option<u64>,
}

impl fmt::Display for Transaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Committed => "committed",
            Outcome::Aborted => "aborted",
            Outcome::Unknown => "outcome unknown",
        };
        let operations: Vec<_> = self.operations.iter().map(ToString::to_string).collect();
        let (began, ended) = (self.began, self.ended);
        write!(formatter, "{} ({}, {outcome}, time {began} to {ended}): ", self.id, self.isolation)?;
        formatter.write_str(&operations.join("; "))
    }
}

/// Why a history could not be read, written or checked.
#[derive(Debug)]
pub enum HistoryError {
    /// Reading or writing failed.
    Io(io::Error),
    /// A line is not a transaction.
    Line {
        /// The line's number, from 1.
        number: usize,
        /// The error of the parser.
        error: serde_json::Error,
    },
    /// The workload cannot be checked.
    Workload(String),
}

impl fmt::Display for HistoryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(formatter, "the history could not be read or written: {error}"),
            Self::Line { number, error } => write!(formatter, "line {number} is no transaction: {error}"),
            Self::Workload(what) => write!(formatter, "the history cannot be checked: {what}"),
        }
    }
}

impl std::error::Error for HistoryError {}

impl From<io::Error> for HistoryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Transactions that ran beside one another, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The transactions.
    pub transactions: Vec<Transaction>,
}

impl History {
    /// Writes one line per transaction.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn write_jsonl(&self, mut out: impl Write) -> Result<(), HistoryError> {
        for transaction in &self.transactions {
            serde_json::to_writer(&mut out, transaction).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
        Ok(out.flush()?)
    }

    /// Reads the output of [`History::write_jsonl`]; empty lines are ignored.
    ///
    /// # Errors
    /// When `from` fails, or a line is not a transaction.
    pub fn read_jsonl(from: impl BufRead) -> Result<Self, HistoryError> {
        let mut transactions = Vec::new();
        for (number, line) in (1..).zip(from.lines()) {
            let line = line?;
            if !line.trim().is_empty() {
                let transaction = serde_json::from_str(&line).map_err(|error| HistoryError::Line { number, error })?;
                transactions.push(transaction);
            }
        }
        Ok(Self { transactions })
    }
}

impl fmt::Display for History {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.transactions.iter().try_for_each(|transaction| writeln!(formatter, "{transaction}"))
    }
}
