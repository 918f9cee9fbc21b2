//! Backups that are cut off, changed, or whose stream fails.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use braid::{Database, Error, ErrorKind, Structure};
use psync::sim::SimDisk;

use super::{assert_holds, database, full, on, restored, table, tables};

/// Small, with every type of block.
fn chain() -> (Database, Vec<u8>) {
    let db = database(&SimDisk::new(1));
    let one = table(&db, Structure::BTree, "one");
    one.put("a", "1").expect("puts");
    one.put("b", "2").expect("puts");
    drop(table(&db, Structure::BTree, "two"));
    let mut stream = Vec::new();
    let point = db.begin_backup().expect("begins").stream(&mut stream, &mut on).expect("backs up").point;
    one.delete("a").expect("deletes");
    one.put("c", "3").expect("puts");
    db.drop_table("two").expect("drops");
    table(&db, Structure::BTree, "three").load([("x", "y")]).expect("loads");
    db.begin_backup().expect("begins").stream_since(&point, &mut stream, &mut on).expect("backs up");
    (db, stream)
}

/// One whose blocks are as large as can be, and whose value goes over several.
fn large(structure: Structure) -> (Database, Vec<u8>) {
    let db = database(&SimDisk::new(1));
    let large = table(&db, structure, "large");
    for number in 0..400_u32 {
        large.put(number.to_be_bytes(), vec![7; 1500]).expect("puts");
    }
    large.put("long", vec![9; 700 << 10]).expect("puts");
    let stream = full(&db.begin_backup().expect("begins"));
    (db, stream)
}

/// Where blocks, and backups, end.
fn borders(stream: &[u8]) -> Vec<usize> {
    let mut borders = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        if stream[at..].starts_with(b"BRAIDBAK") {
            at += 80;
        } else {
            let length = stream[at + 4..at + 8].try_into().expect("four bytes");
            at += 12 + u32::from_le_bytes(length) as usize;
        }
        borders.push(at);
    }
    borders
}

#[test]
fn a_chain_that_is_cut_off_anywhere_but_between_backups_is_an_error() {
    let (db, stream) = chain();
    assert_holds(&stream, &tables(&db));
    let mut whole = Vec::new();
    for length in 0..stream.len() {
        match restored(&stream[..length]) {
            Ok(_) => whole.push(length),
            Err(Error::ForeignBackup { .. }) if length == 0 => {}
            Err(Error::Corrupt { found, offset, .. }) => {
                assert!(found.contains("cut off") && offset <= length as u64, "{length}: {found} at {offset}");
            }
            Err(error) => panic!("{length}: {error}"),
        }
    }
    let second = stream.windows(8).rposition(|window| window == b"BRAIDBAK").expect("a second one");
    assert_eq!(whole, [second]);
}

#[test]
fn a_bit_that_changed_anywhere_is_found() {
    let (_, stream) = chain();
    for byte in 0..stream.len() {
        let mut changed = stream.clone();
        changed[byte] ^= 1 << (byte % 8);
        let error = restored(&changed).map(drop).expect_err("it is noticed");
        let kinds = [ErrorKind::Corrupt, ErrorKind::ForeignFile, ErrorKind::NewerVersion];
        assert!(kinds.contains(&error.kind()), "byte {byte}: {error}");
    }
}

fn a_large_one_is_checked_block_by_block(structure: Structure) {
    let (db, stream) = large(structure);
    assert_holds(&stream, &tables(&db));
    let borders = borders(&stream);
    assert!(borders.len() > 7, "{borders:?}");
    for &border in &borders {
        if border < stream.len() {
            assert!(restored(&stream[..border]).is_err());
        }
        for byte in [border - 1, border.saturating_sub(70_000).max(20)] {
            let mut changed = stream.clone();
            changed[byte] ^= 4;
            let error = restored(&changed).map(drop).expect_err("it is noticed");
            let Error::Corrupt { file, offset, .. } = &error else { panic!("{error}") };
            assert!(file == "the backup stream" && *offset <= byte as u64, "{error}");
        }
    }
    // A whole block is missing.
    let without = [&stream[..borders[2]], &stream[borders[3]..]].concat();
    assert!(matches!(restored(&without).map(drop), Err(Error::Corrupt { .. })));
}

#[test]
fn what_follows_a_backup_is_another_or_an_error() {
    let (_, mut stream) = chain();
    stream.extend_from_slice(&[0; 100]);
    let error = restored(&stream).map(drop).expect_err("it is noticed");
    assert!(error.to_string().contains("what follows a backup"), "{error}");
    let error =
        restored(b"something else, and long enough to be a header of a backup, which is eighty bytes").map(drop);
    assert!(matches!(error, Err(Error::ForeignBackup { .. })), "{error:?}");
}

/// Takes so many bytes, and then fails.
struct Failing(usize);

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        let count = bytes.len().min(self.0);
        self.0 -= count;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn a_stream_that_fails_anywhere_fails_the_backup_and_nothing_else(structure: Structure) {
    let (db, stream) = large(structure);
    let backup = db.begin_backup().expect("begins");
    let borders = borders(&stream);
    for bytes in borders.iter().flat_map(|&border| [border.saturating_sub(80), border - 1, border, border + 1]) {
        let written = backup.stream(Failing(bytes), &mut on);
        if bytes >= stream.len() {
            written.expect("there is room for all of it");
            continue;
        }
        let error = written.expect_err("it fails");
        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
        assert!(error.to_string().contains("the backup stream"), "{error}");
    }
    assert_holds(&full(&backup), &tables(&db));
    table(&db, structure, "large").put("still", "writes").expect("puts");
}

fn a_backup_can_be_stopped_at_every_block(structure: Structure) {
    let (db, stream) = large(structure);
    let backup = db.begin_backup().expect("begins");
    let blocks = borders(&stream).len() - 1;
    for stop in 1..blocks {
        let mut left = stop;
        let mut out = Vec::new();
        let stopped = backup.stream(&mut out, &mut |progress| {
            assert!(progress.bytes > 0 && progress.total_bytes.is_some());
            left -= 1;
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
        assert!(restored(&out).is_err());
    }
}

on_every_structure!(
    a_large_one_is_checked_block_by_block,
    a_stream_that_fails_anywhere_fails_the_backup_and_nothing_else,
    a_backup_can_be_stopped_at_every_block,
);
