//! A job queue: jobs are pushed in order, each is claimed by one worker, and a claim that is not acknowledged in time
//! comes back.
//!
//! `cargo run --example jobs`

use std::time::Duration;

use braid::{Database, Structure, Table};

const CLAIM: Duration = Duration::from_secs(60);

/// Waiting jobs by number, running jobs by number, and a lease for each running job.
struct Jobs {
    db: Database,
    waiting: Table,
    running: Table,
    leases: Table,
    counter: Table,
}

impl Jobs {
    fn open(db: &Database) -> braid::Result<Self> {
        let table = |name| db.table(name, Structure::BTree);
        Ok(Self {
            db: db.clone(),
            waiting: table("waiting")?,
            running: table("running")?,
            leases: table("leases")?,
            counter: table("counter")?,
        })
    }

    /// Adds a job, and returns its number.
    fn push(&self, job: &str) -> braid::Result<u64> {
        self.db.run(|tx| {
            let last = tx.get_for_update(&self.counter, "last")?;
            let number = 1 + last.and_then(|last| Some(u64::from_be_bytes(last.try_into().ok()?))).unwrap_or(0);
            tx.put(&self.counter, "last", number.to_be_bytes())?;
            tx.put(&self.waiting, number.to_be_bytes(), job)?;
            Ok(number)
        })
    }

    /// Claims the oldest waiting job. All of it happens, or nothing: no crash loses a job between two tables.
    fn claim(&self) -> braid::Result<Option<(Vec<u8>, String)>> {
        self.db.run(|tx| {
            let Some((number, job)) = tx.iter(&self.waiting).next().transpose()? else { return Ok(None) };
            tx.delete(&self.waiting, &number)?;
            tx.put(&self.running, &number, &job)?;
            tx.put_expiring(&self.leases, &number, "", CLAIM)?;
            Ok(Some((number, String::from_utf8_lossy(&job).into_owned())))
        })
    }

    /// Ends a job that was claimed.
    fn acknowledge(&self, number: &[u8]) -> braid::Result<()> {
        self.db.run(|tx| {
            tx.delete(&self.running, number)?;
            tx.delete(&self.leases, number)
        })
    }

    /// Puts jobs back whose lease has expired; returns how many.
    fn recover(&self) -> braid::Result<usize> {
        self.db.run(|tx| {
            let running = tx.iter(&self.running).collect::<braid::Result<Vec<_>>>()?;
            let mut recovered = 0;
            for (number, job) in running {
                if !tx.contains_key(&self.leases, &number)? {
                    tx.delete(&self.running, &number)?;
                    tx.put(&self.waiting, &number, &job)?;
                    recovered += 1;
                }
            }
            Ok(recovered)
        })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let db = Database::open(directory.path().join("jobs"))?;
    let jobs = Jobs::open(&db)?;
    for job in ["wash", "dry", "fold"] {
        jobs.push(job)?;
    }
    while let Some((number, job)) = jobs.claim()? {
        println!("{job}");
        jobs.acknowledge(&number)?;
    }
    assert_eq!(jobs.recover()?, 0);
    Ok(db.close()?)
}

#[cfg(test)]
#[test]
fn it_runs_and_claims_come_back() -> braid::Result<()> {
    main().expect("it runs");
    let directory = tempfile::tempdir().expect("a directory");
    let clock = braid::ManualClock::new(std::time::SystemTime::now());
    let db = braid::Options::new().clock(clock.clone()).open(directory.path().join("db"))?;
    let jobs = Jobs::open(&db)?;
    jobs.push("wash")?;
    let (number, _) = jobs.claim()?.expect("a job");
    assert_eq!((jobs.claim()?, jobs.recover()?), (None, 0));
    clock.advance(CLAIM);
    assert_eq!(jobs.recover()?, 1);
    assert_eq!(jobs.claim()?, Some((number, "wash".to_owned())));
    Ok(())
}
