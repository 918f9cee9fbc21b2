//! Backup points: the identity of a backup and its seq, also as text. An incremental backup names the point of the
//! continued backup.

use std::{fmt, str::FromStr};

use index::Seq;

use crate::error::{Error, Result};

/// Identifies a backup for the incremental backup that continues this one. Its text form is parsed by
/// [`BackupPoint::from_str`].
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// use std::ops::ControlFlow;
///
/// use braid::BackupPoint;
///
/// # let users = db.table("users", braid::Structure::BTree)?;
/// let full = db.begin_backup()?.stream(&mut Vec::new(), &mut |_| ControlFlow::Continue(()))?;
/// let kept: String = full.point.to_string(); // to be stored beside the backup
/// users.put("ada", "1815")?;
/// let since: BackupPoint = kept.parse()?;
/// let later = db.begin_backup()?.stream_since(&since, &mut Vec::new(), &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!((since.seq() < later.point.seq(), later.changes), (true, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupPoint {
    /// Id of the database.
    pub(super) database: [u8; 16],
    /// Id of the backup.
    pub(super) id: [u8; 16],
    /// The last commit in the backup.
    pub(super) seq: Seq,
}

impl BackupPoint {
    /// The last commit in the backup.
    #[must_use]
    pub const fn seq(&self) -> Seq {
        self.seq
    }
}

impl fmt::Display for BackupPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (database, id) = (u128::from_be_bytes(self.database), u128::from_be_bytes(self.id));
        write!(formatter, "{database:032x}-{id:032x}-{}", self.seq.0)
    }
}

impl FromStr for BackupPoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let id = |part: &str| {
            let digits = part.len() == 32 && part.bytes().all(|digit| digit.is_ascii_hexdigit());
            digits.then(|| u128::from_str_radix(part, 16).ok()).flatten().map(u128::to_be_bytes)
        };
        let point = match parts[..] {
            [database, other, seq] => id(database).zip(id(other)).zip(seq.parse().ok()),
            _ => None,
        };
        let ((database, id), seq) = point.ok_or_else(|| Error::Option {
            option: "backup point",
            problem: format!("{text:?} is not what a backup says of itself: two ids and a seq"),
        })?;
        Ok(Self { database, id, seq: Seq(seq) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_what_it_prints() {
        let point = BackupPoint { database: [3; 16], id: *b"0123456789abcdef", seq: Seq(77) };
        let text = point.to_string();
        assert_eq!(text, "03030303030303030303030303030303-30313233343536373839616263646566-77");
        assert_eq!(text.parse::<BackupPoint>().expect("reads"), point);
        for wrong in ["", "77", &text[1..], &text.replace("-77", "-x"), &text.replacen('0', "+", 1)] {
            assert!(wrong.parse::<BackupPoint>().is_err(), "{wrong}");
        }
    }
}
