//! The segments of a table: the place of the next document, and the live bytes of each segment. No I/O happens here.
//!
//! 1. Documents go to the active segment of their [`Lane`]. A document larger than half a segment gets a segment of its
//!    own, so that the active segment is not closed half full.
//! 2. When a new file is needed, `reserve` stops. The caller makes the file outside the lock, offers it as a spare and
//!    goes on.
//! 3. A document that was appended since open is pending until it is retained or abandoned. A pending document keeps
//!    its segment from being released.
//! 4. A segment is released if, at the last image, it was sealed and had neither live bytes nor pending documents. An
//!    image seals an active segment in which everything is dead. After the checkpoint that keeps the image, recovery
//!    has no use for the segment. The kept log may still name its documents, so the last commit that names one is
//!    recorded per segment.
//! 5. A **pinned** segment has documents of an older state to which the table may be rolled back. The segment stays,
//!    dead or not. Its dead bytes count neither as garbage nor as space that a checkpoint could release.
//!
//! Invariant: reserved ranges of a segment are disjoint, and the range of a failed append is given out again only if it
//! was the last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use psync::File;

use crate::files::SegmentFiles;
use crate::format::{ALIGNMENT, HEADER};
use crate::{DocImage, DocLength, DocPointer, Error, Result, SegmentId, SegmentImage};

/// Space of a document log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of segments.
    pub segments: u64,
    /// Bytes of all segments, including dead and reserved ones.
    pub bytes: u64,
    /// Bytes of retained documents, with headers and padding. A document to which several versions of its key refer
    /// counts as often.
    pub live_bytes: u64,
    /// Bytes of pinned segments that are not live: older states hold them.
    pub pinned_bytes: u64,
    /// Bytes of segments that have nothing live, and that no state pins: the next image lets them be released.
    pub dead_bytes: u64,
    /// Documents appended since open and neither retained nor abandoned.
    pub pending_documents: u64,
}

/// The class of documents that are appended together. Relocated documents have lived long and will likely live on, so
/// they share no segment with new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// New documents.
    New,
    /// Documents relocated from other segments. Their mover flushes them, so no commit has to wait for that.
    Moved,
}

/// The usage of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The segment.
    pub segment: SegmentId,
    /// Bytes of the segment, including dead and reserved ones. For a pinned segment only the live bytes, because
    /// nothing else can be gained.
    pub bytes: u64,
    /// Bytes of retained documents, with headers and padding.
    pub live_bytes: u64,
    /// Whether the segment gets no more documents and has none pending.
    pub is_settled: bool,
}

/// Documents of one segment that are retained together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The segment.
    pub segment: SegmentId,
    /// Bytes of the documents, with headers and padding.
    pub bytes: u64,
    /// End of the last of the documents.
    pub end: u64,
}

impl Retained {
    /// Counts one more document; the documents of a load come segment by segment, nearly in order.
    pub fn count(list: &mut Vec<Self>, pointer: &DocPointer) {
        let bytes = pointer.stored_bytes();
        let end = pointer.offset + bytes;
        match list.iter_mut().rev().find(|retained| retained.segment == pointer.segment) {
            Some(retained) => {
                retained.bytes += bytes;
                retained.end = retained.end.max(end);
            }
            None => list.push(Self { segment: pointer.segment, bytes, end }),
        }
    }

    /// The change from live bytes `now` per segment to the live bytes of `then`: the documents to retain again, and the
    /// dead bytes per segment.
    #[must_use]
    pub fn difference(now: &BTreeMap<SegmentId, u64>, then: &[Self]) -> (Vec<Self>, Vec<(SegmentId, u64)>) {
        let mut dead = now.clone();
        let mut again = Vec::new();
        for retained in then {
            let live = dead.remove(&retained.segment).unwrap_or(0);
            match retained.bytes.checked_sub(live) {
                Some(0) => {}
                Some(bytes) => again.push(Self { bytes, ..*retained }),
                None => drop(dead.insert(retained.segment, live - retained.bytes)),
            }
        }
        (again, dead.into_iter().filter(|(_, bytes)| *bytes > 0).collect())
    }
}

/// The state of a segment.
#[derive(Debug, Default)]
struct Segment {
    /// Bytes reserved, or found in the file at open.
    end: u64,
    /// End of the last document that was ever retained.
    retained_end: u64,
    live_bytes: u64,
    /// Seq of the last commit that names a document of the segment.
    last_commit: u64,
    /// Offsets of pending documents.
    pending: BTreeSet<u64>,
    /// See the module's point 4.
    dead_in_image: bool,
    /// See the module's point 5.
    pinned: bool,
}

impl Segment {
    fn is_dead(&self) -> bool {
        self.live_bytes == 0 && self.pending.is_empty()
    }
}

/// Room for consecutive documents in one segment.
#[derive(Debug)]
pub(crate) struct Reservation {
    pub(crate) segment: SegmentId,
    pub(crate) file: File,
    pub(crate) offset: u64,
    pub(crate) end: u64,
    /// Whether the segment has no room for other reservations.
    pub(crate) alone: bool,
}

/// All segments of a table.
#[derive(Debug)]
pub(crate) struct Segments {
    /// For errors.
    files: Arc<SegmentFiles>,
    segment_bytes: u64,
    next: SegmentId,
    all: BTreeMap<SegmentId, Segment>,
    /// The unsealed segment of each lane, and its file for appending.
    active: [Option<(SegmentId, File)>; 2],
    /// Files made for a segment and not used yet.
    spare: Vec<(SegmentId, File)>,
    /// Files written since the log last took them.
    unflushed: BTreeMap<SegmentId, File>,
}

impl Segments {
    /// The segments as `image` and the files describe them, all sealed, and their damage. `found` are the files and
    /// their lengths.
    pub(crate) fn new(
        files: Arc<SegmentFiles>, segment_bytes: u64, image: &DocImage, found: &[(SegmentId, u64)],
    ) -> (Self, Vec<Error>) {
        let mut damage = Vec::new();
        let after = found.last().map_or(0, |(last, _)| last.0);
        let mut all: BTreeMap<_, _> =
            found.iter().map(|&(id, end)| (id, Segment { end, ..Segment::default() })).collect();
        for kept in &image.segments {
            let there = all.get(&kept.id).map(|segment| segment.end);
            if there.is_none() && kept.live_bytes == 0 {
                // Released after the checkpoint.
                continue;
            }
            let end = there.unwrap_or(0);
            if end < kept.length {
                let [expected, found] = [kept.length, end].map(|bytes| format!("at least {bytes} bytes"));
                let found = there.map_or_else(|| "no file".to_owned(), |_| found);
                damage.push(Error::corrupt(&files.path(kept.id), end, "length", expected, found));
            }
            let segment = all.entry(kept.id).or_default();
            segment.retained_end = kept.length;
            segment.live_bytes = kept.live_bytes;
            segment.last_commit = kept.last_commit;
        }
        let segments = Self {
            files,
            segment_bytes,
            next: SegmentId(image.next.0.max(after.saturating_add(1))),
            all,
            active: [None, None],
            spare: Vec::new(),
            unflushed: BTreeMap::new(),
        };
        (segments, damage)
    }

    /// Reserves room for a document of this length; `false` if that needs another file.
    pub(crate) fn reserve(&mut self, length: DocLength, lane: Lane, reserved: &mut Vec<Reservation>) -> bool {
        let bytes = length.room();
        let alone = bytes > self.segment_bytes / 2;
        let Some((id, file)) = self.place(bytes, alone, lane) else {
            return false;
        };
        let segment = self.all.entry(id).or_default();
        let offset = segment.end;
        segment.end += bytes;
        segment.pending.insert(offset);
        match reserved.last_mut() {
            Some(last) if last.segment == id && last.end == offset => last.end = segment.end,
            _ => reserved.push(Reservation { segment: id, file, offset, end: segment.end, alone }),
        }
        true
    }

    /// The segment with room for `bytes` bytes, if there is one, or a spare file for one.
    fn place(&mut self, bytes: u64, alone: bool, lane: Lane) -> Option<(SegmentId, File)> {
        if alone {
            return self.spare.pop();
        }
        if let Some((id, file)) = &self.active[lane as usize] {
            let end = self.all.get(id).map_or(0, |segment| segment.end);
            if end + bytes <= self.segment_bytes {
                return Some((*id, file.clone()));
            }
        }
        self.active[lane as usize] = Some(self.spare.pop()?);
        self.active[lane as usize].clone()
    }

    pub(crate) const fn set_segment_bytes(&mut self, bytes: u64) {
        self.segment_bytes = bytes;
    }

    fn is_active(&self, segment: SegmentId) -> bool {
        self.active.iter().flatten().any(|(id, _)| *id == segment)
    }

    /// Seals the active segments with content; later appends go to other segments.
    pub(crate) fn seal(&mut self) {
        for (id, file) in std::mem::take(&mut self.active).into_iter().flatten() {
            if self.all.get(&id).is_none_or(|segment| segment.end == 0) {
                self.all.remove(&id);
                self.spare.push((id, file));
            }
        }
    }

    /// The usage of each segment.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        let usage = self.all.iter().map(|(&id, segment)| Usage {
            segment: id,
            bytes: if segment.pinned { segment.live_bytes } else { segment.end },
            live_bytes: segment.live_bytes,
            is_settled: !self.is_active(id) && segment.pending.is_empty(),
        });
        usage.collect()
    }

    /// The number of a segment whose file is about to be made.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when there is none. Numbers are counted up, so a file with a number that no segment ever had
    /// was put there from outside.
    pub(crate) fn number(&mut self) -> Result<SegmentId> {
        let number = SegmentId(self.next.0.max(1));
        let Some(next) = number.0.checked_add(1) else {
            let path = self.files.path(self.all.last_key_value().map_or(number, |(last, _)| *last));
            let expected = "a number that others can follow".to_owned();
            return Err(Error::corrupt(&path, 0, "number of the segment", expected, "the last one"));
        };
        self.next = SegmentId(next);
        Ok(number)
    }

    pub(crate) fn offer(&mut self, segment: SegmentId, file: File) {
        self.spare.push((segment, file));
    }

    /// Notes everything reserved as written.
    pub(crate) fn written(&mut self, reserved: Vec<Reservation>) {
        for reservation in reserved {
            self.unflushed.insert(reservation.segment, reservation.file);
        }
    }

    /// Gives back room that will not be used. Room at the end of a segment is given out again, so that attempts on a
    /// full disk do not add up.
    pub(crate) fn give_back(&mut self, reserved: Vec<Reservation>) {
        for reservation in reserved.into_iter().rev() {
            let Some(segment) = self.all.get_mut(&reservation.segment) else {
                continue;
            };
            segment.pending.retain(|offset| !(reservation.offset..reservation.end).contains(offset));
            if segment.end == reservation.end {
                segment.end = reservation.offset;
            }
            let is_empty = segment.end == 0;
            if is_empty && !self.is_active(reservation.segment) {
                self.all.remove(&reservation.segment);
                self.spare.push((reservation.segment, reservation.file));
            }
        }
    }

    /// Adds a file to the next flush.
    pub(crate) fn note_unflushed(&mut self, segment: SegmentId, file: File) {
        self.unflushed.entry(segment).or_insert(file);
    }

    /// The file of a segment that is open for writing, if there is one.
    pub(crate) fn writable_file(&self, segment: SegmentId) -> Option<File> {
        self.unflushed.get(&segment).cloned().or_else(|| self.active_file(segment))
    }

    pub(crate) fn take_unflushed(&mut self) -> Vec<File> {
        std::mem::take(&mut self.unflushed).into_values().collect()
    }

    /// The file of a segment, if the segment is active: a document that was just appended is in the page cache.
    pub(crate) fn active_file(&self, segment: SegmentId) -> Option<File> {
        self.active.iter().flatten().find(|(id, _)| *id == segment).map(|(_, file)| file.clone())
    }

    /// Checks that there can be a document at the place of the pointer.
    pub(crate) fn check(&self, pointer: &DocPointer) -> Result<()> {
        let wrong = |what, expected: String, found: String| {
            let file = self.files.path(pointer.segment);
            Err(Error::corrupt(&file, pointer.offset, what, expected, found))
        };
        if let Err((what, expected, found)) = pointer.length.check() {
            return wrong(what, expected, found);
        }
        if !pointer.offset.is_multiple_of(ALIGNMENT as u64) {
            let expected = format!("a multiple of {ALIGNMENT}");
            return wrong("offset in the pointer", expected, pointer.offset.to_string());
        }
        let Some(segment) = self.all.get(&pointer.segment) else {
            return wrong("segment in the pointer", "a segment".to_owned(), "none".to_owned());
        };
        let end = pointer.offset.saturating_add(HEADER as u64 + pointer.length.stored());
        if end > segment.end {
            let found = format!("{} bytes in the segment", segment.end);
            return wrong("document", format!("at least {end} bytes"), found);
        }
        Ok(())
    }

    pub(crate) fn retain(&mut self, pointer: &DocPointer, commit: u64) -> Result<()> {
        self.check(pointer)?;
        if let Some(segment) = self.all.get_mut(&pointer.segment) {
            segment.pending.remove(&pointer.offset);
            segment.live_bytes = segment.live_bytes.saturating_add(pointer.stored_bytes());
            segment.last_commit = segment.last_commit.max(commit);
            segment.retained_end = segment.retained_end.max(pointer.offset + pointer.stored_bytes());
            segment.dead_in_image = false;
        }
        Ok(())
    }

    /// Checks that a segment can have the documents that `retained` counts.
    pub(crate) fn check_in(&self, retained: &Retained) -> Result<()> {
        let wrong = |expected: String, found: String| {
            let path = self.files.path(retained.segment);
            Err(Error::corrupt(&path, retained.end, "segment of retained documents", expected, found))
        };
        let Some(segment) = self.all.get(&retained.segment) else {
            return wrong("a segment".to_owned(), "none".to_owned());
        };
        if retained.end > segment.end || (retained.end == 0 && retained.bytes > 0) {
            let expected = format!("{} bytes up to {}", retained.bytes, retained.end);
            return wrong(expected, format!("{} bytes in the segment", segment.end));
        }
        Ok(())
    }

    /// Retains the documents of a segment that `retained` counts, all at once; the pending documents of the segment are
    /// among them.
    pub(crate) fn retain_in(&mut self, retained: &Retained) -> Result<()> {
        self.check_in(retained)?;
        if let Some(segment) = self.all.get_mut(&retained.segment) {
            segment.pending.clear();
            segment.live_bytes = segment.live_bytes.saturating_add(retained.bytes);
            segment.retained_end = segment.retained_end.max(retained.end);
            segment.dead_in_image = false;
        }
        Ok(())
    }

    pub(crate) fn abandon_pending(&mut self) {
        self.all.values_mut().for_each(|segment| segment.pending.clear());
    }

    pub(crate) fn drop_document(&mut self, pointer: &DocPointer) -> Result<()> {
        self.drop_in(pointer.segment, pointer.offset, pointer.stored_bytes())
    }

    /// Counts `bytes` of a segment as dead; `at` is the place of the first of them, for errors.
    pub(crate) fn drop_in(&mut self, id: SegmentId, at: u64, bytes: u64) -> Result<()> {
        let live = self.all.get(&id).map_or(0, |segment| segment.live_bytes);
        match self.all.get_mut(&id) {
            Some(segment) if live >= bytes => segment.live_bytes -= bytes,
            _ => {
                let file = self.files.path(id);
                let [expected, found] = [bytes, live].map(|bytes| format!("at least {bytes} live bytes"));
                return Err(Error::corrupt(&file, at, "count of live bytes", expected, found));
            }
        }
        Ok(())
    }

    pub(crate) fn abandon(&mut self, pointer: &DocPointer) {
        if let Some(segment) = self.all.get_mut(&pointer.segment) {
            segment.pending.remove(&pointer.offset);
        }
    }

    pub(crate) fn image(&mut self) -> DocImage {
        // A segment in which everything is dead would keep its space until it is full, which on a full disk is never.
        for active in &mut self.active {
            active.take_if(|(id, _)| self.all.get(id).is_some_and(|segment| segment.end > 0 && segment.is_dead()));
        }
        let active = self.active.each_ref().map(|active| active.as_ref().map(|(id, _)| *id));
        let segments = self.all.iter_mut().map(|(&id, segment)| {
            let sealed = !active.contains(&Some(id));
            segment.dead_in_image = sealed && segment.is_dead();
            let Segment { retained_end, live_bytes, last_commit, .. } = *segment;
            SegmentImage { id, length: retained_end, live_bytes, sealed, last_commit }
        });
        DocImage { segments: segments.collect(), next: self.next }
    }

    /// Live bytes of each segment that has any.
    pub(crate) fn live(&self) -> BTreeMap<SegmentId, u64> {
        let all = self.all.iter().map(|(id, segment)| (*id, segment.live_bytes));
        all.filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Last commit and size of each sealed segment without live or pending documents that is not pinned.
    pub(crate) fn dead(&self) -> Vec<(u64, u64)> {
        let dead = self.all.iter().filter(|(id, segment)| self.is_dead(**id, segment));
        dead.map(|(_, segment)| (segment.last_commit, segment.end)).collect()
    }

    pub(crate) fn spares(&self) -> usize {
        self.spare.len()
    }

    fn is_dead(&self, id: SegmentId, segment: &Segment) -> bool {
        !self.is_active(id) && segment.is_dead() && !segment.pinned
    }

    /// Takes out the dead segments that no commit from `oldest` on names, and all spares.
    pub(crate) fn take_dead(&mut self, oldest: u64) -> Vec<SegmentId> {
        let is_free = |segment: &Segment| segment.dead_in_image && segment.last_commit < oldest && !segment.pinned;
        let dead = self.all.iter().filter(|(_, segment)| is_free(segment));
        let mut dead: Vec<_> = dead.map(|(id, _)| *id).collect();
        for id in &dead {
            self.all.remove(id);
            self.unflushed.remove(id);
        }
        dead.extend(self.spare.drain(..).map(|(id, _)| id));
        dead
    }

    /// Pins these segments, and no others.
    pub(crate) fn pin(&mut self, segments: &BTreeSet<SegmentId>) {
        self.all.iter_mut().for_each(|(id, segment)| segment.pinned = segments.contains(id));
    }

    /// Puts back a dead segment that could not be unlinked, for another try.
    pub(crate) fn put_back(&mut self, segment: SegmentId) {
        let segment = self.all.entry(segment).or_default();
        segment.dead_in_image = true;
    }

    /// Takes out all segments and spares.
    pub(crate) fn take_all(&mut self) -> Vec<SegmentId> {
        let spare = self.spare.drain(..).map(|(id, _)| id);
        let all = std::mem::take(&mut self.all);
        self.active = [None, None];
        self.unflushed.clear();
        all.into_keys().chain(spare).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for (id, segment) in &self.all {
            stats.segments += 1;
            stats.bytes += segment.end;
            stats.live_bytes = stats.live_bytes.saturating_add(segment.live_bytes);
            // A short or missing file has more live bytes than bytes.
            stats.pinned_bytes += if segment.pinned { segment.end.saturating_sub(segment.live_bytes) } else { 0 };
            stats.dead_bytes += if self.is_dead(*id, segment) { segment.end } else { 0 };
            stats.pending_documents += segment.pending.len() as u64;
        }
        stats
    }
}
