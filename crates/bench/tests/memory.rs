//! Memory of a process that uses a database: at most [`Options::memory_bytes`] and 32 MiB more, with the system's
//! allocator, whatever the workload and however many
//! threads there are.
//!
//! 1. Each workload runs in a process of its own: this program again, as the test [`child`]. It is in a control group
//!    of as many bytes as it may have, so one that
//!    wants more is killed. Where no group can be made, only what the process says of itself is held against the bound.
//! 2. `make test` runs a few workloads on little data; `make memory` runs all of them, or those that `BRAID_MEMORY`
//!    names, and prints a table.
//!
//! Invariant: the bound is of the whole process, so the measurements of the device and the statistics of the workload
//! are in it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bench::cgroup::Group;
use bench::process::Memory;
use bench::ycsb::Settings;
use bench::{Config, Watch, Workload};
use braid::{Compression, Durability, Options, Structure};
use serde::{Deserialize, Serialize};

/// What a process may have besides [`Options::memory_bytes`].
const BESIDES_BYTES: u64 = 32 << 20;
/// The variable with the job of a child.
const JOB: &str = "BRAID_MEMORY_JOB";
/// The variable that names what runs: `all`, or words such as `btree readrandom 8`.
const ROWS: &str = "BRAID_MEMORY";
/// The variable with the directory for the databases, which are kept there.
const DIRECTORY: &str = "BRAID_MEMORY_DIR";
const THREADS: [usize; 4] = [1, 8, 32, 64];
const STRUCTURES: [Structure; 3] = [Structure::BTree, Structure::Append, Structure::Lsm];

/// A database, and the memory that it gets.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Sizes {
    memory_bytes: u64,
    records: u64,
    value_size: usize,
    jobs: u64,
    ms: u64,
}

/// Data is several times what the memory is.
const SHORT: Sizes = Sizes { memory_bytes: 16 << 20, records: 300_000, value_size: 100, jobs: 200, ms: 300 };
/// What runs on it.
const SHORT_ROWS: [(Workload, usize); 4] =
    [(Workload::ReadRandom, 1), (Workload::MultiReadRandom, 64), (Workload::ReadSeq, 32), (Workload::Overwrite, 8)];
const ALL: [Sizes; 2] = [
    Sizes { memory_bytes: 96 << 20, records: 3_000_000, value_size: 100, jobs: 4000, ms: 2000 },
    Sizes { memory_bytes: 64 << 20, records: 600_000, value_size: 1024, jobs: 4000, ms: 2000 },
];

/// What a child does.
#[derive(Serialize, Deserialize)]
struct Job {
    group: Option<PathBuf>,
    database: PathBuf,
    answer: PathBuf,
    sizes: Sizes,
    structure: String,
    workload: String,
    threads: usize,
}

/// What it says when it has done it.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Answer {
    /// Most bytes that were resident.
    peak_bytes: u64,
    /// Pages of the program, about.
    program_bytes: u64,
    per_second: f64,
}

/// Not a test of its own: the process of a workload.
#[test]
fn child() {
    let Ok(job) = std::env::var(JOB) else { return };
    let job: Job = serde_json::from_str(&job).expect("a job");
    if let Some(group) = &job.group {
        std::fs::write(group, std::process::id().to_string()).expect("joins the group");
    }
    let config = config(&job);
    let database = Options::new().memory_bytes(job.sizes.memory_bytes).open(&job.database).expect("opens");
    let watch = Watch { stop: &AtomicBool::new(false), progress: &|_, _| (), phase: &|_| () };
    let report = bench::run(&database, &config, &watch).expect("runs");
    database.close().expect("closes");
    let memory = Memory::now().expect("a process knows its memory");
    let answer =
        Answer { peak_bytes: memory.peak_bytes, program_bytes: memory.file_bytes, per_second: report.ops_per_second };
    std::fs::write(job.answer, serde_json::to_string(&answer).expect("an answer")).expect("answers");
}

fn config(job: &Job) -> Config {
    let workload: Workload = job.workload.parse().expect("a workload");
    let waits = matches!(workload, Workload::Commit | Workload::Queue);
    Config {
        workload,
        num: match workload {
            Workload::Queue => job.sizes.jobs,
            // As many puts as there are keys that they are of.
            Workload::Overwrite => job.sizes.records / 8,
            _ => job.sizes.records,
        },
        key_size: 16,
        value_size: job.sizes.value_size,
        threads: job.threads,
        batch: workload.default_batch(),
        durability: if waits { Durability::Sync } else { Durability::Os },
        seed: 1,
        duration: Some(Duration::from_millis(job.sizes.ms)),
        pairs: 1,
        cold: false,
        insert_share: 0.5,
        structure: job.structure.parse().expect("a structure"),
        compression: Compression::None,
        compressible: 0.0,
        warm_up: Some(Duration::from_millis(job.sizes.ms / 4)),
        ycsb: Settings::default(),
        cache_bytes: 0,
        write_buffer_bytes: job.sizes.memory_bytes / 4,
    }
}

/// Runs a job in a process of its own. Why there is no answer, if there is none.
fn run(job: &Job, group: Option<&Group>) -> Result<Answer, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let text = serde_json::to_string(job).map_err(|error| error.to_string())?;
    let _ = std::fs::remove_file(&job.answer);
    let ended = Command::new(program)
        .args(["--exact", "child", "--nocapture"])
        .env(JOB, text)
        .output()
        .map_err(|error| error.to_string())?;
    if group.is_some_and(Group::has_killed) {
        return Err("killed".into());
    }
    let answer = std::fs::read_to_string(&job.answer)
        .map_err(|_| format!("{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr)))?;
    serde_json::from_str(&answer).map_err(|error| error.to_string())
}

/// The databases, and what is run on them.
struct Bench {
    directory: PathBuf,
    missed: Vec<String>,
    /// Why there are no groups.
    without: Option<String>,
}

impl Bench {
    fn job(&self, sizes: Sizes, structure: Structure, workload: Workload, threads: usize) -> Job {
        let name = format!("{structure}-{}-{}", sizes.records, sizes.value_size);
        Job {
            group: None,
            database: self.directory.join(name),
            answer: self.directory.join("answer"),
            sizes,
            structure: structure.to_string(),
            workload: workload.to_string(),
            threads,
        }
    }

    /// Fills what the workloads read, where it is not there from before.
    fn fill(&self, sizes: Sizes, structure: Structure, fills: &[Workload]) {
        for workload in fills {
            let job = self.job(sizes, structure, *workload, 2);
            let done = self.directory.join(format!("{structure}-{}-{}.{workload}", sizes.records, sizes.value_size));
            if !done.exists() {
                run(&job, None).expect("fills");
                std::fs::write(done, "").expect("notes it");
            }
        }
    }

    fn measure(&mut self, sizes: Sizes, structure: Structure, workload: Workload, threads: usize) {
        let bound = sizes.memory_bytes + BESIDES_BYTES;
        let group = Group::create(bound).map_err(|why| self.without = Some(why)).ok();
        let job = Job { group: group.as_ref().map(Group::members), ..self.job(sizes, structure, workload, threads) };
        let row = format!("{structure:<6} {:>4} B {workload:<22} {threads:>2} threads", sizes.value_size);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        match run(&job, group.as_ref()) {
            Ok(answer) => {
                let is_over = answer.peak_bytes > bound;
                println!(
                    "{row}  {:>6.1} of {:>3.0} MiB, the program {:>4.1}; {:>9.0}/s{}",
                    mib(answer.peak_bytes),
                    mib(bound),
                    mib(answer.program_bytes),
                    answer.per_second,
                    if is_over { "  TOO MUCH" } else { "" }
                );
                if is_over {
                    self.missed.push(row);
                }
            }
            Err(why) => {
                println!("{row}  of {:>3.0} MiB: {why}", mib(bound));
                self.missed.push(format!("{row}: {why}"));
            }
        }
    }

    fn end(self) {
        if let Some(why) = self.without {
            println!("not in control groups, for there can be none: {why}");
        }
        assert!(self.missed.is_empty(), "too much memory:\n{}", self.missed.join("\n"));
    }
}

/// What `BRAID_MEMORY` names: of each kind of which it names none, all.
struct Wanted(HashMap<&'static str, Vec<String>>);

impl Wanted {
    fn new(text: &str) -> Self {
        let mut words: HashMap<_, Vec<_>> = HashMap::new();
        for word in text.split_whitespace().filter(|word| *word != "all") {
            let kind = if word.parse::<Structure>().is_ok() {
                "structure"
            } else if word.parse::<usize>().is_ok() {
                "threads"
            } else {
                word.parse::<Workload>().expect("a structure, a number of threads, or a workload");
                "workload"
            };
            words.entry(kind).or_default().push(word.to_owned());
        }
        Self(words)
    }

    fn has(&self, kind: &str, word: &dyn ToString) -> bool {
        self.0.get(kind).is_none_or(|words| words.contains(&word.to_string()))
    }
}

#[test]
fn peak_is_within_the_bound() {
    if std::env::var(JOB).is_ok() {
        return;
    }
    let kept = std::env::var(DIRECTORY).ok();
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let directory = kept.map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    std::fs::create_dir_all(&directory).expect("a directory");
    let mut bench = Bench { directory, missed: Vec::new(), without: None };
    match std::env::var(ROWS) {
        Ok(rows) => all(&mut bench, &Wanted::new(&rows)),
        Err(_) => short(&mut bench),
    }
    bench.end();
}

fn short(bench: &mut Bench) {
    for structure in STRUCTURES {
        bench.fill(SHORT, structure, &[Workload::FillRandom]);
        for (workload, threads) in SHORT_ROWS {
            bench.measure(SHORT, structure, workload, threads);
        }
    }
}

fn all(bench: &mut Bench, wanted: &Wanted) {
    for sizes in ALL {
        for structure in STRUCTURES.into_iter().filter(|structure| wanted.has("structure", structure)) {
            bench.fill(sizes, structure, &[Workload::FillRandom, Workload::YcsbLoad]);
            for workload in Workload::ALL.into_iter().filter(|workload| wanted.has("workload", workload)) {
                for threads in THREADS.into_iter().filter(|threads| wanted.has("threads", threads)) {
                    bench.measure(sizes, structure, workload, threads);
                }
            }
        }
    }
}
