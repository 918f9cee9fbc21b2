//! The traits that a store implements so that histories can be made with that store.

use std::fmt;

use crate::{Element, Isolation, Key};

/// Why an operation of a transaction failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The transaction has ended without any effect: a conflict, a full disk.
    Aborted(String),
    /// The outcome of the commit is unknown.
    Unknown(String),
    /// The store broke its contract: the run ends.
    Broken(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aborted(why) => write!(formatter, "aborted: {why}"),
            Self::Unknown(why) => write!(formatter, "outcome unknown: {why}"),
            Self::Broken(why) => write!(formatter, "broken: {why}"),
        }
    }
}

/// A store with transactions.
pub trait Store {
    /// A transaction of the store.
    type Txn<'a>: Txn
    where
        Self: 'a;

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`Failure::Aborted`] if no transaction can begin just now.
    fn begin(&self, isolation: Isolation) -> Result<Self::Txn<'_>, Failure>;
}

/// An open transaction. An error ends the transaction, and a drop aborts.
pub trait Txn {
    /// The list, or register, of a key; empty if there is none.
    ///
    /// # Errors
    /// As any operation's.
    fn read(&mut self, key: Key) -> Result<Vec<Element>, Failure>;

    /// As [`Txn::read`], but the commit fails if another transaction writes the key meanwhile.
    ///
    /// # Errors
    /// As any operation's.
    fn read_for_update(&mut self, key: Key) -> Result<Vec<Element>, Failure>;

    /// All keys in `from..=to` with their lists or registers, without those that are empty or absent.
    ///
    /// # Errors
    /// As any operation's.
    fn read_range(&mut self, from: Key, to: Key, backward: bool) -> Result<Vec<(Key, Vec<Element>)>, Failure>;

    /// Appends to a list.
    ///
    /// # Errors
    /// As any operation's.
    fn append(&mut self, key: Key, element: Element) -> Result<(), Failure>;

    /// Writes a register.
    ///
    /// # Errors
    /// As any operation's.
    fn write(&mut self, key: Key, value: Element) -> Result<(), Failure>;

    /// Makes a register absent.
    ///
    /// # Errors
    /// As any operation's.
    fn delete(&mut self, key: Key) -> Result<(), Failure>;

    /// Commits; returns the place in the order of commits if the store tells one.
    ///
    /// # Errors
    /// [`Failure::Aborted`] on a conflict, [`Failure::Unknown`] if the outcome is unknown.
    fn commit(self) -> Result<Option<u64>, Failure>;

    /// Aborts the transaction.
    fn abort(self);
}
