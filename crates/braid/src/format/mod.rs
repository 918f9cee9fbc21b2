//! Every byte of this crate that reaches storage: superblock, checkpoint image, log records.
//!
//! All numbers are little-endian. The file `superblock` has two slots of 4 KiB. A flip writes the older slot, so a torn
//! write leaves the other one whole. A slot defends against these faults:
//!
//! | fault | defence |
//! |---|---|
//! | foreign file | magic |
//! | newer software | version |
//! | torn write, bit rot | CRC |
//! | copy from another database | the uuid, which stands in every file |
//! | lost flip | generation |
//!
//! | slot offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `BRAIDSUP` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of the slot with this field zero |
//! | 16 | 16 | database uuid |
//! | 32 | 8 | generation: the slot with the larger one counts |
//! | 40 | 8 | open-epoch: rises with every open that may write |
//! | 48 | 8 | bytes of a log segment |
//! | 56 | 8 | first page of the checkpoint image in `data` |
//! | 64 | 4 | pages of the image; 0: no checkpoint yet |
//! | 68 | 4 | bytes of the image |
//! | 72 | 4 | CRC-32C of the image |
//! | 76 | 8 | clean end: where the log ends, if the database was closed; else 0 |
//!
//! The image is [`Image`], field by field in its order of declaration. The kinds of log records are in `kind`; the log
//! frames and checks each record.

pub(crate) mod decoded;
mod history;
pub(crate) mod pieces;
mod ranges;
mod settings;

use doclog::{Retained, SegmentId};
use index::{DocPointer, Expiry, Operation, Payload, RangeTombstones, Seq, TableId, Time, Update};
use space::{Extent, PageId};
use wal::Lsn;

pub(crate) use self::history::{Restored, RetainedHeader, RollBack, SetHistory};
pub use self::settings::TableSettings;
use crate::words::{applied::AppliedThrough, fields::Fields, structure::Structure};

/// Version of everything in a database directory. A newer version is refused; an older one is read while it is
/// supported.
pub(crate) const VERSION: u32 = 1;
/// Bytes of a superblock slot.
pub(crate) const SLOT_BYTES: usize = 4096;
/// The first bytes of a slot.
pub(crate) const MAGIC: [u8; 8] = *b"BRAIDSUP";
/// The first bytes of an image.
pub(crate) const IMAGE_MAGIC: [u8; 8] = *b"BRAIDIMG";
const CRC_AT: usize = 12;

/// Where the checkpoint image lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImagePlace {
    /// Pages of the image.
    pub(crate) extent: Extent,
    /// Bytes of the image.
    pub(crate) length: u32,
    /// CRC-32C of these bytes.
    pub(crate) crc: u32,
}

/// One slot of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Identity of the database.
    pub(crate) database: [u8; 16],
    /// Rises with every write of a slot.
    pub(crate) generation: u64,
    /// Rises with every open that may write.
    pub(crate) epoch: u64,
    /// Bytes of a log segment.
    pub(crate) segment_bytes: u64,
    /// The newest checkpoint, if there was one.
    pub(crate) image: Option<ImagePlace>,
    /// Where the log ends, if nothing was written since the database was closed. Then the image is complete without the
    /// log.
    pub(crate) clean_end: Option<Lsn>,
}

impl Superblock {
    /// The same content, for the other slot.
    pub(crate) const fn newer(self) -> Self {
        Self { generation: self.generation + 1, ..self }
    }
}

/// Why a slot does not decode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    /// The slot does not begin with the magic of a superblock.
    Magic,
    /// The slot has another version: the version, and whether the checksum holds.
    Version(u32, bool),
    /// The checksum does not hold: (stored, computed).
    Checksum(u32, u32),
    /// A field has a value that is never written.
    Field,
}

impl Superblock {
    /// The bytes of the slot.
    pub(crate) fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.database);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.segment_bytes.to_le_bytes());
        let (page, pages, length, crc) =
            self.image.map_or((0, 0, 0, 0), |image| (image.extent.page.0, image.extent.pages, image.length, image.crc));
        bytes.extend_from_slice(&page.to_le_bytes());
        for field in [pages, length, crc] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&self.clean_end.map_or(0, |end| end.0).to_le_bytes());
        let mut slot = [0; SLOT_BYTES];
        slot[..bytes.len()].copy_from_slice(&bytes);
        seal_slot(&mut slot);
        slot
    }

    /// Decodes and checks a slot.
    pub(crate) fn decode(slot: &[u8; SLOT_BYTES]) -> Result<Self, SlotError> {
        if slot[..8] != MAGIC {
            return Err(SlotError::Magic);
        }
        let mut fields = Fields(&slot[8..]);
        let version = fields.u32().ok_or(SlotError::Field)?;
        let stored = fields.u32().ok_or(SlotError::Field)?;
        let mut blank = *slot;
        blank[CRC_AT..CRC_AT + 4].fill(0);
        let computed = checksum::crc32c(&blank);
        if version != VERSION {
            return Err(SlotError::Version(version, stored == computed));
        }
        if stored != computed {
            return Err(SlotError::Checksum(stored, computed));
        }
        Self::decode_fields(&mut fields).ok_or(SlotError::Field)
    }

    fn decode_fields(fields: &mut Fields<'_>) -> Option<Self> {
        let database = fields.array()?;
        let (generation, epoch, segment_bytes) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (page, pages, length, crc) = (fields.u64()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let fits = u64::from(length) <= u64::from(pages) * space::PAGE as u64;
        let image = (pages > 0).then_some(ImagePlace { extent: Extent { page: PageId(page), pages }, length, crc });
        // No log ends at 0, because a segment begins with its header.
        let clean_end = Some(Lsn(fields.u64()?)).filter(|end| end.0 > 0);
        fits.then_some(Self { database, generation, epoch, segment_bytes, image, clean_end })
    }
}

/// Puts the checksum on a slot.
pub(crate) fn seal_slot(slot: &mut [u8; SLOT_BYTES]) {
    slot[CRC_AT..CRC_AT + 4].fill(0);
    let crc = checksum::crc32c(slot);
    slot[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// A table in a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableImage {
    /// Identity.
    pub(crate) id: TableId,
    /// Its structure.
    pub(crate) structure: Structure,
    /// The settings chosen for the table.
    pub(crate) settings: TableSettings,
    /// Which commits are in the structure.
    pub(crate) applied: AppliedThrough,
    /// The commit that dropped the table; 0 while the table is live.
    pub(crate) dropped: Seq,
    /// Name.
    pub(crate) name: String,
    /// Root of the structure, in the structure's own format.
    pub(crate) root: Vec<u8>,
    /// Document segments, in the document log's format.
    pub(crate) documents: Vec<u8>,
    /// Range deletes up to `visible` that still hide a version.
    pub(crate) tombstones: RangeTombstones,
    /// Retained states of the table, the oldest first.
    pub(crate) headers: Vec<RetainedHeader>,
}

/// The checkpoint image: recovery begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// Commits up to this one are counted in `documents` of the tables. Those that create or drop tables are counted in
    /// the lists.
    pub(crate) visible: Seq,
    /// Flush-ends below this position are in the roots.
    pub(crate) flush_ends_below: Lsn,
    /// Where replay of the log begins.
    pub(crate) log_start: Lsn,
    /// The log was on stable storage up to here: a bad group below is damage, never a torn tail.
    pub(crate) log_durable: Lsn,
    /// The log is kept from here on, for readers that follow its changes.
    pub(crate) kept_from: Lsn,
    /// The first seq at or above that position.
    pub(crate) kept_seq: Seq,
    /// The database's clock never returns an earlier time.
    pub(crate) time: Time,
    /// The id of the next table.
    pub(crate) next_table: u32,
    /// Live tables.
    pub(crate) tables: Vec<TableImage>,
    /// Dropped tables whose pages are not free yet.
    pub(crate) dropped: Vec<TableImage>,
    /// The free list, in the page allocator's format.
    pub(crate) allocator: Vec<u8>,
}

impl Image {
    /// The bytes of the image.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = IMAGE_MAGIC.to_vec();
        let positions = [self.flush_ends_below, self.log_start, self.log_durable, self.kept_from];
        bytes.extend_from_slice(&self.visible.0.to_le_bytes());
        positions.iter().for_each(|position| bytes.extend_from_slice(&position.0.to_le_bytes()));
        bytes.extend_from_slice(&self.kept_seq.0.to_le_bytes());
        bytes.extend_from_slice(&self.time.0.to_le_bytes());
        bytes.extend_from_slice(&self.next_table.to_le_bytes());
        for tables in [&self.tables, &self.dropped] {
            bytes.extend_from_slice(&length_of(tables.len()).to_le_bytes());
            for table in tables {
                bytes.extend_from_slice(&table.id.0.to_le_bytes());
                bytes.push(structure_code(table.structure));
                bytes.extend_from_slice(&table.settings.encode());
                put_applied(&mut bytes, &table.applied);
                bytes.extend_from_slice(&table.dropped.0.to_le_bytes());
                put_block(&mut bytes, table.name.as_bytes());
                put_block(&mut bytes, &table.root);
                put_block(&mut bytes, &table.documents);
                ranges::put_tombstones(&mut bytes, &table.tombstones);
                history::put_headers(&mut bytes, &table.headers);
            }
        }
        put_block(&mut bytes, &self.allocator);
        bytes
    }

    /// Decodes an image whose checksum was checked; none if a field makes no sense.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let image = Self::read(&mut fields);
        image.filter(|_| fields.end())
    }

    /// Decodes an image at the beginning of these bytes. The bytes need not have been checked: for salvage.
    pub(crate) fn decode_unchecked(bytes: &[u8]) -> Option<Self> {
        Self::read(&mut Fields(bytes))
    }

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        if fields.array()? != IMAGE_MAGIC {
            return None;
        }
        Some(Self {
            visible: Seq(fields.u64().filter(|visible| *visible < u64::MAX)?),
            flush_ends_below: Lsn(fields.u64()?),
            log_start: Lsn(fields.u64()?),
            log_durable: Lsn(fields.u64()?),
            kept_from: Lsn(fields.u64()?),
            kept_seq: Seq(fields.u64()?),
            time: Time(fields.u64()?),
            next_table: fields.u32()?,
            tables: decode_tables(fields)?,
            dropped: decode_tables(fields)?,
            allocator: fields.block()?.to_vec(),
        })
    }
}

/// The id of a table. It is below the last possible one, so the next table has an id.
fn new_table_id(fields: &mut Fields<'_>) -> Option<TableId> {
    fields.u32().filter(|id| *id < u32::MAX).map(TableId)
}

fn decode_tables(fields: &mut Fields<'_>) -> Option<Vec<TableImage>> {
    let count = fields.u32()?;
    let mut tables = Vec::new();
    for _ in 0..count {
        tables.push(TableImage {
            id: new_table_id(fields)?,
            structure: structure_from(fields.u8()?)?,
            settings: TableSettings::read(fields)?,
            applied: applied(fields)?,
            dropped: Seq(fields.u64()?),
            name: String::from_utf8(fields.block()?.to_vec()).ok()?,
            root: fields.block()?.to_vec(),
            documents: fields.block()?.to_vec(),
            tombstones: ranges::tombstones(fields)?,
            headers: history::headers(fields)?,
        });
    }
    Some(tables)
}

/// Appends a block of steps: seq and key of each.
fn put_applied(bytes: &mut Vec<u8>, applied: &AppliedThrough) {
    let mut block = Vec::new();
    for (key, seq) in applied.steps() {
        block.extend_from_slice(&seq.0.to_le_bytes());
        put_block(&mut block, key);
    }
    put_block(bytes, &block);
}

fn applied(fields: &mut Fields<'_>) -> Option<AppliedThrough> {
    let mut block = Fields(fields.block()?);
    let mut steps = Vec::new();
    while !block.0.is_empty() {
        let seq = Seq(block.u64()?);
        steps.push((block.block()?.to_vec(), seq));
    }
    AppliedThrough::from_steps(steps)
}

fn length_of(length: usize) -> u32 {
    u32::try_from(length).expect("blocks are bounded by the log record and the image, both below 4 GiB")
}

fn put_block(bytes: &mut Vec<u8>, block: &[u8]) {
    bytes.extend_from_slice(&length_of(block.len()).to_le_bytes());
    bytes.extend_from_slice(block);
}

pub(crate) const fn structure_code(structure: Structure) -> u8 {
    match structure {
        Structure::BTree => 1,
        Structure::Append => 2,
    }
}

pub(crate) const fn structure_from(code: u8) -> Option<Structure> {
    match code {
        1 => Some(Structure::BTree),
        2 => Some(Structure::Append),
        _ => None,
    }
}

/// Kinds of log records; 0 is never valid.
pub(crate) mod kind {
    /// Operations of one commit.
    pub(crate) const COMMIT: u8 = 1;
    /// A structure has operations that it lacked, and its data is on stable storage.
    pub(crate) const FLUSH_END: u8 = 2;
    /// A table begins.
    pub(crate) const CREATE_TABLE: u8 = 3;
    /// A table ends.
    pub(crate) const DROP_TABLE: u8 = 4;
    /// A piece of a flush-end that does not fit one record.
    pub(crate) const FLUSH_END_PART: u8 = 5;
    /// A load ends; its entries are in no commit.
    pub(crate) const LOAD: u8 = 6;
    /// A table goes back to an older state.
    pub(crate) const ROLL_BACK: u8 = 7;
    /// So many states of a table are retained from here on.
    pub(crate) const SET_HISTORY: u8 = 8;
}

/// Operation codes inside a commit; 0 is never valid, 8 and up are free.
mod code {
    pub(super) const PUT: u8 = 1;
    pub(super) const PUT_DOCUMENT: u8 = 2;
    pub(super) const DELETE: u8 = 3;
    pub(super) const DELETE_RANGE: u8 = 4;
    pub(super) const PUT_EXPIRING: u8 = 5;
    pub(super) const PUT_DOCUMENT_EXPIRING: u8 = 6;
    pub(super) const TIME: u8 = 7;
}

/// Bytes of the time at the beginning of a commit.
pub(crate) const COMMIT_TIME_BYTES: usize = 9;

/// Begins a commit's payload with the time of the commit. A commit needs the time only if a value can have expired by
/// then.
pub(crate) fn put_commit_time(payload: &mut Vec<u8>, time: Time) {
    payload.push(code::TIME);
    payload.extend_from_slice(&time.0.to_le_bytes());
}

/// Appends one operation to a commit's payload: code, table, key, expiry if the value expires, value.
pub(crate) fn put_operation(payload: &mut Vec<u8>, table: TableId, key: &[u8], operation: Operation<'_>) {
    let code = match operation {
        Operation::Put(Payload::Inline(_), None) => code::PUT,
        Operation::Put(Payload::Document(_), None) => code::PUT_DOCUMENT,
        Operation::Put(Payload::Inline(_), Some(_)) => code::PUT_EXPIRING,
        Operation::Put(Payload::Document(_), Some(_)) => code::PUT_DOCUMENT_EXPIRING,
        Operation::Delete => code::DELETE,
    };
    put_head(payload, code, table, key);
    if let Some(expiry) = operation.expiry() {
        payload.extend_from_slice(&expiry.encode());
    }
    match operation {
        Operation::Put(Payload::Inline(value), _) => put_block(payload, value),
        Operation::Put(Payload::Document(document), _) => payload.extend_from_slice(&document.encode()),
        Operation::Delete => {}
    }
}

/// Appends the delete of a non-empty range of keys to a commit's payload. The layout is that of a put: the key is the
/// first of the range, and the value is the end of the range, empty if there is none. The commit's other operations of
/// that table come behind it.
pub(crate) fn put_delete_range(payload: &mut Vec<u8>, table: TableId, low: &[u8], high: Option<&[u8]>) {
    put_head(payload, code::DELETE_RANGE, table, low);
    put_block(payload, high.unwrap_or_default());
}

/// Appends the beginning of every operation: code, table, key.
fn put_head(payload: &mut Vec<u8>, code: u8, table: TableId, key: &[u8]) {
    payload.push(code);
    payload.extend_from_slice(&table.0.to_le_bytes());
    let key_len = u16::try_from(key.len()).expect("keys are checked when a commit is admitted");
    payload.extend_from_slice(&key_len.to_le_bytes());
    payload.extend_from_slice(key);
}

/// One operation of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logged<'a> {
    /// A put or a delete of one key.
    Update(Update<'a>),
    /// All versions of the keys from `low` to below `high` that came before this commit are gone.
    DeleteRange {
        /// The first key.
        low: &'a [u8],
        /// The end of the range, if there is one.
        high: Option<&'a [u8]>,
    },
}

impl Logged<'_> {
    /// The document that the operation refers to.
    pub(crate) const fn document(&self) -> Option<DocPointer> {
        match self {
            Self::Update(update) => update.operation.document(),
            Self::DeleteRange { .. } => None,
        }
    }
}

/// The operations of a commit's payload, each with its table. Updates have the commit's seq.
pub(crate) struct Operations<'a> {
    /// When the commit was made, if the payload says so; else the earliest time.
    pub(crate) time: Time,
    fields: Fields<'a>,
    seq: Seq,
}

impl<'a> Operations<'a> {
    /// Reads `payload`, the commit of `seq`.
    pub(crate) const fn new(payload: &'a [u8], seq: Seq) -> Self {
        match payload.split_first_chunk::<COMMIT_TIME_BYTES>() {
            Some(([code::TIME, time @ ..], rest)) => {
                Self { time: Time(u64::from_le_bytes(*time)), fields: Fields(rest), seq }
            }
            _ => Self { time: Time(0), fields: Fields(payload), seq },
        }
    }

    fn read(&mut self) -> Option<(TableId, Logged<'a>)> {
        let code = self.fields.u8()?;
        let table = TableId(self.fields.u32()?);
        let key_len = self.fields.u16()?;
        let key = self.fields.bytes(key_len.into())?;
        if code == code::DELETE_RANGE {
            let high = Some(self.fields.block()?).filter(|high| !high.is_empty());
            return index::is_below(key, high).then_some((table, Logged::DeleteRange { low: key, high }));
        }
        let expiry = match code {
            code::PUT_EXPIRING | code::PUT_DOCUMENT_EXPIRING => Some(Expiry::at(self.fields.u64()?)?),
            _ => None,
        };
        let operation = match code {
            code::PUT | code::PUT_EXPIRING => Operation::Put(Payload::Inline(self.fields.block()?), expiry),
            code::PUT_DOCUMENT | code::PUT_DOCUMENT_EXPIRING => {
                Operation::Put(Payload::Document(document(&mut self.fields)?), expiry)
            }
            code::DELETE => Operation::Delete,
            _ => return None,
        };
        Some((table, Logged::Update(Update { key, seq: self.seq, operation })))
    }
}

impl<'a> Iterator for Operations<'a> {
    /// An operation, or none if the payload does not decode.
    type Item = Option<(TableId, Logged<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.fields.0.is_empty() {
            return None;
        }
        let operation = self.read();
        if operation.is_none() {
            self.fields.0 = &[];
        }
        Some(operation)
    }
}

fn document(fields: &mut Fields<'_>) -> Option<DocPointer> {
    Some(DocPointer::decode(&fields.array()?))
}

/// The record that ends an apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlushEnd {
    /// The table of the structure.
    pub(crate) table: TableId,
    /// The time of the end of the apply. Values that had expired before may be gone.
    pub(crate) time: Time,
    /// Which commits the structure has.
    pub(crate) applied: AppliedThrough,
    /// Redo in the structure's own format.
    pub(crate) redo: Vec<u8>,
    /// Documents that are not referred to any more.
    pub(crate) dropped: Vec<DocPointer>,
    /// Documents, by segment, that the structure refers to from here on and that no commit names: those of a load, or
    /// relocated copies.
    pub(crate) retained: Vec<Retained>,
    /// For a rollback: its effect on documents and range tombstones.
    pub(crate) restored: Option<Restored>,
}

/// Bytes of table and number before each piece of a flush-end.
const PIECE_HEADER: usize = 8;

/// A piece of a flush-end: the table, the piece's number, and bytes. Pieces 0, 1, … of a table follow one another. The
/// last piece is the record of kind `FLUSH_END`, the others are of kind `FLUSH_END_PART`. A piece 0 discards earlier
/// pieces of a flush-end that did not end.
pub(crate) struct FlushEndPiece<'a> {
    /// The table of the structure.
    pub(crate) table: TableId,
    /// Number among the pieces.
    pub(crate) number: u32,
    /// Bytes of the flush-end.
    pub(crate) bytes: &'a [u8],
}

impl<'a> FlushEndPiece<'a> {
    /// Decodes a payload.
    pub(crate) fn decode(payload: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        Some(Self { table: TableId(fields.u32()?), number: fields.u32()?, bytes: fields.0 })
    }
}

impl FlushEnd {
    /// The payloads of the pieces, each of at most `most` bytes.
    pub(crate) fn encode(&self, most: usize) -> Vec<Vec<u8>> {
        let piece = |(number, bytes): (usize, &[u8])| {
            [&self.table.0.to_le_bytes(), &length_of(number).to_le_bytes(), bytes].concat()
        };
        self.body().chunks(most - PIECE_HEADER).enumerate().map(piece).collect()
    }

    fn body(&self) -> Vec<u8> {
        let mut bytes = self.time.0.to_le_bytes().to_vec();
        put_applied(&mut bytes, &self.applied);
        put_block(&mut bytes, &self.redo);
        for count in [self.dropped.len(), self.retained.len()] {
            bytes.extend_from_slice(&length_of(count).to_le_bytes());
        }
        for document in &self.dropped {
            bytes.extend_from_slice(&document.encode());
        }
        for retained in &self.retained {
            for field in [retained.segment.0, retained.bytes, retained.end] {
                bytes.extend_from_slice(&field.to_le_bytes());
            }
        }
        history::put_restored(&mut bytes, self.restored.as_ref());
        bytes
    }

    /// Decodes the bytes of all pieces.
    pub(crate) fn decode(table: TableId, body: &[u8]) -> Option<Self> {
        let mut fields = Fields(body);
        let time = Time(fields.u64()?);
        let applied = applied(&mut fields)?;
        let redo = fields.block()?.to_vec();
        let counts = (fields.u32()?, fields.u32()?);
        let mut dropped = Vec::new();
        for _ in 0..counts.0 {
            dropped.push(document(&mut fields)?);
        }
        let mut retained = Vec::new();
        for _ in 0..counts.1 {
            retained.push(Retained { segment: SegmentId(fields.u64()?), bytes: fields.u64()?, end: fields.u64()? });
        }
        let restored = history::restored(&mut fields)?;
        fields.end().then_some(Self { table, time, applied, redo, dropped, retained, restored })
    }
}

/// The record that begins a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreateTable {
    /// Identity.
    pub(crate) id: TableId,
    /// Its structure.
    pub(crate) structure: Structure,
    /// The settings chosen for the table.
    pub(crate) settings: TableSettings,
    /// Pages of a leaf, if the structure has leaves.
    pub(crate) leaf_pages: u32,
    /// Name.
    pub(crate) name: String,
}

impl CreateTable {
    /// The payload of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.id.0.to_le_bytes().to_vec();
        bytes.push(structure_code(self.structure));
        bytes.extend_from_slice(&self.settings.encode());
        bytes.extend_from_slice(&self.leaf_pages.to_le_bytes());
        put_block(&mut bytes, self.name.as_bytes());
        bytes
    }

    /// Decodes a payload.
    pub(crate) fn decode(payload: &[u8]) -> Option<Self> {
        let mut fields = Fields(payload);
        let record = Self {
            id: new_table_id(&mut fields)?,
            structure: structure_from(fields.u8()?)?,
            settings: TableSettings::read(&mut fields)?,
            leaf_pages: fields.u32()?,
            name: String::from_utf8(fields.block()?.to_vec()).ok()?,
        };
        fields.end().then_some(record)
    }
}

/// The payload of a record that names only its table: one that ends the table, or one that ends a load of it.
pub(crate) fn encode_table(id: TableId) -> [u8; 4] {
    id.0.to_le_bytes()
}

/// Decodes the payload of a record that names only its table.
pub(crate) fn decode_table(payload: &[u8]) -> Option<TableId> {
    let mut fields = Fields(payload);
    fields.u32().map(TableId).filter(|_| fields.end())
}

#[cfg(test)]
mod tests {
    use doclog::{Compression, DocLength};
    use index::DocPointer;
    use proptest::prelude::*;

    use super::*;

    fn superblock() -> Superblock {
        let extent = Extent { page: PageId(7), pages: 2 };
        Superblock {
            database: *b"0123456789abcdef",
            generation: 3,
            epoch: 4,
            segment_bytes: 16 << 20,
            image: Some(ImagePlace { extent, length: 5000, crc: 0xdead_beef }),
            clean_end: Some(Lsn(0x0506)),
        }
    }

    #[test]
    fn superblock_bytes_are_those_of_version_1() {
        let slot = superblock().encode();
        let mut golden = b"BRAIDSUP".to_vec();
        golden.extend_from_slice(&[1, 0, 0, 0]);
        golden.extend_from_slice(&slot[12..16]);
        golden.extend_from_slice(b"0123456789abcdef");
        golden.extend_from_slice(&[3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        golden.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0x88, 0x13, 0, 0, 0xef, 0xbe, 0xad, 0xde]);
        golden.extend_from_slice(&[6, 5, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&slot[..golden.len()], golden);
        assert!(slot[golden.len()..].iter().all(|&byte| byte == 0));
        assert_eq!(Superblock::decode(&slot), Ok(superblock()));
    }

    #[test]
    fn any_flipped_bit_of_a_slot_is_noticed() {
        let slot = superblock().encode();
        for bit in 0..88 * 8 {
            let mut damaged = slot;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    fn applied_through() -> AppliedThrough {
        let mut applied = AppliedThrough::new(Seq(9));
        applied.cover(b"k", Some(b"m"), Seq(11));
        applied
    }

    #[test]
    fn applied_bytes_are_those_of_version_1() {
        let mut bytes = Vec::new();
        put_applied(&mut bytes, &applied_through());
        let steps: [&[u8]; 3] = [
            &[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[11, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'k'],
            &[9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, b'm'],
        ];
        assert_eq!(bytes, [&[38, 0, 0, 0], &steps.concat()[..]].concat());
        assert_eq!(applied(&mut Fields(&bytes)), Some(applied_through()));
        assert_eq!(applied(&mut Fields(&[0; 4])), None);
    }

    fn tombstones() -> RangeTombstones {
        let mut tombstones = RangeTombstones::default();
        tombstones.add(b"k", None, Seq(9), &index::Horizon::default());
        tombstones
    }

    #[test]
    fn image_survives_encoding() {
        let table = TableImage {
            id: TableId(3),
            structure: Structure::BTree,
            settings: TableSettings { compression: Compression::Lz4, history: 2 },
            applied: applied_through(),
            dropped: Seq(11),
            name: "users".into(),
            root: vec![1, 2],
            documents: vec![],
            tombstones: tombstones(),
            headers: vec![history::tests::header(), history::tests::header()],
        };
        let image = Image {
            visible: Seq(12),
            flush_ends_below: Lsn(100),
            log_start: Lsn(50),
            log_durable: Lsn(99),
            kept_from: Lsn(40),
            kept_seq: Seq(6),
            time: Time(1_800_000_000_000),
            next_table: 4,
            tables: vec![table.clone()],
            dropped: vec![table],
            allocator: vec![9; 30],
        };
        let bytes = image.encode();
        assert_eq!(Image::decode(&bytes), Some(image));
        for length in 0..bytes.len() {
            assert_eq!(Image::decode(&bytes[..length]), None);
        }
    }

    #[test]
    fn the_last_id_and_the_last_seq_are_none() {
        let settings = TableSettings::default();
        let create = |id| CreateTable {
            id: TableId(id),
            structure: Structure::BTree,
            settings,
            leaf_pages: 1,
            name: "t".into(),
        };
        assert!(CreateTable::decode(&create(u32::MAX - 1).encode()).is_some());
        assert_eq!(CreateTable::decode(&create(u32::MAX).encode()), None);
        let image = |visible| Image {
            visible: Seq(visible),
            flush_ends_below: Lsn(0),
            log_start: Lsn(0),
            log_durable: Lsn(0),
            kept_from: Lsn(0),
            kept_seq: Seq(0),
            time: Time(0),
            next_table: 0,
            tables: vec![],
            dropped: vec![],
            allocator: vec![],
        };
        assert!(Image::decode(&image(u64::MAX - 1).encode()).is_some());
        assert_eq!(Image::decode(&image(u64::MAX).encode()), None);
        let longer = [&image(1).encode()[..], &[0]].concat();
        assert_eq!(Image::decode(&longer), None);
    }

    #[test]
    fn a_flush_end_survives_encoding_in_any_number_of_pieces() {
        let document = DocPointer { segment: SegmentId(4), offset: 8, length: DocLength::plain(70_000), crc: 5 };
        let retained = Retained { segment: SegmentId(6), bytes: 70_024, end: 90_000 };
        let record = FlushEnd {
            table: TableId(7),
            time: Time(1_800_000_000_000),
            applied: applied_through(),
            redo: vec![3; 100],
            dropped: vec![document; 5],
            retained: vec![retained; 3],
            restored: Some(Restored { dropped: vec![(SegmentId(2), 88)], tombstones: tombstones() }),
        };
        for most in [9, 20, 100, 10_000] {
            let payloads = record.encode(most);
            let mut body = Vec::new();
            for (payload, number) in payloads.iter().zip(0..) {
                assert!(payload.len() <= most);
                let piece = FlushEndPiece::decode(payload).expect("decodes");
                assert_eq!((piece.table, piece.number), (TableId(7), number));
                body.extend_from_slice(piece.bytes);
            }
            assert_eq!(FlushEnd::decode(TableId(7), &body), Some(record.clone()));
        }
    }

    #[test]
    fn flush_end_bytes_are_those_of_version_1() {
        let document = DocPointer { segment: SegmentId(4), offset: 8, length: DocLength::plain(70_000), crc: 5 };
        let record = FlushEnd {
            table: TableId(7),
            time: Time(0x0102_0304_0506),
            applied: AppliedThrough::new(Seq(9)),
            redo: vec![3, 4],
            dropped: vec![document],
            retained: vec![Retained { segment: SegmentId(6), bytes: 10, end: 11 }],
            restored: None,
        };
        let fields: [&[u8]; 10] = [
            &[7, 0, 0, 0, 0, 0, 0, 0],
            &[6, 5, 4, 3, 2, 1, 0, 0],
            &[12, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            &[2, 0, 0, 0, 3, 4],
            &[1, 0, 0, 0, 1, 0, 0, 0],
            &document.encode(),
            &[6, 0, 0, 0, 0, 0, 0, 0],
            &[10, 0, 0, 0, 0, 0, 0, 0],
            &[11, 0, 0, 0, 0, 0, 0, 0],
            &[0],
        ];
        assert_eq!(record.encode(1000), [fields.concat()]);
    }

    #[test]
    fn a_commit_says_when_it_was_made_before_its_operations() {
        let mut payload = Vec::new();
        put_commit_time(&mut payload, Time(0x0102_0304_0506));
        assert_eq!(payload, [7, 6, 5, 4, 3, 2, 1, 0, 0]);
        put_operation(&mut payload, TableId(2), b"key", Operation::Delete);
        let mut read = Operations::new(&payload, Seq(6));
        assert_eq!(read.time, Time(0x0102_0304_0506));
        let update = Update { key: b"key", seq: Seq(6), operation: Operation::Delete };
        assert_eq!(read.next(), Some(Some((TableId(2), Logged::Update(update)))));
        assert_eq!(read.next(), None);
        // A part of a time is no time, and a commit has at most one.
        assert_eq!(Operations::new(&payload[..8], Seq(6)).next(), Some(None));
        assert_eq!(Operations::new(&[&payload[..9], &payload[..9]].concat(), Seq(6)).next(), Some(None));
    }

    #[test]
    fn commit_operations_survive_encoding() {
        let document = DocPointer { segment: SegmentId(4), offset: 8, length: DocLength::plain(70_000), crc: 5 };
        let operations = [None, Expiry::at(0x0102_0304_0506)].map(|expiry| {
            [
                Operation::Put(Payload::Inline(b"v"), expiry),
                Operation::Put(Payload::Document(document), expiry),
                Operation::Delete,
            ]
        });
        let operations = operations.concat();
        let mut payload = Vec::new();
        put_delete_range(&mut payload, TableId(2), b"k", Some(b"l"));
        for operation in &operations {
            put_operation(&mut payload, TableId(2), b"key", *operation);
        }
        let mut read = Operations::new(&payload, Seq(6)).map(|item| item.expect("decodes"));
        let range = Logged::DeleteRange { low: b"k", high: Some(b"l") };
        assert_eq!(read.next(), Some((TableId(2), range)));
        for operation in operations {
            let update = Update { key: b"key", seq: Seq(6), operation };
            assert_eq!(read.next(), Some((TableId(2), Logged::Update(update))));
        }
        assert_eq!(read.next(), None);
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Image::decode(&bytes);
            let _ = FlushEnd::decode(TableId(1), &bytes);
            let _ = CreateTable::decode(&bytes);
            prop_assert!(Operations::new(&bytes, Seq(1)).count() <= bytes.len());
        }
    }
}
