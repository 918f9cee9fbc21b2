//! Blocks on their way out.
//!
//! 1. An [`Encoder`] gathers pairs or changes in a block until the next one does not fit. A value that fits no block goes on in blocks of its own.
//! 2. Blocks go through a short channel to a thread that gives each its checksum and hands it to a [`Sink`]; emptied ones come back. So
//!    the scan, the checksums and the writes overlap, and some blocks are all the memory that they need.
//! 3. The block of type end is written when everything before it was.

use std::{
    io::Write,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use index::{Expiry, TableId};

use super::{
    BackupProgress, BackupReport,
    format::{
        BLOCK_HEADER_BYTES, Change, Counts, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, Pair, header_crc, kind, seal_block,
    },
    path_error,
};
use crate::{
    Error, Result,
    format::{CreateTable, encode_table},
};

/// Blocks between the two threads.
const BLOCKS_BETWEEN: usize = 8;
/// How a stream is called in errors.
pub(super) const STREAM: &str = "the backup stream";

/// Where blocks go.
pub(super) trait Sink: Send {
    /// Takes the next bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;
    /// All of them came.
    fn end(&mut self) -> Result<()>;
}

/// Somebody's stream.
pub(super) struct ToStream<W>(pub(super) W);

impl<W: Write + Send> Sink for ToStream<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(path_error("write", Path::new(STREAM)))
    }

    fn end(&mut self) -> Result<()> {
        self.0.flush().map_err(path_error("write", Path::new(STREAM)))
    }
}

/// A block whose payload is whole and whose header is not.
struct Block {
    kind: u8,
    bytes: Vec<u8>,
}

/// Makes blocks of what a backup holds.
pub(super) struct Encoder<'a> {
    out: SyncSender<Block>,
    emptied: Receiver<Vec<u8>>,
    block: Block,
    counts: Counts,
    bytes: u64,
    table: Option<Arc<str>>,
    total_bytes: Option<u64>,
    report: BackupReport<'a>,
}

/// Writes a backup that has the blocks that `produce` makes; what it holds, and its bytes.
pub(super) fn run(
    header: &Header, mut sink: impl Sink, total_bytes: Option<u64>, report: BackupReport<'_>,
    produce: impl FnOnce(&mut Encoder<'_>) -> Result<()>,
) -> Result<(Counts, u64)> {
    let header = header.encode();
    let (out, blocks) = sync_channel(BLOCKS_BETWEEN);
    let (back, emptied) = sync_channel(BLOCKS_BETWEEN + 2);
    thread::scope(|scope| {
        let writing = thread::Builder::new().name("braid-backup".into());
        let writing = writing.spawn_scoped(scope, move || write(&header, &mut sink, &blocks, &back));
        let writing = writing.map_err(|error| Error::Option {
            option: "threads",
            problem: format!("the thread that writes a backup could not be started: {error}"),
        })?;
        let block = Block { kind: kind::END, bytes: empty_block() };
        let counts = Counts::default();
        let bytes = HEADER_BYTES as u64;
        let mut encoder = Encoder { out, emptied, block, counts, bytes, table: None, total_bytes, report };
        let produced = produce(&mut encoder).and_then(|()| encoder.end());
        let done = (encoder.counts, encoder.bytes);
        // Ends the thread.
        drop(encoder);
        let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // If writing failed, that is why producing did.
        written.and(produced).map(|()| done)
    })
}

/// Seals and writes blocks until there are no more.
fn write(
    header: &[u8; HEADER_BYTES], sink: &mut impl Sink, blocks: &Receiver<Block>, back: &SyncSender<Vec<u8>>,
) -> Result<()> {
    sink.write(header)?;
    let mut crc = header_crc(header);
    let mut ended = false;
    for Block { kind, mut bytes } in blocks {
        crc = seal_block(&mut bytes, kind, crc);
        sink.write(&bytes)?;
        ended = kind == kind::END;
        // There is room for all that there are.
        let _ = back.try_send(bytes);
    }
    if ended { sink.end() } else { Ok(()) }
}

fn empty_block() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK_HEADER_BYTES + PAYLOAD_BYTES_MAX);
    bytes.resize(BLOCK_HEADER_BYTES, 0);
    bytes
}

impl Encoder<'_> {
    /// A table begins, empty. Its pairs may follow.
    pub(super) fn table(&mut self, table: &CreateTable) -> Result<()> {
        self.flush()?;
        self.counts.tables += 1;
        self.table = Some(table.name.as_str().into());
        self.block.bytes.extend_from_slice(&table.encode());
        self.send(kind::TABLE)
    }

    /// A pair of the table that began last; pairs come in the order of their keys.
    #[inline]
    pub(super) fn pair(&mut self, key: &[u8], value: &[u8], expiry: Option<Expiry>) -> Result<()> {
        self.counts.pairs += 1;
        let whole = Pair::whole(key, value).until(expiry);
        if whole.bytes() > PAYLOAD_BYTES_MAX {
            let long = Pair::long(key, value).until(expiry);
            self.room(kind::PAIRS, long.bytes())?;
            long.encode(&mut self.block.bytes);
            return self.pieces(value);
        }
        self.room(kind::PAIRS, whole.bytes())?;
        whole.encode(&mut self.block.bytes);
        Ok(())
    }

    /// A change, behind those before it.
    pub(super) fn change(&mut self, change: &Change<'_>) -> Result<()> {
        self.counts.changes += 1;
        if let Change::Put(table, Pair { key, value: Some(value), expiry, .. }) = change
            && change.bytes() > PAYLOAD_BYTES_MAX
        {
            let long = Change::Put(*table, Pair::long(key, value).until(*expiry));
            self.room(kind::CHANGES, long.bytes())?;
            long.encode(&mut self.block.bytes);
            return self.pieces(value);
        }
        self.room(kind::CHANGES, change.bytes())?;
        change.encode(&mut self.block.bytes);
        Ok(())
    }

    /// A table is gone.
    pub(super) fn dropped(&mut self, table: TableId) -> Result<()> {
        self.flush()?;
        self.counts.changes += 1;
        self.block.bytes.extend_from_slice(&encode_table(table));
        self.send(kind::DROPPED)
    }

    fn end(&mut self) -> Result<()> {
        self.flush()?;
        self.counts.encode(&mut self.block.bytes);
        self.send(kind::END)
    }

    /// Sees to it that the block is of this type and has room.
    #[inline]
    fn room(&mut self, kind: u8, bytes: usize) -> Result<()> {
        if self.block.kind != kind || self.block.bytes.len() + bytes > BLOCK_HEADER_BYTES + PAYLOAD_BYTES_MAX {
            self.flush()?;
            self.block.kind = kind;
        }
        Ok(())
    }

    /// The value of what the block ends with.
    fn pieces(&mut self, value: &[u8]) -> Result<()> {
        self.flush()?;
        for piece in value.chunks(PAYLOAD_BYTES_MAX) {
            self.block.bytes.extend_from_slice(piece);
            self.send(kind::VALUE)?;
        }
        Ok(())
    }

    /// Sends the block on if there is anything in it.
    fn flush(&mut self) -> Result<()> {
        if self.block.bytes.len() > BLOCK_HEADER_BYTES { self.send(self.block.kind) } else { Ok(()) }
    }

    #[cold]
    fn send(&mut self, kind: u8) -> Result<()> {
        let mut next = self.emptied.try_recv().unwrap_or_else(|_| empty_block());
        next.truncate(BLOCK_HEADER_BYTES);
        let full = std::mem::replace(&mut self.block.bytes, next);
        self.bytes += full.len() as u64;
        let stopped = Error::Stopped { what: "the backup" };
        // Whoever writes has failed, and says so.
        self.out.send(Block { kind, bytes: full }).map_err(|_| stopped.clone())?;
        let progress = BackupProgress {
            table: self.table.clone(),
            records: self.counts.pairs + self.counts.changes,
            bytes: self.bytes,
            total_bytes: self.total_bytes,
        };
        match (self.report)(progress) {
            ControlFlow::Break(()) if kind != kind::END => Err(stopped),
            _ => Ok(()),
        }
    }
}
