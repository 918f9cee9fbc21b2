//! Salvage of a small database in which one place after the other is damaged, held against what the database had.
//!
//! 1. A database is made that has trees of several leaf sizes, appended leaves, documents, a load, rollbacks, a dropped
//!    table, and operations that wait in
//!    the log (`made`). It is closed, killed, or loses power.
//! 2. Every page of its data file and every sector of its other files is damaged in its turn: a flipped bit, zeros, or
//!    what belongs elsewhere.
//! 3. What salvage makes of it has to be right, pair by pair, but for what it says is lost; nothing may be there that
//!    never was; and a damaged
//!    page must not cost more than what it held (`judge`).

mod judge;
mod made;

use std::path::{Path, PathBuf};

use braid::{Database, Options, Salvage, Structure, salvage_on};
use judge::Judge;
use made::{End, Files, Made, disk_with};
use psync::sim::SimDisk;

const PAGE: usize = 4096;
const SECTOR: usize = 512;

fn options() -> Options {
    Options::new().background(false).cache_bytes(1 << 20).segment_bytes(64 << 10).leaf_pages(1)
}

/// Salvages what `files` hold.
fn salvaged(files: &Files) -> braid::Result<(Salvage, Database, SimDisk)> {
    let disk = disk_with(files);
    let psync = disk.psync();
    let report = salvage_on(&psync, Path::new("/db"), Path::new("/new"), options(), &mut |_| {})?;
    for (path, bytes) in files.iter().filter(|(path, _)| !path.ends_with("LOCK")) {
        assert!(disk.read_file(path).as_ref() == Some(bytes), "{} is as it was", path.display());
    }
    let database = options().open_on(psync, Path::new("/new"))?;
    Ok((report, database, disk))
}

/// What is done to a place.
#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    Zero,
    /// What is at another place.
    Swap,
}

const DAMAGES: [Damage; 3] = [Damage::Flip, Damage::Zero, Damage::Swap];

/// `files` with one place damaged; none where nothing changes by it.
fn damaged(files: &Files, path: &Path, at: usize, size: usize, damage: Damage) -> Option<Files> {
    let mut files = files.clone();
    let bytes = files.get_mut(path)?;
    let end = (at + size).min(bytes.len());
    let before = bytes[at..end].to_vec();
    match damage {
        Damage::Flip => bytes[at + 40.min(end - at - 1)] ^= 4,
        Damage::Zero => bytes[at..end].fill(0),
        Damage::Swap => {
            let other = if at == 0 { size } else { at - size };
            if other + size > bytes.len() || end - at < size {
                return None;
            }
            bytes.copy_within(other..other + size, at);
        }
    }
    (bytes[at..end] != before).then_some(files)
}

/// Damages each place of each file that holds something in its turn, in one way of several or in all.
fn sweep(made: &Made, all_ways: bool) {
    let judge = Judge::new(made);
    let mut cases = 0;
    for (path, bytes) in made.files.iter().filter(|(path, _)| !path.ends_with("LOCK")) {
        let size = if path.ends_with("data") { PAGE } else { SECTOR };
        for (number, at) in (0..bytes.len()).step_by(size).enumerate() {
            if bytes[at..].iter().take(size).all(|byte| *byte == 0) {
                continue;
            }
            for way in 0..if all_ways { DAMAGES.len() } else { 1 } {
                let damage = DAMAGES[(number + way) % DAMAGES.len()];
                let Some(files) = damaged(&made.files, path, at, size, damage) else { continue };
                let place = format!("{} at {at}: {damage:?}", path.display());
                let (report, database, _disk) = salvaged(&files).unwrap_or_else(|error| panic!("{place}: {error}"));
                let wrong = judge.check(&report, &database);
                let most = judge.most_lost(path, at, bytes);
                assert!(wrong <= most, "{place}: {wrong} keys are lost of at most {most}: {report:#?}");
                cases += 1;
            }
        }
    }
    assert!(cases > 200, "{cases} cases");
    println!("{cases} places");
}

#[test]
fn nothing_is_lost_of_what_is_whole() {
    for end in [End::Closed, End::Killed, End::PowerCut] {
        let made = Made::new(end);
        let (report, database, _disk) = salvaged(&made.files).expect("salvages");
        assert!(report.is_complete() && report.findings.is_empty(), "{end:?}: {report:#?}");
        assert_eq!(Judge::new(&made).check(&report, &database), 0);
        let names: Vec<_> = database.tables().into_iter().map(|table| table.name).collect();
        assert_eq!(names, made.tables.keys().cloned().collect::<Vec<_>>());
        assert_eq!(database.verify().expect("verifies").findings, [""; 0]);
    }
}

#[test]
fn any_damaged_place_of_a_closed_database_costs_what_was_there() {
    sweep(&Made::new(End::Closed), false);
}

#[test]
fn any_damaged_place_of_a_killed_database_costs_what_was_there() {
    sweep(&Made::new(End::Killed), false);
}

#[test]
#[ignore = "minutes"]
fn any_damage_of_any_place_costs_what_was_there() {
    for end in [End::Closed, End::Killed, End::PowerCut] {
        sweep(&Made::new(end), true);
    }
}

/// Everything but one file.
fn without(made: &Made, name: &str) -> Files {
    let mut files = made.files.clone();
    files.remove(Path::new(name)).expect("it is there");
    files
}

#[test]
fn a_database_without_its_superblock_is_found_again() {
    for end in [End::Closed, End::Killed] {
        let made = Made::new(end);
        let (report, database, _disk) = salvaged(&without(&made, "/db/superblock")).expect("salvages");
        Judge::new(&made).check(&report, &database);
        assert!(report.findings.iter().any(|finding| finding.contains("superblock")), "{report:#?}");
        for name in made.tables.keys() {
            assert!(database.open_table(name).is_ok(), "{name} is there by its name: {report:#?}");
        }
    }
}

#[test]
fn a_log_alone_gives_what_it_has() {
    let made = Made::new(End::Killed);
    let (report, database, _disk) = salvaged(&without(&made, "/db/data")).expect("salvages");
    Judge::new(&made).check(&report, &database);
    assert!(!report.is_complete(), "{report:#?}");
}

#[test]
fn nodes_alone_give_their_tables() {
    for end in [End::Closed, End::Killed] {
        let made = Made::new(end);
        let mut files = made.files.clone();
        files.retain(|path, _| ["/db/node", "/db/doc", "/db/LOCK"].iter().any(|kept| path.starts_with(kept)));
        let (report, database, _disk) = salvaged(&files).expect("salvages");
        Judge::new(&made).check(&report, &database);
        assert!(!report.is_complete(), "{report:#?}");
        let names: Vec<_> = report.tables.iter().map(|told| made.names[&told.id].as_str()).collect();
        assert_eq!(names, ["loaded", "nodes", "back", "forth", "swept"]);
        for (told, name) in report.tables.iter().zip(names) {
            let table = database.open_table(&told.name).expect("it is there");
            assert!(!told.is_name_known && told.lost.is_empty(), "{told:#?}");
            // Deletes of ranges stood in the image, and what was in the log alone is gone with it.
            let is_newest =
                |key: &Vec<u8>, (_, value): &(u64, Option<Vec<u8>>)| table.get(key).expect("read") == *value;
            let newest =
                made.tables[name].iter().filter(|(key, versions)| is_newest(key, versions.last().expect("one")));
            let (right, all) = (newest.count(), made.tables[name].len());
            assert!(right + 25 >= all, "{end:?}: {right} of {all} keys of {name} are as they were");
        }
    }
}

#[test]
fn a_commit_header_that_does_not_check_leads_to_the_one_before() {
    let made = Made::new(End::Closed);
    let mut files = made.files.clone();
    files.retain(|path, _| ["/db/node", "/db/doc", "/db/LOCK"].iter().any(|kept| path.starts_with(kept)));
    let (whole, ..) = salvaged(&files).expect("salvages");
    let place = |report: &Salvage| -> (PathBuf, usize) {
        let mut found = report.findings.iter().filter_map(|finding| finding.split_once("newest version but "));
        let (_, place) = found.next_back().expect("it says where the header is");
        let (path, at) = place.split_once(" at byte ").expect("a file and an offset");
        (PathBuf::from(path), at.parse().expect("a number"))
    };
    let (path, at) = place(&whole);
    files.get_mut(&path).expect("the file")[at + 60] ^= 1;
    let (report, database, _disk) = salvaged(&files).expect("salvages");
    Judge::new(&made).check(&report, &database);
    let before = place(&report);
    assert!(before.0 == path && before.1 < at, "{before:?}, and {at} was damaged");
}

#[test]
fn nothing_to_begin_with_is_an_error() {
    let files = Files::from([(PathBuf::from("/db/data"), vec![7; PAGE])]);
    let error = salvaged(&files).map(drop).expect_err("there is nothing");
    assert_eq!(error.kind(), braid::ErrorKind::Corrupt, "{error}");
    let error = salvage_on(&SimDisk::new(1).psync(), Path::new("/db"), Path::new("/new"), options(), &mut |_| {});
    assert_eq!(error.err().map(|error| error.kind()), Some(braid::ErrorKind::NotFound));
}

#[test]
fn a_database_that_is_open_or_a_directory_in_use_is_left_alone() {
    let disk = SimDisk::new(1);
    let database = options().open_on(disk.psync(), Path::new("/db")).expect("opens");
    database.table("t", Structure::BTree).and_then(|table| table.put("k", "v")).expect("put");
    let run = |to: &str| salvage_on(&disk.psync(), Path::new("/db"), Path::new(to), options(), &mut |_| {});
    assert_eq!(run("/new").err().map(|error| error.kind()), Some(braid::ErrorKind::Locked));
    database.close().expect("closes");
    for to in ["/db", "/db/inside"] {
        assert_eq!(run(to).err().map(|error| error.kind()), Some(braid::ErrorKind::InvalidInput), "{to}");
    }
    assert!(run("/new").expect("salvages").is_complete());
    assert_eq!(run("/new").err().map(|error| error.kind()), Some(braid::ErrorKind::InvalidInput), "it is not new");
}
