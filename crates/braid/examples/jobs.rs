//! A job queue: jobs are pushed in order, each is claimed by one worker, and a claim that is not acknowledged in time
//! comes back. Each claim has a token of its own, so that a worker that is late cannot end the claim of another one.
//!
//! `cargo run --example jobs`

use std::time::Duration;

use braid::{Database, Structure, Table};

const CLAIM: Duration = Duration::from_secs(60);

/// A job that one worker runs.
#[derive(Debug, PartialEq)]
struct Claim {
    number: Vec<u8>,
    token: u64,
    job: String,
}

/// Waiting jobs by number, running jobs by number, and for each running job a lease with the token of its claim.
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
        let (waiting, running, leases) = (table("waiting")?, table("running")?, table("leases")?);
        Ok(Self { db: db.clone(), waiting, running, leases, counter: table("counter")? })
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
    fn claim(&self) -> braid::Result<Option<Claim>> {
        self.db.run(|tx| {
            let Some((number, job)) = tx.iter(&self.waiting).next().transpose()? else { return Ok(None) };
            tx.delete(&self.waiting, &number)?;
            tx.put(&self.running, &number, &job)?;
            let token = tx.seq().0; // a later claim of the job sees the commit of this one, so it has another token
            tx.put_expiring(&self.leases, &number, token.to_be_bytes(), CLAIM)?;
            Ok(Some(Claim { number, token, job: String::from_utf8_lossy(&job).into_owned() }))
        })
    }

    /// Ends a job. False where the claim has run out: another worker has the job by now, or will get it.
    fn acknowledge(&self, claim: &Claim) -> braid::Result<bool> {
        self.db.run(|tx| {
            let is_held = tx.get(&self.leases, &claim.number)?.as_deref() == Some(&claim.token.to_be_bytes());
            if is_held {
                tx.delete(&self.running, &claim.number)?;
                tx.delete(&self.leases, &claim.number)?;
            }
            Ok(is_held)
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
    while let Some(claim) = jobs.claim()? {
        println!("{}", claim.job);
        assert!(jobs.acknowledge(&claim)? && jobs.recover()? == 0);
    }
    Ok(db.close()?)
}

#[cfg(test)]
#[test]
fn it_runs_and_claims_come_back() -> braid::Result<()> {
    main().expect("it runs");
    let directory = tempfile::tempdir().expect("a directory");
    let clock = braid::ManualClock::new(std::time::SystemTime::now());
    let jobs = Jobs::open(&braid::Options::new().clock(clock.clone()).open(directory.path().join("db"))?)?;
    jobs.push("wash")?;
    let late = jobs.claim()?.expect("a job");
    assert_eq!((jobs.claim()?, jobs.recover()?), (None, 0));
    clock.advance(CLAIM);
    assert_eq!(jobs.recover()?, 1);
    let claim = jobs.claim()?.expect("the job came back");
    assert!(claim.number == late.number && !jobs.acknowledge(&late)?, "the claim of a late worker is over");
    assert!(jobs.acknowledge(&claim)?);
    assert_eq!((jobs.recover()?, jobs.claim()?), (0, None));
    Ok(())
}
