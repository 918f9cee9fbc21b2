//! The job given to a child process, and the child's answer.
//!
//! A child measures one row of one store: the process joins its group, carries the work out, and prints one line of
//! JSON. A child dies with its parent, so that nothing remains of a run that is killed.

use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use crate::drive::Pace;
use crate::error::{Error, Result};
use crate::store::{self, Memory};
use crate::work::{self, DeviceLimit, Figure, Place, Work};

/// The job of a child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The file that the child writes itself into, where memory is limited.
    pub(crate) group: Option<PathBuf>,
    pub(crate) task: Task,
}

/// The work itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// A row of a store.
    Row {
        row: String,
        store: String,
        directory: PathBuf,
        cache_bytes: u64,
        write_buffer_bytes: u64,
        records: u64,
        pace: Pace,
        seed: u64,
    },
    /// A limit of the device under a file.
    Device { file: PathBuf, limit: DeviceLimit, time: Duration },
}

/// The answer of a child.
pub(crate) type Answer = std::result::Result<Vec<Figure>, String>;

/// Does a job in this process and prints the answer.
pub(crate) fn run(text: &str) -> Result<()> {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let job: Job = serde_json::from_str(text).map_err(|error| Error::Invalid(format!("the job: {error}")))?;
    let answer: Answer = carry_out(job).map_err(|error| error.to_string());
    let line = serde_json::to_string(&answer).map_err(|error| Error::Invalid(format!("the answer: {error}")))?;
    println!("{line}");
    Ok(())
}

fn carry_out(job: Job) -> Result<Vec<Figure>> {
    if let Some(group) = job.group {
        std::fs::write(&group, std::process::id().to_string()).map_err(Error::io("joining", &group))?;
    }
    match job.task {
        Task::Device { file, limit, time } => work::measure_device(&file, limit, time),
        Task::Row { row, store, directory, cache_bytes, write_buffer_bytes, records, pace, seed } => {
            let place = Place {
                contestant: store::contestant(&store)?,
                directory,
                memory: Memory { cache_bytes, write_buffer_bytes },
                records,
                pace,
                seed,
            };
            work::carry_out(Work::named(&row)?, &place)
        }
    }
}
