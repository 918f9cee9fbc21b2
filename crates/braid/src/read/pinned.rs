//! Values that are kept without a copy.

use std::{fmt, ops::Deref, ops::Range, sync::Arc};

use index::Image;

use crate::structures::documents::Document;

/// A value as of the moment of its read. Later changes to its key, table or database do not change this value.
///
/// A value that was found in memory is not copied. As long as this is held, the memory around the value stays: a part
/// of a leaf, a node, or the document. A held document is no longer part of the cache, and does not count toward the
/// size of the cache. So hold few of them, or for a short time; [`Vec::from`] makes a copy that keeps nothing else. A
/// value that still waits in a queue is a copy.
///
/// ```
/// # fn main() -> braid::Result<()> {
/// # let directory = tempfile::tempdir().expect("a directory");
/// # let db = braid::Database::open(directory.path().join("data"))?;
/// let pages = db.table("pages", braid::Structure::BTree)?;
/// pages.put("/", "text")?;
/// let page: braid::Pinned = pages.get_pinned("/")?.expect("it was put");
/// pages.put("/", "other")?;
/// assert_eq!(&page[..], b"text"); // it is a slice
/// assert_eq!(Vec::from(page), b"text");
/// # Ok(())
/// # }
/// ```
pub struct Pinned(Kept);

enum Kept {
    Within(Arc<dyn Image>, Range<usize>),
    Copied(Vec<u8>),
    Document(Document),
}

impl Pinned {
    /// A value that lies in the image that `home` gives; a copy without such an image.
    pub(crate) fn of(value: &[u8], home: Option<&dyn Fn() -> Arc<dyn Image>>) -> Self {
        let within = home.and_then(|home| {
            let image = home();
            let start = value.as_ptr().addr().checked_sub(image.bytes().as_ptr().addr())?;
            let range = start..start.checked_add(value.len())?;
            debug_assert!(image.bytes().get(range.clone()) == Some(value), "a value lies in its image");
            (range.end <= image.bytes().len()).then_some(Kept::Within(image, range))
        });
        Self(within.unwrap_or_else(|| Kept::Copied(value.to_vec())))
    }

    /// A value of its own.
    pub(crate) const fn owned(value: Vec<u8>) -> Self {
        Self(Kept::Copied(value))
    }

    /// A document.
    pub(crate) const fn document(document: Document) -> Self {
        Self(Kept::Document(document))
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kept::Within(image, range) => &image.bytes()[range.clone()],
            Kept::Copied(value) => value,
            Kept::Document(document) => document,
        }
    }
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Pinned> for Vec<u8> {
    fn from(pinned: Pinned) -> Self {
        match pinned.0 {
            Kept::Copied(value) => value,
            Kept::Document(document) => document.into_vec(),
            Kept::Within(image, range) => image.bytes()[range].to_vec(),
        }
    }
}

impl PartialEq<[u8]> for Pinned {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}
