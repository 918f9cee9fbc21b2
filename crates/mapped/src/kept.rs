//! The freed memory that is kept for the process.

use std::alloc::{Layout, handle_alloc_error};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{PAGE, system};

/// Most bytes that are kept. A write buffer that is filled as fast as it empties gives up tens of megabytes at once,
/// and takes them again.
const BYTES_MAX: usize = 64 << 20;

/// Most bytes of a piece that is kept.
const PIECE_BYTES_MAX: usize = 4 << 20;

/// How long a piece is kept: memory that lies unused for longer is of more use to another process. Such memory is given
/// back when memory is next freed or newly allocated, or by an idle thread ([`trim`](crate::trim)).
const KEPT_FOR: Duration = Duration::from_millis(250);

/// The recent maximum of bytes in use falls by one such part of all freed bytes, but not below the bytes in use.
const FORGETTING: usize = 64;

static KEPT: Mutex<Kept> = Mutex::new(Kept::new(BYTES_MAX));

/// A piece of memory with its capacity in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) start: NonNull<u8>,
    pub(crate) capacity: usize,
}

// SAFETY: a piece belongs to its holder alone, as the memory of a Box does.
unsafe impl Send for Piece {}

/// A kept piece, its content, and the time since when.
struct Left {
    piece: Piece,
    holds: Holds,
    at: Instant,
}

/// The content that a user of memory may read before writing to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// Bytes, all of them initialised.
    Bytes,
    /// Nothing: values may have been there, with undefined bytes between their fields.
    Nothing,
}

/// Memory of that capacity, and whether its bytes are zero: true for new memory, false for kept memory.
pub(crate) fn take(capacity: usize, wanted: Holds) -> (Piece, bool) {
    try_take(capacity, wanted)
        .unwrap_or_else(|| handle_alloc_error(Layout::from_size_align(capacity, PAGE).unwrap_or(Layout::new::<u8>())))
}

/// As [`take`]; none where there is no memory.
pub(crate) fn try_take(capacity: usize, wanted: Holds) -> Option<(Piece, bool)> {
    let kept = KEPT.lock().take(capacity, wanted);
    if let Some(piece) = kept {
        return Some((piece, false));
    }
    // Frees enough to make room for the new piece, and no more, because the caller may hold a lock.
    free_over(1);
    match system::take(capacity) {
        Some(start) => Some((Piece { start, capacity }, true)),
        None => {
            KEPT.lock().used_bytes -= capacity;
            None
        }
    }
}

/// Keeps memory for later allocations, or gives this or other memory back to the system.
///
/// # Safety
/// The piece was taken, with that capacity, and nobody uses the piece any more. All of its bytes are initialised if
/// `holds` is `Holds::Bytes`.
pub(crate) unsafe fn leave(piece: Piece, holds: Holds) {
    if piece.capacity > PIECE_BYTES_MAX {
        KEPT.lock().used_bytes -= piece.capacity;
        // SAFETY: as the caller says.
        return unsafe { system::free(piece.start, piece.capacity) };
    }
    KEPT.lock().leave(piece, holds, Instant::now());
    free_over(usize::MAX);
}

/// Gives kept memory beyond the bounds back to the system, at most `pieces` pieces.
pub(crate) fn free_over(pieces: usize) {
    let now = Instant::now();
    for _ in 0..pieces {
        // Freed without the lock, because giving megabytes back takes a while.
        let over = KEPT.lock().over(now);
        let Some(piece) = over else { return };
        // SAFETY: the piece was left, and nobody has the piece any more.
        unsafe { system::free(piece.start, piece.capacity) }
    }
}

/// The freed memory that is kept, and the number of bytes in use.
struct Kept {
    /// The oldest piece first.
    left: VecDeque<Left>,
    kept_bytes: usize,
    bytes_max: usize,
    used_bytes: usize,
    /// The most bytes that were in use lately.
    recent_bytes: usize,
}

impl Kept {
    const fn new(bytes_max: usize) -> Self {
        Self { left: VecDeque::new(), kept_bytes: 0, bytes_max, used_bytes: 0, recent_bytes: 0 }
    }

    /// Notes that `capacity` more bytes are in use, and returns kept memory for them, if there is some.
    fn take(&mut self, capacity: usize, wanted: Holds) -> Option<Piece> {
        self.used_bytes += capacity;
        self.recent_bytes = self.recent_bytes.max(self.used_bytes);
        // The piece that was left last is most likely in the processor's cache.
        let suits =
            |left: &Left| left.piece.capacity == capacity && (wanted == Holds::Nothing || left.holds == Holds::Bytes);
        let place = self.left.iter().rposition(suits)?;
        self.kept_bytes -= capacity;
        self.left.remove(place).map(|left| left.piece)
    }

    /// Keeps a piece that is no longer in use.
    fn leave(&mut self, piece: Piece, holds: Holds, at: Instant) {
        self.used_bytes -= piece.capacity;
        let forgotten = (piece.capacity / FORGETTING).min(self.recent_bytes - self.used_bytes);
        self.recent_bytes -= forgotten;
        self.kept_bytes += piece.capacity;
        self.left.push_back(Left { piece, holds, at });
    }

    /// Removes the oldest piece under one of three conditions; none otherwise:
    ///
    /// - The piece has been kept for longer than `KEPT_FOR`.
    /// - `kept_bytes > bytes_max`.
    /// - `kept_bytes + used_bytes > recent_bytes + (capacity of that piece)`.
    fn over(&mut self, now: Instant) -> Option<Piece> {
        let oldest = self.left.front()?;
        let recent_bytes = self.recent_bytes + oldest.piece.capacity;
        let is_over = now.saturating_duration_since(oldest.at) > KEPT_FOR
            || self.kept_bytes > self.bytes_max
            || self.kept_bytes + self.used_bytes > recent_bytes;
        let over = if is_over { self.left.pop_front() } else { None };
        let piece = over?.piece;
        self.kept_bytes -= piece.capacity;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(number: usize, pages: usize) -> Piece {
        // Never dereferenced.
        Piece { start: NonNull::dangling().map_addr(|start| start.saturating_add(number)), capacity: pages * PAGE }
    }

    #[test]
    fn no_more_is_kept_than_was_in_use() {
        let (mut kept, now) = (Kept::new(1000 * PAGE), Instant::now());
        let take = |kept: &mut Kept, pages| kept.take(pages * PAGE, Holds::Nothing);
        assert_eq!([take(&mut kept, 100), take(&mut kept, 100)], [None; 2]);
        let (one, other) = (piece(1, 100), piece(2, 100));
        kept.leave(one, Holds::Bytes, now);
        assert_eq!((kept.over(now), take(&mut kept, 100)), (None, Some(one)));
        kept.leave(one, Holds::Bytes, now);
        kept.leave(other, Holds::Nothing, now);
        assert_eq!((kept.over(now), kept.kept_bytes, kept.used_bytes), (None, 200 * PAGE, 0));
        // Another size in their place: the sum is about as large as the bytes that were in use.
        assert_eq!(take(&mut kept, 150), None);
        assert_eq!((kept.over(now), kept.over(now)), (Some(one), None));
        kept.leave(piece(3, 150), Holds::Nothing, now);
        assert_eq!((kept.over(now), kept.kept_bytes), (None, 250 * PAGE));
        // Memory that is not used for long is given back.
        for _ in 0..1000 {
            let memory = take(&mut kept, 20).unwrap_or(piece(4, 20));
            kept.leave(memory, Holds::Nothing, now);
            while kept.over(now).is_some() {}
        }
        assert!(kept.kept_bytes <= 40 * PAGE, "{} pages", kept.kept_bytes / PAGE);
        // However much was in use, no more is kept than the bound.
        assert!((0..11).all(|_| take(&mut kept, 100).is_none()));
        (0..11).for_each(|number| kept.leave(piece(number, 100), Holds::Nothing, now));
        while kept.over(now).is_some() {}
        assert_eq!(kept.kept_bytes, 1000 * PAGE);
    }

    #[test]
    fn what_nobody_wants_for_long_goes() {
        let (mut kept, begin) = (Kept::new(1000 * PAGE), Instant::now());
        (0..2).for_each(|_| assert_eq!(kept.take(10 * PAGE, Holds::Nothing), None));
        let (old, young) = (piece(1, 10), piece(2, 10));
        kept.leave(old, Holds::Nothing, begin);
        kept.leave(young, Holds::Nothing, begin + KEPT_FOR);
        assert_eq!(kept.over(begin + KEPT_FOR), None);
        let later = begin + KEPT_FOR + Duration::from_millis(1);
        assert_eq!((kept.over(later), kept.over(later)), (Some(old), None));
        assert_eq!((kept.over(later + KEPT_FOR), kept.kept_bytes), (Some(young), 0));
    }

    #[test]
    fn whoever_wants_bytes_gets_bytes() {
        let (mut kept, now) = (Kept::new(1000 * PAGE), Instant::now());
        (0..3).for_each(|_| assert_eq!(kept.take(PAGE, Holds::Bytes), None));
        let (bytes, values) = (piece(1, 1), piece(2, 1));
        kept.leave(bytes, Holds::Bytes, now);
        kept.leave(values, Holds::Nothing, now);
        assert_eq!((kept.take(PAGE, Holds::Bytes), kept.take(PAGE, Holds::Bytes)), (Some(bytes), None));
        kept.leave(bytes, Holds::Bytes, now);
        assert_eq!(kept.take(PAGE, Holds::Nothing), Some(bytes));
        assert_eq!(kept.take(PAGE, Holds::Nothing), Some(values));
    }
}
