//! A database with everything in it that the document has a table for.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, SystemTime};

use braid::{Compression, Durability, Options, Structure, TableOptions, WriteBatch};
use psync::sim::SimDisk;

/// Bytes of a log segment.
pub(crate) const SEGMENT_BYTES: u64 = 64 << 10;
/// Pages of a leaf: each has several, so that a leaf's later pages are met.
pub(crate) const LEAF_PAGES: u32 = 2;

/// When all expires that does.
pub(crate) const EXPIRY_MILLIS: u64 = 4_000_000_000_123;

/// Files and content.
pub(crate) struct Made {
    /// As they were at the checkpoint: later applies use pages again that only its roots reach.
    pub(crate) checkpoint: BTreeMap<String, Vec<u8>>,
    /// As they were at the end.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// What the first table held at the checkpoint.
    pub(crate) first: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Documents of the second table that a commit after the checkpoint wrote, by key.
    pub(crate) documents: BTreeMap<Vec<u8>, Vec<u8>>,
    /// A full backup of another database and an incremental one, and the superblock that this database has.
    pub(crate) backups: (Vec<u8>, Vec<u8>),
}

/// Bytes of a value that is in two blocks of a backup.
pub(crate) const LONG_BYTES: usize = (256 << 10) + 5;

pub(crate) fn value(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (number as usize * 31 + at * 7).to_le_bytes()[0]).collect()
}

/// Bytes that nothing makes shorter.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33).to_le_bytes()[0]
    };
    (0..bytes).map(|_| next()).collect()
}

/// Makes it.
pub(crate) fn make() -> Made {
    let disk = SimDisk::new(1);
    let options = Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .write_buffer_bytes(640 << 10)
        .segment_bytes(SEGMENT_BYTES)
        .retain_log_bytes(3 * SEGMENT_BYTES)
        .leaf_pages(LEAF_PAGES);
    let db = options.open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = |name: &str| db.table(name, Structure::BTree).expect("the table opens");
    let compressed = |name: &str, compression| {
        db.table_with(name, Structure::BTree, &TableOptions::new().compression(compression)).expect("the table opens")
    };
    let first = compressed("first", Compression::Lz4);
    let (second, gone) = (compressed("second", Compression::Zstd), table("gone"));

    let expiry = SystemTime::UNIX_EPOCH + Duration::from_millis(EXPIRY_MILLIS);
    // Three levels, keys that share much and little, tombstones, documents.
    let mut content = BTreeMap::new();
    for chunk in 0..100_u32 {
        let mut batch = WriteBatch::new();
        for number in (0..3000).filter(|number| number % 100 == chunk) {
            let key = format!("{:03}/of the first table/{number:05}", number % 7).into_bytes();
            let value = value(number, if number % 500 == 0 { 3000 } else { 330 });
            match number % 250 < 60 {
                true => batch.put_expiring(&first, &key, &value, expiry),
                false => batch.put(&first, &key, &value),
            }
            content.insert(key, value);
        }
        db.write(&batch).expect("writes");
    }
    // A document that no version refers to any more.
    for number in 0..2 {
        first.put("twice", value(number, 3000)).expect("writes");
    }
    content.insert(b"twice".to_vec(), value(1, 3000));
    gone.put("key", "value").expect("writes");
    db.drain().expect("drains");
    let mut batch = WriteBatch::new();
    for key in content.keys().step_by(400).cloned().collect::<Vec<_>>() {
        batch.delete(&first, &key);
        content.remove(&key);
    }
    db.write(&batch).expect("writes");

    // Ranges that a reader keeps from being swept; one of them has something newer.
    let before = db.snapshot();
    second.delete_range(&b"c"[..]..b"dd").expect("deletes");
    second.delete_range("d"..).expect("deletes");

    // A table that is dropped while somebody reads it stays in the checkpoint.
    let mut reader = gone.iter();
    reader.next().expect("a pair").expect("reads");
    db.drop_table("gone").expect("drops");
    db.checkpoint().expect("a checkpoint");
    let checkpoint = files(&disk);
    drop(before);

    // What follows is in the log only.
    let documents: BTreeMap<_, _> =
        [(&b"long"[..], noise(5001)), (b"longer", value(7, 70_000))].map(|(key, value)| (key.to_vec(), value)).into();
    let late = compressed("late", Compression::Lz4);
    second.put_with("replaced", value(9, 4000), Durability::Os).expect("writes");
    let mut batch = WriteBatch::new();
    batch.put(&second, "short", "inline");
    batch.delete(&second, "replaced");
    batch.delete_range(&late, "a"..="b");
    batch.put_expiring(&second, "expiring", "inline", expiry);
    documents.iter().for_each(|(key, value)| match key.as_slice() {
        b"long" => batch.put_expiring(&second, key, value, expiry),
        _ => batch.put(&second, key, value),
    });
    for number in 0..40 {
        batch.put(&first, format!("many/{number}"), value(number, 500));
        content.keys().nth(40 * number as usize).into_iter().for_each(|key| batch.put(&first, key, "again"));
    }
    db.write(&batch).expect("writes");
    db.drain().expect("drains");
    table("filled").load([("key", "value")]).expect("loads");
    db.drop_table("late").expect("drops");

    drop(reader);
    Made { checkpoint, files: files(&disk), first: content, documents, backups: backups() }
}

fn backups() -> (Vec<u8>, Vec<u8>) {
    let disk = SimDisk::new(2);
    let options = Options::new().background(false).cache_bytes(1 << 20).leaf_pages(LEAF_PAGES);
    let db = options.retain_log_bytes(1 << 20).open_on(disk.psync(), Path::new("/db")).expect("opens");
    let table = |name: &str| db.table(name, Structure::BTree).expect("the table opens");
    let zstd = TableOptions::new().compression(Compression::Zstd);
    let one = table("one");
    db.table_with("two", Structure::BTree, &zstd).expect("the table opens");
    one.put("key", "value").expect("writes");
    one.put("like", "").expect("writes");
    one.put("short", "s").expect("writes");
    one.put("long", value(3, LONG_BYTES)).expect("writes");
    let mut stream = Vec::new();
    let on = &mut |_| ControlFlow::Continue(());
    let full = db.begin_backup().expect("begins").stream(&mut stream, on).expect("backs up");
    one.put("another", "x").expect("writes");
    one.delete("key").expect("writes");
    db.drop_table("two").expect("drops");
    db.begin_backup().expect("begins").stream_since(&full.point, &mut stream, on).expect("backs up");
    (stream, disk.read_file("/db/superblock").expect("is there"))
}

fn files(disk: &SimDisk) -> BTreeMap<String, Vec<u8>> {
    let name = |path: &Path| path.strip_prefix("/db").ok().and_then(Path::to_str).expect("in the directory").to_owned();
    disk.files().iter().map(|path| (name(path), disk.read_file(path).expect("is there"))).collect()
}
