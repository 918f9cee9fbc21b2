//! The state of upkeep, behind the lock of upkeep ([`Engine::upkeep`](crate::engine::Engine)).
//!
//! Whoever has `&mut Upkeep` holds that lock: the worker during its turn, the end of a load, a rollback, and who looks
//! at all tables at once. So rounds, sweeps, cleaning and checkpoints come one after the other. A stretch of a
//! compaction runs beside them ([`crate::engine::stretches`]).
//!
//! A structure is changed by who holds its table ([`crate::tables::held`]).

use index::{Seq, Time};

use crate::engine::{cleaning::Cycle, sweeps::Relief};

#[derive(Default)]
pub(crate) struct Upkeep {
    /// The cycle of cleaning that is under way.
    pub(crate) cycle: Option<Cycle>,
    /// Dead bytes that the last checkpoint could not release.
    pub(crate) stuck_bytes: u64,
    pub(crate) relief: Relief,
    /// The next sweep takes requests before range tombstones.
    pub(crate) requests_first: bool,
    /// The time of the last look for expired keys.
    pub(crate) expiry_looked: Time,
    /// The seq that was visible when a checkpoint was last due for its age.
    pub(crate) aged: Seq,
    /// How many turns of the worker in a row ended in a failed read.
    pub(crate) read_failures: u32,
}
