//! What users of a paged file rely on: states, growth, a full disk, damage, threads.

use std::path::Path;
use std::sync::Arc;

use psync::sim::{Fault, SimDisk};
use psync::{Buffer, Psync, Request};
use space::{
    AllocatorImage, Class, Error, Extent, FileDamage, FileStore, GROWTH_BYTES_MIN, PAGE, PageId, PagedFile,
    RESERVE_PAGES_MIN, StreamKind,
};

const EIO: i32 = 5;

fn simulated(seed: u64) -> (SimDisk, FileStore) {
    let disk = SimDisk::new(seed);
    let store = FileStore::open(disk.psync(), Path::new("/db"), false).expect("opens");
    (disk, store)
}

fn extent(page: u64, pages: u32) -> Extent {
    Extent::new(PageId(page), pages)
}

#[test]
fn works_on_a_real_file() {
    let directory = tempfile::tempdir().expect("directory");
    let psync = Psync::new(None).expect("a backend");
    let store = FileStore::open(psync.clone(), &directory.path().join("db"), false).expect("opens");
    let file = PagedFile::create(&store, "data").expect("creates");
    let extents = file.allocate_many(100, 4, Class::Normal).expect("room");
    // A batch on a fresh file is one sequence, and page 0 is not in it.
    assert!(extents.windows(2).all(|pair| pair[0].end() == pair[1].page));
    assert_eq!(extents[0].page, PageId(1));
    let total = file.stats().total_pages;
    assert_eq!(file.file().len().expect("length"), total * PAGE as u64);

    let page = Buffer::from_slice(&[7; PAGE]);
    let write = Request::write(file.file(), extents[9].offset(), page, 0);
    store.psync().run_all(vec![write, Request::flush(file.file(), 1)]).expect("written");
    store.sync_directories().expect("synced");
    let image = file.image();
    drop(file);
    let file = PagedFile::open(&store, "data", (&image).into()).expect("opens");
    assert_eq!(file.image(), image);
    let read = |extent: Extent| {
        let read = Request::read(file.file(), extent.offset(), Buffer::zeroed(PAGE), 0);
        let read = psync.run_all(vec![read]).expect("read").pop().flatten();
        read.expect("a read gives its buffer back")
    };
    assert!(read(extents[9]).iter().all(|byte| *byte == 7));
    assert!(read(extents[10]).iter().all(|byte| *byte == 0));
    assert!(store.counters(StreamKind::Node).snapshot().written_bytes >= total * PAGE as u64);
}

#[test]
fn for_a_request_that_fills_its_pages_room_is_only_reserved() {
    let directory = tempfile::tempdir().expect("directory");
    let (simulated, store) = simulated(9);
    let real = FileStore::open(Psync::new(None).expect("a backend"), &directory.path().join("db"), false);
    for store in [store, real.expect("opens")] {
        let file = PagedFile::create(&store, "data").expect("creates");
        let before = store.counters(StreamKind::Node).snapshot().written_bytes;
        let extents = file.allocate_many(500, 4, Class::Normal).expect("room");
        assert!(extents.windows(2).all(|pair| pair[0].end() == pair[1].page), "one piece");
        assert_eq!(store.counters(StreamKind::Node).snapshot().written_bytes, before, "nothing is written twice");
        let total = file.stats().total_pages;
        assert_eq!(file.file().len().expect("length"), total * PAGE as u64);
        let read = Request::read(file.file(), extents[499].offset(), Buffer::zeroed(PAGE), 0);
        let read = store.psync().run_all(vec![read]).expect("read").pop().flatten();
        assert!(read.expect("a read gives its buffer back").iter().all(|byte| *byte == 0));
        // Small requests get space that was written.
        file.allocate_many(300, 1, Class::Normal).expect("room");
        assert!(store.counters(StreamKind::Node).snapshot().written_bytes > before);
    }
    let file_of = |pages: u64| {
        let store = FileStore::open(simulated.psync(), Path::new("/other"), false).expect("opens");
        simulated.set_capacity(None);
        let file = PagedFile::create(&store, "data").expect("creates");
        let used: u64 =
            simulated.files().iter().filter_map(|path| simulated.read_file(path)).map(|file| file.len() as u64).sum();
        simulated.set_capacity(Some(used + pages * PAGE as u64));
        file
    };
    let file = file_of(1000);
    let total = file.stats().total_pages;
    assert!(
        matches!(file.allocate_many(500, 4, Class::Normal), Err(Error::Full { .. })),
        "the disk keeps room for all"
    );
    assert_eq!((file.stats().total_pages, file.file().len().expect("length")), (total, total * PAGE as u64));
}

#[test]
fn growth_is_ahead_and_written() {
    let (_, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    file.allocate(1, Class::Normal).expect("room");
    let first = file.stats();
    // The reserve on top of what was asked for is more than the least growth.
    assert_eq!(first.total_pages, 1 + 1 + RESERVE_PAGES_MIN);
    assert_eq!(first.free_pages, RESERVE_PAGES_MIN);
    file.allocate(1, Class::Normal).expect("room");
    let grown = (file.stats().total_pages - first.total_pages) * PAGE as u64;
    assert!(grown >= GROWTH_BYTES_MIN);
    let written = || store.counters(StreamKind::Node).snapshot().written_bytes;
    assert_eq!(written(), file.stats().total_pages * PAGE as u64);
    let before = written();
    // One request for more than any chunk is met at once, in one piece.
    let large = file.allocate(20_000, Class::Normal).expect("room");
    assert_eq!((large.pages, written()), (20_000, before));
}

#[test]
fn pages_change_state_in_one_order_only() {
    let (_, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    let used = file.allocate(8, Class::Normal).expect("room");
    let part = extent(used.page.0 + 2, 3);
    let free = extent(used.end().0, 1);

    let fails = |outcome: space::Result<()>, expected: &str, found: &str| {
        let error = outcome.expect_err("refused");
        let Error::State { expected: e, found: f, .. } = &error else {
            panic!("{error}");
        };
        assert_eq!((*e, *f), (expected, found), "{error}");
    };
    let stats = file.stats();
    fails(file.release(&[part]), "retired", "allocated");
    fails(file.retire(&[free]), "allocated", "free");
    fails(file.retire(&[part, part]), "pages of the file", "named twice");
    fails(file.retire(&[used, part]), "pages of the file", "named twice");
    fails(file.retire(&[extent(0, 1)]), "pages of the file", "the header page");
    fails(file.retire(&[extent(5, 0)]), "pages of the file", "empty");
    fails(file.retire(&[extent(u64::MAX, 7)]), "pages of the file", "past the end of the file");
    fails(file.retire(&[extent(u64::MAX - 1, u32::MAX)]), "pages of the file", "past the end of the file");
    // One wrong extent, and nothing is changed for the right one.
    fails(file.retire(&[part, free]), "allocated", "free");
    assert_eq!(file.stats(), stats);

    file.retire(&[part]).expect("allocated");
    fails(file.retire(&[used]), "allocated", "retired");
    fails(file.discard(&[part]), "allocated", "retired");
    fails(file.replay_allocate(&[used]), "free", "allocated");
    file.release(&[extent(part.page.0, 1)]).expect("retired");
    fails(file.release(&[part]), "retired", "free");
    assert_eq!(file.stats().retired_pages, 2);
}

#[test]
fn impossible_sizes_are_refused() {
    let (_, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    for (count, pages) in [(usize::MAX, u32::MAX), (1 << 40, u32::MAX), (1, 0)] {
        let error = file.allocate_many(count, pages, Class::Reclaim).expect_err("refused");
        assert!(matches!(error, Error::Size { .. }), "{error}");
    }
    assert_eq!(file.allocate_many(0, 5, Class::Normal).expect("nothing"), []);
    assert_eq!(file.stats().total_pages, 1);
}

#[test]
fn fragments_serve_a_batch_before_the_file_grows() {
    let (_, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    let all = file.allocate_many(2000, 1, Class::Normal).expect("room");
    let holes: Vec<Extent> = all.iter().copied().step_by(2).take(900).collect();
    file.retire(&holes).expect("allocated");
    file.release(&holes).expect("retired");
    let total = file.stats().total_pages;
    let taken = file.allocate_many(800, 1, Class::Normal).expect("room");
    assert_eq!(file.stats().total_pages, total);
    assert!(taken.is_sorted());
    // No hole is wide enough for these: the room at the end is.
    let wide = file.allocate_many(2, 3, Class::Reclaim).expect("room");
    assert!(wide[0].page > all[1999].page && wide[0].end() == wide[1].page);
}

#[test]
fn a_full_disk_leaves_the_reserve_to_deletes_and_recovers() {
    let (disk, store) = simulated(1);
    disk.set_capacity(Some(3 << 20));
    let file = PagedFile::create(&store, "data").expect("creates");
    let mut used = Vec::new();
    let error = loop {
        match file.allocate(2, Class::Normal) {
            Ok(extent) => used.push(extent),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { pages: 2, .. }) && error.is_disk_full(), "{error}");
    let stats = file.stats();
    assert!((stats.reserve_pages..stats.reserve_pages + 4).contains(&stats.free_pages), "{stats:?}");
    assert_eq!(stats.reserve_pages, 256);
    // The last bytes of the disk are used, but not by growth that did not succeed.
    assert_eq!(file.file().len().expect("length"), stats.total_pages * PAGE as u64);
    assert!(stats.total_pages * PAGE as u64 > (3 << 20) - 8 * PAGE as u64);

    // A delete: new pages first, old ones back later.
    let shadow = file.allocate(2, Class::Reclaim).expect("the reserve");
    file.retire(&used[..20]).expect("allocated");
    file.release(&used[..20]).expect("retired");
    file.allocate(2, Class::Normal).expect("room again");
    // The reserve has an end, too.
    let error = file.allocate(4096, Class::Reclaim).expect_err("full");
    assert!(matches!(error, Error::Full { reserve_pages: 0, .. }), "{error}");
    // With room on the disk the same request succeeds.
    disk.set_capacity(None);
    file.allocate(4096, Class::Normal).expect("room");
    file.discard(&[shadow]).expect("allocated");
}

#[test]
fn a_small_file_keeps_room_to_write_anew_what_it_holds() {
    for pages in (30..700).step_by(7) {
        let (disk, store) = simulated(1);
        disk.set_capacity(Some(pages * PAGE as u64));
        let file = PagedFile::create(&store, "data").expect("creates");
        let mut used = Vec::new();
        while let Ok(extent) = file.allocate(2, Class::Normal) {
            used.push(extent);
        }
        let stats = file.stats();
        assert!(stats.total_pages + 4 > pages, "the disk is full: {stats:?}");
        assert!(stats.free_pages >= stats.reserve_pages, "{stats:?}");
        assert!(stats.reserve_pages >= (stats.total_pages / 2).min(256), "{stats:?}");
        // It may be in a few runs of odd lengths.
        let anew = used.len().min(usize::try_from(stats.reserve_pages / 2).expect("small")).saturating_sub(2);
        file.allocate_many(anew, 2, Class::Reclaim).expect("the reserve");
        assert!(anew + 2 >= used.len() || pages >= 512, "{anew} of {} extents", used.len());
    }
}

#[test]
fn a_file_is_short_until_others_may_fill_the_disk() {
    let (disk, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    file.allocate(2, Class::Normal).expect("room");
    assert!(file.stats().total_pages < 40, "{:?}", file.stats());
    disk.set_capacity(Some(1 << 20));
    let before = file.stats();
    assert!(file.make_reserve().expect_err("no room").is_disk_full());
    assert_eq!(file.stats(), before);
    disk.set_capacity(None);
    file.make_reserve().expect("room");
    disk.set_capacity(Some(0));
    file.allocate(250, Class::Normal).expect("as much as is kept");
    file.allocate(250, Class::Reclaim).expect("what is kept");
    file.make_reserve().expect("it is not short");
}

#[test]
fn the_reserve_serves_leaves_however_fragmented_the_rest_is() {
    let (disk, store) = simulated(1);
    disk.set_capacity(Some(16 << 20));
    let file = PagedFile::create(&store, "data").expect("creates");
    let mut used = Vec::new();
    while let Ok(extent) = file.allocate(1, Class::Normal) {
        used.push(extent);
    }
    // A thousand holes of one page, and the reserve.
    let holes: Vec<Extent> = used.iter().copied().step_by(2).take(1000).collect();
    file.retire(&holes).expect("allocated");
    file.release(&holes).expect("retired");
    let error = file.allocate(4, Class::Normal).expect_err("no hole is as wide");
    assert!(matches!(error, Error::Full { .. }), "{error}");
    file.allocate_many(1000, 1, Class::Normal).expect("the holes");
    file.allocate(1, Class::Normal).expect_err("only the reserve is left");
    file.allocate(100, Class::Reclaim).expect("the reserve is in one piece");
    // What deletes give back goes to the reserve first.
    file.retire(&used[2000..2100]).expect("allocated");
    file.release(&used[2000..2100]).expect("retired");
    file.allocate(1, Class::Normal).expect_err("only the reserve is left");
    file.retire(&used[2100..2200]).expect("allocated");
    file.release(&used[2100..2200]).expect("retired");
    file.allocate_many(100, 1, Class::Normal).expect("the rest");
    let stats = file.stats();
    assert_eq!(stats.free_pages, stats.reserve_pages);
}

#[test]
fn the_reserve_is_made_of_the_longest_runs() {
    let (disk, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    let used = file.allocate_many(2000, 1, Class::Normal).expect("room");
    let holes: Vec<Extent> = used.iter().copied().step_by(2).collect();
    file.retire(&holes).expect("allocated");
    // The next life finds single pages low in the file, and one long run at its end.
    let file = PagedFile::open(&store, "data", (&file.image()).into()).expect("opens");
    disk.set_capacity(Some(0));
    while file.allocate(1, Class::Normal).is_ok() {}
    let stats = file.stats();
    assert_eq!(stats.free_pages, stats.reserve_pages);
    let reserve = u32::try_from(stats.reserve_pages).expect("small");
    file.allocate(reserve, Class::Reclaim).expect("one run");
}

#[test]
fn replay_takes_pages_wherever_they_are_free() {
    let (_, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    let used = file.allocate(1, Class::Normal).expect("room");
    // All that is free now is set aside.
    let other = extent(used.end().0 + 10, 5);
    file.replay_allocate(&[other]).expect("free");
    assert!(file.audit(&[used, other]).is_clean());
    file.replay_allocate(&[other]).expect_err("taken");
}

#[test]
fn growth_near_the_end_of_the_disk_is_not_tried_in_full_every_time() {
    let (disk, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    file.allocate(40_000, Class::Normal).expect("room");
    let length = file.file().len().expect("length");
    // Room for a good part of the next growth ahead, but not for all of it.
    let room = 4_000 * PAGE as u64;
    disk.set_capacity(Some(length + room));
    let before = store.counters(StreamKind::Node).snapshot().written_bytes;
    let allocated = std::iter::from_fn(|| file.allocate(1, Class::Normal).ok()).count();
    assert!(allocated > 3_900, "{allocated}");
    let written = store.counters(StreamKind::Node).snapshot().written_bytes - before;
    assert!(written < 6 * room, "{written} bytes were written to fill {room}");
}

#[test]
fn growth_that_fails_halfway_leaves_nothing_behind() {
    // Space that is reserved, and space that takes some writes, of which the first succeeds.
    for (full, pages) in [(true, 5000), (false, 5000), (true, 511), (false, 511)] {
        let (disk, store) = simulated(1);
        let file = PagedFile::create(&store, "data").expect("creates");
        file.allocate(1, Class::Normal).expect("room");
        let before = (file.stats(), file.file().len().expect("length"));
        if full {
            disk.set_capacity(Some(before.1 + (1 << 20)));
        } else {
            disk.fail_operation(Fault::Growth, u64::from(pages == 511), EIO);
        }
        let error = file.allocate(pages, Class::Normal).expect_err("fails");
        assert_eq!(error.is_disk_full(), full, "{error}");
        assert_eq!((file.stats(), file.file().len().expect("length")), before);
        disk.set_capacity(None);
        file.allocate(pages, Class::Normal).expect("room");
    }
}

#[test]
fn a_smaller_growth_is_tried_where_the_disk_has_no_room_for_more() {
    let (disk, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    file.allocate(10_000, Class::Normal).expect("room");
    let length = file.file().len().expect("length");
    // Growing by an eighth would be 1250 pages.
    disk.set_capacity(Some(length + 100 * PAGE as u64));
    file.allocate(90, Class::Normal).expect("room for this");
    let grown = file.file().len().expect("length") - length;
    assert!(grown >= 90 * PAGE as u64 && grown <= 100 * PAGE as u64, "{grown}");
}

#[test]
fn a_short_or_foreign_file_is_refused() {
    let (disk, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    let image = file.image();
    let longer = AllocatorImage { total_pages: 2, free: vec![extent(1, 1)], holes: Vec::new() };
    let error = PagedFile::open(&store, "data", (&longer).into()).expect_err("short");
    assert!(matches!(error, Error::Corrupt(FileDamage { what: "length", .. })), "{error}");
    assert!(error.to_string().contains("/db/data"), "{error}");

    disk.flip_bit("/db/data", 3);
    let error = PagedFile::open(&store, "data", (&image).into()).expect_err("foreign");
    assert!(matches!(error, Error::Corrupt(FileDamage { what: "magic", .. })), "{error}");
    disk.flip_bit("/db/data", 3);
    disk.flip_bit("/db/data", 4000);
    let error = PagedFile::open(&store, "data", (&image).into()).expect_err("damaged");
    assert!(matches!(error, Error::Corrupt(FileDamage { what: "checksum", .. })), "{error}");
}

#[test]
fn replay_beyond_the_image_follows_the_file_and_not_further() {
    let (_, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    let image = file.image();
    let used = file.allocate_many(3, 50, Class::Normal).expect("room");
    let end = file.stats().total_pages;
    let file = PagedFile::open(&store, "data", (&image).into()).expect("opens");
    assert_eq!(file.stats().total_pages, 1);
    let error = file.replay_allocate(&[extent(end - 1, 2)]).expect_err("past the file");
    assert!(matches!(error, Error::State { found: "past the end of the file", .. }), "{error}");
    assert_eq!(file.stats().total_pages, 1);
    file.replay_allocate(&used[1..]).expect("in the file");
    // What the log does not tell of, before and between, is free.
    assert_eq!(file.stats().free_pages, 50);
    file.replay_retire(&used[2..]).expect("allocated");
    // Released and taken again by the life that wrote the log.
    file.replay_allocate(&[extent(used[2].page.0, 10), used[0]]).expect("retired and free");
    file.release_all_retired();
    assert!(file.audit(&[used[0], used[1], extent(used[2].page.0, 10)]).is_clean());
}

#[test]
fn a_crash_during_growth_leaves_what_the_image_needs() {
    for seed in 0..40 {
        let (disk, store) = simulated(seed);
        let file = PagedFile::create(&store, "data").expect("creates");
        file.allocate_many(30, 3, Class::Normal).expect("room");
        store.psync().run_all(vec![Request::flush(file.file(), 0)]).expect("flushed");
        store.sync_directories().expect("synced");
        let image = file.image();
        disk.crash_after(seed % 10);
        let pages = [300, 3000][usize::from(seed.is_multiple_of(2))];
        (0..40).find_map(|_| file.allocate(pages, Class::Normal).err()).expect("the power is gone");
        disk.restart();
        let store = FileStore::open(disk.psync(), Path::new("/db"), false).expect("opens");
        let file = PagedFile::open(&store, "data", (&image).into()).expect("opens");
        assert_eq!(file.image(), image);
        file.allocate(3000, Class::Normal).expect("grows over what is left there");
        assert!(file.file().len().expect("length") >= file.stats().total_pages * PAGE as u64);
    }
}

#[test]
fn a_read_only_store_never_writes() {
    let (disk, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    file.allocate(1, Class::Normal).expect("room");
    let image = file.image();
    let operations = disk.operations();
    let store = FileStore::open(disk.psync(), Path::new("/db"), true).expect("opens");
    let file = PagedFile::open(&store, "data", (&image).into()).expect("opens");
    for error in [
        file.allocate(1, Class::Reclaim).expect_err("read-only"),
        PagedFile::create(&store, "other").expect_err("read-only"),
        store.release("data").expect_err("read-only"),
    ] {
        assert!(matches!(error, Error::ReadOnly { .. }), "{error}");
    }
    assert_eq!(disk.operations(), operations);
}

#[test]
fn threads_never_get_the_same_page() {
    let (_, store) = simulated(1);
    let file = Arc::new(PagedFile::create(&store, "data").expect("creates"));
    let mut used: Vec<Extent> = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..5_u32)
            .map(|thread| {
                let file = Arc::clone(&file);
                scope.spawn(move || {
                    let mut held = Vec::new();
                    for round in 0..60 {
                        held.extend(file.allocate_many(7, thread, Class::Normal).expect("room"));
                        if round % 3 == 0 {
                            let gone: Vec<_> = held.drain(..held.len() / 2).collect();
                            file.retire(&gone).expect("held");
                            file.release(&gone).expect("retired");
                        }
                    }
                    held
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(file.audit(&used).is_clean());
    used.pop();
    assert!(!file.audit(&used).is_clean());
}

/// Pages that are written, so that the disk has to have room for them.
fn fill(store: &FileStore, file: &PagedFile, extents: &[Extent]) -> psync::Result<()> {
    let write =
        |extent: &Extent| Request::write(file.file(), extent.offset(), Buffer::zeroed(extent.pages as usize * PAGE), 0);
    store.psync().run_all(extents.iter().map(write).collect()).map(drop)
}

#[test]
fn what_is_free_goes_back_to_the_disk_behind_an_image_that_knows_it() {
    let (disk, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    let extents = file.allocate_many(64, 128, Class::Normal).expect("room");
    fill(&store, &file, &extents).expect("room");
    store.psync().run_all(vec![Request::flush(file.file(), 0)]).expect("flushed");
    store.sync_directories().expect("synced");
    let full = file.file().len().expect("a length");
    // Half of what is in the middle, and all that is behind.
    let kept: Vec<_> = (0..32).step_by(2).map(|number| extents[number]).collect();
    let gone: Vec<_> = extents.iter().copied().filter(|extent| !kept.contains(extent)).collect();
    file.discard(&gone).expect("allocated");
    file.leave_out();
    let image = file.image();
    // What stays in reserve is in one run.
    let end = kept[15].end().0 + file.stats().reserve_pages;
    assert_eq!(image.total_pages, end);
    assert!(image.holes.len() > 10, "{:?}", image.holes);
    assert_eq!(file.file().len().expect("a length"), full, "nothing is done to the file yet");
    file.give_back();
    assert_eq!(file.file().len().expect("a length"), end * PAGE as u64);
    let stats = file.stats();
    assert!(stats.free_pages >= stats.reserve_pages && stats.free_pages < stats.reserve_pages + 512, "{stats:?}");
    assert!(file.audit(&kept).is_clean());

    // On a disk that has no more than that, who wants pages is told before he writes.
    let room = (stats.total_pages - stats.hole_pages) * PAGE as u64;
    disk.set_capacity(Some(room));
    assert!(file.allocate_many(8, 128, Class::Normal).expect_err("full").is_disk_full());
    disk.set_capacity(Some(room + (8 * 128 * PAGE) as u64));
    let again = file.allocate_many(8, 128, Class::Normal).expect("holes are filled");
    assert!(again.iter().all(|extent| extent.end().0 <= end), "the file need not grow: {again:?}");
    fill(&store, &file, &again).expect("there is room");
    drop(file);

    let file = PagedFile::open(&store, "data", (&image).into()).expect("opens");
    assert_eq!(file.image(), image);
    file.replay_allocate(&again).expect("holes of the image");
    assert!(file.audit(&[kept, again].concat()).is_clean());
}

#[test]
fn what_is_used_again_before_it_went_back_stays() {
    let (_, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    let extents = file.allocate_many(64, 128, Class::Normal).expect("room");
    file.discard(&extents[..62]).expect("allocated");
    file.leave_out();
    let again = file.allocate_many(60, 128, Class::Normal).expect("room");
    let pattern = Buffer::from_slice(&[7; PAGE]);
    let write = Request::write(file.file(), again[30].offset(), pattern, 0);
    store.psync().run_all(vec![write]).expect("written");
    file.give_back();
    let read = Request::read(file.file(), again[30].offset(), Buffer::zeroed(PAGE), 0);
    let found = store.psync().run_all(vec![read]).expect("read").remove(0).expect("a buffer");
    assert_eq!(*found, [7; PAGE]);
}

#[test]
fn a_request_below_a_page_takes_what_is_there_and_nothing_else() {
    let (_, store) = simulated(1);
    let file = PagedFile::create(&store, "data").expect("creates");
    let extents = file.allocate_many(64, 16, Class::Normal).expect("room");
    file.discard(&extents[10..12]).expect("allocated");
    file.discard(&extents[40..60]).expect("allocated");
    let ceiling = extents[20].page;
    let below = |count, pages| file.allocate_below(count, pages, Class::Normal, ceiling).ok();
    assert_eq!(below(1, 33), None);
    assert_eq!(below(1, 24), Some(vec![extent(extents[10].page.0, 24)]));
    assert_eq!(below(8, 1).map(|extents| extents.len()), Some(8));
    assert_eq!(below(1, 1), None);
}
