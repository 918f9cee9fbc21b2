//! Verification finds a flipped bit wherever something depends on it, and names the file; with the bit as it was it
//! finds nothing.

use std::path::{Path, PathBuf};

use braid::{Database, Options, Structure};
use psync::sim::SimDisk;

const SEGMENT_BYTES: u64 = 64 << 10;

fn options() -> Options {
    Options::new()
        .background(false)
        .cache_bytes(1 << 20)
        .segment_bytes(SEGMENT_BYTES)
        .leaf_pages(1)
        .retain_log_bytes(10 * SEGMENT_BYTES)
}

fn open(disk: &SimDisk) -> Database {
    options().open_on(disk.psync(), Path::new("/db")).expect("opens")
}

fn findings(db: &Database) -> Vec<String> {
    db.drop_caches();
    db.verify().expect("verifies").findings
}

/// A tree of two levels, documents, and a log of several segments with something that is not applied.
fn fill(db: &Database, structure: Structure) {
    let table = db.table("t", structure).expect("a table");
    for key in 0..300_u32 {
        table.put(key.to_be_bytes(), vec![7; if key % 50 == 0 { 4000 } else { 600 }]).expect("put");
    }
    db.checkpoint().expect("a checkpoint");
    (0..20_u32).for_each(|key| table.put(key.to_be_bytes(), "again").map(drop).expect("put"));
}

/// Flips bits of a file one at a time: each has to be found while it is flipped.
fn each_is_found(disk: &SimDisk, db: &Database, file: &Path, places: impl IntoIterator<Item = u64>) {
    for place in places {
        assert!(disk.flip_bit(file, place), "{} has a byte {place}", file.display());
        let found = findings(db);
        let name = file.display().to_string();
        assert!(found.iter().any(|finding| finding.contains(&name)), "{name} at byte {place}: {found:?}");
        assert!(disk.flip_bit(file, place));
    }
    assert_eq!(findings(db), [""; 0], "all is as it was");
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[test]
fn a_flipped_bit_is_found_wherever_it_counts() {
    let disk = SimDisk::new(1);
    let db = open(&disk);
    fill(&db, Structure::BTree);
    assert_eq!(findings(&db), [""; 0]);
    let verification = db.verify().expect("verifies");
    assert_eq!((verification.keys, verification.documents, verification.log_records), (300, 6, 321));

    let superblock = PathBuf::from("/db/superblock");
    each_is_found(&disk, &db, &superblock, [0, 9, 40, 56, 4000, 4096, 4170, 8191]);

    // The image that the newer slot names.
    let bytes = disk.read_file(&superblock).expect("it is there");
    let slot = if number(&bytes, 32) > number(&bytes, 4096 + 32) { 0 } else { 4096 };
    let (image, length) = (4096 * number(&bytes, slot + 56), number(&bytes, slot + 68) & 0xffff_ffff);
    // It has a page more than it needed when its length was found out.
    let slack = (number(&bytes, slot + 64) & 0xffff_ffff) - length.div_ceil(4096);
    let data = PathBuf::from("/db/data");
    each_is_found(&disk, &db, &data, [image, image + length / 2, image + length - 1]);

    for file in disk.files() {
        let bytes = disk.read_file(&file).expect("it is there");
        if file.starts_with("/db/doc") {
            each_is_found(&disk, &db, &file, [0, 20, 2000, bytes.len() as u64 - 100]);
        }
        // Segments that hold the log begin with groups: header and content of the first one.
        if file.starts_with("/db/wal") && bytes[4096..4100] == [0xB7, b'W', b'G', b'R'] {
            each_is_found(&disk, &db, &file, [4096, 4096 + 20, 4096 + 50, 4096 + 60]);
        }
    }
    // Every page that is in use: some of its first bytes.
    let used = |page: u64| {
        assert!(disk.flip_bit(&data, 4096 * page + 40));
        let found = !findings(&db).is_empty();
        assert!(disk.flip_bit(&data, 4096 * page + 40));
        found
    };
    let space = db.stats().expect("stats").space;
    let found = (1..space.total_pages).filter(|page| used(*page)).count() as u64;
    let idle = 1 + slack + space.free_pages + space.retired_pages;
    assert!(found + idle >= space.total_pages, "{found} of {space:?}");
}

fn what_is_only_read_is_checked_as_it_is_on_storage(structure: Structure) {
    let disk = SimDisk::new(2);
    let db = open(&disk);
    fill(&db, structure);
    disk.kill();
    drop(db);
    let before: Vec<_> = disk.files().into_iter().map(|path| disk.read_file(path)).collect();
    let db = options().read_only(true).open_on(disk.psync(), Path::new("/db")).expect("opens");
    let verification = db.verify().expect("verifies");
    assert_eq!(verification.findings, [""; 0]);
    assert_eq!((verification.keys, verification.log_records), (300, 321), "the log is read from where it is kept");
    let after: Vec<_> = disk.files().into_iter().map(|path| disk.read_file(path)).collect();
    assert!(before == after, "nothing is written");
    // A torn slot is told, and why it may be.
    assert!(disk.flip_bit("/db/superblock", 100));
    let found = db.verify().expect("verifies").findings;
    assert!(found.len() == 1 && found[0].contains("slot 0") && found[0].contains("a crash"), "{found:?}");
}

#[test]
fn a_flipped_bit_of_any_live_node_is_found() {
    const STEP: usize = 97;
    let disk = SimDisk::new(3);
    let db = open(&disk);
    fill(&db, Structure::Append);
    db.checkpoint().expect("a checkpoint");
    let verification = db.verify().expect("verifies");
    assert_eq!((verification.findings, verification.keys), (Vec::new(), 300));
    // Values that are too long for nodes became documents, the longest when they were committed.
    assert_eq!(verification.documents, 280);
    let mut found = 0;
    for file in disk.files().into_iter().filter(|file| file.starts_with("/db/node")) {
        let name = file.display().to_string();
        for place in (0..disk.read_file(&file).expect("it is there").len() as u64).step_by(STEP) {
            assert!(disk.flip_bit(&file, place));
            let findings = findings(&db);
            assert!(findings.iter().all(|finding| finding.contains(&name)), "{findings:?}");
            found += usize::from(!findings.is_empty());
            assert!(disk.flip_bit(&file, place));
        }
    }
    let live = db.stats().expect("stats").tables[0].own_live_bytes;
    assert!((found * STEP) as u64 >= live * 9 / 10, "{found} places of {live} bytes");
    assert_eq!(findings(&db), [""; 0], "all is as it was");
}

on_every_structure!(what_is_only_read_is_checked_as_it_is_on_storage);
