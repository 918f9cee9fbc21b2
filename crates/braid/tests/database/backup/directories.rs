//! Backups in directories, and restores into them.

use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use braid::{BackupKind, Database, Error, ErrorKind, Options, RestoreProgress, Structure};
use tempfile::TempDir;

use super::{on, options, table, tables};
use crate::whole::check_whole;

fn go_on(_: RestoreProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

struct Place {
    home: TempDir,
    db: Database,
}

impl Place {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let db = options().retain_log_bytes(1 << 30).open(home.path().join("db")).expect("opens");
        table(&db, Structure::BTree, "t").put("a", "1").expect("puts");
        Self { home, db }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn backup(&self, kind: BackupKind) -> braid::Result<braid::BackupSummary> {
        self.db.begin_backup()?.write_to(self.path("backups"), kind, &mut on)
    }

    fn names(&self, of: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(of)).expect("lists").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    #[track_caller]
    fn assert_restores(&self, from: &Path) {
        let to = self.path("again");
        options().restore(from, &to, &mut go_on).expect("restores");
        let again = options().open(&to).expect("opens");
        check_whole(&again);
        assert_eq!(tables(&again), tables(&self.db));
        again.close().expect("closes");
        assert!(!self.path("again.restoring").exists());
        fs::remove_dir_all(&to).expect("removes");
    }
}

#[test]
fn files_of_a_directory_are_numbered_and_the_newest_chain_is_restored() {
    let place = Place::new();
    let error = place.backup(BackupKind::Incremental).expect_err("there is none to continue");
    assert!(matches!(error, Error::NoBackup { .. }) && error.kind() == ErrorKind::NotFound, "{error}");
    let first = place.backup(BackupKind::IncrementalOrFull).expect("backs up");
    assert!(!first.incremental);
    let backups = place.path("backups");
    assert_eq!(first.file, Some(backups.join("000001.full")));
    assert_eq!(fs::metadata(backups.join("000001.full")).expect("it is there").len(), first.bytes);
    place.assert_restores(&backups);
    for number in 2..5_u8 {
        table(&place.db, Structure::BTree, "t").put([number], vec![number; 3000]).expect("puts");
        let summary = place.backup(BackupKind::IncrementalOrFull).expect("backs up");
        assert_eq!((summary.incremental, summary.pairs, summary.changes), (true, 0, 1));
        place.assert_restores(&backups);
    }
    table(&place.db, Structure::BTree, "t").delete("a").expect("deletes");
    place.db.backup(&backups).expect("backs up");
    table(&place.db, Structure::BTree, "t").put("b", "2").expect("puts");
    place.backup(BackupKind::Incremental).expect("backs up");
    let files = [
        "000001.full",
        "000002.incremental",
        "000003.incremental",
        "000004.incremental",
        "000005.full",
        "000006.incremental",
        "LOCK",
    ];
    assert_eq!(place.names("backups"), files);
    place.assert_restores(&backups);

    // A file by itself, and files one behind the other.
    let one = fs::read(backups.join("000005.full")).expect("reads");
    let two = fs::read(backups.join("000006.incremental")).expect("reads");
    fs::write(place.path("both"), [one, two].concat()).expect("writes");
    place.assert_restores(&place.path("both"));

    // A file that is missing from the chain.
    fs::remove_file(backups.join("000005.full")).expect("removes");
    let error = options().restore(&backups, place.path("again"), &mut go_on).expect_err("it is refused");
    assert!(matches!(&error, Error::BackupChain { file, .. } if file.ends_with("000006.incremental")), "{error}");
    assert!(!place.path("again").exists() && !place.path("again.restoring").exists());
}

#[test]
fn a_backup_that_did_not_end_is_none() {
    let place = Place::new();
    for number in 0..2000_u32 {
        table(&place.db, Structure::BTree, "t")
            .put_with(number.to_be_bytes(), [3; 1000], braid::Durability::Os)
            .expect("puts");
    }
    let backups = place.path("backups");
    let mut left = 4;
    let stopped = place.db.begin_backup().expect("begins").write_to(&backups, BackupKind::Full, &mut |_| {
        left -= 1;
        if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
    assert_eq!(place.names("backups"), ["LOCK"]);

    // As a process that was killed leaves it.
    place.backup(BackupKind::Full).expect("backs up");
    fs::rename(backups.join("000001.full"), backups.join("000001.full.unfinished")).expect("renames");
    let error = options().restore(&backups, place.path("again"), &mut go_on).expect_err("there is no backup");
    assert!(matches!(error, Error::NoBackup { .. }), "{error}");
    place.backup(BackupKind::IncrementalOrFull).expect("backs up");
    assert_eq!(place.names("backups"), ["000001.full", "LOCK"]);
    place.assert_restores(&backups);
}

#[test]
fn one_backup_at_a_time_goes_into_a_directory_and_none_into_a_database() {
    let place = Place::new();
    let error = place.db.backup(place.path("db")).expect_err("it is refused");
    assert!(matches!(&error, Error::Occupied { found, .. } if found == "a database"), "{error}");
    let mut second = None;
    let first = place.db.begin_backup().expect("begins").write_to(place.path("backups"), BackupKind::Full, &mut |_| {
        second.get_or_insert_with(|| place.db.backup(place.path("backups")).map(drop).map_err(|error| error.kind()));
        ControlFlow::Continue(())
    });
    first.expect("backs up");
    assert_eq!(second, Some(Err(ErrorKind::Locked)));
}

#[test]
fn a_restore_is_there_as_a_whole_or_not_at_all() {
    let place = Place::new();
    let (backups, to, beside) = (place.path("backups"), place.path("again"), place.path("again.restoring"));
    place.backup(BackupKind::Full).expect("backs up");

    fs::create_dir(&to).expect("makes");
    fs::write(to.join("mine"), "something").expect("writes");
    let error = options().restore(&backups, &to, &mut go_on).expect_err("it is refused");
    assert!(matches!(&error, Error::Occupied { found, .. } if found == "\"mine\""), "{error}");
    assert_eq!(place.names("again"), ["mine"]);
    fs::remove_file(to.join("mine")).expect("removes");
    // An empty directory will do.
    place.assert_restores(&backups);

    let stopped = options().restore(&backups, &to, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(Error::Stopped { .. })), "{stopped:?}");
    assert!(!to.exists() && !beside.exists());

    // As a restore that was killed leaves it.
    drop(Options::new().open(&beside).expect("opens"));
    place.assert_restores(&backups);

    // Another restore, or somebody's database, or what is nobody's.
    let another = Options::new().open(&beside).expect("opens");
    let error = options().restore(&backups, &to, &mut go_on).expect_err("it is refused");
    assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
    drop(another);
    fs::write(beside.join("mine"), "something").expect("writes");
    let error = options().restore(&backups, &to, &mut go_on).expect_err("it is refused");
    assert!(matches!(error, Error::Occupied { .. }), "{error}");
    assert!(beside.join("mine").exists());
}

#[test]
fn damage_is_named_with_its_file_and_offset() {
    let place = Place::new();
    place.backup(BackupKind::Full).expect("backs up");
    table(&place.db, Structure::BTree, "t").put("b", "2").expect("puts");
    let file = place.backup(BackupKind::Incremental).expect("backs up").file.expect("a file");
    let mut bytes = fs::read(&file).expect("reads");
    bytes[90] ^= 1;
    fs::write(&file, bytes).expect("writes");
    let error = options().restore(place.path("backups"), place.path("again"), &mut go_on).expect_err("it is noticed");
    let Error::Corrupt { file: named, offset: 80, .. } = &error else { panic!("{error}") };
    assert_eq!(*named, file.display().to_string());
}

#[test]
fn a_database_that_is_open_for_reading_is_backed_up_too() {
    let place = Place::new();
    place.backup(BackupKind::Full).expect("backs up");
    table(&place.db, Structure::BTree, "t").put_with("b", vec![2; 4000], braid::Durability::Os).expect("puts");
    let expected = tables(&place.db);
    let Place { home, db } = place;
    db.close().expect("closes");
    let db = options().read_only(true).open(home.path().join("db")).expect("opens");
    let place = Place { home, db };
    assert_eq!(place.backup(BackupKind::Incremental).expect("backs up").changes, 1);
    assert_eq!(tables(&place.db), expected);
    place.assert_restores(&place.path("backups"));
}
