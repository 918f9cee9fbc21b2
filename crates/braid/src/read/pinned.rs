//! Values that are kept without a copy of them.

use std::{fmt, ops::Deref, ops::Range, sync::Arc};

use index::Image;

use crate::structures::documents::Document;

/// A value as it was when it was read. It does not change, whatever becomes of its key, table or database.
///
/// Where the value was found in memory it is not copied, and what it lies in stays there as long as this is held: a
/// part of a leaf, a node, or the document, which is no part of the cache then and not counted in its size. So hold few
/// of them, or for a short time; [`Vec::from`] makes a copy that keeps nothing else. A value that still waits in a
/// queue is a copy.
pub struct Pinned(Kept);

enum Kept {
    Within(Arc<dyn Image>, Range<usize>),
    Copied(Vec<u8>),
    Document(Document),
}

impl Pinned {
    /// A value that lies in what `home` gives, if there is such.
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

    /// A value that is nobody else's.
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
