//! A child process for a job: started, waited for, and heard.
//!
//! Invariant: the parent survives every child. A child that is killed, crashes, prints something else, or does not end
//! in time is a failure with a sentence.

use std::io::Read;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::job::{Answer, Job, Task};
use crate::work::{Figure, Metric};
use bench::cgroup::Group;

/// Interval between two checks for the child's end.
const TICK: Duration = Duration::from_millis(5);
/// Most bytes kept of the child's output.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Letters of the child's last output that are shown after a failure.
const LAST_WORDS: usize = 300;

/// The result of a job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Figures(Vec<Figure>),
    /// The reason why there are no figures.
    Failed(String),
}

/// Does a job in a process of its own, in a group with so many bytes of memory where a limit is given.
///
/// Where no group can be made, the job is done without one, and the answer says so.
pub(crate) fn run(task: Task, limit_bytes: Option<u64>, time_out: Duration) -> (Outcome, Option<String>) {
    let group = limit_bytes.map(Group::create);
    let (group, without) = match group {
        Some(Ok(group)) => (Some(group), None),
        Some(Err(why)) => (None, Some(why)),
        None => (None, None),
    };
    let job = Job { group: group.as_ref().map(Group::members), task };
    let outcome = match attempt(&job, time_out) {
        Ok(ended) => judge(&ended, group.as_ref(), limit_bytes, time_out),
        Err(problem) => Outcome::Failed(problem),
    };
    let peak = group.as_ref().and_then(Group::peak_bytes);
    let outcome = match (outcome, peak) {
        (Outcome::Figures(mut figures), Some(bytes)) => {
            figures.push(Figure { metric: Metric::PeakMemory, value: bytes as f64 });
            Outcome::Figures(figures)
        }
        (outcome, _) => outcome,
    };
    (outcome, without)
}

struct Ended {
    /// None when the process did not end in time.
    status: Option<ExitStatus>,
    output: String,
    errors: String,
}

fn attempt(job: &Job, time_out: Duration) -> Result<Ended, String> {
    let program = std::env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
    let text = serde_json::to_string(job).map_err(|error| format!("writing the job down: {error}"))?;
    let mut command = Command::new(program);
    command.args(["job", &text]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("starting a process: {error}"))?;
    let (output, errors) = (listen(child.stdout.take()), listen(child.stderr.take()));
    let status = wait(&mut child, time_out).map_err(|error| format!("waiting for a process: {error}"))?;
    Ok(Ended { status, output: output.join().unwrap_or_default(), errors: errors.join().unwrap_or_default() })
}

fn listen(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // Unreadable output counts as unsaid, and output above the bound is dropped.
            let _ = pipe.by_ref().take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, time_out: Duration) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + time_out;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(TICK);
    }
}

fn judge(ended: &Ended, group: Option<&Group>, limit_bytes: Option<u64>, time_out: Duration) -> Outcome {
    let Some(status) = ended.status else {
        return Outcome::Failed(format!("did not end within {} s", time_out.as_secs()));
    };
    if status.success()
        && let Some(Ok(answer)) = ended.output.lines().last().map(serde_json::from_str::<Answer>)
    {
        return answer.map_or_else(Outcome::Failed, Outcome::Figures);
    }
    if group.is_some_and(Group::has_killed) {
        return Outcome::Failed(format!("killed: wanted more than {} MiB", limit_bytes.unwrap_or(0) >> 20));
    }
    let how = match (status.code(), status.signal()) {
        (_, Some(signal)) => format!("ended by signal {signal}"),
        (Some(code), _) => format!("ended with {code}"),
        _ => "ended".to_owned(),
    };
    let letters: Vec<char> = ended.errors.trim().chars().collect();
    let last: String = letters[letters.len().saturating_sub(LAST_WORDS)..].iter().collect();
    Outcome::Failed(if last.is_empty() { how } else { format!("{how}: {last}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(raw: Option<i32>, output: &str, errors: &str) -> Outcome {
        let ended = Ended { status: raw.map(ExitStatus::from_raw), output: output.into(), errors: errors.into() };
        judge(&ended, None, None, Duration::from_secs(9))
    }

    #[test]
    fn an_answer_is_what_was_measured_or_why_not() {
        let figures = ended(Some(0), "noise\n{\"Ok\":[{\"metric\":\"per_second\",\"value\":2.5}]}\n", "");
        assert_eq!(figures, Outcome::Figures(vec![Figure { metric: Metric::PerSecond, value: 2.5 }]));
        assert_eq!(ended(Some(0), "{\"Err\":\"no room\"}", ""), Outcome::Failed("no room".into()));
    }

    #[test]
    fn whatever_else_happens_is_a_failure_with_a_sentence() {
        let text = |outcome| match outcome {
            Outcome::Failed(text) => text,
            Outcome::Figures(_) => panic!("it failed"),
        };
        assert_eq!(text(ended(None, "", "")), "did not end within 9 s");
        assert_eq!(text(ended(Some(9), "", "")), "ended by signal 9");
        assert_eq!(text(ended(Some(101 << 8), "", "panicked\n")), "ended with 101: panicked");
        assert!(text(ended(Some(0), "nothing of the kind", "")).starts_with("ended with 0"));
    }
}
