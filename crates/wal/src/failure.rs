//! The sticky failure of the log.
//!
//! After a failed write or flush the content of the device is unknown, and a second fsync may report success for pages
//! that the first one lost. Therefore the log keeps the first failure, and answers every later call with that failure.
//!
//! A panic in the middle of a write or flush, for which other threads wait, is such a failure too. The bytes to be
//! written are gone, and nothing may follow them.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use crate::{Error, Failure, Result};

/// Set once, never cleared.
#[derive(Debug, Default)]
pub(crate) struct Sticky(OnceLock<Arc<Failure>>);

impl Sticky {
    /// The failure, if there was one.
    pub(crate) fn get(&self) -> Option<Error> {
        self.0.get().map(|failure| Error::Failed(Arc::clone(failure)))
    }

    /// An error if there was a failure.
    pub(crate) fn check(&self) -> Result<()> {
        self.get().map_or(Ok(()), Err)
    }

    /// Keeps the first failure, and returns the one that was kept.
    pub(crate) fn set(&self, operation: &'static str, cause: psync::Error) -> Error {
        let failure = self.0.get_or_init(|| {
            events::error!(operation, %cause, "the log failed");
            Arc::new(Failure { operation, cause })
        });
        Error::Failed(Arc::clone(failure))
    }

    /// Runs `work`, for which other threads wait; a panic in `work` becomes the failure.
    pub(crate) fn guard<T>(&self, operation: &'static str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        // Half-done state that the panic left is not read again, because the log has failed.
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            let source = Arc::new(io::Error::other(format!("the thread that did it panicked: {}", message(&*panic))));
            Err(self.set(operation, psync::Error::Path { operation, path: "wal".into(), source }))
        })
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_stays() {
        let cause = |got| psync::Error::ShortRead { path: "wal/0.log".into(), offset: 0, wanted: 1, got };
        let sticky = Sticky::default();
        assert!(sticky.check().is_ok());
        sticky.set("flush", cause(1));
        sticky.set("write", cause(2));
        let text = sticky.check().expect_err("it failed").to_string();
        assert!(text.contains("flush") && text.contains("found 1") && !text.contains("found 2"), "{text}");
    }

    #[test]
    fn a_panic_is_a_failure() {
        let sticky = Sticky::default();
        assert_eq!(sticky.guard("write", || Ok(7)).ok(), Some(7));
        let result = sticky.guard("write", || -> Result<()> { panic!("out of {}", "luck") });
        let text = result.expect_err("it panicked").to_string();
        assert!(text.contains("out of luck"), "{text}");
        assert!(sticky.check().is_err());
    }
}
