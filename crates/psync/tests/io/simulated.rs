//! The fault model of the simulated disk: what it may lose, and what it may not.

use std::collections::BTreeSet;
use std::path::Path;

use psync::sim::{Fault, Garble, SimDisk};
use psync::{BLOCK, Buffer, Error, File, OpenOptions, Psync, Request, SECTOR};

const ROOT: &str = "/";
const SEEDS: u64 = 300;

fn create(psync: &Psync, path: &str) -> psync::Result<File> {
    let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    psync.open(Path::new(path), &options)
}

fn write(psync: &Psync, file: &File, offset: u64, bytes: &[u8]) -> psync::Result<()> {
    psync.run_all(vec![Request::write(file, offset, Buffer::from_slice(bytes), 0)]).map(|_| ())
}

fn flush(psync: &Psync, file: &File) -> psync::Result<()> {
    psync.run_all(vec![Request::flush(file, 0)]).map(|_| ())
}

fn write_durably(psync: &Psync, file: &File, offset: u64, bytes: &[u8]) -> psync::Result<()> {
    psync.run_all(vec![Request::write_durably(file, offset, Buffer::from_slice(bytes), 0)]).map(|_| ())
}

/// A disk with one durable file of two blocks of 1.
fn prepared(seed: u64) -> (SimDisk, Psync, File) {
    let disk = SimDisk::new(seed);
    let psync = disk.psync();
    let file = create(&psync, "/file").expect("create");
    write(&psync, &file, 0, &[1; 2 * BLOCK]).expect("write");
    flush(&psync, &file).expect("flush");
    psync.sync_directory(Path::new(ROOT)).expect("flush");
    (disk, psync, file)
}

fn content(disk: &SimDisk) -> Vec<u8> {
    disk.read_file("/file").expect("the file is durable")
}

#[test]
fn what_was_flushed_is_never_lost() {
    for seed in 0..SEEDS {
        let (disk, psync, file) = prepared(seed);
        write(&psync, &file, 0, &[2; BLOCK]).expect("write");
        flush(&psync, &file).expect("flush");
        write(&psync, &file, BLOCK as u64, &[3; BLOCK]).expect("write");
        disk.restart();
        let found = content(&disk);
        assert_eq!(found[..BLOCK], [2; BLOCK], "seed {seed}");
        assert!(found[BLOCK..].iter().all(|byte| [1, 3].contains(byte)), "seed {seed}");
    }
}

#[test]
fn what_was_not_flushed_is_kept_lost_or_torn() {
    let (mut kept, mut lost, mut torn, mut later_without_earlier) = (0, 0, 0, 0);
    for seed in 0..SEEDS {
        let (disk, psync, file) = prepared(seed);
        write(&psync, &file, 0, &[2; BLOCK]).expect("write");
        write(&psync, &file, BLOCK as u64, &[3; BLOCK]).expect("write");
        disk.restart();
        let found = content(&disk);
        assert!(found.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        match found[..BLOCK].iter().filter(|byte| **byte == 2).count() {
            0 => lost += 1,
            BLOCK => kept += 1,
            _ => torn += 1,
        }
        later_without_earlier += u32::from(!found.contains(&2) && found.contains(&3));
    }
    assert!(kept > 20 && lost > 20 && torn > 20, "{kept} {lost} {torn}");
    assert!(later_without_earlier > 5, "{later_without_earlier}");
}

#[test]
fn a_durable_write_is_never_lost_and_takes_no_other_with_it() {
    let (mut others, mut later) = (BTreeSet::new(), BTreeSet::new());
    for seed in 0..SEEDS {
        let (disk, psync, file) = prepared(seed);
        write(&psync, &file, 0, &[2; BLOCK]).expect("plain, beside it");
        write(&psync, &file, BLOCK as u64, &[3; BLOCK]).expect("plain, below it");
        write_durably(&psync, &file, BLOCK as u64, &[4; SECTOR]).expect("durable");
        let growth = 2 * BLOCK as u64;
        write_durably(&psync, &file, growth, &[5; SECTOR]).expect("durable, beyond the end");
        write(&psync, &file, growth, &[6; SECTOR]).expect("plain, over it");
        disk.restart();
        let found = content(&disk);
        assert_eq!(found.len(), 2 * BLOCK + SECTOR, "seed {seed}");
        assert_eq!(found[BLOCK..BLOCK + SECTOR], [4; SECTOR], "seed {seed}");
        assert!([5, 6].contains(&found[2 * BLOCK]), "seed {seed}");
        others.insert((found[0], found[BLOCK + SECTOR]));
        later.insert(found[2 * BLOCK]);
    }
    assert_eq!(others, [(1, 1), (1, 3), (2, 1), (2, 3)].into());
    assert_eq!(later.len(), 2);
}

#[test]
fn a_durable_write_behind_a_cut_takes_the_cut_with_it() {
    for seed in 0..SEEDS {
        let (disk, psync, file) = prepared(seed);
        write(&psync, &file, 0, &[2; 2 * BLOCK]).expect("plain");
        file.set_len(0).expect("cut");
        write_durably(&psync, &file, BLOCK as u64, &[3; SECTOR]).expect("durable");
        disk.restart();
        let found = content(&disk);
        assert_eq!(found.len(), BLOCK + SECTOR, "seed {seed}");
        assert!(found[..BLOCK].iter().all(|byte| *byte == 0), "what was cut is back, seed {seed}");
        assert_eq!(found[BLOCK..], [3; SECTOR], "seed {seed}");
    }
}

#[test]
fn a_durable_write_that_fails_leaves_any_of_its_sectors_and_a_refused_one_none() {
    let (mut kept, mut lost, mut torn, mut forgotten, mut lengths) = (0, 0, 0, 0, BTreeSet::new());
    for seed in 0..SEEDS {
        let (disk, psync, file) = prepared(seed);
        disk.fail_operation(Fault::Write, 0, libc::EIO);
        write_durably(&psync, &file, 0, &[9; BLOCK]).expect_err("refused");
        assert_eq!(content(&disk), [1; 2 * BLOCK]);
        disk.fail_operation(Fault::Flush, 1, libc::EIO);
        write_durably(&psync, &file, BLOCK as u64, &[3; BLOCK]).expect("the first passes");
        let growing = [[2; BLOCK], [4; BLOCK], [5; BLOCK]].concat();
        write_durably(&psync, &file, 0, &growing).expect_err("the second fails");
        assert_eq!(content(&disk), growing, "reads see it");
        // What was forgotten is no part of a later flush.
        let flushed = seed % 2 == 0;
        if flushed {
            flush(&psync, &file).expect("flush");
        }
        disk.restart();
        let found = content(&disk);
        assert!(found[..BLOCK].iter().all(|byte| [1, 2].contains(byte)), "seed {seed}");
        assert!(found[BLOCK..2 * BLOCK].iter().all(|byte| [3, 4].contains(byte)), "seed {seed}");
        let there = found.iter().filter(|byte| [2, 4, 5].contains(*byte)).count();
        match there {
            0 => lost += 1,
            all if all == 3 * BLOCK => kept += 1,
            _ => torn += 1,
        }
        forgotten += u32::from(flushed && there < 3 * BLOCK);
        lengths.insert((flushed, found.len()));
    }
    assert!(kept > 20 && lost > 20 && torn > 20 && forgotten > 50, "{kept} {lost} {torn} {forgotten}");
    assert_eq!(lengths, [(false, 2 * BLOCK), (false, 3 * BLOCK), (true, 3 * BLOCK)].into());
}

#[test]
fn power_that_goes_during_a_durable_write_leaves_any_of_it() {
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS {
        let (disk, psync, file) = prepared(seed);
        disk.crash_after(0);
        write_durably(&psync, &file, 0, &[2; BLOCK]).expect_err("no power");
        disk.restart();
        let sectors: Vec<u8> = content(&disk)[..BLOCK].iter().step_by(SECTOR).copied().collect();
        found.insert(sectors);
    }
    assert!(found.contains(&vec![1; 8]) && found.contains(&vec![2; 8]) && found.len() > 20, "{found:?}");
}

#[test]
fn a_durable_write_can_be_lost_too() {
    let (disk, psync, file) = prepared(1);
    disk.lose_write(file.path(), 0);
    write_durably(&psync, &file, 0, &[2; SECTOR]).expect("acknowledged");
    assert_eq!(content(&disk)[0], 2);
    disk.restart();
    assert_eq!(content(&disk), [1; 2 * BLOCK]);
}

#[test]
fn files_lose_their_writes_independently() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        let psync = disk.psync();
        let files = ["/a", "/b"].map(|path| create(&psync, path).expect("create"));
        psync.sync_directory(Path::new(ROOT)).expect("flush");
        for file in &files {
            write(&psync, file, 0, &[1; SECTOR]).expect("write");
        }
        disk.restart();
        outcomes.insert(["/a", "/b"].map(|path| disk.read_file(path).expect("durable").contains(&1)));
    }
    assert_eq!(outcomes.len(), 4);
}

#[test]
fn the_power_goes_at_the_operation_asked_for_and_stays_away() {
    // The same work with the power cut after every number of operations.
    for after in 0..6 {
        let (disk, psync, file) = prepared(after);
        let before = disk.operations();
        disk.crash_after(after);
        let mut results = Vec::new();
        for _ in 0..2 {
            results.push(write(&psync, &file, 0, &[2; BLOCK]).is_ok());
            results.push(flush(&psync, &file).is_ok());
            results.push(create(&psync, &format!("/{}", results.len())).is_ok());
        }
        let expected: Vec<bool> = (0..6).map(|operation| operation < after).collect();
        assert_eq!(results, expected);
        assert_eq!(disk.operations(), before + after + 1);
        assert!(disk.is_crashed());
        assert!(file.len().is_err() && psync.list(Path::new(ROOT)).is_err());
        let read = Request::read(&file, 0, Buffer::zeroed(1), 0);
        assert!(psync.run_all(vec![read]).is_err());
        disk.restart();
        // A flush that succeeded counts; one that met the end may.
        let found = content(&disk)[0];
        assert!(if after >= 2 { found == 2 } else { [1, 2].contains(&found) });
    }
}

#[test]
fn an_old_life_cannot_touch_the_new_one() {
    let (disk, old, old_file) = prepared(1);
    let held = old.lock(Path::new("/LOCK"), false).expect("lock");
    disk.restart();
    let new = disk.psync();
    let again = new.lock(Path::new("/LOCK"), false).expect("released by the loss of power");
    assert!(write(&old, &old_file, 0, &[9]).is_err());
    assert!(flush(&old, &old_file).is_err());
    assert!(write(&new, &old_file, 0, &[9]).is_err(), "a handle of the old life through the new one");
    assert!(old_file.set_len(0).is_err() && create(&old, "/x").is_err() && old.remove(Path::new("/file")).is_err());
    drop(held);
    assert!(matches!(new.lock(Path::new("/LOCK"), true), Err(Error::Locked { .. })));
    drop(again);
    drop(new.lock(Path::new("/LOCK"), true).expect("free"));
    assert_eq!(content(&disk), [1; 2 * BLOCK]);
}

/// The same operations with the same seed leave the same disk; other seeds leave others.
#[test]
fn the_outcome_follows_from_the_seed() {
    let outcome = |seed| {
        let disk = SimDisk::new(seed);
        let mut results = Vec::new();
        for life in 0..4_u8 {
            let psync = disk.psync();
            disk.crash_after(20 + u64::from(life));
            for step in 0..30_u8 {
                let path = format!("/{}", step % 5);
                let options = OpenOptions { write: true, create: true, ..OpenOptions::default() };
                let done = psync.open(Path::new(&path), &options).and_then(|file| {
                    write(&psync, &file, u64::from(step) * 300, &[life * 30 + step + 1; 3000])?;
                    if step % 7 == 0 { flush(&psync, &file) } else { Ok(()) }
                });
                if step % 11 == 0 {
                    results.push(psync.sync_directory(Path::new(ROOT)).is_ok());
                }
                results.push(done.is_ok());
            }
            disk.restart();
        }
        let files: Vec<_> = disk.files().into_iter().map(|path| (disk.read_file(&path), path)).collect();
        (results, files, disk.operations())
    };
    let mut outcomes = BTreeSet::new();
    for seed in 0..20 {
        let first = outcome(seed);
        assert!(first == outcome(seed), "seed {seed}");
        outcomes.insert(first);
    }
    assert!(outcomes.len() > 15);
}

#[test]
fn names_are_durable_only_when_their_directory_is_flushed() {
    let mut outcomes = BTreeSet::new();
    for seed in 0..SEEDS {
        let (disk, psync, _file) = prepared(seed);
        psync.create_directory(Path::new("/sub")).expect("create");
        psync.sync_directory(Path::new(ROOT)).expect("flush");
        let synced = create(&psync, "/sub/synced").expect("create");
        write(&psync, &synced, 0, b"flushed").expect("write");
        flush(&psync, &synced).expect("flush");
        psync.sync_directory(Path::new("/sub")).expect("flush");
        let unsynced = create(&psync, "/sub/unsynced").expect("create");
        flush(&psync, &unsynced).expect("flush");
        psync.remove(Path::new("/sub/synced")).expect("remove");
        disk.restart();
        let back = disk.read_file("/sub/synced");
        assert!(back.is_none() || back.as_deref() == Some(b"flushed"));
        outcomes.insert((back.is_some(), disk.read_file("/sub/unsynced").is_some()));
        assert_eq!(content(&disk).len(), 2 * BLOCK);
    }
    assert_eq!(outcomes.len(), 4);
}

#[test]
fn a_directory_that_was_never_durable_takes_its_files_along() {
    let mut survived = BTreeSet::new();
    for seed in 0..SEEDS {
        let disk = SimDisk::new(seed);
        let psync = disk.psync();
        psync.create_directory(Path::new("/a/b")).expect("create");
        create(&psync, "/a/b/file").expect("create");
        psync.sync_directory(Path::new("/a/b")).expect("flush");
        disk.restart();
        let after = disk.psync();
        let directory = after.exists(Path::new("/a/b")).expect("look");
        assert_eq!(disk.files().len(), usize::from(directory), "seed {seed}");
        survived.insert(directory);
    }
    assert_eq!(survived.len(), 2);
}

#[test]
fn a_removal_that_was_flushed_stays() {
    for seed in 0..50 {
        let (disk, psync, _file) = prepared(seed);
        psync.remove(Path::new("/file")).expect("remove");
        psync.sync_directory(Path::new(ROOT)).expect("flush");
        create(&psync, "/file").expect("create");
        disk.restart();
        assert!(disk.read_file("/file").is_none_or(|bytes| bytes.is_empty()), "seed {seed}");
    }
}

#[test]
fn what_is_punched_is_room_that_a_write_can_lack() {
    let (disk, psync, file) = prepared(1);
    write(&psync, &file, 0, &[1; 8 * BLOCK]).expect("write");
    let used = file.len().expect("a length");
    assert_eq!(file.free_bytes(), None);
    disk.set_capacity(Some(used));
    assert_eq!(file.free_bytes(), Some(0));
    assert!(file.punch(0..4 * BLOCK as u64).expect("punched"));
    assert_eq!((file.len().expect("a length"), disk.used_bytes()), (used, used - 4 * BLOCK as u64));
    assert_eq!(file.free_bytes(), Some(4 * BLOCK as u64));
    write(&psync, &file, used, &[2; 2 * BLOCK]).expect("there is room now");
    assert!(write(&psync, &file, BLOCK as u64, &[3; 3 * BLOCK]).expect_err("three blocks").is_disk_full());
    assert!(file.reserve(0..3 * BLOCK as u64).expect_err("three blocks").is_disk_full());
    assert!(file.reserve(0..2 * BLOCK as u64).expect("two"));
    write(&psync, &file, 0, &[3; 2 * BLOCK]).expect("its own");
    assert!(write(&psync, &file, 3 * BLOCK as u64, &[3]).expect_err("one block more").is_disk_full());
}

#[test]
fn faults_happen_once_where_asked() {
    let (disk, psync, file) = prepared(1);
    disk.fail_operation(Fault::Write, 1, libc::EIO);
    write(&psync, &file, 0, &[5; 10]).expect("the first passes");
    let error = write(&psync, &file, 0, &[6; 10]).expect_err("the second fails");
    assert_eq!(error.io().and_then(std::io::Error::raw_os_error), Some(libc::EIO));
    assert_eq!(content(&disk)[0], 5);
    write(&psync, &file, 0, &[7; 10]).expect("once");

    disk.fail_operation(Fault::Growth, 0, libc::ENOSPC);
    write(&psync, &file, 0, &[8; 10]).expect("no growth");
    assert!(write(&psync, &file, 2 * BLOCK as u64, &[8]).expect_err("growth").is_disk_full());
    disk.fail_operation(Fault::Growth, 0, libc::ENOSPC);
    file.set_len(10).expect("no growth");
    assert!(file.set_len(11).expect_err("growth").is_disk_full());

    let read = || psync.run_all(vec![Request::read(&file, 0, Buffer::zeroed(1), 0)]);
    disk.fail_operation(Fault::Read, 0, libc::EIO);
    assert!(read().is_err());
    assert!(read().is_ok());
    disk.fail_operation(Fault::Name, 0, libc::EIO);
    assert!(create(&psync, "/other").is_err());
    create(&psync, "/other").expect("once");
    disk.fail_operation(Fault::Any, 0, libc::EIO);
    assert!(read().is_err());
    assert!(!disk.is_crashed());
}

#[test]
fn after_a_failed_flush_a_later_one_does_not_help() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let (disk, psync, file) = prepared(seed);
        write(&psync, &file, 0, &[2; SECTOR]).expect("write");
        disk.fail_operation(Fault::Flush, 0, libc::EIO);
        assert!(flush(&psync, &file).is_err());
        assert_eq!(content(&disk)[0], 2, "reads still see it");
        flush(&psync, &file).expect("flush");
        disk.restart();
        lost += u32::from(content(&disk)[0] == 1);
    }
    assert!((50..250).contains(&lost), "{lost}");
}

#[test]
fn a_lost_write_shows_after_the_restart() {
    let (disk, psync, file) = prepared(1);
    disk.lose_write(file.path(), 1);
    write(&psync, &file, 0, &[2; SECTOR]).expect("write");
    write(&psync, &file, BLOCK as u64, &[2; SECTOR]).expect("acknowledged");
    flush(&psync, &file).expect("flush");
    assert_eq!(content(&disk)[BLOCK], 2);
    disk.restart();
    assert_eq!((content(&disk)[0], content(&disk)[BLOCK]), (2, 1));
}

#[test]
fn a_full_disk_has_room_again_when_something_goes() {
    let (disk, psync, file) = prepared(1);
    disk.set_capacity(Some(3 * BLOCK as u64));
    let other = create(&psync, "/other").expect("create");
    write(&psync, &other, 0, &[1; BLOCK]).expect("fits");
    assert!(write(&psync, &other, BLOCK as u64, &[1]).expect_err("full").is_disk_full());
    write(&psync, &file, 0, &[4; BLOCK]).expect("no growth");
    psync.remove(Path::new("/file")).expect("remove");
    write(&psync, &other, BLOCK as u64, &[1]).expect("fits again");
}

#[test]
fn rot_is_at_rest_and_stays() {
    let (disk, _psync, _file) = prepared(1);
    assert!(disk.flip_bit("/file", 5000));
    assert!(disk.corrupt("/file", 100..200));
    assert!(!disk.flip_bit("/file", 2 * BLOCK as u64));
    assert!(!disk.corrupt("/file", 0..u64::MAX) && !disk.corrupt("/none", 0..1));
    for _ in 0..2 {
        let found = content(&disk);
        assert_eq!(found[5000], 0);
        assert!(found[100..200].iter().all(|byte| *byte != 1));
        assert_eq!(found.iter().filter(|byte| **byte != 1).count(), 101);
        disk.restart();
    }
}

#[test]
fn batches_streams_and_threads_work_on_it() {
    let disk = SimDisk::new(3);
    let psync = disk.psync();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let psync = psync.clone();
            scope.spawn(move || {
                let file = create(&psync, &format!("/{thread}")).expect("create");
                let mut stream = psync.stream(8);
                for block in 0..50 {
                    stream.push(Request::write(&file, block * 100, Buffer::from_slice(&[thread; 100]), block));
                }
                stream.push(Request::flush(&file, 50));
                let tags: Vec<u64> = stream.map(|completion| completion.tag).collect();
                assert_eq!(tags, (0..51).collect::<Vec<u64>>());
            });
        }
    });
    psync.sync_directory(Path::new(ROOT)).expect("flush");
    disk.restart();
    for thread in 0..4_u8 {
        assert_eq!(disk.read_file(format!("/{thread}")), Some(vec![thread; 5000]));
    }
}

#[test]
fn a_garbled_read_says_nothing_and_is_over() {
    let (disk, psync, file) = prepared(1);
    write(&psync, &file, BLOCK as u64, &[2; BLOCK]).expect("write");
    let read = || {
        let buffers = psync.run_all(vec![Request::read(&file, 0, Buffer::zeroed(BLOCK), 0)]).expect("reads");
        buffers.into_iter().flatten().next().expect("a buffer").to_vec()
    };
    let before = disk.reads();
    disk.garble_read(1, Garble::Bit);
    assert_eq!(read(), [1; BLOCK]);
    assert_eq!(read().iter().map(|byte| (byte ^ 1).count_ones()).sum::<u32>(), 1);
    disk.garble_read(0, Garble::Elsewhere(BLOCK as i64));
    assert_eq!(read(), [2; BLOCK]);
    disk.garble_read(0, Garble::Elsewhere(-1));
    assert_eq!(read(), [0; BLOCK]);
    assert_eq!(read(), [1; BLOCK]);
    assert_eq!(disk.reads() - before, 5);
}

#[test]
fn a_full_disk_hides_no_other_failure_of_its_batch() {
    let told = |faults: [i32; 2]| {
        let (disk, psync, file) = prepared(1);
        (0..).zip(faults).for_each(|(count, errno)| disk.fail_operation(Fault::Write, count, errno));
        let writes = (0..3).map(|block| Request::write(&file, block * BLOCK as u64, Buffer::zeroed(BLOCK), block));
        let error = psync.run_all(writes.collect()).expect_err("two of three fail");
        assert_eq!(disk.faults_left(), 0);
        error.io().and_then(std::io::Error::raw_os_error)
    };
    assert_eq!(told([libc::ENOSPC, libc::EIO]), Some(libc::EIO));
    assert_eq!(told([libc::EIO, libc::ENOSPC]), Some(libc::EIO));
    assert_eq!(told([libc::ENOSPC, libc::ENOSPC]), Some(libc::ENOSPC));
    assert_eq!(told([libc::EROFS, libc::EIO]), Some(libc::EROFS), "the first of two that are told");
}
