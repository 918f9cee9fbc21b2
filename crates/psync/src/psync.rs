//! The door: opens files, runs batches, starts streams.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;

use crate::backend::{self, Backend, Lane};
use crate::learn::Learner;
use crate::names::{Identity, Names, SystemNames};
use crate::queue::{self, Learning, Queue};
use crate::traffic::{self, Traffic};
use crate::{BackendKind, Buffer, Completion, Error, File, Lock, OpenOptions, Operation, Request, Result, Stream};

/// Requests in flight per call by default.
pub const PIO_MAX_DEFAULT: usize = 128;

/// The largest number of requests in flight per call that can be asked for.
pub const PIO_MAX_LIMIT: usize = 1024;

/// Batched I/O on one backend. Clones share it.
#[derive(Clone)]
pub struct Psync {
    shared: Arc<Shared>,
    pio_max: usize,
}

struct Shared {
    backend: Arc<dyn Backend>,
    names: Arc<dyn Names>,
    simulated: bool,
    fallback: Mutex<Option<String>>,
    traffic: Arc<traffic::Shared>,
    learner: Arc<Learner>,
}

impl Psync {
    /// Opens the given backend, or the best that works here (`io_uring`, then `libaio`, then `threads`).
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the given backend does not work here.
    pub fn new(choice: Option<BackendKind>) -> Result<Self> {
        if let Some(kind) = choice {
            return Ok(Self::assemble(backend::open(kind)?, Arc::new(SystemNames), false, None));
        }
        Self::best(backend::open)
    }

    /// The best backend that `open` does not refuse, with the reasons of the refusals before it.
    pub(crate) fn best(open: impl Fn(BackendKind) -> Result<Arc<dyn Backend>>) -> Result<Self> {
        let mut reasons: Vec<String> = Vec::new();
        let mut last = None;
        for kind in BackendKind::ALL {
            match open(kind) {
                Ok(backend) => {
                    let reason = (!reasons.is_empty()).then(|| reasons.join("; "));
                    return Ok(Self::assemble(backend, Arc::new(SystemNames), false, reason));
                }
                Err(Error::Unsupported { backend, reason }) => {
                    reasons.push(format!("{backend} is not available: {reason}"));
                    last = Some(Error::Unsupported { backend, reason });
                }
                Err(other) => return Err(other),
            }
        }
        Err(last.expect("there is at least one backend, and each that failed left its error"))
    }

    pub(crate) fn assemble(
        backend: Arc<dyn Backend>, names: Arc<dyn Names>, simulated: bool, fallback: Option<String>,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                learner: Arc::new(Learner::new(Arc::clone(&backend))),
                backend,
                names,
                simulated,
                fallback: Mutex::new(fallback),
                traffic: Arc::default(),
            }),
            pio_max: PIO_MAX_DEFAULT,
        }
    }

    /// The same backend with another bound on requests in flight per call, from 1 to [`PIO_MAX_LIMIT`].
    #[must_use]
    pub fn with_pio_max(mut self, pio_max: usize) -> Self {
        self.pio_max = pio_max.clamp(1, PIO_MAX_LIMIT);
        self
    }

    /// The largest number of requests in flight per call: the paper's PioMax.
    pub fn pio_max(&self) -> usize {
        self.pio_max
    }

    /// Sets how many requests a [`crate::Background`] thread keeps in flight while others read, for all users of this
    /// backend. The least is one, which delays reads least. [`crate::probe::DeviceProfile::parallelism`] just keeps the
    /// device busy, for work that must get done.
    pub fn set_background_depth(&self, depth: usize) {
        self.shared.traffic.background_depth.store(depth.max(1), Ordering::Relaxed);
    }

    /// The backend in use. A simulated disk reports [`BackendKind::Sync`].
    pub fn backend(&self) -> BackendKind {
        self.shared.backend.kind()
    }

    /// Whether this is a [`crate::sim::SimDisk`].
    pub fn is_simulated(&self) -> bool {
        self.shared.simulated
    }

    /// The reason why a better backend is not in use, or not on every thread; `None` when all is as asked.
    pub fn fallback_reason(&self) -> Option<String> {
        self.shared.fallback.lock().clone()
    }

    /// Opens a file.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<File> {
        self.shared.names.open(path, options)
    }

    /// Creates a directory and its missing parents; an existing directory is left as is.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn create_directory(&self, path: &Path) -> Result<()> {
        self.shared.names.create_directory(path)
    }

    /// Removes a file's name. The file goes with its last open handle.
    ///
    /// # Errors
    /// When there is no such file or the system refuses.
    pub fn remove(&self, path: &Path) -> Result<()> {
        self.shared.names.remove(path)
    }

    /// Gives a file another name in the same directory, in one step. A file that had the new name is replaced.
    ///
    /// # Errors
    /// When there is no such file or the system refuses.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.shared.names.rename(from, to)
    }

    /// Names of the files (not directories) in a directory, sorted. Names that are not UTF-8 are left out.
    ///
    /// # Errors
    /// When there is no such directory or the system refuses.
    pub fn list(&self, path: &Path) -> Result<Vec<String>> {
        self.shared.names.list(path)
    }

    /// Whether a file or directory of that name exists.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub fn exists(&self, path: &Path) -> Result<bool> {
        self.shared.names.exists(path)
    }

    /// Makes the creations, removals and renamings in a directory durable.
    ///
    /// # Errors
    /// When the system fails to.
    pub fn sync_directory(&self, path: &Path) -> Result<()> {
        self.shared.names.sync_directory(path)
    }

    /// The identity that tells a directory from every other. None where the system has no such identity, and on a
    /// simulated disk.
    pub fn identity(&self, path: &Path) -> Option<Identity> {
        self.shared.names.identity(path)
    }

    /// Locks a file without waiting: exclusively, or together with other shared holders. A missing file is created. The
    /// file contains the process id of an exclusive holder.
    ///
    /// # Errors
    /// [`Error::Locked`] when somebody else holds the lock, also in this process.
    pub fn lock(&self, path: &Path, shared: bool) -> Result<Lock> {
        self.shared.names.lock(path, shared)
    }

    /// Runs a batch: all requests are complete on return, and the completions are in the order of the requests.
    ///
    /// - At most [`Psync::pio_max`] requests are in flight at a time.
    /// - A failed request does not disturb the others.
    /// - A flush starts after the completion of every write that precedes it in the batch.
    /// - Requests start in order but complete in any order, so two that touch the same bytes belong in different
    ///   batches.
    pub fn run(&self, requests: Vec<Request>) -> Vec<Completion> {
        if is_of_plain_calls(&requests) {
            if matches!(requests.first(), Some(Request { operation: Operation::Read(_), .. })) {
                self.traffic().reading();
            }
            let (backend, learner) = (&*self.shared.backend, &*self.shared.learner);
            return requests.into_iter().map(|request| queue::perform(backend, learner, request)).collect();
        }
        let mut completions: Vec<Option<Completion>> = Vec::new();
        completions.resize_with(requests.len(), || None);
        let mut queue = self.queue(self.shared.backend.lane(), self.pio_max.min(requests.len()), false);
        for (index, request) in requests.into_iter().enumerate() {
            queue.push(index, request);
        }
        queue.finish(|index, completion| completions[index] = Some(completion));
        completions
            .into_iter()
            .map(|completion| completion.expect("a finished queue has completed every request"))
            .collect()
    }

    /// Runs a batch that is of use only as a whole, and returns the buffers in the order of the requests.
    ///
    /// # Errors
    /// The first error in the order of the requests; a full disk only where nothing else failed ([`Error::of_both`]).
    /// All requests are complete nevertheless.
    pub fn run_all(&self, requests: Vec<Request>) -> Result<Vec<Option<Buffer>>> {
        let (mut buffers, mut failed) = (Vec::with_capacity(requests.len()), None);
        for Completion { buffer, result, .. } in self.run(requests) {
            buffers.push(buffer);
            failed = Error::of_both(failed, result.err());
        }
        failed.map_or(Ok(buffers), Err)
    }

    /// Starts a stream that keeps up to `depth` requests in flight, at most [`PIO_MAX_LIMIT`].
    pub fn stream(&self, depth: usize) -> Stream {
        Stream::new(self.queue(self.shared.backend.roaming_lane(), depth.clamp(1, PIO_MAX_LIMIT), true))
    }

    fn traffic(&self) -> Traffic {
        Traffic::new(&self.shared.traffic)
    }

    pub(crate) fn learner(&self) -> &Learner {
        &self.shared.learner
    }

    fn queue(&self, lane: io::Result<Box<dyn Lane>>, depth: usize, is_stream: bool) -> Queue {
        let learning = Learning::new(Arc::clone(&self.shared.learner), is_stream);
        Queue::new(&self.shared.backend, lane, self.traffic(), learning, depth, &|error: io::Error| {
            *self.shared.fallback.lock() = Some(format!(
                "{} refused a queue to a thread, which made plain calls instead: {error}",
                self.shared.backend.kind()
            ));
        })
    }
}

/// Whether a batch is best made one call after another: one request, or one write and its flush, which has to wait for
/// the write.
///
/// Two calls took less time, measured with 4 KiB direct writes, than a ring's write and a call. They also took less
/// than linked submission entries, where a kernel worker has to wake for the flush and then the caller has to wake.
fn is_of_plain_calls(requests: &[Request]) -> bool {
    match requests {
        [] | [_] => true,
        [first, second] => {
            matches!(first.operation, Operation::Write(_) | Operation::WriteDurably(_))
                && matches!(second.operation, Operation::Flush)
        }
        _ => false,
    }
}

impl fmt::Debug for Psync {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Psync")
            .field("backend", &self.backend())
            .field("pio_max", &self.pio_max)
            .field("simulated", &self.shared.simulated)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusing(refused: &'static [BackendKind]) -> impl Fn(BackendKind) -> Result<Arc<dyn Backend>> {
        move |kind| {
            if refused.contains(&kind) {
                return Err(Error::Unsupported { backend: kind, reason: "not on this machine".to_owned() });
            }
            backend::open(kind)
        }
    }

    #[test]
    fn the_best_backend_that_works_is_taken_and_says_why() {
        let best = |refused| Psync::best(refusing(refused)).expect("one works");
        assert_eq!(best(&[]).fallback_reason(), None);
        assert_eq!(best(&[]).backend(), BackendKind::IoUring);
        let libaio = best(&[BackendKind::IoUring]);
        assert_eq!(libaio.backend(), BackendKind::Libaio);
        assert_eq!(libaio.fallback_reason().as_deref(), Some("io_uring is not available: not on this machine"));
        let threads = best(&[BackendKind::IoUring, BackendKind::Libaio]);
        assert_eq!(threads.backend(), BackendKind::Threads);
        assert!(threads.fallback_reason().is_some_and(|reason| reason.contains("libaio")));
        assert!(Psync::best(refusing(&BackendKind::ALL)).is_err());
    }

    #[test]
    fn bounds_hold() {
        let psync = Psync::new(Some(BackendKind::Sync)).expect("always works");
        assert_eq!(psync.pio_max(), PIO_MAX_DEFAULT);
        assert_eq!(psync.clone().with_pio_max(0).pio_max(), 1);
        assert_eq!(psync.with_pio_max(usize::MAX).pio_max(), PIO_MAX_LIMIT);
    }
}
