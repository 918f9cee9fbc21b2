//! Ctrl-C and termination signals.
//!
//! The first signal asks long work to stop at the next safe place; the command then reports the work it has kept. A
//! second signal ends the process at once. That is safe too, because a Braid database recovers at the next opening.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::exit::Exit;

static STOP: AtomicBool = AtomicBool::new(false);
static INSTALLED: OnceLock<()> = OnceLock::new();

/// Catches interrupts from here on. Returns the flag that the first signal sets.
pub(crate) fn watch() -> &'static AtomicBool {
    INSTALLED.get_or_init(|| {
        let handler = || {
            if STOP.swap(true, Ordering::Relaxed) {
                std::process::exit(i32::from(Exit::Interrupted as u8));
            }
        };
        // Without the handler an interrupt ends the process at once, as a second interrupt would.
        let _ = ctrlc::set_handler(handler);
    });
    &STOP
}

/// Whether an interrupt came.
pub(crate) fn came() -> bool {
    STOP.load(Ordering::Relaxed)
}
