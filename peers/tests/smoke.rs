//! The whole program on a few records: every store carries out every row, every value read is right, and the report
//! shows all rows.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const STORES: [&str; 6] = ["btree", "append", "rocksdb", "lmdb", "redb", "fjall"];
const ROWS: usize = 32;

fn peers(arguments: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peers"));
    command.args(arguments).arg("--out").arg(out).output().expect("the program runs")
}

fn run(out: &Path, more: &[&str]) -> Output {
    let sizes = ["run", "--records", "3000", "--rounds", "1", "--time", "40ms"];
    peers(&[&sizes, more].concat(), out)
}

/// The fields of every sample.
fn samples(out: &Path) -> Vec<csv::StringRecord> {
    let mut reader = csv::Reader::from_path(out.join("samples.csv")).expect("samples");
    reader.records().collect::<Result<_, _>>().expect("whole samples")
}

#[test]
fn every_store_carries_out_every_row() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let out = directory.path();
    let output = run(out, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let samples = samples(out);
    for sample in &samples {
        assert_eq!(&sample[5], "", "{sample:?} failed");
        let value: f64 = sample[4].parse().expect("a number");
        assert!(value >= 0.0 && value.is_finite(), "{sample:?}");
    }
    for store in STORES {
        let rates = samples.iter().filter(|sample| &sample[2] == store && &sample[3] == "per_second");
        assert_eq!(rates.count(), ROWS, "{store}");
    }
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(report.contains("No sample failed.") && report.contains("![YCSB](ycsb.svg)"), "{report}");
    assert!(out.join("reads.svg").exists() && !out.join("data").exists(), "plots stay, and databases go");
}

#[test]
fn a_run_that_is_stopped_goes_on() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let out = directory.path();
    let chosen = ["--rows", "cold-get-1,scan-100", "--stores", "lmdb,btree"];
    let stopped = run(out, &[&chosen[..], &["--for", "0s"]].concat());
    assert!(stopped.status.success() && String::from_utf8_lossy(&stopped.stdout).contains("--resume"));
    assert!(samples(out).is_empty());
    assert!(run(out, &[&chosen[..], &["--resume", "--keep"]].concat()).status.success());
    let first = samples(out);
    assert_eq!(first.iter().filter(|sample| &sample[1] == "scan-100" && &sample[3] == "per_second").count(), 2);
    // All samples exist: nothing is measured again.
    assert!(run(out, &[&chosen[..], &["--resume", "--keep"]].concat()).status.success());
    assert_eq!(samples(out), first);
    let other = peers(&["run", "--records", "2000", "--resume"], out);
    assert!(!other.status.success() && String::from_utf8_lossy(&other.stderr).contains("other sizes"));
}

#[test]
fn a_wrong_answer_is_a_row_that_failed() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let out = directory.path();
    let chosen = ["--stores", "btree", "--keep", "--rows"];
    assert!(run(out, &[&chosen[..], &["fill-random"]].concat()).status.success());
    // A database with fewer records than its mark says.
    let mark = out.join("data/btree/small.ready");
    let text = fs::read_to_string(&mark).expect("a mark").replace("3000 records", "6000 records");
    fs::write(&mark, text).expect("written");
    let more = peers(
        &[
            "run",
            "--records",
            "6000",
            "--rounds",
            "1",
            "--time",
            "40ms",
            "--reuse",
            "--stores",
            "btree",
            "--rows",
            "cold-get-1",
        ],
        out,
    );
    assert!(more.status.success(), "{}", String::from_utf8_lossy(&more.stderr));
    let failed = samples(out);
    assert!(failed.iter().any(|sample| sample[5].contains("is not there")), "{failed:?}");
    let report = fs::read_to_string(out.join("report.md")).expect("a report");
    assert!(report.contains("failed: wrong answer: index"), "{report}");
}
