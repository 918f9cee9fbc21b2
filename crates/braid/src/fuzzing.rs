//! What a fuzzer gives bytes to. For tests of the workspace alone.
//!
//! Each target takes the bytes of an encoding after something has changed them. It puts right checksums on them and
//! decodes them; what it decodes has to come back when it is encoded again. Targets with `open` in their names make a
//! database around the bytes: it opens, or says what is wrong.

use std::{path::Path, sync::Arc, time::Duration};

use doclog::{DocLength, DocPointer, Retained, SegmentId};
use index::{Expiry, Operation, Payload, Seq, TableId, Time};
use psync::{Buffer, Request, sim::SimDisk};
use space::{Extent, FileStore, PAGE, PageId, StreamKind};
use wal::{Alone, Claim, Lsn, Verdict, Wal};

use crate::{
    backup::fuzzing as backup,
    format::{
        CreateTable, FlushEnd, FlushEndPiece, Image, ImagePlace, Logged, Operations, Restored, RollBack, SLOT_BYTES,
        SetHistory, Superblock, decode_table, encode_table, kind, put_commit_time, put_delete_range, put_operation,
        samples, seal_slot,
    },
    handles::{batch::WriteBatch, database::Database},
    open::assembly::log_options,
    options::Options,
    root::{DATA, superblock::SuperblockFile},
    words::structure::Structure,
};

/// A name, what takes bytes, and the encodings to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// Everything of this crate that is read from a disk.
pub const TARGETS: &[Target] = &[
    ("braid_superblock", superblock, superblocks),
    ("braid_image", image, images),
    ("braid_commit", commit, commits),
    ("braid_flush_end", flush_end, flush_ends),
    ("braid_table_record", table_record, table_records),
    ("braid_open_checkpoint", open_checkpoint, checkpoints),
    ("braid_open_log", open_log, logs),
    ("braid_backup", backup::parts, backup::chains),
    ("braid_open_backup", backup::restore, backup::chains),
];

fn superblock(bytes: &[u8]) {
    let mut slot = [0; SLOT_BYTES];
    let length = bytes.len().min(SLOT_BYTES);
    slot[..length].copy_from_slice(&bytes[..length]);
    let _ = Superblock::decode(&slot);
    seal_slot(&mut slot);
    if let Ok(superblock) = Superblock::decode(&slot) {
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }
}

fn superblocks() -> Vec<Vec<u8>> {
    let place = ImagePlace { extent: Extent::new(PageId(7), 2), length: 5000, crc: 0xdead_beef };
    let slot = |image, clean_end| {
        let (database, segment_bytes) = (*b"0123456789abcdef", 16 << 20);
        Superblock { database, generation: 3, epoch: 4, segment_bytes, image, clean_end }.encode()[..88].to_vec()
    };
    vec![slot(None, None), slot(Some(place), None), slot(Some(place), Some(Lsn(70_000)))]
}

fn image(bytes: &[u8]) {
    if let Some(image) = Image::decode(bytes) {
        assert_eq!(image.encode(), bytes, "an image has one encoding");
    }
}

fn images() -> Vec<Vec<u8>> {
    let tables = (1..5).map(samples::table_image).collect();
    [samples::image(vec![], vec![]), samples::image(tables, vec![samples::table_image(6)])]
        .iter()
        .map(Image::encode)
        .collect()
}

fn commit(bytes: &[u8]) {
    let decoded = Operations::new(bytes, Seq(6));
    let time = decoded.time;
    let Some(operations) = decoded.collect::<Option<Vec<_>>>() else { return };
    let (mut begin, mut again) = (Vec::new(), Vec::new());
    put_commit_time(&mut begin, time);
    for (table, logged) in operations {
        match logged {
            Logged::Update(update) => put_operation(&mut again, table, update.key, update.operation),
            Logged::DeleteRange { low, high } => put_delete_range(&mut again, table, low, high),
        }
    }
    let before = bytes.strip_suffix(again.as_slice()).expect("operations have one encoding");
    assert!(before == begin || (before.is_empty() && time == Time(0)), "a commit begins with its time, if it says one");
}

fn commits() -> Vec<Vec<u8>> {
    let document = DocPointer { segment: SegmentId(4), offset: 8, length: DocLength::plain(70_000), crc: 5 };
    let operations = [
        Operation::Put(Payload::Inline(b"value"), None),
        Operation::Put(Payload::Document(document), None),
        Operation::Delete,
        Operation::Put(Payload::Inline(&[7; 300]), None),
        Operation::Put(Payload::Inline(b"value"), Expiry::at(7)),
        Operation::Put(Payload::Document(document), Expiry::at(1_800_000_000_000)),
    ];
    let mut all = Vec::new();
    put_delete_range(&mut all, TableId(2), b"from", Some(b"to"));
    put_delete_range(&mut all, TableId(2), b"z", None);
    for (operation, key) in operations.into_iter().zip([&b"k"[..], b"another key", &[9; 100], b"z", b"e", b"f"]) {
        put_operation(&mut all, TableId(2), key, operation);
    }
    let mut timed = Vec::new();
    put_commit_time(&mut timed, Time(1_800_000_000_000));
    timed.extend_from_slice(&all);
    vec![Vec::new(), all, timed]
}

/// A piece with its table and number, whose bytes are all of the flush-end.
fn flush_end(bytes: &[u8]) {
    let Some(piece) = FlushEndPiece::decode(bytes) else { return };
    if let Some(record) = FlushEnd::decode(piece.table, piece.bytes) {
        let again = record.encode(usize::MAX);
        assert_eq!(again.len(), 1);
        assert_eq!(again[0][8..], *piece.bytes, "a flush-end has one encoding");
        let pieces = record.encode(20);
        let whole = pieces.iter().flat_map(|piece| FlushEndPiece::decode(piece).map_or(&[][..], |piece| piece.bytes));
        assert!(whole.copied().eq(piece.bytes.iter().copied()));
    }
}

fn a_flush_end(table: u32, redo: Vec<u8>) -> FlushEnd {
    let document = DocPointer { segment: SegmentId(4), offset: 8, length: DocLength::plain(70_000), crc: 5 };
    let retained = Retained { segment: SegmentId(6), bytes: 70_024, end: 90_000 };
    let (dropped, retained) = (vec![document; 2], vec![retained; 2]);
    FlushEnd {
        table: TableId(table),
        time: Time(1_800_000_000_000),
        applied: samples::applied_through(),
        redo,
        dropped,
        retained,
        restored: Some(Restored { dropped: vec![(SegmentId(2), 88)], tombstones: samples::tombstones() }),
    }
}

fn flush_ends() -> Vec<Vec<u8>> {
    let plain = FlushEnd { dropped: vec![], retained: vec![], restored: None, ..a_flush_end(1, vec![]) };
    [plain, a_flush_end(7, vec![3; 100])].map(|record| record.encode(usize::MAX).concat()).to_vec()
}

fn table_record(bytes: &[u8]) {
    if let Some(id) = decode_table(bytes) {
        assert_eq!(encode_table(id), *bytes, "a table's end has one encoding");
    }
    if let Some(record) = RollBack::decode(bytes) {
        assert_eq!(record.encode(), bytes, "a rollback has one encoding");
    }
    if let Some(record) = SetHistory::decode(bytes) {
        assert_eq!(record.encode(), bytes, "a setting has one encoding");
    }
    if let Some(record) = CreateTable::decode(bytes) {
        assert_eq!(record.encode(), bytes, "a table's beginning has one encoding");
    }
}

fn table_records() -> Vec<Vec<u8>> {
    let record = samples::a_table(5, vec![4, 0, 0, 0]);
    let back = RollBack { table: TableId(5), to: Seq(9) };
    let set = SetHistory { table: TableId(5), keep: 9 };
    vec![record.encode(), encode_table(TableId(5)).to_vec(), back.encode(), set.encode()]
}

const PATH: &str = "/db";
const NAME: &str = "table";

fn options() -> Options {
    let options = Options::new().background(false).cache_bytes(64 << 10).write_buffer_bytes(16 << 10);
    options.segment_bytes(64 << 10).leaf_pages(1)
}

/// A small database with a tree, a document, and a log behind its checkpoint.
fn database() -> (SimDisk, Database) {
    let disk = SimDisk::new(1);
    let db = options().open_on(disk.psync(), Path::new(PATH)).expect("a new one");
    let table = db.table(NAME, Structure::BTree).expect("a new one");
    let mut batch = WriteBatch::new();
    for key in 0..40_u8 {
        batch.put(&table, [key], [key; 50]);
    }
    batch.put(&table, b"document", vec![7; 3000]);
    batch.put_expiring(&table, b"expiring", b"for a day", Duration::from_secs(86_400));
    db.write(&batch).expect("a commit");
    db.checkpoint().expect("a checkpoint");
    table.put(b"later", b"in the log").expect("a commit");
    drop(table);
    (disk, db)
}

/// The bytes of the newest checkpoint image.
fn newest_image(disk: &SimDisk) -> Vec<u8> {
    let slots = disk.read_file("/db/superblock").expect("a database has one");
    let (slots, _) = slots.as_chunks::<SLOT_BYTES>();
    let newest = slots.iter().filter_map(|slot| Superblock::decode(slot).ok()).max_by_key(|slot| slot.generation);
    let place = newest.and_then(|slot| slot.image).expect("a checkpoint was written");
    let data = disk.read_file("/db/data").expect("a database has one");
    let start = usize::try_from(place.extent.page.0).expect("small") * PAGE;
    data[start..start + place.length as usize].to_vec()
}

/// Opens what is there, and reads it all if it opens.
fn open_and_read(disk: &SimDisk) {
    let db = match options().open_on(disk.psync(), Path::new(PATH)) {
        Ok(db) => db,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    for name in db.tables().into_iter().map(|table| table.name) {
        let Ok(table) = db.table(&name, Structure::BTree) else { continue };
        let _ = table.get_many(&[&[3][..], b"document", b"later"]);
        let _ = table.iter().take(1000).count();
        let _ = table.put(b"new", b"value");
    }
    let _ = db.verify();
    let _ = db.checkpoint();
}

/// A database whose checkpoint image is this.
fn open_checkpoint(bytes: &[u8]) {
    let (disk, db) = database();
    disk.kill();
    drop(db);
    let store = FileStore::open(disk.psync(), Path::new(PATH), false).expect("its directory");
    let file = store.open_existing(StreamKind::Node, DATA, true).expect("its file");
    let page = file.len().expect("it has one").div_ceil(PAGE as u64);
    let pages = u32::try_from(bytes.len().div_ceil(PAGE)).expect("short").max(1);
    let mut buffer = Buffer::zeroed(pages as usize * PAGE);
    buffer[..bytes.len()].copy_from_slice(bytes);
    store.psync().run_all(vec![Request::write(&file, page * PAGE as u64, buffer, 0)]).expect("it is written");
    let (length, crc) = (u32::try_from(bytes.len()).expect("short"), checksum::crc32c(bytes));
    let place = ImagePlace { extent: Extent::new(PageId(page), pages), length, crc };
    SuperblockFile::open(&store).and_then(|mut file| file.set_image(place)).expect("it is written");
    open_and_read(&disk);
}

fn checkpoints() -> Vec<Vec<u8>> {
    let (disk, _db) = database();
    vec![newest_image(&disk)]
}

/// A database in whose log these records come behind its own: kind, number of bytes as two, bytes. The payloads have no
/// checksums but those of the log.
fn open_log(bytes: &[u8]) {
    let (disk, db) = database();
    let image = Image::decode(&newest_image(&disk)).expect("its own image");
    disk.kill();
    drop(db);
    let store = FileStore::open(disk.psync(), Path::new(PATH), false).expect("its directory");
    let mut superblock = SuperblockFile::open(&store).expect("its superblock");
    superblock.begin_epoch().expect("it is written");
    let next_seq = image.visible.0 + 1;
    let log_options = log_options(&options(), &superblock, image.log_start, image.log_durable, next_seq);
    let accept = &mut |_: &wal::Group<'_>| Ok::<_, wal::Error>(Verdict::Accept);
    let (wal, _) = Wal::open(&store, &log_options, Arc::new(Alone), accept).expect("its log");
    let mut rest = bytes;
    while let Some((&[kind, low, high], behind)) = rest.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (payload, behind) = behind.split_at(length);
        let sequenced = matches!(kind, kind::COMMIT | kind::CREATE_TABLE | kind::DROP_TABLE);
        if wal.append(kind.max(1), &[payload], sequenced, Claim::Upkeep).is_err() {
            break;
        }
        rest = behind;
    }
    wal.flush_through(wal.end()).expect("it is flushed");
    drop(wal);
    open_and_read(&disk);
}

fn logs() -> Vec<Vec<u8>> {
    let record = |kind: u8, payload: &[u8]| {
        let length = u16::try_from(payload.len()).expect("short");
        [&[kind][..], &length.to_le_bytes(), payload].concat()
    };
    let mut commit = Vec::new();
    put_delete_range(&mut commit, TableId(1), &[7], Some(&[30]));
    for (key, operation) in [(&b"x"[..], Operation::Put(Payload::Inline(b"y"), None)), (b"later", Operation::Delete)] {
        put_operation(&mut commit, TableId(1), key, operation);
        put_operation(&mut commit, TableId(0), key, operation);
    }
    let (disk, _db) = database();
    let table = &Image::decode(&newest_image(&disk)).expect("its own image").tables[0];
    // A flush-end that leaves the tree as it is.
    let redo = btree::fuzzing::unchanged(&table.root, table.id);
    let end = FlushEnd { dropped: vec![], retained: vec![], restored: None, ..a_flush_end(table.id.0, redo) };
    let create = CreateTable { name: "other".into(), ..samples::a_table(9, vec![4, 0, 0, 0]) };
    let begins = record(kind::CREATE_TABLE, &create.encode());
    let ends = record(kind::DROP_TABLE, &encode_table(TableId(9)));
    let pieces: Vec<_> = end.encode(60);
    let (last, first) = pieces.split_last().expect("there is one");
    let first: Vec<u8> = first.iter().flat_map(|piece| record(kind::FLUSH_END_PART, piece)).collect();
    let last = record(kind::FLUSH_END, last);
    vec![
        record(kind::COMMIT, &commit),
        [begins, record(kind::COMMIT, &commit), ends].concat(),
        [first, last, record(kind::COMMIT, &commit)].concat(),
    ]
}
