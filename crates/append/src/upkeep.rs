//! Upkeep of a trie. Its nodes are in segments of its own, which are released as a whole.

use index::{Applied, Chosen, Compacted, Horizon, LeafKeys, Part, Result, Room, Seq, Space, Time, Upkeep, When};
use space::{Class, Extent};

use crate::empty;
use crate::garbage::{self, Segments};
use crate::stretch::{self, Stretch};
use crate::trie::Trie;

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
        // If a file is short or missing, the counted live bytes exceed the bytes that exist.
        let used = nodes.live_bytes.saturating_add(nodes.pinned_bytes).saturating_add(nodes.dead_bytes);
        Space {
            files: nodes.segments,
            bytes: nodes.bytes,
            live_bytes: nodes.live_bytes,
            retained_bytes: nodes.pinned_bytes,
            dead_bytes: nodes.dead_bytes,
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

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use doclog::{DocImage, DocLog};
    use index::testing::Updates;
    use index::{Index, TableId};
    use psync::sim::SimDisk;
    use space::FileStore;

    use super::*;
    use crate::{CHUNK_BYTES_DEFAULT, Shared};

    #[test]
    fn nothing_lives_in_chosen_segments_once_they_are_rewritten() {
        const KEYS: u32 = 32_000;
        let store = FileStore::open(SimDisk::new(1).psync(), Path::new("/db"), false).expect("a store");
        let shared = Arc::new(Shared::new(&store, 1 << 20).with_segment_bytes(64 << 10));
        let documents = Arc::new(DocLog::open(&store, 1, &DocImage::default(), 1 << 20).expect("opens"));
        let trie = Trie::create(shared, TableId(1), documents, CHUNK_BYTES_DEFAULT).expect("a trie");
        let horizon = Horizon::default();
        let put = |keys: &mut dyn Iterator<Item = u32>, seq: u64| {
            let keys = keys.map(|key| key.to_be_bytes().to_vec());
            let applied = trie.apply(&Updates::puts(keys, seq, &[7; 250]), &horizon, &|_| {}).expect("room");
            trie.install(&applied);
        };
        put(&mut (0..KEYS), 1);
        assert_eq!(trie.wants(When::Idle), None, "all of it lives");
        // A few leaves stay alive in each segment.
        put(&mut (0..KEYS).filter(|key| !(key / 32).is_multiple_of(4)), 2);
        assert_eq!(trie.wants(When::Busy), None, "less than two segments of the usual size");
        let chosen = trie.wants(When::Idle).expect("more is dead than alive");
        let garbage = trie.space().garbage_bytes;
        let part = Part { reclaims: true, chosen: Some(&chosen), ..Part::whole() };
        let compacted = trie.compact(part, Seq::MAX, &horizon).expect("room").expect("there is something");
        trie.install(&compacted.applied);
        let segments = chosen.content::<Segments>();
        let lives = trie.nodes().usage().into_iter().filter(|usage| usage.live_bytes > 0);
        let in_chosen = lives.filter(|usage| segments.contains(&usage.segment)).count();
        assert_eq!((segments.is_empty(), in_chosen), (false, 0));
        assert!(trie.space().garbage_bytes < garbage);
    }
}
