//! Writes the file of a backup: without the page cache, in writes of 1 MiB, several at a time.

use std::path::Path;

use psync::{BLOCK, Buffer, File, OpenOptions, Psync, Request, Stream};

use super::sink::Sink;
use crate::error::Result;

/// Bytes of a write.
const WRITE_BYTES: usize = 1 << 20;
/// Writes in flight: enough to keep a device busy at this size.
const WRITES: usize = 8;

/// A new file; durable after its end.
pub(super) struct ToFile {
    file: File,
    stream: Stream,
    /// Bytes gathered for the next write.
    buffer: Buffer,
    filled: usize,
    /// Offset of the next write in the file.
    offset: u64,
}

impl ToFile {
    pub(super) fn create(psync: &Psync, path: &Path) -> Result<Self> {
        let options = OpenOptions { write: true, create_new: true, direct: true, ..OpenOptions::default() };
        let file = psync.open(path, &options)?;
        Ok(Self { file, stream: psync.stream(WRITES), buffer: Buffer::zeroed(WRITE_BYTES), filled: 0, offset: 0 })
    }

    /// Writes the gathered bytes, padded to whole blocks.
    fn write_out(&mut self) -> Result<()> {
        let mut spare = None;
        if self.stream.in_flight() >= WRITES
            && let Some(completion) = self.stream.next()
        {
            completion.result?;
            spare = completion.buffer.and_then(|buffer| buffer.reused(WRITE_BYTES));
        }
        let next = spare.unwrap_or_else(|| Buffer::zeroed(WRITE_BYTES));
        let mut full = std::mem::replace(&mut self.buffer, next);
        let whole = self.filled.next_multiple_of(BLOCK);
        full[self.filled..whole].fill(0);
        full.truncate(whole);
        self.stream.push(Request::write(&self.file, self.offset, full, 0));
        self.stream.submit();
        self.offset += self.filled as u64;
        self.filled = 0;
        Ok(())
    }
}

impl Sink for ToFile {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let count = bytes.len().min(WRITE_BYTES - self.filled);
            let (now, later) = bytes.split_at(count);
            self.buffer[self.filled..self.filled + count].copy_from_slice(now);
            self.filled += count;
            bytes = later;
            if self.filled == WRITE_BYTES {
                self.write_out()?;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        if self.filled > 0 {
            self.write_out()?;
        }
        self.stream.by_ref().try_for_each(|completion| completion.result)?;
        self.file.set_len(self.offset)?;
        self.stream.push(Request::flush(&self.file, 0));
        Ok(self.stream.by_ref().try_for_each(|completion| completion.result)?)
    }
}
