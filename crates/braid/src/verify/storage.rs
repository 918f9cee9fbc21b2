//! Checks the parts that no table leads to: the superblock, the checkpoint image, and the log.
//!
//! 1. Both slots of the superblock must be whole while the database is open for writing, because opening overwrites a
//!    slot that a crash tore. A database opened read-only may have a torn slot; the finding then says so.
//! 2. The image that the superblock names must have the named checksum.
//! 3. The log is read from the start of the kept part up to the newest written record. Every group must check, every
//!    record of a commit or table must decode, and no seq may be missing.

use wal::Reader;

use crate::{
    engine::Engine,
    error::{Error, Result},
    format::decoded::decodes,
    root::image,
    verify::report::Verification,
};

/// Adds the findings.
pub(crate) fn run(engine: &Engine, result: &mut Verification) -> Result<()> {
    superblock(engine, result)?;
    log(engine, result)
}

fn superblock(engine: &Engine, result: &mut Verification) -> Result<()> {
    // Held, so that no checkpoint replaces the slots or the image meanwhile.
    let superblock = engine.superblock.lock();
    for problem in superblock.bad_slots()? {
        let note = if engine.options.read_only {
            "; a crash while it was written explains it, and opening for writing mends it"
        } else {
            ""
        };
        result.findings.push(format!("{problem}{note}"));
    }
    match image::read_image(&engine.store, &superblock) {
        Ok(_) => {}
        Err(error @ Error::Corrupt { .. }) => result.findings.push(error.to_string()),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn log(engine: &Engine, result: &mut Verification) -> Result<()> {
    // A checkpoint may trim the log while it is read. Then reading begins again at the new beginning, as long as that
    // moves.
    let mut last = None;
    loop {
        let from = engine.retention.kept().seq.0 - 1;
        let newest = engine.publisher.visible().0;
        match read(engine, from, newest, result) {
            Err(Error::ChangesGone { oldest, .. }) if last != Some(oldest) => last = Some(oldest),
            Err(error @ (Error::Corrupt { .. } | Error::ChangesGone { .. })) => {
                result.findings.push(error.to_string());
                return Ok(());
            }
            outcome => return outcome,
        }
    }
}

/// Reads the records after `from`, up to `newest` at least.
fn read(engine: &Engine, from: u64, newest: u64, result: &mut Verification) -> Result<()> {
    let (mut reader, mut next, mut records) = (Reader::new(from), from + 1, 0);
    let mut findings = Vec::new();
    let mut more = true;
    while more && next <= newest {
        let shown = reader.read(&engine.wal, &mut |record| {
            if record.seq != next {
                findings.push(missing(engine, record.lsn, next, record.seq));
            }
            if let Err(error) = decodes(&engine.path, record) {
                findings.push(error.to_string());
            }
            next = record.seq + 1;
            records += 1;
        });
        more = shown?;
    }
    // Commits that a power cut may lose need not be written yet.
    result.log_records += records;
    result.findings.extend(findings);
    Ok(())
}

fn missing(engine: &Engine, lsn: wal::Lsn, expected: u64, found: u64) -> String {
    let (expected, found) = (format!("seq {expected}"), format!("seq {found}"));
    crate::error::convert::malformed_record(&engine.path, lsn, expected, found).to_string()
}
