//! The figures that a database learned about its device from its own requests.
//!
//! 1. `psync` times some of the requests ([`psync::probe::learned`]). Opening a database restores the figures that
//!    earlier processes saved.
//! 2. All figures are saved as a whole in the file `device.learned`. The worker saves them with a checkpoint that was
//!    due, before the callers that asked for the checkpoint have their answer. The closing thread saves them at the
//!    close. So a process saves nothing if it changes nothing and never closes, or if it opened the database for
//!    reading only.
//! 3. The figures are shown as a profile, beside the one in use, with the leaves that this profile would choose. They
//!    have no effect by themselves.
//!
//! Invariants: neither an unusable file nor a failed write of the file keeps a database from working. The reason is
//! logged; that of an unusable file is also shown. A database that failed, or whose disk is full, saves nothing.

use psync::probe::DeviceProfile;
use psync::probe::{self, LearnedProfile};

use crate::engine::{Engine, tuning::ProfileSource};

/// The device figures of a database.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DeviceStats {
    /// The source of the profile in use.
    pub source: ProfileSource,
    /// The profile in use.
    pub profile: DeviceProfile,
    /// The figures learned from the database's own requests, those of earlier processes included.
    pub learned: LearnedProfile,
    /// The reason why figures of earlier processes could not be used; none if they could.
    pub unusable: Option<String>,
}

impl DeviceStats {
    pub(crate) fn of(engine: &Engine) -> Self {
        Self {
            source: engine.tuning.source,
            profile: engine.tuning.profile.clone(),
            learned: learned(engine),
            unusable: engine.learned_unusable.clone(),
        }
    }
}

pub(crate) fn learned(engine: &Engine) -> LearnedProfile {
    // A directory that was moved away meanwhile must not keep figures from being shown.
    let device = probe::device_of(&engine.path).unwrap_or_default();
    probe::learned(engine.store.psync(), device, &engine.tuning.profile)
}

/// Saves the learned figures, if there are new ones.
pub(crate) fn keep(engine: &Engine) {
    if engine.health.check().is_err() || engine.pressure.full_disk().is_some() {
        return;
    }
    if let Err(error) = probe::keep(engine.store.psync(), &engine.path) {
        events::warn!(%error, "what was learned from requests could not be saved");
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use psync::probe::LearnedFigure;
    use psync::probe::RequestKind;
    use psync::sim::SimDisk;

    use super::*;
    use crate::{handles::batch::WriteBatch, options::Options, words::structure::Structure};

    /// A device that is slower than the ordinary drive, by the same factor for each size.
    fn slow() -> DeviceProfile {
        let mut device = DeviceProfile::default();
        for read in &mut device.reads {
            (read.alone_us, read.batched_us) = (read.alone_us * 3.0, read.batched_us * 2.0);
        }
        device
    }

    #[test]
    fn a_database_learns_from_its_own_requests_and_shows_it() {
        let disk = SimDisk::new(1);
        disk.serve_as(slow());
        let options = Options::new().cache_bytes(1 << 20).write_buffer_bytes(1 << 20).background(false);
        let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
        let table = db.table("t", Structure::BTree).expect("a table");
        for first in (0..60_000_u32).step_by(500) {
            let mut batch = WriteBatch::new();
            (first..first + 500)
                .for_each(|key| batch.put(&table, key.wrapping_mul(0x9E37_79B9).to_be_bytes(), [7; 100]));
            db.write(&batch).expect("writes");
        }
        db.drain().expect("applies");
        for number in 0..600_u32 {
            disk.pass(Duration::from_secs(1));
            db.drop_caches();
            assert!(table.get(number.wrapping_mul(0x9E37_79B9).to_be_bytes()).expect("reads").is_some());
        }
        for round in 0..400_u32 {
            disk.pass(Duration::from_secs(1));
            db.drop_caches();
            let keys: Vec<_> =
                (0..200).map(|key| (round * 17 + key * 131).wrapping_mul(0x9E37_79B9).to_be_bytes()).collect();
            table.get_many(&keys).expect("reads");
        }
        let device = db.stats().expect("reads").device;
        assert_eq!((device.source, &device.profile), (ProfileSource::OrdinaryDrive, &DeviceProfile::default()));
        let figure = |batched| {
            let is_it = |figure: &&LearnedFigure| {
                (figure.kind, figure.pages, figure.batched) == (RequestKind::Read, 1, batched)
            };
            *device.learned.figures.iter().find(is_it).expect("there is one for each")
        };
        for (batched, expected_us) in [(false, 240.0), (true, 16.0)] {
            let figure = figure(batched);
            assert!(figure.is_enough(), "{figure:?}");
            assert!((figure.learned_us / expected_us - 1.0).abs() < 0.1, "{figure:?}");
        }
        assert_eq!(db.learned_profile().profile.reads, device.learned.profile.reads);
    }
}
