//! What a database takes from its device: nothing, unless it is told to go by a profile that was measured.

use std::{fs, ops::ControlFlow, path::Path};

use braid::{
    CompactOptions, Database, DeviceProfile, ErrorKind, Options, ProfileSource, RequestKind, Structure, TableHints,
    TableOptions, TableStats,
};
use psync::probe::{self, RequestTimes};

use crate::whole::figure;

fn options() -> Options {
    Options::new().cache_bytes(1 << 20).write_buffer_bytes(1 << 20).segment_bytes(64 << 10)
}

fn open(path: &Path) -> Database {
    options().open(path).expect("opens")
}

/// Pages of a new leaf.
fn new_leaf_of(stats: &TableStats) -> u32 {
    u32::try_from(figure(stats, "new leaf") / 4096).expect("few pages")
}

fn new_leaf(db: &Database, name: &str, hints: &TableHints) -> u32 {
    let table = db.table_with(name, Structure::BTree, &TableOptions::new().hints(*hints)).expect("a table");
    new_leaf_of(&table.stats().expect("reads"))
}

/// A drive on which a request costs this much, and each of its pages that much more.
fn drive(request_us: f64, page_us: f64) -> DeviceProfile {
    let mut profile = DeviceProfile::default();
    for size in &mut profile.reads {
        let batched_us = request_us + page_us * size.pages as f64;
        (size.alone_us, size.batched_us) = (10.0 * batched_us, batched_us);
    }
    for size in &mut profile.writes {
        let batched_us = request_us + page_us * size.pages as f64;
        (size.alone_us, size.batched_us) = (10.0 * batched_us, batched_us);
    }
    profile
}

#[test]
fn the_same_options_give_the_same_leaves_and_nothing_is_measured() {
    let usual = TableHints::new();
    let leaves: Vec<u32> = (0..10)
        .map(|_| {
            let directory = tempfile::tempdir().expect("a directory");
            let leaf = new_leaf(&Options::new().open(directory.path()).expect("opens"), "t", &usual);
            let names: Vec<_> =
                fs::read_dir(directory.path()).expect("lists").map(|entry| entry.expect("reads").file_name()).collect();
            assert!(!names.iter().any(|name| name == "device.json"), "{names:?}");
            leaf
        })
        .collect();
    assert_eq!(leaves, [leaves[0]; 10]);
    assert!((2..=8).contains(&leaves[0]), "{leaves:?} pages");
    // More of the table than memory holds, or larger records: neither makes leaves that a lookup would read for long.
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(directory.path());
    for (name, records, bytes) in [("few", 100_000, 116), ("many", 1_000_000_000, 116), ("large", 10_000_000, 1024)] {
        let leaf = new_leaf(&db, name, &usual.records(records).record_bytes(bytes));
        assert!(leaf <= 16, "{name}: {leaf} pages");
    }
}

#[test]
fn a_profile_decides_on_requests_in_flight_and_leaves() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    for (best_depth, in_flight) in [(1, 32), (64, 64), (256, 256)] {
        let profile = DeviceProfile { best_depth, ..DeviceProfile::default() };
        assert_eq!(options().profile(profile).open(path).expect("opens").psync().pio_max(), in_flight);
    }
    let usual = TableHints::new().records(20_000_000).record_bytes(116);
    // Larger requests take as long as all the smaller ones in them: nothing is won by larger leaves but fewer of them.
    let db = Options::new().profile(drive(0.1, 10.0)).open(path).expect("opens");
    let dear = new_leaf(&db, "usual", &usual);
    assert!(dear <= 4, "{dear}");
    assert!(new_leaf(&db, "written", &usual.insert_share(1.0)) > dear);
    // It stays what it was created with.
    assert_eq!(new_leaf(&db, "written", &usual.insert_share(0.0)), new_leaf(&db, "written", &usual));
    drop(db);
    // Requests cost much and their pages next to nothing: leaves are larger.
    let db = Options::new().profile(drive(10.0, 0.1)).open(path).expect("opens");
    assert!(new_leaf(&db, "cheap pages", &usual) > dear);
    drop(db);
    assert!(new_leaf(&open(path), "written", &usual) > 1);
}

#[test]
fn a_database_goes_by_the_profile_that_was_saved_in_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    drop(open(path));
    let measured = DeviceProfile::measure(path).expect("measured");
    let saved = DeviceProfile { best_depth: 256, ..measured };
    fs::write(path.join("device.json"), serde_json::to_string(&saved).expect("JSON")).expect("written");
    assert_eq!(open(path).psync().pio_max(), 256);
    let mine = DeviceProfile { best_depth: 128, ..saved };
    assert_eq!(
        options().profile(mine).open(path).expect("opens").psync().pio_max(),
        128,
        "what the options say goes first"
    );
    fs::write(path.join("device.json"), "{").expect("written");
    assert_eq!(open(path).psync().pio_max(), 64, "a torn one counts for nothing");
}

#[test]
fn what_leaf_pages_says_goes_before_the_profile() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = options().leaf_pages(3).profile(drive(10.0, 0.1)).open(directory.path()).expect("opens");
    assert_eq!(new_leaf(&db, "t", &TableHints::new().insert_share(1.0)), 3);
}

#[test]
fn an_impossible_use_or_profile_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let wrong = DeviceProfile { read_us: -1.0, ..DeviceProfile::default() };
    let error = options().profile(wrong).open(directory.path()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let db = open(directory.path());
    let expected = TableOptions::new().hints(TableHints::new().insert_share(1.01));
    let error = db.table_with("t", Structure::BTree, &expected).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(db.tables().is_empty());
}

/// Leaves behind what requests took in a process that used the database: so many timings of each, one a minute, as long
/// as on a drive.
fn requests_took(path: &Path, profile: &DeviceProfile, timings: u32) {
    let times = RequestTimes::default();
    for minute in 0..timings.into() {
        for read in &profile.reads {
            times.note(minute, RequestKind::Read, read.pages, 1, read.alone_us, 1);
            times.note(minute, RequestKind::Read, read.pages, 64, read.batched_us, 64);
        }
        for write in &profile.writes {
            times.note(minute, RequestKind::Write, write.pages, 1, write.alone_us, 1);
            times.note(minute, RequestKind::Write, write.pages, 64, write.batched_us, 64);
        }
    }
    let backend = psync::Psync::new(None).expect("a backend").backend();
    probe::keep_times(path, backend, &times).expect("saved");
}

#[test]
fn nothing_that_was_learned_decides_on_anything_unasked() {
    // What a profile changes depends on how many operations come to a leaf at once.
    let options = || Options::new().write_buffer_bytes(64 << 20);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let usual = TableHints::new().records(20_000_000).record_bytes(116);
    let db = options().open(path).expect("opens");
    let before = new_leaf(&db, "before", &usual);
    let table = db.open_table("before").expect("there");
    (0..2000_u32).for_each(|key| table.put(key.to_be_bytes(), [7; 100]).map(drop).expect("writes"));
    drop(table);
    db.close().expect("closes");
    requests_took(path, &drive(10.0, 0.1), 100);

    let db = options().open(path).expect("opens");
    assert_eq!(new_leaf(&db, "after", &usual), before);
    assert_eq!(db.psync().pio_max(), 64);
    db.compact().expect("compacts");
    let stats = db.stats().expect("reads");
    assert_eq!(stats.device.source, ProfileSource::OrdinaryDrive);
    assert_eq!(stats.device.profile, DeviceProfile::default());
    assert_eq!(stats.device.unusable, None);
    let of_before = stats.tables.iter().find(|table| table.name == "before").expect("there");
    assert_eq!(new_leaf_of(of_before), before, "a compaction left it");
    // But it is shown, and what it would change.
    let seen: Vec<_> = stats.device.learned.figures.iter().filter(|figure| figure.is_enough()).collect();
    assert_eq!(seen.len(), 28);
    assert!(seen.iter().all(|figure| figure.timings >= 100 && figure.requests >= 100), "{seen:?}");
    let table = db.open_table("after").expect("there");
    assert_eq!(table.stats().expect("reads").settings_by_learned, None, "it was not asked for anything yet");
    (0..10_000_u32).for_each(|key| assert_eq!(table.get(key.to_be_bytes()).expect("reads"), None));
    let leaves = table.stats().expect("reads");
    assert!(leaves.settings_for_use.is_some() && leaves.settings_by_learned.is_some(), "{leaves:?}");
    drop((table, db));

    // Who asks for it gets it.
    let db = options().open(path).expect("opens");
    let learned = db.learned_profile().profile;
    drop(db);
    let db = options().profile(learned.clone()).open(path).expect("opens");
    assert!(new_leaf(&db, "asked", &usual) > before);
    drop(db);
    probe::save(path, &learned).expect("saved");
    let db = options().open(path).expect("opens");
    assert_eq!(db.stats().expect("reads").device.source, ProfileSource::Saved);
    let asked = new_leaf(&db, "saved", &usual);
    assert_eq!(asked, new_leaf(&db, "asked", &usual));
    assert!(asked > before);
    let mostly_written = CompactOptions::new().used_for(1.0, 0.0);
    db.open_table("before")
        .and_then(|table| table.compact_with(&mostly_written, &mut |_| ControlFlow::Continue(())))
        .expect("compacts");
    assert_eq!(new_leaf(&db, "before", &usual), 1, "it holds so little that all of it is cached");
    let error = db
        .compact_with(&CompactOptions::new().used_for(1.5, 0.0), &mut |_| ControlFlow::Continue(()))
        .expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn too_little_learned_is_shown_and_changes_no_figure() {
    let directory = tempfile::tempdir().expect("a directory");
    requests_took(directory.path(), &drive(10.0, 0.1), 1);
    let db = open(directory.path());
    let learned = db.learned_profile();
    assert_eq!(learned.profile, DeviceProfile::default());
    assert!(learned.figures.iter().all(|figure| figure.seen_us.is_some() && !figure.is_enough()));
    let table = db.table("t", Structure::BTree).expect("a table");
    assert_eq!(table.stats().expect("reads").settings_by_learned, None);
}

#[test]
fn a_learned_file_that_cannot_be_used_is_told_and_does_no_harm() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    requests_took(path, &drive(10.0, 0.1), 100);
    let file = path.join(probe::LEARNED_NAME);
    let sound = fs::read(&file).expect("reads");
    let changed = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 2;
        bytes
    };
    let cases = [(changed(8), "version 3"), (changed(50), "checksum"), (sound[..40].to_vec(), ""), (Vec::new(), "")];
    for (bytes, word) in cases {
        fs::write(&file, bytes).expect("writes");
        let db = open(path);
        let device = db.stats().expect("reads").device;
        let told = device.unusable.expect("told");
        assert!(told.contains(word) && told.contains("learned"), "{told}");
        assert!(!device.learned.is_any_enough());
        db.close().expect("closes");
    }
    fs::write(&file, &sound).expect("writes");
    for _ in 0..2 {
        let device = open(path).stats().expect("reads").device;
        assert_eq!(device.unusable, None);
        assert!(device.learned.figures.iter().all(|figure| figure.is_enough()), "it stays through openings");
    }
}

#[test]
fn what_a_process_left_that_was_killed_while_it_saved_is_no_foreign_file() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in [probe::LEARNED_SCRATCH_NAME, probe::PROFILE_SCRATCH_NAME] {
        fs::write(directory.path().join(name), b"BRDL").expect("writes");
    }
    open(directory.path()).close().expect("closes");
}

#[test]
fn nothing_that_a_damaged_database_took_is_kept_for_the_salvaged_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let db = open(&from);
    let table = db.table("t", Structure::BTree).expect("a table");
    (0..20_000_u32).for_each(|key| table.put(key.to_be_bytes(), [7; 100]).map(drop).expect("writes"));
    drop(table);
    db.close().expect("closes");
    let salvage = braid::salvage(&from, &to, options(), &mut |_| ()).expect("salvages");
    assert_eq!(salvage.tables.len(), 1);
    assert!(!to.join(probe::LEARNED_NAME).exists());
}

#[test]
fn statistics_do_not_look_at_the_path() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, moved) = (directory.path().join("db"), directory.path().join("moved"));
    let db = open(&path);
    let table = db.table("t", Structure::BTree).expect("a table");
    fs::rename(&path, &moved).expect("moved");
    db.stats().expect("reads");
    table.stats().expect("reads");
    fs::rename(&moved, &path).expect("moved back");
}

#[test]
fn what_was_learned_is_saved_when_a_checkpoint_returns() {
    let directory = tempfile::tempdir().expect("a directory");
    let db = open(directory.path());
    let table = db.table("t", Structure::BTree).expect("a table");
    (0..2000_u32).for_each(|key| table.put(key.to_be_bytes(), [7; 100]).map(drop).expect("writes"));
    db.drain().expect("applies");
    for key in 0..500_u32 {
        db.drop_caches();
        assert!(table.get(key.to_be_bytes()).expect("reads").is_some());
    }
    // Where nothing goes past the page cache, nothing is learned.
    let is_learned = db.learned_profile().figures.iter().any(|figure| figure.timings > 0);
    table.put("k", "v").expect("writes");
    db.checkpoint().expect("written");
    let names = || fs::read_dir(directory.path()).expect("lists").map(|entry| entry.expect("an entry").file_name());
    assert_eq!(names().any(|name| name == probe::LEARNED_NAME), is_learned);
    assert!(names().all(|name| name != probe::LEARNED_SCRATCH_NAME), "nothing is under way");
}
