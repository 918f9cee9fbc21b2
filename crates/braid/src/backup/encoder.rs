//! Writes the blocks of a backup.
//!
//! 1. Blocks go through a short channel to a thread, which adds checksums and passes the blocks to a [`Sink`]; their
//!    memory is reused. So the scan, the checksums and the writes overlap, and need memory for some blocks only.
//! 2. The block of type end is written after all blocks before.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
};

use index::TableId;

use super::{
    blocks::{Block, Blocks, Memory, Take},
    format::{Counts, HEADER_BYTES, Header, header_crc, kind, seal_block},
    progress::{BackupProgress, BackupReport},
    sink::Sink,
};
use crate::{
    error::{Error, Result},
    format::{CreateTable, encode_table},
};

/// Blocks between the two threads.
const BLOCKS_BETWEEN: usize = 8;

/// Makes blocks of the contents of a backup.
pub(super) type Encoder<'a> = Blocks<'a, Outgoing<'a>>;

/// Sends filled blocks to the thread that writes them.
pub(super) struct Outgoing<'a> {
    out: SyncSender<Block>,
    counts: Counts,
    bytes: u64,
    table: Option<Arc<str>>,
    total_bytes: Option<u64>,
    report: BackupReport<'a>,
}

/// Writes a backup of the blocks that `produce` makes. Returns the counts of the backup, its bytes, and the result of
/// `produce`.
pub(super) fn run<R>(
    header: &Header, mut sink: impl Sink, total_bytes: Option<u64>, report: BackupReport<'_>,
    produce: impl FnOnce(&mut Encoder<'_>, &Memory) -> Result<R>,
) -> Result<(Counts, u64, R)> {
    let header = header.encode();
    let (out, blocks) = sync_channel(BLOCKS_BETWEEN);
    let memory = Memory::default();
    thread::scope(|scope| {
        let writing = thread::Builder::new().name("braid-backup".into());
        let writing = writing.spawn_scoped(scope, || write(&header, &mut sink, blocks, &memory));
        let writing = writing.map_err(no_thread)?;
        let (counts, bytes) = (Counts::default(), HEADER_BYTES as u64);
        let outgoing = Outgoing { out, counts, bytes, table: None, total_bytes, report };
        let mut encoder = Blocks::new(&memory, outgoing);
        let produced = produce(&mut encoder, &memory).and_then(|produced| encoder.end().map(|()| produced));
        let done = (encoder.out.counts, encoder.out.bytes);
        // The closed channel ends the thread.
        drop(encoder);
        let written = writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // A failed write comes first, because producing failed for that reason.
        written?;
        produced.map(|produced| (done.0, done.1, produced))
    })
}

/// The error of a thread that could not be started.
pub(super) fn no_thread(error: std::io::Error) -> Error {
    Error::Option { option: "threads", problem: format!("a thread of a backup could not be started: {error}") }
}

/// Seals and writes blocks until the channel ends.
fn write(header: &[u8; HEADER_BYTES], sink: &mut impl Sink, blocks: Receiver<Block>, memory: &Memory) -> Result<()> {
    sink.write(header)?;
    let mut crc = header_crc(header);
    let mut ended = false;
    for Block { kind, mut bytes, .. } in blocks {
        crc = seal_block(&mut bytes, kind, crc);
        sink.write(&bytes)?;
        ended = kind == kind::END;
        memory.emptied(bytes);
    }
    if ended { sink.end() } else { Ok(()) }
}

impl Encoder<'_> {
    /// Begins a table, empty. Its pairs may follow.
    pub(super) fn table(&mut self, table: &CreateTable) -> Result<()> {
        self.flush()?;
        self.out.table = Some(table.name.as_str().into());
        self.payload(kind::TABLE, Counts { tables: 1, ..Counts::default() }, &table.encode())
    }

    /// Writes that a table is dropped.
    pub(super) fn dropped(&mut self, table: TableId) -> Result<()> {
        self.payload(kind::DROPPED, Counts { changes: 1, ..Counts::default() }, &encode_table(table))
    }

    /// Writes a block filled elsewhere.
    pub(super) fn filled(&mut self, block: Block) -> Result<()> {
        self.flush()?;
        self.out.take(block)
    }

    fn end(&mut self) -> Result<()> {
        self.flush()?;
        let mut payload = Vec::new();
        self.out.counts.encode(&mut payload);
        self.payload(kind::END, Counts::default(), &payload)
    }
}

impl Take for Outgoing<'_> {
    fn take(&mut self, block: Block) -> Result<()> {
        let kind = block.kind;
        self.counts.add(&block.counts);
        self.bytes += block.bytes.len() as u64;
        let stopped = Error::Stopped { what: "the backup" };
        // A closed channel means that the writing thread has failed. Its own error is returned in the end.
        self.out.send(block).map_err(|_| stopped.clone())?;
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
