//! The snippets of README.md and of the pages in docs/guide: each is a part of a function here, so that it compiles and
//! runs, and a snippet that is in none fails.

use std::{
    error::Error,
    fs,
    path::Path,
    sync::Mutex,
    time::{Duration, SystemTime},
};

use tempfile::TempDir;

type Done = Result<(), Box<dyn Error>>;

/// Lines of a page between a line that begins a block of Rust and the one that ends it.
fn snippets(page: &str) -> Vec<(usize, Vec<&str>)> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((begin, line)) = lines.next() {
        if line.trim() == "```rust" {
            let block = lines.by_ref().map(|(_, line)| line.trim()).take_while(|line| *line != "```");
            found.push((begin + 1, block.filter(|line| !line.is_empty()).collect()));
        }
    }
    found
}

/// Whether the lines of `block` are among `lines`, one directly behind the other.
fn is_within(lines: &[&str], block: &[&str]) -> bool {
    lines.windows(block.len()).any(|window| window == block)
}

#[test]
fn every_snippet_is_a_part_of_this_file() -> Done {
    let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = fs::read_to_string(crate_directory.join("tests/guide.rs"))?;
    let own: Vec<&str> = own.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let root = crate_directory.join("../..");
    let mut pages = vec![root.join("README.md")];
    for page in fs::read_dir(root.join("docs/guide"))? {
        pages.push(page?.path());
    }
    let mut count = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(page)?;
        for (line, block) in snippets(&text) {
            assert!(!block.is_empty(), "{}:{line}: nothing is in this snippet", page.display());
            assert!(is_within(&own, &block), "{}:{line}: this snippet is not in tests/guide.rs", page.display());
            count += 1;
        }
    }
    assert!(count >= 8, "{count} snippets were found");
    Ok(())
}

#[test]
fn a_changed_or_parted_snippet_is_noticed() {
    let page = "text\n```rust\n  one\n\n  two\n```\n```sh\nthree\n```\n```rust\nfour\n```\n";
    assert_eq!(snippets(page), [(2, vec!["one", "two"]), (10, vec!["four"])]);
    assert!(is_within(&["zero", "one", "two"], &["one", "two"]));
    assert!(!is_within(&["one", "zero", "two"], &["one", "two"]));
    assert!(!is_within(&["one"], &["one", "two"]));
}

/// The snippets name directories like "data", which are those of this process.
fn in_a_directory(work: impl FnOnce() -> Done) -> Done {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let directory = tempfile::tempdir()?;
    let before = std::env::current_dir()?;
    std::env::set_current_dir(&directory)?;
    let done = work();
    std::env::set_current_dir(before)?;
    done
}

fn scratch() -> Result<(TempDir, braid::Database), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let db = braid::Database::open(directory.path().join("data"))?;
    Ok((directory, db))
}

#[test]
#[rustfmt::skip]
#[expect(unused_variables, reason = "the snippet shows what there is")]
fn readme_begin() -> Done {
    in_a_directory(|| {
        use braid::{Database, Structure, WriteBatch};

        let db    = Database::open("data")?;                          // sensible without options
        let users = db.table("users", Structure::BTree)?;
        users.put(b"ada", b"1815")?;                                  // durable when it returns
        let found = users.get_many(&["ada", "grace"])?;               // one batch for the device
        let bytes = users.get_with("ada", |value| value.len())?;      // where it lies in memory, without a copy
        for pair in users.range("a".."c").rev() { let (k, v) = pair?; }
        let mut batch = WriteBatch::new();                            // atomic, across tables too
        batch.delete(&users, "ada");
        db.write(&batch)?;
        db.run(|tx| {                                                 // a transaction; run again after a conflict
            let born = tx.get(&users, "grace")?.unwrap_or_default();
            tx.put(&users, "hopper", born)
        })?;
        let then = db.snapshot();                                     // everything as it is now
        db.backup("backups")?;                                        // the same on storage, while others write

        assert_eq!(found, [Some(b"1815".to_vec()), None]);
        assert_eq!(bytes, Some(4));
        assert_eq!(then.get(&users, "hopper")?, Some(vec![]));
        Ok(())
    })
}

/// A second of the snippet is a millisecond here: it waits for a minute in which nothing comes.
struct Short;

impl Short {
    const fn from_secs(seconds: u64) -> Duration {
        Duration::from_millis(seconds)
    }
}

#[test]
#[rustfmt::skip]
#[expect(unused_variables, reason = "the snippet shows what there is")]
fn readme_follow() -> Done {
    use Short as Duration;
    use braid::{Change, Database, Seq};
    in_a_directory(|| {
        let before = Database::open("data")?;
        let seq = before.table("users", braid::Structure::BTree)?.put("ada", "1815")?;
        before.close()?;
        let last = 0;
        let db = Database::options().retain_log_bytes(1 << 30).open("data")?;   // how far back followers can go
        let mut feed = db.changes(Seq(last))?;                                  // what was committed after `last`, in order
        while feed.wait(Duration::from_secs(60))? {
            for change in feed.by_ref() {
                let Change { seq, event, .. } = change?;                        // commits with keys and values, tables that come and go
            }
        }
        assert_eq!(feed.seq(), seq);
        Ok(())
    })
}

#[test]
#[rustfmt::skip]
fn durability_begin() -> Done {
    let directory = tempfile::tempdir()?;
    let path = &directory.path().join("data");
    use braid::{Durability, Options, Structure, WriteBatch};
    use std::time::Duration;

    let db = Options::new().durability(Durability::Os).open(path)?;   // for all writes
    let table = db.table("table", Structure::BTree)?;
    table.put_with("key", "value", Durability::Sync)?;                // for one
    let mut batch = WriteBatch::new();
    batch.set_durability(Durability::Lazy(Duration::from_millis(50)));
    db.persist()?;                                                    // everything so far is durable now
    assert_eq!(table.iter().count(), 1);
    Ok(())
}

#[test]
#[rustfmt::skip]
fn durability_tickets() -> Done {
    use braid::{Durability, Structure, WriteBatch};
    let (_directory, db) = scratch()?;
    let events = db.table("events", Structure::BTree)?;
    let batches: Vec<WriteBatch> = (0..10_u8)
        .map(|number| {
            let mut batch = WriteBatch::new();
            batch.put(&events, [number], "seen");
            batch
        })
        .collect();
    let wait = || -> braid::Result<()> {
        let tickets = batches.iter().map(|batch| db.submit(batch, Durability::Sync)).collect::<braid::Result<Vec<_>>>()?;
        for ticket in tickets {
            ticket.wait()?;
        }
        Ok(())
    };
    wait()?;
    assert_eq!(events.iter().count(), 10);
    Ok(())
}

#[test]
#[rustfmt::skip]
fn durability_counter() -> Done {
    use braid::{Durability, Structure, WriteBatch};
    let (_directory, db) = scratch()?;
    let events = db.table("events", Structure::BTree)?;
    let last = Mutex::new(0_u64);
    let record = |event: &str| -> braid::Result<()> {
        let ticket = {
            let mut last = last.lock().expect("no panic");
            let mut batch = WriteBatch::new();
            batch.put(&events, (*last + 1).to_be_bytes(), event);
            let ticket = db.submit(&batch, Durability::Sync)?;
            *last += 1;
            ticket
        };
        ticket.wait()?;                                                   // other threads submit meanwhile
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| (0..5).try_for_each(|_| record("seen")))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    assert_eq!(events.iter().count(), 20);
    assert_eq!(events.last()?.map(|(number, _)| number), Some(20_u64.to_be_bytes().to_vec()));
    Ok(())
}

#[test]
#[rustfmt::skip]
fn expiry() -> Done {
    let (_directory, db) = scratch()?;
    let table = |name| db.table(name, braid::Structure::BTree);
    let (sessions, offers) = (table("sessions")?, table("offers")?);
    let (token, user, id, offer, week) = ("token", "ada", "apples", "2 for 1", Duration::from_secs(7 * 86_400));
    sessions.put_expiring(token, user, Duration::from_secs(1800))?;          // from the commit on
    offers.put_expiring(id, offer, SystemTime::now() + week)?;               // at a time
    assert!(sessions.expiry(token)?.is_some());
    assert!(offers.expiry(id)? > sessions.expiry(token)?);
    Ok(())
}

#[test]
fn testing() -> Done {
    use braid::{Durability, ManualClock, Options, Structure};
    let directory = tempfile::tempdir()?;
    let clock = ManualClock::new(SystemTime::now());
    let db = Options::new().durability(Durability::Os).clock(clock.clone()).open(directory.path().join("db"))?;
    let sessions = db.table("sessions", Structure::BTree)?;
    sessions.put_expiring("token", "ada", Duration::from_secs(60))?;
    clock.advance(Duration::from_secs(60));
    assert_eq!(sessions.get("token")?, None);
    Ok(())
}

#[derive(Debug)]
enum Refused {
    TooFew(u8),
    Store(braid::Error),
}

impl From<braid::Error> for Refused {
    fn from(error: braid::Error) -> Self {
        Self::Store(error)
    }
}

#[test]
#[rustfmt::skip]
fn transactions_begin() -> Done {
    let (_directory, db) = scratch()?;
    let items = db.table("items", braid::Structure::BTree)?;
    items.put("apple", [5])?;
    let take = || -> Result<u8, Refused> {
        let left = db.run(|tx| {
            let stock = tx.get(&items, "apple")?.map_or(0, |count| count[0]);
            let left = stock.checked_sub(3).ok_or(Refused::TooFew(stock))?;   // an error of your own rolls back
            tx.put(&items, "apple", [left])?;
            Ok::<_, Refused>(left)
        })?;
        Ok(left)
    };
    assert!(matches!(take(), Ok(2)));
    assert!(matches!(take(), Err(Refused::TooFew(2))));
    items.put("apple", [9])?;
    db.clone().close()?;
    assert!(matches!(take(), Err(Refused::Store(braid::Error::Closed))));
    Ok(())
}

#[test]
fn transactions_ranges() -> Done {
    let (_directory, db) = scratch()?;
    let table = |name| db.table(name, braid::Structure::BTree);
    let (events, archive) = (table("events")?, table("archive")?);
    events.put("2024-12", "snow")?;
    events.put("2025-01", "ice")?;
    db.run(|tx| {
        let old = tx.range(&events, .."2025").collect::<braid::Result<Vec<_>>>()?;
        for (key, event) in &old {
            tx.put(&archive, key, event)?;
            tx.delete(&events, key)?;
        }
        Ok::<_, braid::Error>(())
    })?;
    assert_eq!(archive.first()?, Some((b"2024-12".to_vec(), b"snow".to_vec())));
    assert_eq!(events.iter().count(), 1);
    Ok(())
}
