//! The file of a segment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use psync::{BLOCK, File};

use crate::Claim;

pub(crate) const DIRECTORY: &str = "wal";

/// Bytes of the very first segment of a log at the beginning.
pub(super) const FIRST_ROOM: u64 = 64 << 10;

/// Parts into which the room is divided. A claim leaves one part to higher claims for each spare that it would leave.
const ROOM_PARTS: u64 = 4;

/// A file that holds a segment, or can hold one.
#[derive(Debug)]
pub(crate) struct SegmentFile {
    pub(super) index: u64,
    pub(crate) file: File,
    /// Bytes of the file that the disk has. They are less than a segment in a young file, and in one that was cut,
    /// until the log needs more.
    pub(super) room: AtomicU64,
    /// Whether spares are made as the segment fills.
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

    /// Bytes up to which this claim may fill the segment, of `segment_bytes` at most, if the spares that the claim
    /// leaves to others are there.
    pub(crate) fn room_for(&self, claim: Claim, segment_bytes: u64) -> u64 {
        if self.is_whole(segment_bytes) { segment_bytes } else { self.part_for(claim) }
    }

    /// Bytes up to which this claim may fill the segment where others have no spares.
    pub(crate) fn part_for(&self, claim: Claim) -> u64 {
        let room = self.room();
        // The last block is left to the group that marks the next opening.
        room - (room / ROOM_PARTS * claim.leaves() as u64).max(BLOCK as u64)
    }

    /// Whether this claim may fill the segment up to `end` though there are no spares.
    pub(crate) fn needs_no_spares(&self, end: u64, claim: Claim) -> bool {
        self.is_young() && end <= self.part_for(claim)
    }
}

/// The file's name, in the directory of the database.
pub(super) fn file_name(index: u64) -> String {
    format!("{DIRECTORY}/{index}.log")
}
