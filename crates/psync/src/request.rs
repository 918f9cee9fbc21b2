//! What is asked of a device, and its answer.

use crate::{Buffer, File, Result};

/// What to do at a place in a file.
#[derive(Debug)]
pub enum Operation {
    /// Fill the buffer's `len` bytes from the file.
    Read(Buffer),
    /// Write the buffer's `len` bytes to the file.
    Write(Buffer),
    /// Write the buffer's `len` bytes to the file, and put them on stable storage before the request completes (`RWF_DSYNC`): these
    /// bytes and what of the file's metadata is needed to read them, and nothing that was written before.
    WriteDurably(Buffer),
    /// Put everything written to the file on stable storage (`fdatasync`).
    Flush,
}

/// One request of a batch or stream.
#[derive(Debug)]
pub struct Request {
    /// Where.
    pub file: File,
    /// Byte offset in the file; 0 for a flush.
    pub offset: u64,
    /// What.
    pub operation: Operation,
    /// Handed back in the [`Completion`]; its meaning is the caller's.
    pub tag: u64,
}

impl Request {
    /// Reads `buffer.len()` bytes at `offset`.
    pub fn read(file: &File, offset: u64, buffer: Buffer, tag: u64) -> Self {
        Self { file: file.clone(), offset, operation: Operation::Read(buffer), tag }
    }

    /// Writes `buffer` at `offset`.
    pub fn write(file: &File, offset: u64, buffer: Buffer, tag: u64) -> Self {
        Self { file: file.clone(), offset, operation: Operation::Write(buffer), tag }
    }

    /// Writes `buffer` at `offset`; when it completes, its bytes are on stable storage, and those of earlier writes need not be.
    /// After a failure any of the bytes may be there, or not.
    pub fn write_durably(file: &File, offset: u64, buffer: Buffer, tag: u64) -> Self {
        Self { file: file.clone(), offset, operation: Operation::WriteDurably(buffer), tag }
    }

    /// Flushes the file.
    pub fn flush(file: &File, tag: u64) -> Self {
        Self { file: file.clone(), offset: 0, operation: Operation::Flush, tag }
    }
}

/// The answer to one [`Request`].
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// The request's buffer, also after a failure; `None` for a flush. (After a failure of the kernel's queue itself, with
    /// requests inside, their buffers are leaked rather than handed out while the device may still write to them.)
    pub buffer: Option<Buffer>,
    /// Whether all of it was done.
    pub result: Result<()>,
}
