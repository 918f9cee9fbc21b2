//! Databases as unit tests make them: a fresh directory for each, a clock that the test moves, and no wait for flushes.
//!
//! `cargo run --example scratch`, or `cargo test --example scratch`

use std::time::{Duration, SystemTime};

use braid::{Database, Durability, ManualClock, Options, Structure};

/// A database that goes with its directory. Making and dropping one takes a few milliseconds and about 150 KB of
/// writes.
struct Scratch {
    // The database is dropped first.
    db: Database,
    clock: ManualClock,
    _directory: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let clock = ManualClock::new(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000));
        // A test that does not cut the power needs no flushes.
        let options = Options::new().durability(Durability::Os).clock(clock.clone());
        let db = options.open(directory.path().join("db"))?;
        Ok(Self { db, clock, _directory: directory })
    }
}

/// The code under test: counts visits of the last day, by user.
fn visit(db: &Database, user: &str) -> braid::Result<u64> {
    let day = Duration::from_secs(24 * 3600);
    let visits = db.table("visits", Structure::BTree)?;
    db.run(|tx| {
        let count = tx.get(&visits, user)?.map_or(0, |count| count.try_into().map_or(0, u64::from_be_bytes)) + 1;
        tx.put_expiring(&visits, user, count.to_be_bytes(), day)?;
        Ok(count)
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let scratch = Scratch::new()?;
    assert_eq!((visit(&scratch.db, "ada")?, visit(&scratch.db, "ada")?), (1, 2));
    scratch.clock.advance(Duration::from_secs(25 * 3600));
    println!("after a day without a visit, the first is number {}", visit(&scratch.db, "ada")?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs() {
        main().expect("it runs");
    }

    #[test]
    fn tests_do_not_see_each_other() -> Result<(), Box<dyn std::error::Error>> {
        let (one, other) = (Scratch::new()?, Scratch::new()?);
        visit(&one.db, "ada")?;
        assert!(other.db.tables().is_empty());
        // A database that was closed can be opened again, with what it had.
        let Scratch { db, _directory, .. } = one;
        let path = db.path().to_owned();
        db.close()?;
        assert_eq!(visit(&Database::open(path)?, "ada")?, 2);
        Ok(())
    }
}
