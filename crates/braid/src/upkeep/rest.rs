//! Rest: the space that a database gives back to the disk when nobody writes any more. This happens at the close,
//! behind a requested checkpoint, and after half a minute without a commit. A compaction makes the data file give its
//! part back in any case.
//!
//! 1. What structures want rewritten is swept, as long as there is no commit ([`wanted::sweep_at_rest`]). This step is
//!    left out at the close, which would have to wait for the sweep.
//! 2. The log goes on in a short segment ([`wal::QUIET_ROOM`]), where its bytes on the disk are more than
//!    [`LOG_BYTES_MIN`] and more than a part of the data ([`LOG_PART`]).
//! 3. Free pages of the data file are taken out of use, all but its reserve.
//! 4. A checkpoint is written, which needs no log before it, and records the pages out of use. Where the image before
//!    it stood in the way, another checkpoint is written.
//! 5. Then the log's other segments are unlinked, and the data file is cut and punched.
//!
//! Later writers have all of this space made anew, step by step as they use it.
//!
//! Invariant: as a checkpoint's; no space is given back that the newest image counts on.

use seeded::Bug;
use space::PAGE;

use crate::{
    engine::{Engine, signal::Request, upkeep::Upkeep},
    error::Result,
    tables::usage,
    upkeep::{checkpoint, wanted},
};

/// The log of a database at rest may take so many bytes, or this part of its data.
const LOG_BYTES_MIN: u64 = 4 << 20;
const LOG_PART: u64 = 50;

/// Whether there is space to give back that is worth a checkpoint.
pub(crate) fn is_due(engine: &Engine) -> Result<bool> {
    if engine.pages.has_unread() {
        engine.flush_log()?;
    }
    let is_long = engine.options.retain_log_bytes == 0 && engine.wal.is_beyond(log_bytes(engine));
    Ok(is_long || engine.pages.has_surplus() || wanted::is_left(engine))
}

/// Writes a checkpoint, and gives back the space that is not needed at rest. More that is asked for behind `asked` ends
/// the sweeps before it.
pub(crate) fn checkpoint(engine: &Engine, held: &mut Upkeep, asked: Request) -> Result<()> {
    wanted::sweep_at_rest(engine, held, asked)?;
    // The part of the log that is kept for readers of changes is counted by positions, and this skips many positions.
    let keeps_log = engine.options.retain_log_bytes > 0;
    if !keeps_log && engine.wal.turn_over(log_bytes(engine))? {
        engine.forget_reserves();
    }
    if seeded::on(Bug::SegmentsGivenBackEarly) {
        engine.flush_log()?;
        engine.wal.trim(engine.wal.end())?;
    }
    cut(engine, held)?;
    Ok(engine.wal.rest()?)
}

/// Writes a checkpoint, and gives back the space that the data file does not need.
pub(crate) fn cut(engine: &Engine, held: &mut Upkeep) -> Result<()> {
    let _alone = engine.stretches.alone();
    for _ in 0..2 {
        // The changes that gave up the left out pages must be durable, because a writer that fills these pages again
        // writes there before any flush.
        engine.flush_log()?;
        engine.pages.leave_out();
        if seeded::on(Bug::TailCutEarly) {
            engine.pages.give_back();
        }
        checkpoint::write(engine, held)?;
        engine.pages.give_back();
        if !engine.pages.ends_free() {
            break;
        }
    }
    Ok(())
}

/// Bytes that the log may take at rest.
fn log_bytes(engine: &Engine) -> u64 {
    let used = engine.pages.stats().used_pages() * PAGE as u64;
    LOG_BYTES_MIN.max((used + usage::segment_bytes(&engine.catalog)) / LOG_PART)
}
