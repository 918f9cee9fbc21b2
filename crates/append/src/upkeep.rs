//! Upkeep of a trie. Its nodes are in segments of its own, which are released as a whole.

use index::{Applied, Chosen, Compacted, Horizon, LeafKeys, Part, Result, Seq, Space, Time, Upkeep, When};
use space::{Class, Extent};

use crate::empty;
use crate::garbage::{self, Segments};
use crate::stretch::{self, Stretch};
use crate::trie::{Room, Trie};

impl Upkeep for Trie {
    fn compact(&self, part: Part<'_>, through: Seq, horizon: &Horizon) -> Result<Option<Compacted>> {
        let base = self.current();
        if base.header().root.is_none() {
            return Ok(None);
        }
        let Stretch { keys, next, leaves, bytes } = stretch::stretch(&base, part)?;
        let room = if part.reclaims { Room::Half } else { Room::None };
        let applied = self.rewrite(&keys, room, through, horizon)?;
        Ok(Some(Compacted { applied, next, leaves, bytes: bytes as u64 }))
    }

    fn due(&self, now: Time, most: usize) -> Result<Vec<LeafKeys>> {
        stretch::due(&self.current(), now, most)
    }

    fn wants(&self, when: When) -> Option<Chosen> {
        let excess = garbage::excess(&self.space(), when)?;
        let segments = empty::sparse(self.nodes().usage(), excess);
        (!segments.is_empty()).then(|| Chosen::new(segments))
    }

    fn empty(&self, bytes: u64, through: Seq, horizon: &Horizon) -> Result<Option<Applied>> {
        let nodes = self.nodes();
        let mut segments: Segments = empty::chosen(nodes.usage(), bytes);
        if segments.is_empty() {
            // Later writes go to a new segment, and the sealed one may be worth emptying.
            nodes.seal();
            segments = empty::chosen(nodes.usage(), bytes);
        }
        if segments.is_empty() {
            return Ok(None);
        }
        let chosen = Chosen::new(segments);
        let all = Part { chosen: Some(&chosen), reclaims: true, ..Part::whole() };
        let Stretch { keys, .. } = stretch::stretch(&self.current(), all)?;
        self.rewrite(&keys, Room::of(Class::Emptying), through, horizon).map(Some)
    }

    fn space(&self) -> Space {
        let nodes = self.nodes().stats();
        let dead_bytes = self.nodes().dead().into_iter().map(|(_, bytes)| bytes).sum();
        // If a file is short or missing, the counted live bytes exceed the bytes that exist.
        let used = nodes.live_bytes.saturating_add(nodes.pinned_bytes).saturating_add(dead_bytes);
        Space {
            files: nodes.segments,
            bytes: nodes.bytes,
            live_bytes: nodes.live_bytes,
            retained_bytes: nodes.pinned_bytes,
            dead_bytes,
            garbage_bytes: nodes.bytes.saturating_sub(used),
        }
    }

    fn release_dead(&self) -> Result<()> {
        self.nodes().release_dead(u64::MAX)?;
        Ok(())
    }

    fn extents(&self, _visit: &mut dyn FnMut(Extent)) -> Result<()> {
        Ok(())
    }

    fn destroy(&self) -> Result<()> {
        Ok(self.nodes().destroy()?)
    }
}
