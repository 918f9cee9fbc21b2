//! Why writers were slowed down ([`crate::engine::pressure`]), and for how long.

use std::time::Duration;

/// How long commits were delayed since opening, so that writers settle at the speed of what they wait for. A commit
/// counts for the strongest reason. In all these figures the delays of threads side by side are added up.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DelayStats {
    /// The strongest reason for a delay now: `write buffer`, `log` or `merges`. None where commits go at full speed.
    pub now: Option<String>,
    /// How strong it is: above 0, up to 1.
    pub strength: f64,
    /// Nanoseconds, because the write buffer was nearly full of operations that waited to be applied.
    pub write_buffer_ns: u64,
    /// Nanoseconds, because the log that a recovery needs was long.
    pub log_ns: u64,
    /// Nanoseconds, because a structure was behind with its merges.
    pub merges_ns: u64,
    /// Nanoseconds in which commits waited for memory of the write buffer.
    pub memory_ns: u64,
    /// Nanoseconds, because new documents came faster than dead ones were cleaned away.
    pub cleaning_ns: u64,
}

/// A reason for a delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    WriteBuffer,
    Log,
    Merges,
    Memory,
    Cleaning,
}

impl Reason {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::WriteBuffer => "write buffer",
            Self::Log => "log",
            Self::Merges => "merges",
            Self::Memory => "memory",
            Self::Cleaning => "cleaning",
        }
    }
}

impl DelayStats {
    pub(crate) fn note(&mut self, reason: Reason, delay: Duration) {
        let sum = match reason {
            Reason::WriteBuffer => &mut self.write_buffer_ns,
            Reason::Log => &mut self.log_ns,
            Reason::Merges => &mut self.merges_ns,
            Reason::Memory => &mut self.memory_ns,
            Reason::Cleaning => &mut self.cleaning_ns,
        };
        *sum = sum.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX));
    }
}
