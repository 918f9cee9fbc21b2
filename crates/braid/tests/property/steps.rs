//! What can be done to a database, at random.

use std::ops::Bound;

use proptest::prelude::*;

/// Keys of a shape.
pub(crate) const KEYS: u32 = 800;

/// A database, and what is done to it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) leaf_pages: u32,
    pub(crate) segment_bytes: u64,
    pub(crate) steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// One commit.
    Write(Vec<(Key, Change)>),
    /// Puts of neighbouring keys.
    Fill {
        shape: Shape,
        from: u32,
        count: u32,
        size: Size,
        /// Minutes after which they expire, if they do.
        expire: Option<u64>,
        /// In as few commits as can be.
        at_once: bool,
    },
    /// Some neighbouring keys that are there expire after so many minutes, with the values that they have.
    Renew {
        from: usize,
        count: usize,
        minutes: u64,
    },
    /// So many minutes pass.
    Pass {
        minutes: u64,
    },
    /// Loads neighbouring keys, if the table is empty.
    Load {
        shape: Shape,
        from: u32,
        count: u32,
        size: Size,
    },
    /// Deletes what is in a range, in several commits or one; of `keep` keys one stays, if it is not 0.
    Clear {
        range: Range,
        keep: usize,
        order: Order,
    },
    Get(Key),
    GetMany(Vec<Key>),
    Scan {
        range: Range,
        backward: bool,
        limit: usize,
    },
    ScanAll,
    /// Everything that waits is applied.
    Drain,
    Checkpoint,
    /// The table is rebuilt, or so many stretches of it.
    Compact {
        stretches: usize,
    },
    /// Keeps the table as it is now; the oldest kept goes if there are many.
    Snapshot,
    /// Reads what was kept, of all that is kept.
    LookBack {
        range: Range,
        backward: bool,
    },
    /// The oldest that is kept goes.
    Forget,
    /// The table goes back to one of the states that it retains, if it does.
    RollBack {
        which: usize,
    },
    /// A transaction that writes, looks at what it wrote, takes a part back, and commits or not.
    Transact {
        first: Vec<(Key, Change)>,
        undone: Vec<(Key, Change)>,
        range: Range,
        backward: bool,
        commit: bool,
    },
    Verify,
    DropCaches,
    Reopen,
    /// The power goes after so many writes, flushes and name changes, maybe while some later step reopens.
    Crash {
        after: u64,
    },
    /// The process ends.
    Kill,
}

/// How keys look; each shape sorts apart from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Four bytes that follow each other.
    Dense,
    /// The same first 200 bytes.
    Prefixed,
    /// 1 to 1024 bytes.
    AnyLength,
    /// 1000 bytes that differ from their neighbours' at the end, so that separators are long and the tree is high.
    Far,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) shape: Shape,
    pub(crate) number: u32,
}

impl Key {
    pub(crate) fn bytes(self) -> Vec<u8> {
        let number = self.number.to_be_bytes();
        let scattered = self.number.wrapping_mul(0x9E37_79B9);
        match self.shape {
            Shape::Dense => [b"d".as_slice(), &number].concat(),
            Shape::Prefixed => [[b'p'; 200].as_slice(), &number].concat(),
            Shape::AnyLength => {
                let length = 1 + scattered as usize % 1019;
                let mut key = [b"a".as_slice(), &scattered.to_be_bytes()].concat();
                key.resize(4 + length, b'~');
                key
            }
            Shape::Far => {
                let group = (self.number / 4).to_be_bytes();
                [b"f".as_slice(), &group, &[b'-'; 990], &number].concat()
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    Put(Size),
    /// A put that expires after so many minutes.
    PutFor(Size, u64),
    Delete,
    /// All keys from this one on, to the one so many numbers further.
    DeleteRange(u32),
}

/// Bytes of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Size {
    Small(usize),
    /// As many as fit in a leaf at most.
    Inline(usize),
    Document(usize),
}

impl Size {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Small(bytes) | Self::Inline(bytes) | Self::Document(bytes) => bytes,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) lower: Bound<Key>,
    pub(crate) upper: Bound<Key>,
}

impl Range {
    pub(crate) const fn all() -> Self {
        Self { lower: Bound::Unbounded, upper: Bound::Unbounded }
    }

    pub(crate) fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (self.lower.map(Key::bytes), self.upper.map(Key::bytes))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Rising,
    Falling,
    Shuffled,
    /// All of the range in one operation, whatever is to be kept.
    AtOnce,
}

fn shape() -> impl Strategy<Value = Shape> {
    prop_oneof![3 => Just(Shape::Dense), 2 => Just(Shape::Prefixed), 2 => Just(Shape::AnyLength), 2 => Just(Shape::Far)]
}

fn key() -> impl Strategy<Value = Key> {
    (shape(), 0..KEYS).prop_map(|(shape, number)| Key { shape, number })
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        8 => (0..80_usize).prop_map(Size::Small),
        2 => (0..=2048_usize).prop_map(Size::Inline),
        1 => (2049..9000_usize).prop_map(Size::Document),
    ]
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        10 => size().prop_map(Change::Put),
        5 => (size(), 1..30_u64).prop_map(|(size, minutes)| Change::PutFor(size, minutes)),
        6 => Just(Change::Delete),
        1 => (1..KEYS / 4).prop_map(Change::DeleteRange),
    ]
}

fn bound() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

fn range() -> impl Strategy<Value = Range> {
    (bound(), bound()).prop_map(|(lower, upper)| Range { lower, upper })
}

fn fill() -> impl Strategy<Value = Step> {
    let expire = prop::option::weighted(0.3, 1..30_u64);
    let pairs = (shape(), 0..KEYS, 1..KEYS, size());
    (pairs, expire, any::<bool>()).prop_map(|((shape, from, count, size), expire, at_once)| Step::Fill {
        shape,
        from,
        count,
        size,
        expire,
        at_once,
    })
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Rising), Just(Order::Falling), Just(Order::Shuffled), Just(Order::AtOnce)]
}

fn clear() -> impl Strategy<Value = Step> {
    let keep = prop_oneof![Just(0_usize), Just(0), 2..60_usize];
    let range = prop_oneof![1 => Just(Range::all()), 2 => range()];
    (range, keep, order()).prop_map(|(range, keep, order)| Step::Clear { range, keep, order })
}

fn transact() -> impl Strategy<Value = Step> {
    let changes = || prop::collection::vec((key(), change()), 0..12);
    (changes(), changes(), range(), any::<bool>(), any::<bool>())
        .prop_map(|(first, undone, range, backward, commit)| Step::Transact { first, undone, range, backward, commit })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => prop::collection::vec((key(), change()), 1..50).prop_map(Step::Write),
        4 => fill(),
        3 => (any::<usize>(), 1..40_usize, 1..30_u64)
            .prop_map(|(from, count, minutes)| Step::Renew { from, count, minutes }),
        3 => (0..20_u64).prop_map(|minutes| Step::Pass { minutes }),
        1 => (shape(), 0..KEYS, 1..KEYS, size()).prop_map(|(shape, from, count, size)| Step::Load { shape, from, count, size }),
        3 => clear(),
        1 => key().prop_map(Step::Get),
        2 => prop::collection::vec(key(), 1..80).prop_map(Step::GetMany),
        3 => (range(), any::<bool>(), 1..400_usize)
            .prop_map(|(range, backward, limit)| Step::Scan { range, backward, limit }),
        1 => Just(Step::ScanAll),
        2 => Just(Step::Drain),
        1 => Just(Step::Checkpoint),
        1 => prop_oneof![Just(usize::MAX), 0..4_usize].prop_map(|stretches| Step::Compact { stretches }),
        2 => Just(Step::Snapshot),
        2 => (range(), any::<bool>()).prop_map(|(range, backward)| Step::LookBack { range, backward }),
        1 => Just(Step::Forget),
        2 => (0..8_usize).prop_map(|which| Step::RollBack { which }),
        3 => transact(),
        1 => Just(Step::Verify),
        1 => Just(Step::DropCaches),
        1 => Just(Step::Reopen),
        2 => prop_oneof![0..10_u64, 0..100_u64, 0..600_u64].prop_map(|after| Step::Crash { after }),
        1 => Just(Step::Kill),
    ]
}

pub(crate) fn case() -> impl Strategy<Value = Case> {
    let segment_bytes = prop_oneof![Just(64_u64 << 10), Just(128 << 10), Just(512 << 10)];
    (prop_oneof![4 => 1..5_u32, 1 => Just(12_u32)], segment_bytes, prop::collection::vec(step(), 1..80))
        .prop_map(|(leaf_pages, segment_bytes, steps)| Case { leaf_pages, segment_bytes, steps })
}
