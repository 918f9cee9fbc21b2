//! `braid tour`: the whole way through on real files, in under a minute.
//!
//! 1. [`source`] finds a real file tree, and [`load`] loads the tree into a database.
//! 2. [`check`] compares every value with its file.
//! 3. [`reads`] shows point, batched and range reads beside the device alone.
//! 4. [`kill`] kills a process in the middle of its commits and checks the database afterwards.
//! 5. [`verify`] checks every byte.
//! 6. [`next`] names commands to try, ready to be pasted.
//!
//! Invariant: a step that finds a difference ends the tour with an error; the tour prints no success that was not
//! checked.

mod kill;
mod reads;
mod source;
mod story;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid::{Database, Table};
use clap::Args;
use serde::Serialize;

use super::bench::temporary_directory;
use super::load::{Loader, Skipped, load_files};
use crate::exit::{Error, Exit, Result};
use crate::interrupt;
use crate::open::{Mode, Tuning};
use crate::output::Output;
use crate::progress::Progress;
use crate::units::{bytes, count, parse_size, parse_time, seconds};
use story::{Story, interrupted};

/// See what Braid does, on real files, in under a minute
///
/// Loads a directory tree, checks every value against its file, and shows reads beside the device's own limit. Then it
/// kills a writing process without warning, recovers what that wrote, and verifies everything.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid tour                                    on sources of Rust crates
  braid tour --source ~/src                     on a directory of yours
  braid tour --dir /ssd/tour --keep             on another disk, and keep it
  braid tour --json | jq .reads                 the figures, for programs")]
pub(crate) struct Tour {
    /// Directory to load [default: the sources of the crates that Cargo downloaded; if those are few, the toolchain's
    /// documentation too]
    #[arg(long, value_name = "DIR")]
    source: Option<PathBuf>,
    /// Directory for the database; must not be there yet [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Keep the database at the end
    #[arg(long)]
    keep: bool,
    /// Memory for the cache; small, so that reads reach the device
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16MiB")]
    cache: u64,
    /// Time of each kind of read
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "2s")]
    time: Duration,
    /// How often to kill the writing process
    #[arg(long, value_name = "COUNT", default_value_t = 3)]
    kills: u32,
}

/// Table that the files go to.
const FILES: &str = "files";

#[derive(Serialize)]
struct Report {
    loaded: Loaded,
    checked_files: u64,
    reads: Vec<reads::Shown>,
    kills: Vec<kill::Round>,
    verified_keys: u64,
    database_bytes: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct Loaded {
    sources: Vec<PathBuf>,
    files: u64,
    directories: u64,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    durability: &'static str,
    left_out: Skipped,
}

impl Tour {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        interrupt::watch();
        let begun = Instant::now();
        let mut story = Story { output: Output::new(), json, step: 0 };
        let sources = source::find(self.source.as_deref())?;
        let place = Place::new(self.dir.as_deref(), self.keep)?;
        story.say(format!("A tour of Braid, in the database {}", place.path.display()))?;

        let database = self.open(&place.path)?;
        let table = database.table(FILES, braid::Structure::BTree)?;
        let loaded = load(&database, &table, &sources, &mut story)?;
        let checked_files = check(&table, &sources, &loaded, &mut story)?;
        let reads = reads::show(&database, &table, &reads::Plan { cache: self.cache, time: self.time }, &mut story)?;
        // The lock is released with the last handle.
        drop(table);
        database.close()?;
        let kills = kill::show(&place.path, self.kills, &mut story, || self.open(&place.path))?;
        let database = self.open(&place.path)?;
        let verified_keys = verify(&database, &mut story)?;
        database.close()?;

        let database_bytes = bench::process::bytes_below(&place.path)?;
        let seconds = begun.elapsed().as_secs_f64();
        next(&sources, &place, seconds, &mut story)?;
        if json {
            story.output.json(&Report {
                loaded,
                checked_files,
                reads,
                kills,
                verified_keys,
                database_bytes,
                seconds,
            })?;
        }
        story.output.flush()?;
        Ok(Exit::Ok)
    }

    fn open(&self, path: &Path) -> Result<Database> {
        let tuning = Tuning {
            memory: None,
            cache: Some(self.cache),
            write_buffer: Some(16 << 20),
            durability: None,
            retain_log: None,
            backend: None,
        };
        tuning.open(path, Mode::Create)
    }
}

/// The database's directory.
struct Place {
    path: PathBuf,
    kept: bool,
    _temporary: Option<tempfile::TempDir>,
    remove: Option<PathBuf>,
}

impl Place {
    fn new(directory: Option<&Path>, keep: bool) -> Result<Self> {
        if let Some(path) = directory {
            // The removal at the end must never remove files that were there before.
            std::fs::create_dir(path).map_err(Error::io("creating", path))?;
            let remove = (!keep).then(|| path.to_owned());
            return Ok(Self { path: path.to_owned(), kept: keep, _temporary: None, remove });
        }
        let mut temporary = temporary_directory("braid-tour-")?;
        let path = temporary.path().join("database");
        temporary.disable_cleanup(keep);
        Ok(Self { path, kept: keep, _temporary: Some(temporary), remove: None })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(path) = &self.remove
            && let Err(error) = std::fs::remove_dir_all(path)
        {
            eprintln!("braid: removing {}: {error}", path.display());
        }
    }
}

fn load(database: &Database, table: &Table, sources: &[PathBuf], story: &mut Story) -> Result<Loaded> {
    story.step("Load a real file tree: path -> content")?;
    for source in sources {
        story.say(format!("   from {}", source.display()))?;
    }
    let begun = Instant::now();
    let mut loader = Loader::new(database, table);
    let mut left_out = Skipped::default();
    {
        let progress = Progress::bytes("loading", None);
        for source in sources {
            left_out.add(&load_files(source, database.path(), &mut loader, &progress)?);
        }
    }
    let (files, loaded_bytes) = loader.finish()?.unwrap_or_default();
    interrupted()?;
    let seconds_taken = begun.elapsed().as_secs_f64();
    let loaded = Loaded {
        sources: sources.to_vec(),
        files,
        directories: left_out.directories,
        bytes: loaded_bytes,
        seconds: seconds_taken,
        bytes_per_second: loaded_bytes as f64 / seconds_taken,
        durability: "sync",
        left_out,
    };
    story.say(format!(
        "   {} files from {} directories, {}, in {}: {}/s, every commit on stable storage before the next",
        count(loaded.files),
        count(loaded.directories),
        bytes(loaded.bytes),
        seconds(loaded.seconds),
        crate::units::bytes_f64(loaded.bytes_per_second)
    ))?;
    if let Some(text) = loaded.left_out.describe() {
        story.say(format!("   left out: {text}"))?;
    }
    Ok(loaded)
}

/// Scans the whole table and compares each value with its file.
fn check(table: &Table, sources: &[PathBuf], loaded: &Loaded, story: &mut Story) -> Result<u64> {
    story.step("Compare every value with its file on disk")?;
    let begun = Instant::now();
    let progress = Progress::count("comparing", Some(loaded.files));
    let mut checked = 0;
    for pair in table.iter() {
        interrupted()?;
        let (key, value) = pair?;
        let relative: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(&key);
        let found = sources.iter().rev().map(|source| source.join(relative)).find(|path| path.is_file());
        let Some(path) = found else {
            return Err(Error::Damaged(format!("the database has a file that no source has: {}", relative.display())));
        };
        let content = std::fs::read(&path).map_err(Error::io("reading", &path))?;
        if content != value {
            return Err(Error::Damaged(format!("the value of {} is not its content", path.display())));
        }
        checked += 1;
        progress.advance(1);
    }
    drop(progress);
    if checked != loaded.files {
        return Err(Error::Damaged(format!("{} files were loaded and {checked} are there", loaded.files)));
    }
    story.say(format!(
        "   {} of {} equal, in {}",
        count(checked),
        count(loaded.files),
        seconds(begun.elapsed().as_secs_f64())
    ))?;
    Ok(checked)
}

fn verify(database: &Database, story: &mut Story) -> Result<u64> {
    story.step("Verify: every page, record, checksum and document")?;
    let begun = Instant::now();
    let progress = Progress::count("verifying", None);
    let verification = database.verify_with(&mut |now| progress.set(now.keys))?;
    drop(progress);
    if let Some(finding) = verification.findings.first() {
        let what = format!("verify found {} problems, the first: {finding}", verification.findings.len());
        return Err(Error::Damaged(what));
    }
    let taken = seconds(begun.elapsed().as_secs_f64());
    story.say(format!(
        "   {} keys in {} tables, no findings, in {taken}",
        count(verification.keys),
        verification.tables
    ))?;
    Ok(verification.keys)
}

/// Commands that work as they stand.
fn next(sources: &[PathBuf], place: &Place, seconds_taken: f64, story: &mut Story) -> Result<()> {
    let program = std::env::current_exe().map_or_else(|_| "braid".into(), |path| shortest(&path));
    story.say(format!("\nThat was all of it, in {}. Try next:\n", seconds(seconds_taken)))?;
    let mut say = |what: &str| story.say(format!("   $ {program} {what}"));
    let database = if place.kept {
        quoted(&place.path)
    } else {
        let source = sources.first().map_or_else(|| ".".into(), |source| quoted(source));
        say(&format!("load my.db --table {FILES} --files {source}"))?;
        "my.db".into()
    };
    say(&format!("scan {database} --table {FILES} --keys-only --limit 10"))?;
    say(&format!("stats {database}"))?;
    say(&format!("verify {database}"))?;
    say(&format!("put {database} ada 1815"))?;
    say(&format!("get {database} ada"))?;
    say(&format!("device {database}"))?;
    say("bench fillrandom,readrandom,multireadrandom --num 200k --cache 4m --cold")?;
    say("--help")
}

/// A path relative to the working directory where that is shorter.
fn shortest(path: &Path) -> String {
    let here = std::env::current_dir().ok();
    match here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned)) {
        Some(below) => quoted(&Path::new(".").join(below)),
        None => quoted(path),
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-+~".contains(character);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
