//! `braid crash-child`, hidden: the process that the tour and the tests kill.

use std::io::Write;
use std::path::PathBuf;

use braid::Durability;
use clap::Args;

use crate::exit::{Exit, Result};
use crate::open::{Mode, Tuning};

/// Make numbered commits until killed; each acknowledged one is a line: thread, space, number
#[derive(Args, Debug)]
pub(crate) struct CrashChild {
    #[arg(value_name = "DB")]
    path: PathBuf,
    #[arg(long, default_value_t = 4)]
    threads: u32,
    #[command(flatten)]
    tuning: Tuning,
}

impl CrashChild {
    pub(crate) fn run(self) -> Result<Exit> {
        let database = self.tuning.open(&self.path, Mode::Create)?;
        let durability = self.tuning.durability.unwrap_or(Durability::Sync);
        let acknowledge = |thread: u32, number: u64| {
            // A short line is one write, so the whole line arrives or none of the line.
            let line = format!("{thread} {number}\n");
            let mut stdout = std::io::stdout().lock();
            stdout.write_all(line.as_bytes())?;
            stdout.flush()
        };
        bench::crash::write(&database, self.threads, durability, &acknowledge)?;
        Ok(Exit::Ok)
    }
}
