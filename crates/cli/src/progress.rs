//! Progress of long work on standard error, shown only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar, or a spinner as long as the end is not known.
pub(crate) struct Progress {
    bar: ProgressBar,
    with_end: String,
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
        progress.show_as("{prefix} [{bar:30}] {percent}%, {elapsed}  {wide_msg}");
        progress
    }

    fn new(what: &str, total: Option<u64>, position: &str, length: &str, rate: &str) -> Self {
        let with_end = format!("{{prefix}} [{{bar:30}}] {position} of {length}, {rate}, {{eta}} left  {{msg}}");
        let without = format!("{{spinner}} {{prefix}} {position}, {rate}  {{msg}}");
        let progress = Self { bar: ProgressBar::new_spinner(), with_end };
        progress.show_as(&without);
        progress.bar.set_prefix(what.to_owned());
        progress.total(total);
        if !progress.bar.is_hidden() {
            progress.bar.enable_steady_tick(Duration::from_millis(200));
        }
        progress
    }

    fn show_as(&self, template: &str) {
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        self.bar.set_style(style.progress_chars("=> "));
    }

    pub(crate) fn set(&self, position: u64) {
        self.bar.set_position(position);
    }

    pub(crate) fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// Sets the end, once known or known better. From then on there is a bar with the time left.
    pub(crate) fn total(&self, total: Option<u64>) {
        if let Some(total) = total {
            if self.bar.length().is_none() {
                self.show_as(&self.with_end);
            }
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
