//! The same on a file system of the machine: an ext4 of 64 MiB in a file, mounted by the test. Skipped, with the
//! reason, where that
//! cannot be had.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use braid::{Database, Durability, Options, Structure};

use crate::model::{Change, Model, is_full, puts};

const IMAGE_BYTES: u64 = 64 << 20;
const BALLAST_BYTES: usize = 12 << 20;
/// After so long something hangs. What background threads have to do takes half a minute with other tests beside them,
/// and a minute and more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(600);

/// A mounted file system, unmounted when it goes.
struct Mount {
    directory: tempfile::TempDir,
}

impl Mount {
    /// None where it cannot be made, which is said on standard error.
    fn new() -> Option<Self> {
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("image");
        fs::File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES)).expect("an image file");
        let mount = Self { directory };
        fs::create_dir(mount.path()).expect("a mount point");
        let image = image.to_str().expect("UTF-8");
        let point = mount.path();
        let point = point.to_str().expect("UTF-8");
        let make = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", image];
        let attach = ["mount", "-t", "ext4", "-o", "loop", image, point];
        if let Err(problem) = call(&make).and_then(|()| call(&attach)) {
            eprintln!("skipped: {problem}");
            return None;
        }
        Some(mount)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let point = self.path();
        let is_mounted = fs::read_to_string("/proc/mounts")
            .is_ok_and(|mounts| mounts.lines().any(|line| line.split(' ').nth(1) == point.to_str()));
        if is_mounted && call(&["umount", point.to_str().expect("UTF-8")]).is_err() {
            let _ = call(&["umount", "-l", point.to_str().expect("UTF-8")]);
        }
    }
}

fn call(command: &[&str]) -> Result<(), String> {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let output = output.map_err(|error| format!("{} cannot be run: {error}", command[0]))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", command.join(" "), String::from_utf8_lossy(&output.stderr).trim()))
}

fn open(path: &Path) -> Database {
    let options = Options::new().cache_bytes(4 << 20).write_buffer_bytes(1 << 20).segment_bytes(1 << 20);
    options.open(path).expect("opens")
}

/// Values in leaves, and perhaps a document in every batch. Pages that deletes have freed serve leaves, not documents.
fn batch(from: u64, document: bool) -> Vec<Change> {
    let mut changes = puts(from..from + 199, 400);
    changes.extend(puts(from + 199..from + 200, if document { 20_000 } else { 10 }));
    changes
}

/// Puts until the disk is full, and stays so in spite of two checkpoints.
fn fill(db: &Database, model: &mut Model, next: &mut u64, documents: bool) -> u64 {
    let (mut batches, mut refused) = (0, 0);
    while refused < 3 {
        if is_full(model.write(db, &batch(*next, documents), Durability::Sync)) {
            refused += 1;
            // What a checkpoint gives back is room too.
            is_full(db.checkpoint());
            continue;
        }
        (batches, refused) = (batches + 1, 0);
        *next += 200;
    }
    batches
}

/// Tries until it works, or for too long.
fn until_it_works(what: &str, mut attempt: impl FnMut() -> braid::Result<()>) {
    let begin = Instant::now();
    while is_full(attempt()) {
        assert!(begin.elapsed() < PATIENCE, "{what} does not work again");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn a_full_file_system(structure: Structure) {
    let Some(mount) = Mount::new() else { return };
    let ballast = mount.path().join("ballast");
    fs::write(&ballast, vec![1; BALLAST_BYTES]).expect("writes");
    let path = mount.path().join("db");
    let (mut db, mut model, mut next) = (open(&path), Model::new(structure), 0);
    let filled = fill(&db, &mut model, &mut next, true);
    assert!(filled > 50, "{filled} batches");
    model.check(&db);

    drop(db);
    db = open(&path);
    model.check(&db);

    let keys = model.keys();
    for (number, some) in keys.chunks(200).enumerate().filter(|(number, _)| number % 4 > 0) {
        let changes: Vec<Change> = some.iter().map(|(which, key)| (*which, key.clone(), None)).collect();
        until_it_works(&format!("delete {number}"), || model.write(&db, &changes, Durability::Sync));
    }
    until_it_works("a checkpoint", || db.checkpoint());
    model.check(&db);
    let again = fill(&db, &mut model, &mut next, false);
    assert!(again >= filled / 4, "{again} batches fit after most was deleted, {filled} before");
    model.check(&db);

    fs::remove_file(&ballast).expect("removes");
    until_it_works("a put", || model.write(&db, &batch(next, true), Durability::Sync));
    next += 200;
    let more = fill(&db, &mut model, &mut next, true);
    assert!(more > 10, "{more} batches more with {BALLAST_BYTES} bytes more");
    model.check(&db);
    // On a full disk the last checkpoint may not fit: then the log still has everything.
    drop(db);
    let db = open(&path);
    model.check(&db);
    drop(db);
    drop(mount);
}

on_every_structure!(a_full_file_system);
