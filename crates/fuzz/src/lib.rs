//! All readers of bytes from a disk, run on bytes that were changed on purpose.
//!
//! 1. The crates that read bytes have a module `fuzzing` with targets: a function on bytes, and valid encodings to
//!    begin with. A target puts right checksums on its input, so that the input gets past them, and panics if something
//!    is wrong.
//! 2. [`Target::run`] passes bytes to a target, and also panics if the target takes more memory than a small multiple
//!    of the input ([`bytes_max`]).
//! 3. [`changed`] derives inputs from valid encodings and a seed, the same each time, for tests. `make fuzz` uses
//!    libFuzzer instead, which sees the code that each input reaches (`fuzz/` at the top of the repository).
//! 4. `corpus/<target>` keeps the inputs that found something, and inputs whose code paths no change of a valid
//!    encoding reaches soon.
//!
//! Left to others: the targets themselves.

mod change;

use std::{fs, io, path::PathBuf};

use allocation_counter::measure;

pub use change::changed;

/// A reader of bytes from a disk.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The target's name: that of the crate, and that of the bytes read.
    pub name: &'static str,
    take: fn(&[u8]),
    valid: fn() -> Vec<Vec<u8>>,
    /// Memory that the target takes for any input.
    fixed_bytes: u64,
}

/// Most bytes of memory that a target may take at a time for an input of so many bytes, because each field of an
/// encoding may become some tens of bytes in memory.
#[must_use]
pub const fn bytes_max(input: usize, fixed_bytes: u64) -> u64 {
    64 * input as u64 + fixed_bytes
}

/// Memory of pages, of messages, and of the structures in which targets build their inputs.
const FIXED_BYTES: u64 = 256 << 10;

/// Memory of a simulated disk with a database on it.
const DATABASE_BYTES: u64 = 32 << 20;

/// Every target.
#[must_use]
pub fn targets() -> Vec<Target> {
    let of = [
        psync::fuzzing::TARGETS,
        space::fuzzing::TARGETS,
        doclog::fuzzing::TARGETS,
        wal::fuzzing::TARGETS,
        btree::fuzzing::TARGETS,
        append::fuzzing::TARGETS,
        lsm::fuzzing::TARGETS,
        braid::fuzzing::TARGETS,
    ];
    let target = |(name, take, valid): &psync::fuzzing::Target| {
        let opens = name.contains("_open_");
        Target { name, take: *take, valid: *valid, fixed_bytes: if opens { DATABASE_BYTES } else { FIXED_BYTES } }
    };
    of.into_iter().flatten().map(target).collect()
}

/// The target of that name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    targets().into_iter().find(|target| target.name == name)
}

impl Target {
    /// Passes bytes to the target.
    ///
    /// # Panics
    /// If the bytes make the target break its rules.
    pub fn run(&self, bytes: &[u8]) {
        let taken = measure(|| (self.take)(bytes)).bytes_max;
        let most = bytes_max(bytes.len(), self.fixed_bytes);
        assert!(
            taken <= most,
            "{} takes {taken} bytes of memory for {} of input: more than {most}",
            self.name,
            bytes.len()
        );
    }

    /// Valid encodings.
    #[must_use]
    pub fn valid(&self) -> Vec<Vec<u8>> {
        (self.valid)()
    }

    /// The kept inputs.
    ///
    /// # Errors
    /// When the inputs cannot be read.
    pub fn kept(&self) -> io::Result<Vec<Vec<u8>>> {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(self.name);
        if !directory.exists() {
            return Ok(Vec::new());
        }
        let mut paths: Vec<_> = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
        paths.sort();
        paths.into_iter().map(fs::read).collect()
    }
}
