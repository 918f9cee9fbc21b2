//! Changes of bytes, from a seed.

use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Values at which something ends, overflows, or changes its sign.
const BORDERS: [u64; 16] =
    [0, 1, 2, 7, 8, 127, 128, 255, 256, 4095, 4096, 65_535, 65_536, u32::MAX as u64, 1 << 62, u64::MAX];

/// One of `inputs`, with up to eight changes; the same seed gives the same result.
#[must_use]
pub fn changed(inputs: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut bytes = inputs.choose(&mut random).cloned().unwrap_or_default();
    for _ in 0..random.random_range(1..=8) {
        change(&mut bytes, inputs, &mut random);
    }
    bytes
}

fn change(bytes: &mut Vec<u8>, inputs: &[Vec<u8>], random: &mut StdRng) {
    let length = bytes.len();
    let at = random.random_range(0..=length);
    match random.random_range(0..8) {
        // Fields are mostly at the beginning, and changes there matter most.
        0 | 1 if length > 0 => {
            let at = at.min(random.random_range(0..length));
            bytes[at] ^= 1 << random.random_range(0..8);
        }
        2 if length > 0 => bytes[at.min(length - 1)] = random.random(),
        3 => put(bytes, at, &number(random)),
        4 => {
            let end = (at + random.random_range(0..32)).min(length);
            bytes.drain(at..end);
        }
        5 => {
            let end = (at + random.random_range(0..32)).min(length);
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        6 => {
            let other = inputs.choose(random).map_or(&[][..], Vec::as_slice);
            let from = random.random_range(0..=other.len());
            let part = &other[from..(from + random.random_range(0..64)).min(other.len())];
            put(bytes, at, part);
        }
        _ => bytes.truncate(at),
    }
}

/// A number that is a border or near one, in one of the widths that fields have.
fn number(random: &mut StdRng) -> Vec<u8> {
    let border = *BORDERS.choose(random).expect("there are some");
    let value = border.wrapping_add(random.random_range(0..3)).wrapping_sub(1);
    let width = *[1, 2, 3, 4, 6, 8].choose(random).expect("there are some");
    value.to_le_bytes()[..width].to_vec()
}

fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    let end = (at + part.len()).min(bytes.len());
    bytes[at..end].copy_from_slice(&part[..end - at]);
}
