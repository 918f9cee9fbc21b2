//! Figures of a structure, as it describes itself: its shape, its settings, and the space of its files.

/// The shape of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Entries, dead versions included.
    pub entries: u64,
    /// Bytes of these entries.
    pub entry_bytes: u64,
    /// Bytes of the leaves that hold the entries, with the room that is left in them.
    pub stored_bytes: u64,
    /// What the structure says of its shape, in the order in which it is to be shown.
    pub figures: Vec<Figure>,
}

impl Stats {
    /// The value of the figure of this name; none where the structure has no such figure.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<u64> {
        value_of(&self.figures, name)
    }
}

/// A figure of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Figure {
    /// Its name for users, in the plural where it counts things.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// The unit of the value.
    pub unit: Unit,
}

impl Figure {
    /// A number of things.
    #[must_use]
    pub const fn count(name: &'static str, value: u64) -> Self {
        Self { name, value, unit: Unit::Count }
    }

    /// A number of bytes.
    #[must_use]
    pub const fn bytes(name: &'static str, value: u64) -> Self {
        Self { name, value, unit: Unit::Bytes }
    }
}

/// The value of the figure of this name, if there is one.
#[must_use]
pub fn value_of(figures: &[Figure], name: &str) -> Option<u64> {
    figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Unit {
    /// Things are counted.
    Count,
    /// Bytes.
    Bytes,
}

/// Space of files of a structure's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Files.
    pub files: u64,
    /// Their bytes in use, dead ones included.
    pub bytes: u64,
    /// Bytes of live content.
    pub live_bytes: u64,
    /// Bytes of content that is not live and stays for retained states.
    pub retained_bytes: u64,
    /// Bytes of files that have nothing live. The next checkpoint releases them.
    pub dead_bytes: u64,
    /// Bytes in other files that nothing refers to: the space that emptying all files would give back.
    pub garbage_bytes: u64,
}
