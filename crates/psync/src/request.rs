//! Requests to a device, and their completions.

use crate::{Buffer, File, Result};

/// The operation at a place in a file.
#[derive(Debug)]
pub enum Operation {
    /// Fill the buffer's `len` bytes from the file.
    Read(Buffer),
    /// Write the buffer's `len` bytes to the file.
    Write(Buffer),
    /// Write the buffer's `len` bytes to the file, and put them on stable storage before the request completes
    /// (`RWF_DSYNC`). This covers these bytes and the file metadata needed to read them, and nothing that was written
    /// before.
    WriteDurably(Buffer),
    /// Put all earlier writes to the file on stable storage (`fdatasync`).
    Flush,
}

/// One request of a batch or stream.
#[derive(Debug)]
pub struct Request {
    /// The file.
    pub file: File,
    /// Byte offset in the file; 0 for a flush.
    pub offset: u64,
    /// The operation.
    pub operation: Operation,
    /// Returned in the [`Completion`]; its meaning is the caller's.
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

    /// Writes `buffer` at `offset`. At completion its bytes are on stable storage; those of earlier writes need not be.
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
    /// The request's buffer, also after a failure; `None` for a flush. After a failure of the kernel's queue itself,
    /// the buffers of the requests inside are leaked, because the device may still write to them.
    pub buffer: Option<Buffer>,
    /// Success only if all of the request was done.
    pub result: Result<()>,
}
