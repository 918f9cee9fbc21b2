//! A disk in memory that loses power, tears writes and fails on demand: for crash tests of the layers above.
//!
//! # The fault model
//!
//! 1. A file has **volatile** content, which reads see, and **durable** content. All writes since the file's last
//!    successful flush are *pending*, in sectors of [`SECTOR`](crate::SECTOR) bytes. A sector is atomic; a write of
//!    several is not. A pending sector is an image of the sector as the page cache had it after the write, so of
//!    several writes to one sector any may be the last on the platter. The unit of direct I/O is a sector too, but with
//!    every fourth seed the unit is a [`BLOCK`](crate::BLOCK).
//! 2. **Power goes** after a chosen number of operations ([`SimDisk::crash_after`]; writes, flushes and name changes
//!    count, reads do not). The operation during which the power goes may be done, in part, or not at all. This
//!    operation and every later one fail.
//! 3. [`SimDisk::restart`] decides, **for each file independently**, which changes survived: nothing, everything, a
//!    random subset of sectors, a random subset of whole writes, a prefix of the writes with the last one torn, or all
//!    writes but one torn. File lengths are metadata and survive as a prefix of their history, independently of the
//!    data: a lost growth cuts the file, a kept growth with lost data reads as zeros, a lost cut brings the old bytes
//!    back.
//! 4. **Names**: creations, removals and renamings are pending until [`crate::Psync::sync_directory`] of the parent.
//!    Until then each may be lost: a created file vanishes, a removed one is back with its durable content, a renamed
//!    one has its old name. A flush does not make a name durable.
//! 5. A **failed flush** ([`SimDisk::fail_operation`]) is like Linux: some of the pending sectors reached the platter
//!    and the rest is forgotten, so a later flush that succeeds does not make them durable. Reads still see them until
//!    the power goes.
//! 6. A **durable write** ([`crate::Request::write_durably`]) makes its own sectors durable, and the length that is
//!    needed to read them; everything else stays pending. A durable write is one operation. A fault of [`Fault::Write`]
//!    refuses it as any other write. A fault of [`Fault::Flush`] meets it on the way: any of its sectors reached the
//!    platter and the others are forgotten.
//! 7. A **lost write** ([`SimDisk::lose_write`]) is acknowledged and "flushed", and the platter keeps the old bytes.
//! 8. **Rot** ([`SimDisk::flip_bit`], [`SimDisk::corrupt`]) changes bytes at rest.
//! 9. A **garbled read** ([`SimDisk::garble_read`]) reports success, but has a flipped bit, or bytes from elsewhere.
//!    The platter is unchanged.
//! 10. **Time** does not pass by default. A disk that serves requests as a device does ([`SimDisk::serve_as`]) has a
//!     clock of its own.
//!
//! Not modelled: reads that fail for a sector only, damage to a sector that nobody writes while the power goes.
//!
//! # How it is used
//!
//! Everything follows from the seed, given the same order of operations. [`SimDisk::psync`] is a [`Psync`] on the disk.
//! The [`Psync`] and its files belong to one life of the disk and stay dead after the power went, so the rest of a
//! crashed user cannot touch the next life. A disk may be used from many threads. Then the threads decide the order of
//! operations, and so the outcome.
//!
//! ```
//! use psync::{Buffer, OpenOptions, Request, sim::SimDisk};
//! use std::path::Path;
//!
//! let disk = SimDisk::new(7);
//! let psync = disk.psync();
//! let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
//! let file = psync.open(Path::new("/log"), &options)?;
//! psync.run_all(vec![
//!     Request::write(&file, 0, Buffer::from_slice(b"durable"), 0),
//!     Request::flush(&file, 1),
//! ])?;
//! psync.sync_directory(Path::new("/"))?;
//! psync.run_all(vec![Request::write(&file, 0, Buffer::from_slice(b"perhaps"), 0)])?;
//! disk.restart();
//! let survived = disk.read_file("/log").expect("the name was made durable");
//! assert!(survived == b"durable" || survived == b"perhaps");
//! # Ok::<(), psync::Error>(())
//! ```

mod disk;
mod fault;
mod handle;
mod lane;
mod life;
mod names;
mod node;
mod service;
mod system;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::Psync;
use crate::profile::DeviceProfile;
use disk::Disk;
pub use fault::{Fault, Garble};
pub(crate) use handle::{Handle, HeldLock};
use life::Simulated;

/// A simulated disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimDisk {
    disk: Arc<Mutex<Disk>>,
}

impl SimDisk {
    /// An empty disk with the root directory, whose faults follow from `seed`.
    pub fn new(seed: u64) -> Self {
        Self { disk: Arc::new(Mutex::new(Disk::new(seed))) }
    }

    /// A [`Psync`] on the disk as it is now, for the current life of the disk.
    pub fn psync(&self) -> Psync {
        let life = self.disk.lock().life();
        let simulated = Arc::new(Simulated::new(Arc::clone(&self.disk), life));
        Psync::assemble(Arc::clone(&simulated) as _, simulated, true, None)
    }

    /// Lets `operations` more writes, flushes and name changes pass; the power goes during the next one.
    pub fn crash_after(&self, operations: u64) {
        self.disk.lock().crash_after(operations);
    }

    /// Cuts the power now.
    pub fn crash(&self) {
        self.disk.lock().crash();
    }

    /// Whether the power went and [`SimDisk::restart`] has not been called.
    pub fn is_crashed(&self) -> bool {
        self.disk.lock().is_crashed()
    }

    /// Cuts the power if it is still on, decides which changes survived, and turns the power on. Locks are released.
    /// Requested faults that did not happen are forgotten; the capacity stays.
    pub fn restart(&self) {
        self.disk.lock().restart();
    }

    /// Ends the process and not the machine. Handles of this life are dead and locks are released. Every completed
    /// write and name change is still there, flushed or not.
    pub fn kill(&self) {
        self.disk.lock().kill();
    }

    /// Writes, flushes and name changes so far, over all lives, including failed ones.
    pub fn operations(&self) -> u64 {
        self.disk.lock().operations()
    }

    /// Lets `count` more operations of the kind pass and fails the next one with `errno`, once. A write that fails
    /// changes nothing; for a flush, and a durable write that meets [`Fault::Flush`], see the fault model.
    pub fn fail_operation(&self, kind: Fault, count: u64, errno: i32) {
        self.disk.lock().fail_operation(kind, count, errno);
    }

    /// Lets `count` more reads pass; the next one, over all files, succeeds with garbled bytes.
    pub fn garble_read(&self, count: u64, how: Garble) {
        self.disk.lock().garble_read(count, how);
    }

    /// Reads so far, over all lives.
    pub fn reads(&self) -> u64 {
        self.disk.lock().reads()
    }

    /// Requested failures that have not happened yet.
    pub fn faults_left(&self) -> usize {
        self.disk.lock().faults_left()
    }

    /// Lets `count` more writes to a file pass; the next one is acknowledged and lost.
    pub fn lose_write(&self, path: impl AsRef<Path>, count: u64) {
        self.disk.lock().lose_write(path.as_ref(), count);
    }

    /// Sets the most bytes that all files together may have; a growth beyond fails with `ENOSPC`. `None`: no bound.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.disk.lock().set_capacity(bytes);
    }

    /// Flips the lowest bit of a byte at rest. Returns whether the file has that byte.
    pub fn flip_bit(&self, path: impl AsRef<Path>, offset: u64) -> bool {
        let Some(end) = offset.checked_add(1) else {
            return false;
        };
        self.disk.lock().damage(path.as_ref(), offset..end, |byte, _| byte ^ 1)
    }

    /// Changes every byte of a range at rest. Returns whether the file has all of it.
    pub fn corrupt(&self, path: impl AsRef<Path>, range: Range<u64>) -> bool {
        self.disk.lock().damage(path.as_ref(), range, |byte, random| byte ^ random.max(1))
    }

    /// Makes requests take as long as on a device with this profile, from now on, by a clock of the disk.
    pub fn serve_as(&self, profile: DeviceProfile) {
        self.disk.lock().serve_as(profile);
    }

    /// Lets `time` pass on the clock of a disk that serves requests as a device does.
    pub fn pass(&self, time: Duration) {
        if let Some(service) = self.disk.lock().service() {
            service.pass(time);
        }
    }

    /// Paths of all files, sorted.
    pub fn files(&self) -> Vec<PathBuf> {
        self.disk.lock().files()
    }

    /// Bytes that all files take.
    pub fn used_bytes(&self) -> u64 {
        self.disk.lock().used_bytes()
    }

    /// A file's volatile content, as a read sees the file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Option<Vec<u8>> {
        self.disk.lock().read_file(path.as_ref())
    }
}

impl std::fmt::Debug for SimDisk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SimDisk").field("files", &self.files()).finish_non_exhaustive()
    }
}
