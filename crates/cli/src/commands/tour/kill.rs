//! Kills a process in the middle of its commits and checks the database afterwards.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::crash;
use braid::Database;
use rand::Rng;
use serde::Serialize;

use super::story::{Story, interrupted};
use crate::exit::{Error, Result};
use crate::units::{count, seconds};

/// Threads that commit in the child.
const THREADS: usize = 4;
/// Commits that the child acknowledges before the kill, at least.
const COMMITS_MIN: u64 = 100;
/// A child with fewer commits is killed after this time all the same.
const PATIENCE: Duration = Duration::from_secs(20);

/// One life of the child.
#[derive(Serialize)]
pub(super) struct Round {
    /// Commits acknowledged so far, over all rounds and threads.
    acknowledged: u64,
    /// Commits found after recovery.
    found: u64,
    /// Time to open the database again.
    recovery_seconds: f64,
}

/// Kills `rounds` children one after the other.
pub(super) fn show(
    path: &Path, rounds: u32, story: &mut Story, open: impl Fn() -> Result<Database>,
) -> Result<Vec<Round>> {
    story.step("Kill a process in the middle of its commits, and recover")?;
    let both = crash::ITEMS * 2;
    story.say(format!(
        "   {THREADS} threads commit batches of {both} records in two tables, overwriting and deleting others, each waiting for stable storage;\n   \
         the process says which commits are done, and gets SIGKILL at a random moment"
    ))?;
    let acknowledged: Vec<_> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    let mut shown = Vec::new();
    for _ in 0..rounds {
        interrupted()?;
        live_and_die(path, &acknowledged)?;
        let begun = Instant::now();
        let database = open()?;
        let recovery_seconds = begun.elapsed().as_secs_f64();
        let numbers: Vec<_> = acknowledged.iter().map(|number| number.load(Ordering::Relaxed)).collect();
        let (survivors, findings) = crash::check(&database, &numbers)?;
        if let Some(finding) = findings.first() {
            return Err(Error::Damaged(format!("after the kill, {} findings, the first: {finding}", findings.len())));
        }
        // The next child continues from the commits found, acknowledged or not.
        for survivor in &survivors {
            if let Some(number) = usize::try_from(survivor.thread).ok().and_then(|thread| acknowledged.get(thread)) {
                number.store(survivor.last, Ordering::Relaxed);
            }
        }
        let round = Round {
            acknowledged: numbers.iter().sum(),
            found: survivors.iter().map(|survivor| survivor.last).sum(),
            recovery_seconds,
        };
        story.say(format!(
            "   killed after {} acknowledged commits; open again after {}: all {} there, none in part, {} more that it had no time to acknowledge",
            count(round.acknowledged),
            seconds(round.recovery_seconds),
            count(round.acknowledged),
            round.found - round.acknowledged
        ))?;
        database.close()?;
        shown.push(round);
    }
    Ok(shown)
}

/// Starts a child, lets the child commit for a while, and kills it.
fn live_and_die(path: &Path, acknowledged: &[AtomicU64]) -> Result<()> {
    let program = std::env::current_exe().map_err(Error::io("finding", "this program"))?;
    let mut command = Command::new(&program);
    command.arg("crash-child").arg(path).args(["--threads", &THREADS.to_string(), "--write-buffer", "1MiB"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(Error::io("starting", &program))?;
    let mut victim = Victim(child);
    let Some(stdout) = victim.0.stdout.take() else { return Err(Error::Failed("the child has no output".into())) };
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            for line in BufReader::new(stdout).lines().map_while(std::io::Result::ok) {
                let numbers = line
                    .split_once(' ')
                    .and_then(|(thread, number)| Some((thread.parse().ok()?, number.parse().ok()?)));
                if let Some((slot, number)) =
                    numbers.and_then(|(thread, number): (usize, _)| Some((acknowledged.get(thread)?, number)))
                {
                    slot.store(number, Ordering::Relaxed);
                    seen.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let begun = Instant::now();
        while seen.load(Ordering::Relaxed) < COMMITS_MIN && begun.elapsed() < PATIENCE {
            if victim.0.try_wait().map_err(Error::io("waiting for", &program))?.is_some() {
                return Err(Error::Failed("the child ended by itself before it was killed; its error is above".into()));
            }
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(rand::rng().random_range(0..500)));
        // The child's output ends with the child, and so does the thread that reads the output.
        drop(victim);
        Ok(())
    })
}

/// A child that is killed when dropped, and so never left behind.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        // A child that cannot be killed has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
