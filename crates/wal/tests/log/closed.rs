//! A closed log: nothing is looked for behind its end, the mark of the close is no part of the log, and a mark that is
//! older than the log hides nothing.

use psync::sim::SimDisk;
use psync::{BLOCK, Buffer, Request};
use space::{FileDamage, FileStore, StreamKind};
use wal::{Error, Options};

use crate::common::{Random, append, commit, open, options, store};

const FILE: &str = "wal/0.log";

fn read(store: &FileStore, offset: u64, length: usize) -> Vec<u8> {
    let file = store.open_existing(StreamKind::Wal, FILE, false).expect("it is there");
    let read = Request::read(&file, offset, Buffer::zeroed(length), 0);
    store.psync().run_all(vec![read]).expect("it is read").pop().flatten().expect("a buffer").to_vec()
}

fn write(store: &FileStore, offset: u64, bytes: &[u8]) {
    let file = store.open_existing(StreamKind::Wal, FILE, false).expect("it is there");
    let write = Request::write(&file, offset, Buffer::from_slice(bytes), 0);
    store.psync().run_all(vec![write, Request::flush(&file, 0)]).expect("it is written");
}

#[test]
fn the_next_opening_goes_on_where_the_log_was_closed() {
    let disk = SimDisk::new(1);
    let mut all = Vec::new();
    for epoch in 1..6 {
        let (wal, replayed, records) = open(&store(&disk), &options(epoch)).expect("it opens");
        assert_eq!(records, all);
        if epoch > 1 {
            assert_eq!(replayed.tail, "the log was closed");
            assert_eq!(replayed.durable, replayed.end, "nothing is to be written again");
        }
        all.extend((0..4).map(|index| commit(&wal, 1, &[epoch.to_le_bytes()[0], index])));
        let end = wal.end();
        wal.close().expect("it is closed");
        drop(wal);
        let read_only = Options { read_only: true, ..options(epoch) };
        let (_, replayed, records) = open(&store(&disk), &read_only).expect("it opens");
        assert_eq!((replayed.end, replayed.tail.as_str(), records), (end, "the log was closed", all.clone()));
    }
}

#[test]
fn a_closed_log_takes_no_more() {
    let disk = SimDisk::new(1);
    let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
    let record = commit(&wal, 1, b"before");
    wal.close().expect("it is closed");
    let error = wal.append(1, &[b"behind"], true, wal::Claim::Put).expect_err("closed");
    assert!(error.to_string().contains("the log was closed"), "{error}");
    drop(wal);
    let (.., records) = open(&store(&disk), &options(2)).expect("it opens");
    assert_eq!(records, [record]);
}

#[test]
fn a_close_without_a_flush_promises_nothing() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let mut random = Random::new(seed);
        let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
        let kept: Vec<_> = (0..3).map(|_| commit(&wal, 1, &random.bytes(300))).collect();
        let maybe: Vec<_> = (0..5).map(|_| append(&wal, 1, &random.bytes(3000))).collect();
        wal.close().expect("it is closed");
        drop(wal);
        disk.restart();
        let (wal, _, records) = open(&store(&disk), &options(2)).expect("it opens");
        let all = [kept.clone(), maybe].concat();
        assert!(records.len() >= kept.len() && records == all[..records.len()], "seed {seed}");
        let again = commit(&wal, 1, b"again");
        drop(wal);
        disk.restart();
        let (.., found) = open(&store(&disk), &options(3)).expect("it opens");
        assert_eq!(found, [records, vec![again]].concat(), "seed {seed}");
    }
}

/// The block in which the log was closed appears once more, after the next opening has written over the mark and gone
/// on in later blocks.
#[test]
fn a_mark_of_an_earlier_epoch_hides_nothing() {
    let disk = SimDisk::new(1);
    let database = store(&disk);
    let (wal, ..) = open(&database, &options(1)).expect("it opens");
    commit(&wal, 1, &[7; 100]);
    let block = wal.end().0 / BLOCK as u64 * BLOCK as u64;
    wal.close().expect("it is closed");
    drop(wal);
    let marked = read(&database, block, BLOCK);
    let (wal, ..) = open(&database, &options(2)).expect("it opens");
    commit(&wal, 1, &[8; 2 * BLOCK]);
    commit(&wal, 1, &[9; 100]);
    drop(wal);
    let whole = read(&database, block, BLOCK);
    write(&database, block, &marked);
    let error = open(&database, &options(3)).map(drop).expect_err("commits are missing");
    assert!(matches!(error, Error::Corrupt(FileDamage { what: "group", .. })), "{error}");
    write(&database, block, &whole);
    let (.., records) = open(&database, &options(3)).expect("it opens");
    assert_eq!(records.len(), 3);
}

/// An opening of a closed log that ends before its first flush leaves the log as it was.
#[test]
fn an_opening_that_was_cut_off_changes_nothing() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let (wal, ..) = open(&store(&disk), &options(1)).expect("it opens");
        let records: Vec<_> = (0..3).map(|index| commit(&wal, 1, &[index; 200])).collect();
        wal.close().expect("it is closed");
        drop(wal);
        if seed % 2 == 0 {
            disk.restart();
        }
        for epoch in 2..5 {
            let (wal, _, found) = open(&store(&disk), &options(epoch)).expect("it opens");
            assert_eq!(found, records, "seed {seed}, epoch {epoch}");
            // The mark of the close may be lost with the power. To a later opening there is a tail, or nothing.
            if seed % 2 == 1 || epoch > 2 {
                assert_eq!(wal.stats().flushes, u64::from(epoch > 2), "seed {seed}, epoch {epoch}");
            }
            append(&wal, 1, &[9; 500]);
            wal.write_through(wal.end()).expect("it is written");
            drop(wal);
            disk.restart();
            // A record that was never flushed may still be there.
            let (_, _, found) = open(&store(&disk), &Options { read_only: true, ..options(epoch) }).expect("it opens");
            if found.len() > records.len() {
                break;
            }
        }
    }
}
