//! `braid verify`: a check of the whole database.

use std::time::Instant;

use clap::Args;
use serde::Serialize;

use crate::exit::{Error, Exit, Result};
use crate::open::{DatabaseArgs, Mode};
use crate::output::Output;
use crate::progress::Progress;
use crate::units::{bytes, count, percent, seconds};

/// Check every page, record, checksum and document of a database
///
/// Reads everything, the superblock, the newest checkpoint and the log too, and changes nothing. Each page has to be
/// used once or free, and the counts of document bytes have to match the documents in use. A finding is a line that
/// names the file and the place. With findings the exit code is 5; what they do not affect stays readable.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  braid verify my.db                            no findings: exit code 0
  braid verify my.db --json | jq .findings      for programs")]
pub(crate) struct Verify {
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Serialize)]
struct Report {
    findings: Vec<String>,
    keys: u64,
    tables: u64,
    documents: u64,
    document_bytes: u64,
    document_stored_bytes: u64,
    log_records: u64,
    bytes: u64,
    seconds: f64,
}

impl Verify {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        let database = self.database.open(Mode::Read)?;
        let begun = Instant::now();
        let progress = Progress::count("verifying", None);
        let verification = database.verify_with(&mut |now| {
            progress.set(now.keys);
            progress.message(format!("keys, table {}", now.table));
        })?;
        drop(progress);
        let report = Report {
            findings: verification.findings,
            keys: verification.keys,
            tables: verification.tables,
            documents: verification.documents,
            document_bytes: verification.document_bytes,
            document_stored_bytes: verification.document_stored_bytes,
            log_records: verification.log_records,
            bytes: verification.bytes,
            seconds: begun.elapsed().as_secs_f64(),
        };
        let mut output = Output::new();
        if json {
            output.json(&report)?;
        } else {
            for finding in &report.findings {
                output.line(finding)?;
            }
            let findings = if report.findings.is_empty() { "no".into() } else { count(report.findings.len() as u64) };
            output.line(format!(
                "{findings} findings: {} keys and {} documents in {} tables, {} of pages and documents, {} log records, checked in {}",
                count(report.keys),
                count(report.documents),
                count(report.tables),
                bytes(report.bytes),
                count(report.log_records),
                seconds(report.seconds)
            ))?;
            if report.document_bytes > report.document_stored_bytes {
                let [given, stored] = [report.document_bytes, report.document_stored_bytes].map(bytes);
                let share = percent(report.document_stored_bytes as f64 / report.document_bytes as f64);
                output.line(format!("documents of {given} are stored in {stored}, {share} of that"))?;
            }
        }
        output.flush()?;
        match report.findings.len() {
            0 => Ok(Exit::Ok),
            findings => Err(Error::Damaged(format!("{} has {findings} findings", self.database.path.display()))),
        }
    }
}
