//! Progress of long work, on standard error and only where that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar, or a spinner where the end is not known.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Counts bytes.
    pub(crate) fn bytes(what: &str, total: Option<u64>) -> Self {
        Self::new(what, total, "{bytes}", "{total_bytes}", "{bytes_per_sec}")
    }

    /// Counts anything else.
    pub(crate) fn count(what: &str, total: Option<u64>) -> Self {
        Self::new(what, total, "{human_pos}", "{human_len}", "{per_sec}")
    }

    /// Counts parts of the whole, which people read as a percentage.
    pub(crate) fn share(what: &str) -> Self {
        let progress = Self::new(what, Some(0), "", "", "");
        let template = "{prefix} [{bar:30}] {percent}%, {elapsed}  {wide_msg}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        progress.bar.set_style(style.progress_chars("=> "));
        progress
    }

    fn new(what: &str, total: Option<u64>, position: &str, length: &str, rate: &str) -> Self {
        let (bar, template) = match total {
            Some(total) => {
                let template = format!("{{prefix}} [{{bar:30}}] {position} of {length}, {rate}, {{eta}} left  {{msg}}");
                (ProgressBar::new(total), template)
            }
            None => (ProgressBar::new_spinner(), format!("{{spinner}} {{prefix}} {position}, {rate}  {{msg}}")),
        };
        let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(what.to_owned());
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Self { bar }
    }

    pub(crate) fn set(&self, position: u64) {
        self.bar.set_position(position);
    }

    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    pub(crate) fn total(&self, total: Option<u64>) {
        if let Some(total) = total {
            self.bar.set_length(total);
        }
    }

    pub(crate) fn message(&self, text: impl Into<String>) {
        self.bar.set_message(text.into());
    }

    /// Prints a line above the bar, also where the bar is not shown.
    pub(crate) fn warn(&self, text: &str) {
        self.bar.suspend(|| eprintln!("{text}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
