//! The ways to hand requests to storage, behind one small interface.
//!
//! 1. A [`Backend`] performs single attempts as plain calls, and gives out [`Lane`]s.
//! 2. A [`Lane`] is a queue owned by one batch or stream: attempts go in, outcomes come out. Lanes share no lock with
//!    one another (but for the worker pool of `threads`). A lane of [`Backend::roaming_lane`] may go to another thread
//!    between calls; a lane of [`Backend::lane`] may not.
//! 3. An attempt is one transfer tried once. Its outcome is a byte count or a negative `errno`, as the kernel reports
//!    it.
//!
//! Left to others: continuing short transfers, retrying, ordering flushes and owning buffers, which `queue` does the
//! same way for all backends.

mod aio;
mod attempt;
mod call;
mod idle;
mod kind;
mod lane;
mod threads;
mod uring;

use std::sync::Arc;

pub(crate) use attempt::{ATTEMPT_BYTES_MAX, Done, Transfer, outcome};
pub(crate) use call::{CallLane, System};
pub use kind::BackendKind;
pub(crate) use lane::{Backend, Lane};

use crate::{Error, Result};

/// Opens a backend, after a trial on this thread.
pub(crate) fn open(kind: BackendKind) -> Result<Arc<dyn Backend>> {
    let unsupported = |reason: String| Error::Unsupported { backend: kind, reason };
    let backend: Arc<dyn Backend> = match kind {
        BackendKind::IoUring => Arc::new(uring::Uring),
        BackendKind::Libaio => Arc::new(aio::Aio),
        BackendKind::Threads => Arc::new(threads::Threads::new()),
        BackendKind::Sync => Arc::new(System),
    };
    let lane = backend.lane().map_err(|error| unsupported(error.to_string()))?;
    backend.give_back(lane);
    Ok(backend)
}
