//! The file of a segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use psync::{BLOCK, File};

use crate::Claim;

pub(crate) const DIRECTORY: &str = "wal";

/// Quarters of what room there is are left to those who claim more, as many as spares.
const ROOM_PARTS: u64 = 4;

/// A file that holds a segment, or can.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(super) index: u64,
    pub(crate) file: File,
    /// Bytes of it that the disk has: less than a segment in a young one, and in one that was cut, until the log needs more.
    pub(super) room: AtomicU64,
    /// Spares come with its use.
    pub(super) is_young: AtomicBool,
}

impl SegmentFile {
    pub(super) fn new(index: u64, file: File, room: u64, is_young: bool) -> Arc<Self> {
        Arc::new(Self { index, file, room: AtomicU64::new(room), is_young: AtomicBool::new(is_young) })
    }

    pub(crate) fn name(&self) -> String {
        file_name(self.index)
    }

    pub(crate) fn room(&self) -> u64 {
        self.room.load(Ordering::Acquire)
    }

    pub(super) fn is_young(&self) -> bool {
        self.is_young.load(Ordering::Relaxed)
    }

    pub(super) fn is_whole(&self, segment_bytes: u64) -> bool {
        self.room() >= segment_bytes
    }

    /// Bytes up to which somebody with this claim may fill it, of so many at most, if the spares that he leaves to others are there.
    pub(crate) fn room_for(&self, claim: Claim, segment_bytes: u64) -> u64 {
        if self.is_whole(segment_bytes) { segment_bytes } else { self.part_for(claim) }
    }

    /// Bytes up to which somebody with this claim may fill it where others have nothing else.
    pub(crate) fn part_for(&self, claim: Claim) -> u64 {
        let room = self.room();
        // Behind all others is what marks the next opening.
        room - (room / ROOM_PARTS * claim.leaves() as u64).max(BLOCK as u64)
    }

    /// Whether somebody with this claim may fill it up to here though there are no spares.
    pub(crate) fn needs_no_spares(&self, end: u64, claim: Claim) -> bool {
        self.is_young() && end <= self.part_for(claim)
    }
}

/// Its name, in the directory of the database.
pub(super) fn file_name(index: u64) -> String {
    format!("{DIRECTORY}/{index}.log")
}
