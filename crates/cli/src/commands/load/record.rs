//! A record of a line.

use std::time::SystemTime;

/// A record of a line, nothing for a line that has none, or what is wrong with it.
pub(in crate::commands) type Parsed = Result<Option<Record>, String>;

/// A record that was read.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::commands) struct Record {
    pub(in crate::commands) key: Vec<u8>,
    pub(in crate::commands) value: Vec<u8>,
    /// When the value expires, if it does.
    pub(in crate::commands) expires: Option<SystemTime>,
}
