//! An internal node in its encoded form: where each of its parts is.

use std::cmp::Ordering;

use codec::u16_at;
use index::due::{Due, UNITS_LIMIT};
use space::PAGE;

use crate::format::columns::{self, DESCRIPTOR};
use crate::format::{KEY_BYTES_MAX, LEAF_FIELDS, NODE_FIELDS, PAGE_LIMIT, Pointer};
use crate::partition::partition_point;

pub(super) const HEADER: usize = 40;

/// Most bytes of a head.
pub(super) const HEAD_MAX: usize = 8;

/// Fields of a child on `level`.
pub(super) const fn fields(level: u8) -> usize {
    if level == 1 { LEAF_FIELDS } else { NODE_FIELDS }
}

/// Offsets of the parts of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    level: u8,
    head_bytes: u8,
    length_width: u8,
    children: u16,
    bounds: u16,
    columns: [u16; LEAF_FIELDS],
    firsts: u16,
    /// No bytes where all filters have `filter_bytes`.
    starts: u16,
    filters: u16,
    filter_bytes: u16,
    lengths: u16,
    prefix: u16,
    heads: u16,
    rests: u16,
    used: u16,
}

impl Layout {
    pub(super) fn read(page: &[u8]) -> Option<Self> {
        let (level, children, bounds) = (page[9], u16_at(page, 10)?, u16_at(page, 36)?);
        let (used, prefix_bytes) = (u16_at(page, 12)?, u16_at(page, 14)?);
        let (head_bytes, length_width) = (page[38], page[39]);
        let plausible = level >= 1
            && (1..=bounds).contains(&children)
            && (level == 1 || bounds == children)
            && (1..=HEAD_MAX).contains(&usize::from(head_bytes))
            && length_width <= 2
            && usize::from(used) <= PAGE;
        if !plausible {
            return None;
        }
        let fields = fields(level);
        let (mut at, mut columns) = (HEADER + fields * DESCRIPTOR, [0; LEAF_FIELDS]);
        // All sums are computed in usize first, so that numbers from the page cannot overflow.
        let (children_count, separators) = (usize::from(children), usize::from(bounds) - 1);
        for (field, column) in columns[..fields].iter_mut().enumerate() {
            *column = u16::try_from(at).ok()?;
            at += children_count * columns::width(page, HEADER + field * DESCRIPTOR)?;
        }
        let mut next = |bytes: usize| {
            let start = u16::try_from(at).ok().filter(|start| *start <= used);
            at += bytes;
            start
        };
        let firsts = next(if bounds > children { 2 * children_count } else { 0 })?;
        let (filters_bytes, filter_bytes) =
            if level == 1 { filters(page, &columns, children_count)? } else { (0, Some(0)) };
        let starts = next(if filter_bytes.is_none() { 2 * children_count } else { 0 })?;
        let filters = next(filters_bytes)?;
        let lengths = next(separators * usize::from(length_width))?;
        let prefix = next(prefix_bytes.into())?;
        let heads = next(separators * usize::from(head_bytes))?;
        let rests = next(0)?;
        Some(Self {
            level,
            head_bytes,
            length_width,
            children,
            bounds,
            columns,
            firsts,
            starts,
            filters,
            filter_bytes: u16::try_from(filter_bytes.unwrap_or(0)).ok()?,
            lengths,
            prefix,
            heads,
            rests,
            used,
        })
    }

    /// Whether the encoder could have written this node, as far as one node alone can show.
    pub(super) fn is_sound(&self, bytes: &[u8]) -> bool {
        let prefix = self.prefix(bytes).len();
        let (mut rests, mut short) = (0, true);
        for separator in 0..self.separators() {
            let length = self.length(bytes, separator);
            short &= prefix + length <= KEY_BYTES_MAX && self.is_padded(bytes, separator, length);
            rests += length.saturating_sub(self.head_bytes.into());
        }
        let (mut next, mut filters) = (0, 0);
        let children = (0..self.children()).all(|child| {
            let Some(pointer) = self.pointer(bytes, child) else { return false };
            let first = self.first(bytes, child) == next;
            next += pointer.parts();
            first && self.has_filter(bytes, child, &pointer, &mut filters)
        });
        let whole = short && children && next == self.bounds() && usize::from(self.rests) + rests == self.used();
        // Rising heads prove the order. Where two heads are equal, whole separators are compared, as in a search.
        whole && (1..self.separators()).all(|separator| self.rises(bytes, separator))
    }

    /// Whether a child's filter begins behind `before` bytes of other filters, and is as long as its pointer says. Adds
    /// its length to `before`.
    fn has_filter(&self, bytes: &[u8], child: usize, pointer: &Pointer, before: &mut usize) -> bool {
        let starts = usize::from(self.starts);
        let start = if self.starts == self.filters { None } else { u16_at(bytes, starts + 2 * child).map(usize::from) };
        let follows = start.is_none_or(|start| start == *before);
        *before += pointer.filter_bytes();
        follows && self.filter(bytes, child).len() == pointer.filter_bytes()
    }

    /// Whether the head of a separator of this length is padded with zeros. Without zeros, heads would not sort as
    /// separators do.
    fn is_padded(&self, bytes: &[u8], separator: usize, length: usize) -> bool {
        let missing = usize::from(self.head_bytes).saturating_sub(length);
        missing == 0 || self.head(bytes, separator) & (u64::MAX >> (64 - 8 * missing)) == 0
    }

    /// Whether a separator is above the one before.
    fn rises(&self, bytes: &[u8], separator: usize) -> bool {
        let before = separator - 1;
        match self.head(bytes, before).cmp(&self.head(bytes, separator)) {
            Ordering::Less => true,
            Ordering::Equal => {
                let whole =
                    |separator| [self.suffix_head(bytes, separator), self.suffix_rest(bytes, separator)].concat();
                whole(before) < whole(separator)
            }
            Ordering::Greater => false,
        }
    }

    pub(crate) const fn level(&self) -> u8 {
        self.level
    }

    pub(crate) const fn children(&self) -> usize {
        self.children as usize
    }

    pub(crate) const fn bounds(&self) -> usize {
        self.bounds as usize
    }

    pub(crate) const fn separators(&self) -> usize {
        self.bounds as usize - 1
    }

    pub(super) const fn used(&self) -> usize {
        self.used as usize
    }

    /// The pointer to a child; none where the pointer is impossible.
    pub(crate) fn pointer(&self, bytes: &[u8], child: usize) -> Option<Pointer> {
        let field =
            |field: usize| columns::number(bytes, HEADER + field * DESCRIPTOR, usize::from(self.columns[field]), child);
        if self.level > 1 {
            let due = field(2).filter(|due| *due < UNITS_LIMIT)?;
            let node = Pointer::to_node(field(0).filter(|page| *page < PAGE_LIMIT)?, field(1)?);
            return Some(Pointer { due: Due::from_units(due), ..node });
        }
        leaf_pointer(bytes, &self.columns, child)
    }

    /// The filter of a leaf.
    #[inline]
    pub(crate) fn filter<'a>(&self, bytes: &'a [u8], child: usize) -> &'a [u8] {
        let all = &bytes[usize::from(self.filters)..usize::from(self.lengths)];
        if self.starts == self.filters {
            let each = usize::from(self.filter_bytes);
            return &all[child * each..(child + 1) * each];
        }
        let start = |child: usize| u16_at(bytes, usize::from(self.starts) + 2 * child).map_or(0, usize::from);
        let end = if child + 1 < self.children() { start(child + 1) } else { all.len() };
        all.get(start(child)..end).unwrap_or(&[])
    }

    /// The child's own bound: the bound of its first part.
    #[inline]
    pub(crate) fn first(&self, bytes: &[u8], child: usize) -> usize {
        if self.bounds == self.children {
            return child;
        }
        u16_at(bytes, usize::from(self.firsts) + 2 * child).map_or(0, usize::from)
    }

    pub(crate) fn prefix<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[usize::from(self.prefix)..usize::from(self.heads)]
    }

    /// Bytes of a separator behind the prefix.
    fn length(&self, bytes: &[u8], separator: usize) -> usize {
        match self.length_width {
            0 => self.head_bytes.into(),
            1 => bytes[usize::from(self.lengths) + separator].into(),
            _ => u16_at(bytes, usize::from(self.lengths) + 2 * separator).map_or(0, usize::from),
        }
    }

    /// The head of a key as a number: the leading bytes of `eight`, a key's first eight bytes behind the prefix.
    #[inline]
    pub(crate) const fn head_of(&self, eight: u64) -> u64 {
        eight >> (64 - 8 * self.head_bytes as u32)
    }

    /// How many separators have heads below `number`; these are the first ones.
    #[inline]
    pub(crate) fn heads_below(&self, bytes: &[u8], number: u64) -> usize {
        let (heads, width) = (&bytes[self.heads.into()..], usize::from(self.head_bytes));
        partition_point(self.separators(), |separator| {
            let eight = heads.get(separator * width..).and_then(<[u8]>::first_chunk);
            self.head_of(eight.copied().map_or(0, u64::from_be_bytes)) < number
        })
    }

    /// The head of a separator, as a number that sorts like the head.
    #[inline]
    pub(crate) fn head(&self, bytes: &[u8], separator: usize) -> u64 {
        let at = usize::from(self.heads) + separator * usize::from(self.head_bytes);
        let eight = bytes[at..].first_chunk().copied().map_or(0, u64::from_be_bytes);
        self.head_of(eight)
    }

    /// The part of a separator between the prefix and the end of its head.
    #[inline]
    pub(crate) fn suffix_head<'a>(&self, bytes: &'a [u8], separator: usize) -> &'a [u8] {
        let head = usize::from(self.head_bytes);
        let at = usize::from(self.heads) + separator * head;
        &bytes[at..at + self.length(bytes, separator).min(head)]
    }

    /// The rest of a separator behind its head.
    pub(crate) fn suffix_rest<'a>(&self, bytes: &'a [u8], separator: usize) -> &'a [u8] {
        let head = usize::from(self.head_bytes);
        let rest = self.length(bytes, separator).saturating_sub(head);
        if rest == 0 {
            return &[];
        }
        let lengths = &bytes[self.lengths.into()..];
        let before: usize = match self.length_width {
            0 => 0,
            1 => lengths[..separator].iter().map(|length| usize::from(length.saturating_sub(self.head_bytes))).sum(),
            _ => (0..separator).map(|other| self.length(bytes, other).saturating_sub(head)).sum(),
        };
        let at = usize::from(self.rests) + before;
        &bytes[at..at + rest]
    }
}

/// Bytes of all filters of a node above leaves, and of each filter where all have one length; none where a leaf's
/// pointer is impossible.
fn filters(page: &[u8], columns: &[u16; LEAF_FIELDS], children: usize) -> Option<(usize, Option<usize>)> {
    let (mut total, mut each) = (0, None);
    let mut alike = true;
    for child in 0..children {
        let bytes = leaf_pointer(page, columns, child)?.filter_bytes();
        alike &= *each.get_or_insert(bytes) == bytes;
        total += bytes;
    }
    Some((total, each.filter(|_| alike)))
}

/// The pointer to a leaf, from columns that begin at these offsets; none where the pointer is impossible.
fn leaf_pointer(bytes: &[u8], columns: &[u16; LEAF_FIELDS], child: usize) -> Option<Pointer> {
    let mut fields = [0; LEAF_FIELDS];
    for (field, number) in fields.iter_mut().enumerate() {
        *number = columns::number(bytes, HEADER + field * DESCRIPTOR, usize::from(columns[field]), child)?;
    }
    Pointer::of_leaf(fields)
}
