//! Versions as readers see them: each read goes to the file that carries it out.

use std::sync::Arc;

use index::{Bounds, Cursor, Direction, Found, Moment, Result, Seen, ShowVersions, Stats, View, Visit};
use psync::BLOCK;

use crate::cursor::TreeCursor;
use crate::version::Version;
use crate::{look, verify, walk};

/// Memory that a key of a batch takes while it is looked up, about: a block as it is read and as it is searched, and
/// what leads to it.
const KEY_BYTES: usize = 4 * BLOCK;

impl View for Version {
    fn get_many(&self, keys: &[&[u8]], at: Moment, out: &mut [Option<Found>]) -> Result<()> {
        assert_eq!(keys.len(), out.len(), "one place for each key");
        if at.seq < self.floor() {
            return Ok(());
        }
        let share = self.shared.read_ahead().share();
        let together = share.lookups(KEY_BYTES);
        for (keys, out) in keys.chunks(together).zip(out.chunks_mut(together)) {
            self.find(keys, at, &mut |index, update| out[index] = Some(Found::of(update, at.now)))?;
        }
        Ok(())
    }

    fn look(&self, key: &[u8], at: Moment, show: &mut dyn FnMut(&Seen<'_>)) -> Result<()> {
        if at.seq < self.floor() {
            return Ok(());
        }
        look::look(self, key, at, show)
    }

    fn cursor(self: Arc<Self>, bounds: &Bounds, at: Moment, direction: Direction) -> Result<Box<dyn Cursor>> {
        // Readers older than the loaded entries find nothing.
        let bounds = if at.seq < self.floor() { &Bounds::none() } else { bounds };
        Ok(Box::new(TreeCursor::new(self, bounds, at, direction)))
    }

    fn verify(&self, visit: &mut dyn Visit) -> Result<()> {
        verify::verify(self, visit)
    }

    fn documents(&self, from: &[u8], show: &mut ShowVersions<'_>) -> Result<()> {
        walk::documents(self, from, show)
    }

    fn fences(&self, wanted: usize) -> Result<Vec<Vec<u8>>> {
        walk::fences(self, wanted)
    }

    fn stats(&self) -> Result<Stats> {
        Ok(walk::stats(self))
    }
}
