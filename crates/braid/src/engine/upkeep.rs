//! The state of upkeep, behind the lock of upkeep ([`Engine::upkeep`](crate::engine::Engine)).
//!
//! Whoever has `&mut Upkeep` holds that lock. So structures, queues and checkpoints stand still for everybody else, and
//! a function that counts on this takes `&mut Upkeep`.

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
