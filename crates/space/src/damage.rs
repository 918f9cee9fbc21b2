//! Damage of a file.

use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;

/// Bytes of a file that are not those that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDamage {
    /// The file, or the structure where the bytes are part of something larger.
    pub file: PathBuf,
    /// Byte offset in the file.
    pub offset: u64,
    /// The value that does not check.
    pub what: &'static str,
    /// The value of a whole file or structure.
    pub expected: String,
    /// The value found.
    pub found: String,
}

impl FileDamage {
    /// Damage at `offset` of `file`.
    pub fn new(
        file: impl Into<PathBuf>, offset: u64, what: &'static str, expected: impl ToString, found: impl ToString,
    ) -> Self {
        Self { file: file.into(), offset, what, expected: expected.to_string(), found: found.to_string() }
    }
}

impl Display for FileDamage {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { file, offset, what, expected, found } = self;
        write!(formatter, "{} is damaged at byte {offset}: {what}; expected {expected}, found {found}", file.display())
    }
}
