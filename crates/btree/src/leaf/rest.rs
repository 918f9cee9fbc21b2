//! The readable rest of a damaged leaf.
//!
//! A run that checks was written in this incarnation, at this place, behind a run with the CRC before it. Therefore:
//!
//! 1. Each sorted page is taken or skipped independently.
//! 2. An appended run is taken if the run checks behind the CRC that the previous run states, even where the previous
//!    run itself does not check.
//! 3. A run may be so damaged that its end or its CRC is unknown. The later appends on its page are then out of reach,
//!    and so are the runs that check only behind those.
//!
//! A damaged sorted page hides the keys of its part. A damaged appended run can hide a newer version of any key of the
//! leaf.

use index::TableId;
use space::PAGE;

use super::{Span, Visible, run_at, shifted};
use crate::format::run::{RUN_HEADER, RunHeader};
use crate::format::{Damage, Pointer};

/// The keys of a leaf that damage may make unreadable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The keys of a part.
    Part(usize),
    /// Any key.
    All,
}

impl<'a> Visible<'a> {
    /// The runs of `pages` that check, listed in `spans`, replacing the old content; `pages` are all published pages of
    /// a leaf. Each damage is reported to `damaged`.
    pub(crate) fn rest(
        pages: &'a [u8], pointer: &Pointer, table: TableId, spans: &'a mut Vec<Span>,
        damaged: &mut dyn FnMut(Unread, Damage),
    ) -> Self {
        spans.clear();
        let bytes = &pages[..pages.len().min(pointer.length as usize)];
        let (mut at, mut previous) = (0, Some(0));
        // The stated end of the last run, and its CRC.
        let mut last = (0, None);
        while at < bytes.len() {
            let page_end = (at / PAGE + 1) * PAGE;
            if page_end - at < RUN_HEADER {
                at = page_end;
                continue;
            }
            let begins = pointer.begins_page(at);
            let room = &bytes[at..page_end.min(bytes.len())];
            let unknown =
                || Damage::new(at, "run of a leaf", "one behind a run that checks", "the run before it is damaged");
            let known = if begins { Some(0) } else { previous };
            let damage = match known.ok_or_else(unknown).and_then(|known| run_at(room, at, pointer, table, known)) {
                Ok(Some(span)) => {
                    spans.push(span);
                    (at, previous) = (span.end(), Some(span.header.crc));
                    last = (at, previous);
                    continue;
                }
                Ok(None) => {
                    at = page_end;
                    continue;
                }
                Err(damage) => damage,
            };
            let unread = if begins { Unread::Part((at / PAGE) >> pointer.part_log) } else { Unread::All };
            damaged(unread, damage);
            let stated = RunHeader::decode(room).map_err(|damage| shifted(damage, at)).ok().flatten();
            previous = stated.map(|header| header.crc);
            at = stated.map_or(page_end, |header| at + usize::from(header.length));
            last = (at, previous);
        }
        // A damaged run that ends at the pointer's length, with the pointer's CRC, is the last one, so no run behind is
        // missing.
        if last != (pointer.length as usize, Some(pointer.chain)) {
            let (end, crc) = (last.0, last.1.unwrap_or(0));
            let expected = format!("at {} with CRC {:08x}", pointer.length, pointer.chain);
            let found = format!("at {end} with {crc:08x}");
            damaged(Unread::All, Damage::new(end, "end of a leaf's last run", expected, found));
        }
        Self { first: 0, bytes, spans }
    }
}
