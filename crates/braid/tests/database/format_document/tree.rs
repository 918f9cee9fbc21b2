//! Trees: internal nodes, leaves and what is between them.

use std::collections::BTreeMap;

use checksum::{crc32c, crc32c_append};

use super::check::{Found, PAGE, Reader, part};
use super::document::{Outcome, Values, ensure, number};
use super::made::LEAF_PAGES;

/// What the document says of the bits of a leaf's shape.
struct Shape {
    appended: bool,
    sorted: usize,
    part: usize,
    pages: usize,
}

impl Shape {
    fn of(pointer: &Values) -> Outcome<Self> {
        let shape = pointer.size("shape")?;
        let bits = |from: u32, count: u32| (shape >> from) & ((1 << count) - 1);
        Ok(Self { appended: bits(0, 1) == 1, sorted: bits(1, 15), part: 1 << bits(16, 4), pages: bits(21, 15) })
    }

    fn parts(&self) -> usize {
        self.sorted.div_ceil(self.part)
    }
}

/// A pointer to a leaf or node, as far as both have it.
struct Child {
    page: usize,
    incarnation: Vec<u8>,
    leaf: Option<Values>,
}

/// The columns of a node: the numbers of each child.
fn columns(reader: &Reader<'_>, page: &[u8], node: &Values, fields: usize) -> Outcome<(Vec<Vec<u64>>, usize)> {
    let (mut at, mut descriptors) = (node.length, Vec::new());
    for _ in 0..fields {
        let column = reader.decode("column", part(page, at..PAGE, "a column")?)?;
        at += column.length;
        descriptors.push(column);
    }
    let mut children = vec![Vec::new(); node.size("children")?];
    for column in descriptors {
        let bytes = column.size("number bytes")?;
        for child in &mut children {
            child.push(column.number("least")? + number(part(page, at..at + bytes, "a number")?));
            at += bytes;
        }
    }
    Ok((children, at))
}

/// What the filter of a leaf is like, and its bytes.
#[derive(Default)]
struct Filter {
    like: u64,
    /// The newest seq of the leaf.
    newest: u64,
    bytes: Vec<u8>,
}

impl Filter {
    /// Whether it has a key, which was appended on a page or is sorted.
    fn has(&self, key: &[u8], appended: Option<usize>, shape: &Shape) -> bool {
        let ends = 4 * (shape.pages - shape.sorted);
        let Some(bits) = self.bytes.get(ends..).filter(|_| appended.is_some() || self.like & 1 == 1) else {
            return true;
        };
        let bit = |i| filter_bit(key, appended, i, 8 * bits.len());
        (0..4).map(bit).all(|bit| bits[bit / 8] & 1 << (bit % 8) != 0)
    }
}

/// Bytes of a leaf's filter, as its pointer and what the filter is like say.
fn filter_bytes(child: &[u64]) -> Outcome<usize> {
    let [_, _, _, shape, .., filter] = *child else { return Ok(0) };
    let (sorted, pages) = ((shape >> 1) & 0x7fff, (shape >> 21) & 0x7fff);
    let words = filter >> 1;
    ensure!(words > 0 || filter == 0, "a filter without words that has keys");
    let bytes = if words == 0 { 0 } else { 4 * (pages - sorted) + 8 * words };
    ensure!(bytes <= 328, "a filter of {bytes} bytes");
    usize::try_from(bytes).map_err(|error| error.to_string())
}

/// The bit of a filter that is the `i`th of a key, alone or with a page.
fn filter_bit(key: &[u8], page: Option<usize>, i: u32, bits: usize) -> usize {
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash ^ 0x9E37_79B9_7F4A_7C15) * u128::from(word ^ 0xD1B5_4A32_D192_ED03);
        let halves = product.to_le_bytes();
        number(&halves[..8]) ^ number(&halves[8..])
    };
    let (words, rest) = key.as_chunks::<8>();
    let hash = words.iter().fold(key.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let hash = mix(mix(hash, u64::from_be_bytes(last)), page.map_or(0, |page| page as u64 + 1));
    let halves = hash.to_le_bytes();
    let [low, high] = [&halves[..4], &halves[4..]].map(|half| u32::try_from(number(half)).unwrap_or(0));
    let product = u64::from(low.wrapping_add(i.wrapping_mul(high | 1))) * bits as u64;
    usize::try_from(product >> 32).unwrap_or(usize::MAX)
}

/// What stands behind the columns of a node: the first bound of each child, the filter of each, and all separators.
type Behind = (Vec<usize>, Vec<Vec<u8>>, Vec<Vec<u8>>);

fn bounds(page: &[u8], mut at: usize, node: &Values, columns: &[Vec<u64>]) -> Outcome<Behind> {
    let size = |bytes: &[u8]| usize::try_from(number(bytes)).map_err(|error| error.to_string());
    let mut take = |bytes: usize, what: &str| {
        at += bytes;
        part(page, at - bytes..at, what)
    };
    let (children, bounds) = (node.size("children")?, node.size("bounds")?);
    let firsts = match bounds > children {
        true => take(2 * children, "first bounds")?.chunks(2).map(size).collect::<Outcome<_>>()?,
        false => (0..children).collect(),
    };
    let lengths = columns.iter().map(|child| filter_bytes(child)).collect::<Outcome<Vec<_>>>()?;
    if lengths.iter().any(|length| *length != lengths[0]) {
        let starts = take(2 * children, "where filters begin")?.chunks(2).map(size).collect::<Outcome<Vec<_>>>()?;
        let mut before = 0;
        for (start, length) in starts.iter().zip(&lengths) {
            ensure!(*start == before, "a filter begins at {start}, not at {before}");
            before += length;
        }
    }
    let filters = lengths.iter().map(|length| Ok(take(*length, "a filter")?.to_vec())).collect::<Outcome<Vec<_>>>()?;
    let count = bounds.checked_sub(1).ok_or("a node without bounds")?;
    let (head, width) = (node.size("head bytes")?, node.size("length width")?);
    let lengths: Vec<usize> = match width {
        0 => vec![head; count],
        _ => take(count * width, "lengths")?.chunks(width).map(size).collect::<Outcome<_>>()?,
    };
    let prefix = take(node.size("prefix bytes")?, "a prefix")?;
    let mut separators = Vec::new();
    for length in &lengths {
        let bytes = take(head, "a head")?;
        ensure!(bytes[head.min(*length)..].iter().all(|byte| *byte == 0), "bytes behind a short separator");
        separators.push([prefix, &bytes[..head.min(*length)]].concat());
    }
    for (separator, length) in separators.iter_mut().zip(&lengths) {
        separator.extend_from_slice(take(length.saturating_sub(head), "the rest of a separator")?);
    }
    let used = node.size("used")?;
    ensure!(at == used, "a node ends at {at}, not at {used}");
    ensure!(page[used..].iter().all(|byte| *byte == 0), "bytes behind a node");
    ensure!(separators.is_sorted_by(|one, other| one < other), "separators out of order");
    Ok((firsts, filters, separators))
}

impl Reader<'_> {
    pub(crate) fn tree(&self, root: &Values, table: u64) -> Outcome<Found> {
        let mut found = Found::default();
        let height = root.number("height")?;
        if height == 0 {
            ensure!(root.bytes("root")?.iter().all(|byte| *byte == 0), "an empty tree has a root");
            return Ok(found);
        }
        let pointer = self.decode("leaf pointer", root.bytes("root")?)?;
        ensure!(pointer.length == root.bytes("root")?.len(), "a leaf pointer has {} bytes", pointer.length);
        let child = Child {
            page: pointer.size("page")?,
            incarnation: pointer.bytes("incarnation")?.to_vec(),
            leaf: (height == 1).then_some(pointer),
        };
        self.subtree(&child, &[], &Filter::default(), height - 1, table, &mut found)?;
        Ok(found)
    }

    fn subtree(
        &self, child: &Child, fences: &[Vec<u8>], filter: &Filter, level: u64, table: u64, found: &mut Found,
    ) -> Outcome<()> {
        let epoch = number(child.incarnation.get(5..).unwrap_or_default());
        ensure!(epoch == 1 && child.incarnation.len() == 8, "incarnation {:?}", child.incarnation);
        if let Some(pointer) = &child.leaf {
            return self.leaf(pointer, fences, filter, table, found);
        }
        found.levels.insert(level);
        found.extents.push(child.page..child.page + 1);
        let start = child.page.saturating_mul(PAGE);
        let page = part(self.file("data")?, start..start.saturating_add(PAGE), "a node")?;
        let node = self.decode("internal node", page)?;
        node.expect_magic(b"BtNd")?;
        let crc = crc32c(&page[node.place("crc")?.end..]).into();
        node.expect(&[("crc", crc), ("version", 2), ("level", level), ("page", child.page as u64), ("table", table)])?;
        ensure!(node.bytes("incarnation")? == child.incarnation, "a node of another incarnation");
        let (children, at) = columns(self, page, &node, if level == 1 { 10 } else { 3 })?;
        let (firsts, filters, separators) = bounds(page, at, &node, &children)?;
        let mut next = 0;
        for (index, numbers) in children.iter().enumerate() {
            let child = self.child(numbers)?;
            let parts = child.leaf.as_ref().map_or(Ok(1), |leaf| Shape::of(leaf).map(|shape| shape.parts()))?;
            ensure!(firsts[index] == next, "child {index} begins at bound {}, not at {next}", firsts[index]);
            next += parts;
            let from = found.entries.len();
            let fences = part_of(&separators, firsts[index]..next - 1)?;
            let filter = Filter {
                newest: numbers.get(8).copied().unwrap_or(0),
                like: numbers.get(9).copied().unwrap_or(0),
                bytes: filters[index].clone(),
            };
            self.subtree(&child, fences, &filter, level - 1, table, found)?;
            for (key, ..) in &found.entries[from..] {
                let low = firsts[index].checked_sub(1).map(|bound| &separators[bound]);
                let within = low.is_none_or(|low| low <= key) && separators.get(next - 1).is_none_or(|end| key < end);
                ensure!(within, "key {} is under the wrong child", key.escape_ascii());
            }
        }
        ensure!(next == separators.len() + 1, "{next} bounds of {}", separators.len() + 1);
        Ok(())
    }

    /// A child, as the numbers in a node's columns say.
    fn child(&self, numbers: &[u64]) -> Outcome<Child> {
        let incarnation = numbers[1].to_le_bytes().to_vec();
        let page = usize::try_from(numbers[0]).map_err(|error| error.to_string())?;
        let leaf = if let [page, incarnation, due, shape, length, chain, entries, dead, _, _] = *numbers {
            let keys = entries.checked_sub(dead).ok_or("more dead entries than entries")?;
            let shape_fields = [(page, 6), (shape, 5), (incarnation, 8), (length, 4), (chain, 4)];
            let fields = shape_fields.into_iter().chain([(entries, 3), (keys, 3), (due, 5)]);
            let bytes = fields.flat_map(|(number, bytes)| number.to_le_bytes().into_iter().take(bytes));
            Some(self.decode("leaf pointer", &bytes.collect::<Vec<_>>())?)
        } else {
            None
        };
        Ok(Child { page, incarnation, leaf })
    }

    fn leaf(
        &self, pointer: &Values, fences: &[Vec<u8>], filter: &Filter, table: u64, found: &mut Found,
    ) -> Outcome<()> {
        let shape = Shape::of(pointer)?;
        let start = pointer.size("page")?.saturating_mul(PAGE);
        let extent = start..start + shape.pages * PAGE;
        ensure!(shape.pages == LEAF_PAGES as usize, "a leaf of {extent:?}");
        found.extents.push(extent.start / PAGE..extent.end / PAGE);
        found.parts.insert(shape.parts());
        let bytes = part(self.file("data")?, extent, "a leaf")?;
        let bytes = part(bytes, 0..pointer.size("length")?, "what is published of a leaf")?;
        let (mut at, mut chain, mut entries, mut sorted, mut appended) = (0, 0_u64, 0, 0, false);
        let mut ends = vec![0; if filter.bytes.is_empty() { 0 } else { shape.pages - shape.sorted }];
        let first = found.entries.len();
        while at < bytes.len() {
            let end = bytes.len().min((at / PAGE + 1) * PAGE);
            let rest = part(bytes, at..end, "a run")?;
            if rest.len() < 18 || rest[..2] == [0, 0] {
                at = end;
                continue;
            }
            let run = self.decode("run", rest)?;
            let whole = part(rest, 0..run.size("length")?, "a run")?;
            let is_sorted = at % PAGE == 0 && at / PAGE < shape.sorted;
            let previous = if is_sorted { 0 } else { u32::try_from(chain).unwrap_or(0) };
            let seed = [
                pointer.bytes("incarnation")?,
                &u32::try_from(table).unwrap_or(0).to_le_bytes(),
                &u32::try_from(at).unwrap_or(0).to_le_bytes(),
                &previous.to_le_bytes(),
                run.bytes("length")?,
            ];
            let covered = part(whole, run.place("type")?.start..whole.len(), "a run")?;
            chain = crc32c_append(crc32c(&seed.concat()), covered).into();
            run.expect(&[("crc", chain)])?;
            found.types.insert(run.number("type")?);
            let number_of_part = at / PAGE / shape.part;
            sorted += usize::from(is_sorted);
            appended |= !is_sorted;
            let page = at / PAGE;
            let end = (page + 1).checked_sub(shape.sorted).filter(|_| page != (bytes.len() - 1) / PAGE);
            end.and_then(|end| ends.get_mut(end)).into_iter().for_each(|end| *end = u32::try_from(chain).unwrap_or(0));
            for (entry, kind) in self.entries(whole, &run)? {
                let (seq, key) = (number(entry.bytes("seq")?) + run.number("base")?, entry.bytes("key")?);
                let low = number_of_part.checked_sub(1).and_then(|fence| fences.get(fence));
                let between = low.is_none_or(|low| low.as_slice() <= key)
                    && fences.get(number_of_part).is_none_or(|high| key < high.as_slice());
                let in_filter = filter.has(key, (!is_sorted).then_some(page), &shape);
                ensure!(filter.newest >= seq || filter.bytes.is_empty(), "seq {seq} is above the newest");
                ensure!(in_filter, "key {} is not in the filter", key.escape_ascii());
                ensure!(!is_sorted || between, "key {} is in the wrong part", key.escape_ascii());
                found.entries.push((key.to_vec(), seq, kind, entry.bytes("value")?.to_vec()));
                entries += 1;
            }
            at += whole.len();
        }
        found.filters += usize::from(!filter.bytes.is_empty());
        let stated = filter.bytes.chunks(4).take(ends.len()).map(number);
        ensure!(stated.eq(ends.iter().map(|end| u64::from(*end))), "pages do not end as the filter says: {ends:?}");
        ensure!((sorted, appended) == (shape.sorted, shape.appended), "{sorted} sorted pages, appended: {appended}");
        let mut newest = BTreeMap::new();
        for (key, seq, kind, _) in &found.entries[first..] {
            let known = newest.entry(key).or_insert((*seq, *kind));
            *known = (*known).max((*seq, *kind));
        }
        let live = newest.values().filter(|(_, kind)| *kind != 2).count() as u64;
        ensure!(pointer.number("keys")? <= live, "{live} live keys in a leaf that has more");
        pointer.expect(&[("chain", chain), ("entries", entries)])
    }
}

fn part_of(separators: &[Vec<u8>], range: std::ops::Range<usize>) -> Outcome<&[Vec<u8>]> {
    separators.get(range).ok_or_else(|| "fewer separators than the parts of leaves need".to_owned())
}
