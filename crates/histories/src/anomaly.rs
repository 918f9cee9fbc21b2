//! Anomalies of a history, and their text.

use std::{collections::BTreeSet, fmt};

use crate::{Element, History, Isolation, Key, TxnId, history::shown};

/// The name of an anomaly. The names with a G are Adya's; the paper on Elle adds two of them to tell snapshot isolation
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A transaction does not see its own write.
    Internal,
    /// A range shows keys out of order, twice, or from outside.
    BadRange,
    /// A read shows an element that was never written.
    GarbageRead,
    /// A list has an element twice.
    DuplicateElement,
    /// Of two reads of a list, neither is a prefix of the other.
    IncompatibleOrder,
    /// G1a: a read shows an aborted write.
    AbortedRead,
    /// G1b: a read shows a write that its writer overwrote in the same transaction.
    IntermediateRead,
    /// G0, dirty write: a cycle of writes over writes.
    G0,
    /// G1c, circular information flow: a cycle of writes over writes, and reads of writes.
    G1c,
    /// A transaction reads a key twice and sees different versions.
    FuzzyRead,
    /// P4, lost update: two transactions read the same version of a key and both wrote the key.
    LostUpdate,
    /// G-single: a cycle with one read that missed a write.
    GSingle,
    /// G-nonadjacent: a cycle with several reads that missed writes, no two of them one after the other. A long fork is
    /// one.
    GNonadjacent,
    /// G2-item: a cycle with reads that missed writes. Write skew is one.
    G2Item,
    /// G2: a cycle with reads that missed writes, where a range missed a key that was not there yet.
    G2,
}

impl Kind {
    /// The weakest isolation that forbids this anomaly.
    #[must_use]
    pub const fn forbidden_from(self) -> Isolation {
        match self {
            Self::Internal
            | Self::BadRange
            | Self::GarbageRead
            | Self::DuplicateElement
            | Self::IncompatibleOrder
            | Self::AbortedRead
            | Self::IntermediateRead
            | Self::G0
            | Self::G1c => Isolation::ReadCommitted,
            Self::FuzzyRead | Self::LostUpdate | Self::GSingle | Self::GNonadjacent => Isolation::Snapshot,
            Self::G2Item | Self::G2 => Isolation::Serializable,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Internal => "internal inconsistency",
            Self::BadRange => "bad range",
            Self::GarbageRead => "garbage read",
            Self::DuplicateElement => "duplicate element",
            Self::IncompatibleOrder => "incompatible order",
            Self::AbortedRead => "G1a (aborted read)",
            Self::IntermediateRead => "G1b (intermediate read)",
            Self::G0 => "G0 (dirty write)",
            Self::G1c => "G1c (circular information flow)",
            Self::FuzzyRead => "fuzzy read",
            Self::LostUpdate => "lost update",
            Self::GSingle => "G-single",
            Self::GNonadjacent => "G-nonadjacent",
            Self::G2Item => "G2-item",
            Self::G2 => "G2",
        })
    }
}

/// Why an earlier transaction comes before a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DependencyKind {
    /// The later transaction overwrote a version of the earlier one.
    WriteWrite,
    /// The later transaction read a version of the earlier one.
    WriteRead,
    /// The earlier transaction read a version that the later one overwrote.
    ReadWrite {
        /// Whether the read was of a range that did not show the key.
        absent: bool,
    },
    /// The earlier transaction had ended before the later one began.
    RealTime,
}

/// The evidence of a dependency. An element is `None` for an absent register, or an empty list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The version of the earlier transaction comes before the version of the later one.
    Order(Element, Option<Element>),
    /// The read of the later transaction ends with this element of the earlier one.
    Saw(Element),
    /// The read of the earlier transaction ends here; the version of the later one comes behind.
    Missed(Option<Element>, Option<Element>),
    /// Times on the history's clock: the end of the earlier transaction, the beginning of the later one.
    Times(u64, u64),
}

/// One transaction comes before another in every execution that explains the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The earlier transaction.
    pub from: TxnId,
    /// The later transaction.
    pub to: TxnId,
    /// The kind of the dependency.
    pub kind: DependencyKind,
    /// The key that shows the dependency; `None` for real time.
    pub key: Option<Key>,
    /// The evidence.
    pub proof: Proof,
}

impl Dependency {
    /// The edge, as in `T1 -ww(k3)-> T2`, without its first transaction.
    fn arrow(&self) -> String {
        let key = self.key.map(|key| format!("({key})")).unwrap_or_default();
        let name = match self.kind {
            DependencyKind::WriteWrite => "ww",
            DependencyKind::WriteRead => "wr",
            DependencyKind::ReadWrite { absent: false } => "rw",
            DependencyKind::ReadWrite { absent: true } => "rw-range",
            DependencyKind::RealTime => "rt",
        };
        format!("-{name}{key}-> {}", self.to)
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, .. } = self;
        let key = self.key.map(|key| key.to_string()).unwrap_or_default();
        let version = |element: Option<Element>, none: &str| element.map_or(none.to_owned(), |it| it.to_string());
        match self.proof {
            Proof::Order(before, after) => {
                write!(formatter, "{to} wrote {} to {key} behind {from}'s {before}", version(after, "nothing"))
            }
            Proof::Saw(element) => write!(formatter, "{to} saw {from}'s {element} in {key}"),
            Proof::Missed(last, next) => {
                let (last, next) = (version(last, "nothing"), version(next, "deletion"));
                write!(formatter, "{from} saw {last} in {key} and not {to}'s {next}, which comes behind it")
            }
            Proof::Times(ended, began) => write!(formatter, "{from} ended at {ended}, before {to} began at {began}"),
        }
    }
}

/// An observation that no execution of some isolation can show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anomaly {
    /// Its name.
    pub kind: Kind,
    /// Whether the cycle needs real time: a transaction that ended before another began comes before the other.
    pub real_time: bool,
    /// The weakest isolation promised to the reads or transactions that show the anomaly. An anomaly that this
    /// isolation allows is no fault.
    pub promised: Isolation,
    /// The transactions that take part, in the order of the cycle where there is one.
    pub transactions: Vec<TxnId>,
    /// A description of the anomaly; empty for a cycle.
    pub what: String,
    /// The cycle, from the first transaction back to the first; empty where there is none.
    pub cycle: Vec<Dependency>,
}

impl Anomaly {
    /// Whether the promised isolation forbids this anomaly.
    #[must_use]
    pub fn is_violation(&self) -> bool {
        self.promised >= self.kind.forbidden_from()
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let real_time = if self.real_time { ", in real time" } else { "" };
        let allowed = if self.is_violation() { String::new() } else { format!(" (allowed: {})", self.promised) };
        write!(formatter, "{}{real_time}{allowed}: ", self.kind)?;
        let Some(first) = self.cycle.first() else { return formatter.write_str(&self.what) };
        write!(formatter, "{}", first.from)?;
        self.cycle.iter().try_for_each(|dependency| write!(formatter, " {}", dependency.arrow()))?;
        self.cycle.iter().try_for_each(|dependency| write!(formatter, "\n  {dependency}"))
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All anomalies; several with one cause are there once.
    pub anomalies: Vec<Anomaly>,
    /// Transactions that took part in the search.
    pub transactions: usize,
    /// Dependencies inferred from reads, without those of real time.
    pub dependencies: usize,
}

impl Report {
    /// The anomalies that the promised isolation forbids.
    pub fn violations(&self) -> impl Iterator<Item = &Anomaly> {
        self.anomalies.iter().filter(|anomaly| anomaly.is_violation())
    }

    /// The names of all anomalies.
    #[must_use]
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.anomalies.iter().map(|anomaly| anomaly.kind).collect()
    }

    /// Every violation, with its transactions; `None` if there is none.
    #[must_use]
    pub fn complaint(&self, history: &History) -> Option<String> {
        let mut text = String::new();
        for anomaly in self.violations() {
            text += &format!("{anomaly}\n");
            let concerned = history.transactions.iter().filter(|txn| anomaly.transactions.contains(&txn.id));
            concerned.for_each(|transaction| text += &format!("    {transaction}\n"));
        }
        (!text.is_empty()).then_some(text)
    }
}

/// Two lists, side by side.
pub(crate) fn versus(one: &[Element], other: &[Element]) -> String {
    format!("{} and {}", shown(one), shown(other))
}
