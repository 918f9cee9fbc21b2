//! Backups in the middle of everything: restored, they hold the model's state.

use std::{ops::ControlFlow, path::Path};

use braid::{BackupPoint, Database, Error, ManualClock, Options};
use psync::sim::SimDisk;

use crate::common::content::{Content, Outcome, difference, read_all};

/// A chain of backups as it grows. Neither a crash nor an opening takes anything back that it has.
pub(crate) struct Backups {
    clock: ManualClock,
    point: Option<BackupPoint>,
    stream: Vec<u8>,
}

impl Backups {
    /// None yet; `clock` is that of what is restored.
    pub(crate) const fn new(clock: ManualClock) -> Self {
        Self { clock, point: None, stream: Vec::new() }
    }

    /// Takes a backup that continues the chain, or a full one where the log does not reach back; false when the power
    /// went.
    pub(crate) fn take(&mut self, db: &Database, is_crashed: impl Fn() -> bool) -> Outcome<bool> {
        match self.write(db) {
            Ok(()) => Ok(true),
            Err(_) if is_crashed() => Ok(false),
            Err(error) => Err(format!("a backup failed: {error}")),
        }
    }

    fn write(&mut self, db: &Database) -> braid::Result<()> {
        let on = &mut |_| ControlFlow::Continue(());
        let backup = db.begin_backup()?;
        if let Some(point) = &self.point {
            let mut more = Vec::new();
            match backup.stream_since(point, &mut more, on) {
                Ok(summary) => {
                    self.stream.extend(more);
                    self.point = Some(summary.point);
                    return Ok(());
                }
                Err(Error::BackupGap { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.stream.clear();
        self.point = None;
        self.point = Some(backup.stream(&mut self.stream, on)?.point);
        Ok(())
    }

    /// Restores the chain and compares these tables; what `beside` names is in them and not in the model.
    pub(crate) fn compare<'a>(
        &self, expected: impl Iterator<Item = (&'a str, &'a Content)>, beside: &[u8],
    ) -> Outcome<()> {
        let disk = SimDisk::new(1);
        let options = || {
            let options = Options::new().background(false).clock(self.clock.clone());
            options.cache_bytes(1 << 20).segment_bytes(1 << 20).leaf_pages(1)
        };
        let summary = options().restore_on(disk.psync(), &self.stream[..], Path::new("/again"));
        summary.map_err(|error| format!("a restore failed: {error}"))?;
        let db = options().open_on(disk.psync(), Path::new("/again")).map_err(|error| error.to_string())?;
        for (name, expected) in expected {
            let table = db.open_table(name).map_err(|error| format!("a restored table: {error}"))?;
            let mut found = read_all(&table)?;
            found.remove(beside);
            if let Some(problem) = difference(expected, &found) {
                return Err(format!("restored table {name}: {problem}"));
            }
        }
        Ok(())
    }
}
