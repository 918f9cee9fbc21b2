//! Versions of a tree, and the time when their extents may be used again.
//!
//! 1. A [`Version`] is a root. A version never changes; readers hold one in an `Arc` for as long as they like.
//! 2. Each version owns a [`Token`]. When version k + 1 is installed, the token of k gets two things: the extents that
//!    k + 1 no longer refers to, and the token of k + 1.
//! 3. So a reader of k keeps the tokens of k and all younger ones alive.
//! 4. When the last reader of k and of all older versions is gone, the token drops and its extents have no reader any
//!    more. They are free with the next flush of the log ([`PagedFile::note_unread`]).
//!
//! Invariant: an extent is noted once, after every version that refers to it is gone.

use std::sync::{Arc, OnceLock};

use index::{Result, Seq, TableId};
use parking_lot::Mutex;
use space::{Extent, PagedFile};

use crate::format::root::Root;
use crate::node::Node;
use crate::shared::Shared;

/// The extents and tokens that a version keeps alive.
pub(crate) struct Token {
    pages: Arc<PagedFile>,
    next: Mutex<Option<Next>>,
}

/// The successor of a version.
struct Next {
    token: Arc<Token>,
    retired: Vec<Extent>,
}

impl Token {
    pub(crate) fn new(pages: Arc<PagedFile>) -> Arc<Self> {
        Arc::new(Self { pages, next: Mutex::new(None) })
    }

    /// A younger version was installed, which no longer refers to `retired`.
    pub(crate) fn succeed(&self, token: Arc<Self>, retired: Vec<Extent>) {
        let older = self.next.lock().replace(Next { token, retired });
        debug_assert!(older.is_none(), "a version has one successor");
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // A loop, not recursion: a long-held version has a long chain behind it.
        let mut next = self.next.get_mut().take();
        while let Some(Next { token, retired }) = next {
            self.pages.note_unread(retired);
            next = Arc::into_inner(token).and_then(|mut token| token.next.get_mut().take());
        }
    }
}

/// One immutable version of a tree.
pub(crate) struct Version {
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: TableId,
    pub(crate) root: Root,
    /// Readers below this seq see nothing: loaded entries have the seq of the load, whatever their runs say. No reader
    /// is older than a restart, so the floor needs no place in the root record.
    pub(crate) floor: Seq,
    pub(crate) token: Arc<Token>,
    /// The root node. Every search begins there, so the root is not looked up in the cache each time.
    top: OnceLock<Arc<Node>>,
}

impl Version {
    pub(crate) fn new(shared: &Arc<Shared>, table: TableId, root: Root, floor: Seq) -> Self {
        let token = Token::new(Arc::clone(shared.pages()));
        Self { shared: Arc::clone(shared), table, root, floor, token, top: OnceLock::new() }
    }

    /// The root node; none where the root is a leaf or nothing.
    pub(crate) fn top(&self) -> Result<Option<&Arc<Node>>> {
        let level = self.root.height.saturating_sub(1);
        let Some(pointer) = self.root.pointer.filter(|_| level > 0) else { return Ok(None) };
        if self.top.get().is_none() {
            let node = self.shared.node(self.table, &pointer, level)?;
            // Another thread may have been faster, with the same node.
            let _ = self.top.set(node);
        }
        Ok(self.top.get())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use psync::sim::SimDisk;
    use space::{Class, FileStore};

    use super::*;

    #[test]
    fn pages_are_unread_without_the_last_reader_of_anything_older() {
        let store = FileStore::open(SimDisk::new(1).psync(), Path::new("/db"), false).expect("a store");
        let pages = Arc::new(PagedFile::create(&store, "data").expect("a file"));
        let tokens: Vec<_> = (0..4).map(|_| Token::new(Arc::clone(&pages))).collect();
        for index in 0..3 {
            let extent = pages.allocate(1, Class::Normal).expect("space");
            pages.retire(&[extent]).expect("allocated");
            tokens[index].succeed(Arc::clone(&tokens[index + 1]), vec![extent]);
        }
        let mut tokens: Vec<_> = tokens.into_iter().map(Some).collect();
        tokens[1] = None;
        tokens[2] = None;
        assert!(!pages.has_unread());
        tokens[0] = None;
        assert_eq!(pages.stats().retired_pages, 3);
        pages.release_unread(pages.take_unread());
        assert_eq!((pages.stats().retired_pages, pages.has_unread()), (0, false));
    }

    #[test]
    fn a_long_chain_drops_without_recursion() {
        let store = FileStore::open(SimDisk::new(1).psync(), Path::new("/db"), false).expect("a store");
        let pages = Arc::new(PagedFile::create(&store, "data").expect("a file"));
        let first = Token::new(Arc::clone(&pages));
        let mut last = Arc::clone(&first);
        for _ in 0..300_000 {
            let next = Token::new(Arc::clone(&pages));
            last.succeed(Arc::clone(&next), Vec::new());
            last = next;
        }
        drop(last);
        drop(first);
    }
}
