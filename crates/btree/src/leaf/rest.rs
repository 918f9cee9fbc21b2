//! What checks of a leaf that is damaged.
//!
//! A run that checks was written in this incarnation, at this place, behind a run with the CRC before it. So of a leaf:
//!
//! 1. Each sorted page is taken or not, for itself.
//! 2. A run that was appended is taken if it checks behind the CRC that the run before it states, also where that one does not check itself.
//! 3. Where a run is so damaged that it does not say where it ends, or its CRC, what was appended on its page is out of reach, and what checks
//!    only behind that.
//!
//! A sorted page hides the keys of its part; a run that was appended can hide a newer version of any key of its leaf.

use index::TableId;
use space::PAGE;

use super::{Span, Visible, run_at, shifted};
use crate::format::run::{RUN_HEADER, RunHeader};
use crate::format::{Damage, Pointer};

/// Which keys of a leaf damage may hide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// Those of a part.
    Part(usize),
    /// Any.
    All,
}

impl<'a> Visible<'a> {
    /// What checks of `pages`, which are all that is published of a leaf, with its runs in `spans`, in place of what was there; and what does not.
    pub(crate) fn rest(
        pages: &'a [u8], pointer: &Pointer, table: TableId, spans: &'a mut Vec<Span>,
        damaged: &mut dyn FnMut(Hidden, Damage),
    ) -> Self {
        spans.clear();
        let bytes = &pages[..pages.len().min(pointer.length as usize)];
        let (mut at, mut previous) = (0, Some(0));
        // Where the last run ends, as far as it says so, and its CRC.
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
            let hidden = if begins { Hidden::Part((at / PAGE) >> pointer.part_log) } else { Hidden::All };
            damaged(hidden, damage);
            let stated = RunHeader::decode(room).map_err(|damage| shifted(damage, at)).ok().flatten();
            previous = stated.map(|header| header.crc);
            at = stated.map_or(page_end, |header| at + usize::from(header.length));
            last = (at, previous);
        }
        // A damaged run that ends as the pointer says, with the CRC that it says, is the last one: nothing behind it is missing.
        if last != (pointer.length as usize, Some(pointer.chain)) {
            let (end, crc) = (last.0, last.1.unwrap_or(0));
            let expected = format!("at {} with CRC {:08x}", pointer.length, pointer.chain);
            let found = format!("at {end} with {crc:08x}");
            damaged(Hidden::All, Damage::new(end, "end of a leaf's last run", expected, found));
        }
        Self { first: 0, bytes, spans }
    }
}
