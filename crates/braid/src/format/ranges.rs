//! Range tombstones as they are stored: fragment after fragment.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | bytes of the first key |
//! | 4 | . | the first key |
//! | . | 4 | bytes of the end; 0: there is none |
//! | . | . | the end |
//! | . | 1 | 1 if the structure may have a newer version, else 0 |
//! | . | 4 | bytes of the seqs |
//! | . | 8 each | seqs, newest first |

use codec::Fields;
use index::{Fragment, RangeTombstones, Seq};

use super::blocks::{length_of, put_block};

/// Appends the tombstones of a table as a block.
pub(super) fn put_tombstones(bytes: &mut Vec<u8>, tombstones: &RangeTombstones) {
    let mut block = Vec::new();
    for fragment in tombstones.fragments() {
        put_block(&mut block, &fragment.low);
        put_block(&mut block, fragment.high.as_deref().unwrap_or_default());
        block.push(u8::from(fragment.is_overgrown));
        block.extend_from_slice(&length_of(fragment.seqs.len() * size_of::<u64>()).to_le_bytes());
        fragment.seqs.iter().for_each(|seq| block.extend_from_slice(&seq.0.to_le_bytes()));
    }
    put_block(bytes, &block);
}

/// The tombstones of a table.
pub(super) fn tombstones(fields: &mut Fields<'_>) -> Option<RangeTombstones> {
    let mut block = Fields(fields.block()?);
    let mut fragments = Vec::new();
    while !block.end() {
        let (low, high) = (block.block()?.to_vec(), block.block()?.to_vec());
        let is_overgrown = match block.u8()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let (mut stored, mut seqs) = (Fields(block.block()?), Vec::new());
        while !stored.end() {
            seqs.push(Seq(stored.u64()?));
        }
        fragments.push(Fragment { low, high: Some(high).filter(|high| !high.is_empty()), seqs, is_overgrown });
    }
    RangeTombstones::from_fragments(fragments)
}

#[cfg(test)]
mod tests {
    use index::Horizon;

    use super::*;

    #[test]
    fn bytes_are_those_of_version_1() {
        let mut set = RangeTombstones::default();
        set.add(b"k", Some(b"mm"), Seq(9), &Horizon::default());
        set.add(b"m", None, Seq(11), &Horizon::default());
        set.outgrow(b"z", Seq(12));
        let mut bytes = Vec::new();
        put_tombstones(&mut bytes, &set);
        let fragments: [&[u8]; 3] = [
            &[1, 0, 0, 0, b'k', 1, 0, 0, 0, b'm', 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
            &[
                1, 0, 0, 0, b'm', 2, 0, 0, 0, b'm', b'm', 0, 16, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0,
                0,
            ],
            &[2, 0, 0, 0, b'm', b'm', 0, 0, 0, 0, 1, 8, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0],
        ];
        let block = fragments.concat();
        assert_eq!(bytes, [&[u8::try_from(block.len()).expect("short"), 0, 0, 0], &block[..]].concat());
        assert_eq!(tombstones(&mut Fields(&bytes)), Some(set));
    }
}
