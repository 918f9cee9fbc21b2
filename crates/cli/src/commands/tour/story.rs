//! The story that the tour tells, and its early end.

use crate::exit::{Error, Result};
use crate::interrupt;
use crate::output::Output;

/// Where the tour tells its story: standard output for people, nowhere when the end is JSON.
pub(super) struct Story {
    pub(super) output: Output,
    pub(super) json: bool,
    pub(super) step: u32,
}

impl Story {
    pub(super) fn say(&mut self, text: impl AsRef<str>) -> Result<()> {
        if !self.json {
            self.output.line(text)?;
            self.output.flush()?;
        }
        Ok(())
    }

    pub(super) fn step(&mut self, title: &str) -> Result<()> {
        self.step += 1;
        let text = format!("\n{}. {title}", self.step);
        self.say(text)
    }
}

/// An error once the user has interrupted the tour.
pub(super) fn interrupted() -> Result<()> {
    if interrupt::came() { Err(Error::Interrupted("interrupted: the tour ends here".into())) } else { Ok(()) }
}
