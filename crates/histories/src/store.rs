//! What a store has to offer so that histories can be made of it.

use std::fmt;

use crate::{Element, Isolation, Key};

/// Why an operation of a transaction failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The transaction is over, and nothing of it happened: a conflict, a full disk.
    Aborted(String),
    /// Nobody knows whether the commit happened.
    Unknown(String),
    /// The store did what it may not do: the run ends.
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
    /// A transaction of it.
    type Txn<'a>: Txn
    where
        Self: 'a;

    /// Begins one.
    ///
    /// # Errors
    /// [`Failure::Aborted`] where none can begin just now.
    fn begin(&self, isolation: Isolation) -> Result<Self::Txn<'_>, Failure>;
}

/// An open transaction. After an error it is over; dropped, it has aborted.
pub trait Txn {
    /// The list, or register, of a key; empty where there is nothing.
    ///
    /// # Errors
    /// As any operation's.
    fn read(&mut self, key: Key) -> Result<Vec<Element>, Failure>;

    /// As [`Txn::read`], and the commit fails if anybody else writes the key meanwhile.
    ///
    /// # Errors
    /// As any operation's.
    fn read_for_update(&mut self, key: Key) -> Result<Vec<Element>, Failure>;

    /// All that is there from one key to another, which belong to the range; without what is empty or absent.
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

    /// Commits; gives its place in the order of commits where the store tells it.
    ///
    /// # Errors
    /// [`Failure::Aborted`] on a conflict, [`Failure::Unknown`] where nobody knows.
    fn commit(self) -> Result<Option<u64>, Failure>;

    /// Gives it up.
    fn abort(self);
}
