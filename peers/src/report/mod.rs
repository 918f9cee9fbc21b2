//! The report: the measurements, in the order of the table, and their conditions.
//!
//! The report is always made from the samples and the sizes of a run alone, so it can be written in the middle of one.
//! No row is left out: an unmeasured row is empty, and a failed row says why.

mod lines;
mod plot;
mod table;

use std::path::Path;
use std::process::Command;

use bench::reproduce::figure::number;
use bench::reproduce::machine::Machine;

use crate::error::{Error, Result};
use crate::run::Sizes;
use crate::sample::{self, Cell, DEVICE, Sample};
use crate::store::{CONTESTANTS, Contestant};
use crate::work::{Metric, Set, Work};

use lines::{Section, grouped, sections};

/// The lock file, with the versions of the stores.
const LOCK: &str = include_str!("../../Cargo.lock");

/// Writes plots and the report of the samples in a directory.
pub(crate) fn write(out: &Path) -> Result<()> {
    let sizes = Sizes::read(out)?;
    let samples = sample::read(&out.join("samples.csv"))?;
    let mut parts = Vec::new();
    for section in sections(&sizes) {
        let drawn = plot::draw(&section, &samples, &out.join(format!("{}.svg", section.stem)))?;
        parts.push((section, drawn));
    }
    let path = out.join("report.md");
    let text = markdown(&sizes, &samples, &parts, &Machine::here(out));
    std::fs::write(&path, text).map_err(Error::io("writing", &path))
}

fn markdown(sizes: &Sizes, samples: &[Sample], parts: &[(Section, bool)], machine: &Machine) -> String {
    let mut text = "# Braid beside RocksDB, LMDB, redb and fjall\n\n".to_owned();
    text += &head(sizes, samples, machine);
    text += &method(sizes);
    for (section, is_drawn) in parts {
        text += &format!("\n## {}\n\n", section.title);
        text += &table::section(section, samples);
        if *is_drawn {
            text += &format!("\n![{}]({}.svg)\n", section.title, section.stem);
        }
    }
    text += &device(samples);
    text += &memory(samples);
    text += &stores();
    text + &failures(samples)
}

fn head(sizes: &Sizes, samples: &[Sample], machine: &Machine) -> String {
    let mebibytes = |bytes: u64| format!("{} MiB", bytes >> 20);
    let rounds = samples.iter().map(|sample| sample.round + 1).max().unwrap_or(0);
    let whole = sizes.records == Sizes::RECORDS && sizes.rounds >= 3;
    let size = format!(
        "{} records of 16 + 100 B ({}), {} of 16 + 1024 B ({}); {} of {} rounds, samples of {:.1} s{}",
        grouped(sizes.records),
        mebibytes(sizes.user_bytes(Set::Small)),
        grouped(Set::Large.records(sizes.records)),
        mebibytes(sizes.user_bytes(Set::Large)),
        rounds,
        sizes.rounds,
        sizes.pace.time.as_secs_f64(),
        if whole { "" } else { " (**not the whole measurement, which has 3 000 000 records and three rounds**)" },
    );
    let memory = format!(
        "{} of cache ({:.1}x as much data), {} of write buffer, {} for a process that reads, page cache included",
        mebibytes(sizes.cache_bytes),
        sizes.user_bytes(Set::Small) as f64 / sizes.cache_bytes as f64,
        mebibytes(sizes.write_buffer_bytes),
        mebibytes(sizes.limit_bytes),
    );
    let of_machine = machine.memory_bytes.map_or_else(|| "unknown".to_owned(), mebibytes);
    let rows = [
        ("made by", format!("`make peers`, Braid {}{}", machine.version, commit())),
        ("date", machine.date.clone()),
        ("data", size),
        ("memory of a store", memory),
        ("processor", format!("{} x {}", machine.processors, machine.processor)),
        ("memory of the machine", of_machine),
        ("kernel", machine.kernel.clone()),
        ("file system", machine.file_system.clone()),
    ];
    let mut text = "| | |\n|---|---|\n".to_owned();
    for (name, value) in rows {
        text += &format!("| {name} | {} |\n", table::plain(&value));
    }
    text
}

/// The commit that is checked out, where this directory is a checkout.
fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let output = output.ok().filter(|output| output.status.success());
    let hash = output.and_then(|output| String::from_utf8(output.stdout).ok());
    hash.map_or_else(String::new, |hash| format!(" (at {})", hash.trim()))
}

fn method(sizes: &Sizes) -> String {
    let seconds = sizes.pace.time.as_secs_f64();
    let warm_up = sizes.pace.warm_up.as_secs_f64();
    format!(
        "\n\
- A figure is the median of the rounds, with least and most behind it; **bold** is the best of its row. In each \
round every store has its turn in each row, beginning with another store \
each time. Every sample is in [samples.csv](samples.csv).\n\
- \"btree : best peer\" is above 1x where Braid is better, whichever way is better. Where LMDB is the best peer, the \
best of the others stands behind it. \"device\" is the rate of the device's own random \
reads of 4 KiB with as many in flight as there are threads (128 for the multi-get), or of writes of 4 KiB with a \
flush each: measured right before each store, with no store on the path.\n\
- A sample is a process of its own that opens the store, works for {warm_up} s that do not count and {seconds} s \
that do. One that reads is in a control group whose memory is limited, the page cache \
counted; fills, warm gets and commits are not limited. What is read is dropped from the page cache before, and every \
value that is read, and the count of every scan, is checked.\n\
- Nothing is set but the memory, what each manual advises for it, and the durability. `Os`: a commit is handed to \
the operating system, and no flush is waited for. `Sync`: a commit is on stable \
storage when it returns.\n\
- A fill is one thread that puts every record once, in commits of 1000. Its first rate ends with the last commit, \
the second with the flush that brings everything to stable storage and into the \
store's structure (a checkpoint, a flush of the memtables, a sync of the file). Bytes are counted when nothing is \
done in the background any more, as the device counts them for the whole machine, once what is in the page cache is \
written; what a store keeps ahead of use, such as preallocated files, is in the bytes on storage.\n\
- Each round fills a database anew in random order; the rows of lookups, scans and YCSB read it in the order of the \
tables, those that change it last (C, B, F, A, E). YCSB: a record is one value, an \
update puts it anew, inserts go between the records at random places.\n\
- Cold gets, scans and multi-gets begin with nothing in memory, but what a store reads in its warm-up it may keep. \
Absent keys lie between those that are there.\n"
    )
}

fn device(samples: &[Sample]) -> String {
    let mut text =
        "\n## What the device gave by itself\n\n| beside | median | least | most |\n|---|--:|--:|--:|\n".to_owned();
    for work in Work::all() {
        if let Cell::Figures { median, least, most, .. } = Cell::of(samples, &work.name(), DEVICE, Metric::PerSecond) {
            let [median, least, most] = [median, least, most].map(|rate| format!("{rate:.0}/s"));
            text += &format!("| {} | {median} | {least} | {most} |\n", work.name());
        }
    }
    text
}

fn memory(samples: &[Sample]) -> String {
    let mut text =
        "\n## Memory\n\nThe most that the group of a process that reads had, page cache included, over all rows and \
        rounds.\n\n|"
            .to_owned();
    let names = CONTESTANTS.iter().map(|store| store.name);
    names.for_each(|name| text += &format!(" {name} |"));
    text += &format!("\n|{}\n|", "--:|".repeat(CONTESTANTS.len()));
    for store in CONTESTANTS {
        let own = samples.iter().filter(|sample| sample.store == store.name);
        let peaks = own.filter(|sample| sample.metric == Metric::PeakMemory.name()).filter_map(|sample| sample.value);
        let peak = peaks.reduce(f64::max);
        text += &peak.map_or_else(|| " |".to_owned(), |bytes| format!(" {} MiB |", number(bytes / f64::from(1 << 20))));
    }
    text + "\n"
}

fn stores() -> String {
    let mut text = "\n## How the stores were set\n\n| store | version | set |\n|---|---|---|\n".to_owned();
    for store in CONTESTANTS {
        text += &format!("| {} | {} | {} |\n", store.name, versions(store, LOCK), table::plain(store.setting));
    }
    text
}

/// The versions of a store's packages.
fn versions(store: &Contestant, lock: &str) -> String {
    let version = |package: &&str| {
        let name = format!("name = \"{package}\"");
        let mut lines = lock.lines().skip_while(|line| *line != name);
        let version = lines.nth(1).and_then(|line| line.strip_prefix("version = \""));
        format!("{package} {}", version.map_or("unknown", |version| version.trim_end_matches('"')))
    };
    store.packages.iter().map(version).collect::<Vec<_>>().join(", ")
}

fn failures(samples: &[Sample]) -> String {
    let failed: Vec<&Sample> = samples.iter().filter(|sample| !sample.failure.is_empty()).collect();
    if failed.is_empty() {
        return "\nNo sample failed.\n".to_owned();
    }
    let mut text = "\n## What failed\n\n| row | store | round | why |\n|---|---|--:|---|\n".to_owned();
    for sample in failed {
        let why = table::plain(&sample.failure);
        text += &format!("| {} | {} | {} | {why} |\n", sample.row, sample.store, sample.round + 1);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drive::Pace;

    fn report(samples: &[Sample]) -> String {
        let sizes = Sizes::of(Sizes::RECORDS, 3, Pace { warm_up: Duration::ZERO, time: Duration::from_secs(3) });
        let parts: Vec<_> = sections(&sizes).into_iter().map(|section| (section, true)).collect();
        markdown(&sizes, samples, &parts, &Machine::here(Path::new(".")))
    }

    #[test]
    fn a_report_leaves_no_row_out_and_tells_what_failed() {
        let failed = Sample {
            round: 1,
            row: "scan-100".into(),
            store: "redb".into(),
            metric: String::new(),
            value: None,
            failure: "wrong answer: a|b".into(),
            unlimited: String::new(),
        };
        let text = report(&[failed]);
        for part in [
            "cold get, 32 threads",
            "scan of 1 000 000",
            "E: short scans, 5 % inserts, uniform",
            "commits of one put, 64 threads",
        ] {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.contains("| scan-100 | redb | 2 | wrong answer: a\\|b |"), "{text}");
        assert!(report(&[]).contains("No sample failed"));
    }

    #[test]
    fn versions_are_those_that_are_locked() {
        for store in CONTESTANTS {
            let versions = versions(store, LOCK);
            assert!(!versions.contains("unknown"), "{}: {versions}", store.name);
        }
        assert_eq!(versions(&CONTESTANTS[0], ""), "braid unknown");
    }
}
