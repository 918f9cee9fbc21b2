//! Keys and values of records.
//!
//! 1. The key of record `i` is `user` and a number in decimal, with zeros before the number up to a width. The number
//!    is `i`, or the FNV-1a hash of `i`.
//! 2. The value is the fields, one after another, all of one length. A field is a value of [`values`] that belongs to
//!    the record's number and the field's: the field begins with the nonce of its write, and every byte behind follows
//!    from record, field and nonce.
//! 3. The last 8 bytes of the last field are combined with a *seal* of the nonces of all fields. So fields of two
//!    writes of a record, each right by itself, do not make a right record. Fields too short for nonces have no seal.

use rand::Rng;

use super::mix::InsertOrder;
use crate::error::within;
use crate::keys::mix;
use crate::values;

/// The prefix of every key.
const PREFIX: &[u8] = b"user";
/// Bytes of a nonce, and of the seal.
const WORD: usize = 8;
/// Shortest field with a nonce.
const NONCED_MIN: usize = 16;
/// Digits of the longest number.
const DIGITS_MAX: usize = 19;

/// The absolute value, as a signed number, of the 64-bit FNV-1a hash of the bytes of `value`, least first; as in YCSB.
#[must_use]
pub const fn fnv_hash(value: u64) -> u64 {
    let bytes = value.to_le_bytes();
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01B3);
        at += 1;
    }
    hash.cast_signed().unsigned_abs()
}

/// The shape of the keys and values of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Fields of a record.
    pub field_count: usize,
    /// Bytes of a field.
    pub field_length: usize,
    /// The number of a key: the index of its record, or the hash of the index.
    pub insert_order: InsertOrder,
    /// Fewest digits of the number of a key.
    pub zero_padding: usize,
}

impl Default for Shape {
    /// YCSB's: ten fields of 100 bytes, hashed numbers, no zeros before them.
    fn default() -> Self {
        Self { field_count: 10, field_length: 100, insert_order: InsertOrder::Hashed, zero_padding: 1 }
    }
}

impl Shape {
    /// Most fields of a record.
    pub const FIELDS_MAX: usize = 10_000;
    /// Most digits of a number.
    pub const ZERO_PADDING_MAX: usize = braid::Structure::BTree.key_bytes_max() - PREFIX.len();

    /// Bytes of the longest key.
    #[must_use]
    pub const fn key_bytes(&self) -> usize {
        PREFIX.len() + if self.zero_padding > DIGITS_MAX { self.zero_padding } else { DIGITS_MAX }
    }

    /// Bytes of every value.
    #[must_use]
    pub const fn value_bytes(&self) -> usize {
        self.field_count.saturating_mul(self.field_length)
    }

    /// The number in the key of record `index`.
    #[must_use]
    pub const fn number(&self, index: u64) -> u64 {
        match self.insert_order {
            InsertOrder::Hashed => fnv_hash(index),
            InsertOrder::Ordered => index,
        }
    }

    /// Writes the key with that number into `key`.
    pub fn write_key(&self, number: u64, key: &mut Vec<u8>) {
        let width = self.zero_padding;
        key.clear();
        key.extend_from_slice(PREFIX);
        key.extend_from_slice(format!("{number:0width$}").as_bytes());
    }

    /// The number of a key, or none for a key that [`Self::write_key`] does not make of any number.
    #[must_use]
    pub fn number_of(&self, key: &[u8]) -> Option<u64> {
        let digits = key.strip_prefix(PREFIX)?;
        if digits.len() < self.zero_padding || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        if digits.len() > self.zero_padding && digits.len() > 1 && digits[0] == b'0' {
            return None;
        }
        str::from_utf8(digits).ok()?.parse().ok()
    }

    /// Writes a new value of the record with that number into `value`.
    pub fn write_value(&self, number: u64, random: &mut impl Rng, value: &mut Vec<u8>) {
        value.clear();
        value.resize(self.value_bytes(), 0);
        for (field, bytes) in value.chunks_exact_mut(self.field_length).enumerate() {
            values::write(identity(number, field), random.random(), bytes);
        }
        self.toggle_seal(value);
    }

    /// Rewrites one field of a right value, with a new nonce.
    pub fn write_field(&self, number: u64, field: usize, nonce: u64, value: &mut [u8]) {
        self.toggle_seal(value);
        let bytes = &mut value[field * self.field_length..][..self.field_length];
        values::write(identity(number, field), nonce, bytes);
        self.toggle_seal(value);
    }

    /// Whether `value` is a right value of the record with that number. Every byte is compared.
    #[must_use]
    pub fn is_right(&self, number: u64, value: &[u8]) -> bool {
        if value.len() != self.value_bytes() {
            return false;
        }
        let (rest, last) = value.split_at(value.len() - self.field_length);
        let is_right = |(field, bytes): (usize, &[u8])| values::is_right(identity(number, field), bytes);
        let last_field = self.field_count - 1;
        let last_is_right = if self.is_sealed() {
            let mut last = last.to_vec();
            combine(&mut last, self.seal(value));
            is_right((last_field, &last))
        } else {
            is_right((last_field, last))
        };
        last_is_right && rest.chunks_exact(self.field_length).enumerate().all(is_right)
    }

    const fn is_sealed(&self) -> bool {
        self.field_count > 1 && self.field_length >= NONCED_MIN
    }

    /// Adds the seal to a value, or removes the seal.
    fn toggle_seal(&self, value: &mut [u8]) {
        if self.is_sealed() {
            let seal = self.seal(value);
            combine(value, seal);
        }
    }

    fn seal(&self, value: &[u8]) -> u64 {
        let nonces = value.chunks_exact(self.field_length).filter_map(|field| field.first_chunk::<WORD>());
        nonces.enumerate().fold(0, |seal, (field, nonce)| seal ^ mix(identity(u64::from_le_bytes(*nonce), field)))
    }

    /// Refuses parameters outside their limits.
    ///
    /// # Errors
    /// Names the parameter, its value and its limit.
    pub fn check(&self) -> crate::Result<()> {
        within("field count", self.field_count as u64, 1, Self::FIELDS_MAX as u64)?;
        within("field length", self.field_length as u64, 1, braid::VALUE_BYTES_MAX)?;
        within("zero padding", self.zero_padding as u64, 0, Self::ZERO_PADDING_MAX as u64)?;
        within("field count x field length", self.value_bytes() as u64, 1, braid::VALUE_BYTES_MAX)
    }
}

/// A number that distinguishes a field from every other of its record, and from the same field of every other record.
const fn identity(number: u64, field: usize) -> u64 {
    number ^ mix(field as u64)
}

/// Combines the last 8 bytes with `seal`; a second call with the same seal restores them.
fn combine(value: &mut [u8], seal: u64) {
    if let Some(last) = value.last_chunk_mut::<WORD>() {
        *last = (u64::from_le_bytes(*last) ^ seal).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn key(shape: &Shape, index: u64) -> String {
        let mut key = Vec::new();
        shape.write_key(shape.number(index), &mut key);
        String::from_utf8(key).expect("digits")
    }

    #[test]
    fn hashes_and_keys_are_those_of_ycsb() {
        let hashes = [
            (0, 6_284_781_860_667_377_211),
            (1, 8_517_097_267_634_966_620),
            (2, 1_820_151_046_732_198_393),
            (3, 4_052_466_453_699_787_802),
            (10, 2_408_371_864_701_034_737),
            (255, 8_064_062_821_143_829_734),
            (256, 2_056_600_594_528_442_646),
            (999_999, 2_744_965_632_448_235_251),
            (123_456_789_012, 2_556_987_882_972_209_844),
            (1 << 62, 6_284_711_491_923_171_707),
        ];
        for (value, hash) in hashes {
            assert_eq!(fnv_hash(value), hash, "of {value}");
        }
        let hashed = Shape::default();
        let ordered = Shape { insert_order: InsertOrder::Ordered, ..hashed };
        assert_eq!(key(&hashed, 0), "user6284781860667377211");
        assert_eq!(key(&hashed, 1), "user8517097267634966620");
        assert_eq!(key(&ordered, 7), "user7");
        assert_eq!(key(&Shape { zero_padding: 5, ..ordered }, 7), "user00007");
        assert_eq!(key(&Shape { zero_padding: 5, ..ordered }, 1_234_567), "user1234567");
    }

    #[test]
    fn a_foreign_key_has_no_number() {
        let shape = Shape { zero_padding: 3, ..Shape::default() };
        for foreign in ["", "user", "user12", "user0012", "user+12", "user12x", "User123", "user99999999999999999999"] {
            assert_eq!(shape.number_of(foreign.as_bytes()), None, "{foreign}");
        }
        assert_eq!(shape.number_of(b"user012"), Some(12));
        assert_eq!(shape.number_of(b"user1234"), Some(1234));
    }

    proptest! {
        #[test]
        fn keys_say_their_number(index: u64, padding in 0usize..30, ordered: bool) {
            let insert_order = if ordered { InsertOrder::Ordered } else { InsertOrder::Hashed };
            let shape = Shape { zero_padding: padding, insert_order, ..Shape::default() };
            let key = key(&shape, index >> 1);
            prop_assert_eq!(shape.number_of(key.as_bytes()), Some(shape.number(index >> 1)));
            prop_assert!(key.len() <= shape.key_bytes());
        }

        #[test]
        fn a_value_is_right_for_its_record_alone_and_whole(
            field_count in 1usize..12, field_length in 16usize..200, index: u64, seed: u64,
            byte: prop::sample::Index, field: prop::sample::Index,
        ) {
            let shape = Shape { field_count, field_length, ..Shape::default() };
            let mut random = SmallRng::seed_from_u64(seed);
            let mut old = Vec::new();
            shape.write_value(index, &mut random, &mut old);
            prop_assert_eq!(old.len(), field_count * field_length);
            let mut new = old.clone();
            shape.write_field(index, field.index(field_count), random.random(), &mut new);
            for value in [&old, &new] {
                prop_assert!(shape.is_right(index, value));
                prop_assert!(!shape.is_right(index ^ 1, value), "foreign");
                prop_assert!(!shape.is_right(index, &value[..value.len() - 1]), "cut short");
                let mut wrong = value.clone();
                wrong[byte.index(value.len())] ^= 1;
                prop_assert!(!shape.is_right(index, &wrong), "a bit is wrong");
            }
            // Only that field differs, and the seal.
            let changed = field.index(field_count) * field_length;
            let seal = old.len() - WORD;
            for at in 0..old.len() {
                prop_assert!(old[at] == new[at] || (changed..changed + field_length).contains(&at) || at >= seal);
            }
        }

        #[test]
        fn two_writes_of_a_record_do_not_make_a_third(
            field_count in 2usize..12, field_length in 16usize..100, index: u64, seed: u64, cut: prop::sample::Index,
        ) {
            let shape = Shape { field_count, field_length, ..Shape::default() };
            let mut random = SmallRng::seed_from_u64(seed);
            let (mut first, mut second) = (Vec::new(), Vec::new());
            shape.write_value(index, &mut random, &mut first);
            shape.write_value(index, &mut random, &mut second);
            let cut = field_length * (1 + cut.index(field_count - 1));
            let torn = [&first[..cut], &second[cut..]].concat();
            prop_assert!(!shape.is_right(index, &torn), "cut at a field");
        }

        #[test]
        fn fields_may_be_short(field_count in 1usize..5, field_length in 1usize..16, index: u64, seed: u64) {
            let shape = Shape { field_count, field_length, ..Shape::default() };
            let mut random = SmallRng::seed_from_u64(seed);
            let mut value = Vec::new();
            shape.write_value(index, &mut random, &mut value);
            shape.write_field(index, field_count - 1, random.random(), &mut value);
            prop_assert!(shape.is_right(index, &value));
        }
    }
}
