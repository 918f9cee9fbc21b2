//! Keys and values as text: raw, hex or escaped.
//!
//! 1. *Raw*: the bytes themselves.
//! 2. *Hex*: two digits a byte.
//! 3. *Escaped*: UTF-8 where possible. `\\`, `\t`, `\n`, `\r` and `\0` stand for those five; `\xNN` stands for any
//!    other byte that is not UTF-8, or belongs to a control character or to a character that reorders or hides the text
//!    around. Escaped text has neither tabs nor line breaks, so it fits one field of a line; without such characters
//!    it is safe on a terminal.
//!
//! Invariant: decoding what was encoded gives the same bytes, in every format.

use std::fmt;

use clap::ValueEnum;

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// The bytes as they are
    Raw,
    /// Two hexadecimal digits a byte
    Hex,
    /// Text, with \t \n \r \0 \\ and \xNN for what is not printable
    Escaped,
}

impl Format {
    pub(crate) fn encode(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Raw => bytes.to_vec(),
            Self::Hex => hex(bytes).into_bytes(),
            Self::Escaped => escape(bytes).into_bytes(),
        }
    }

    pub(crate) fn decode(self, text: &[u8]) -> Result<Vec<u8>, BadText> {
        match self {
            Self::Raw => Ok(text.to_vec()),
            Self::Hex => unhex(text),
            Self::Escaped => unescape(text),
        }
    }
}

/// Text that is not in the format it should be in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadText {
    position: usize,
    problem: &'static str,
}

impl fmt::Display for BadText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "byte {}: {}", self.position + 1, self.problem)
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Hexadecimal digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The bytes of hexadecimal digits.
pub(crate) fn unhex(text: &[u8]) -> Result<Vec<u8>, BadText> {
    let bad = |position, problem| BadText { position, problem };
    if !text.len().is_multiple_of(2) {
        return Err(bad(text.len(), "hex needs two digits a byte, and one is missing at the end"));
    }
    let digit = |position: usize| {
        let value = char::from(text[position]).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        value.ok_or_else(|| bad(position, "not a hexadecimal digit"))
    };
    (0..text.len()).step_by(2).map(|position| Ok(digit(position)? << 4 | digit(position + 1)?)).collect()
}

/// `bytes` on one line, safe on a terminal.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\0' => text.push_str("\\0"),
                _ if is_unsafe(character) => push_hex(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
                _ => text.push(character),
            }
        }
        push_hex(&mut text, chunk.invalid());
    }
    text
}

/// Control characters, and those that reorder or hide the text around them.
fn is_unsafe(character: char) -> bool {
    let reorders =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    character.is_control() || reorders
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        text.push_str("\\x");
        text.push_str(&hex(&[*byte]));
    }
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, BadText> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut position = 0;
    while let Some(&byte) = text.get(position) {
        if byte != b'\\' {
            bytes.push(byte);
            position += 1;
            continue;
        }
        let plain = match text.get(position + 1) {
            Some(b'\\') => b'\\',
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b'0') => b'\0',
            Some(b'x') => {
                let digits = text.get(position + 2..position + 4).and_then(|digits| unhex(digits).ok());
                let Some(byte) = digits else {
                    return Err(BadText { position, problem: "\\x needs two hexadecimal digits" });
                };
                bytes.extend(byte);
                position += 4;
                continue;
            }
            _ => {
                return Err(BadText {
                    position,
                    problem: "unknown escape: use \\\\ for a backslash, or \\t \\n \\r \\0 \\xNN",
                });
            }
        };
        bytes.push(plain);
        position += 2;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_decodes(bytes: Vec<u8>) {
            for format in [Format::Raw, Format::Hex, Format::Escaped] {
                prop_assert_eq!(format.decode(&format.encode(&bytes)), Ok(bytes.clone()));
            }
        }

        #[test]
        fn escaped_text_is_printable_and_one_field(bytes: Vec<u8>) {
            prop_assert!(!escape(&bytes).chars().any(char::is_control));
        }

        #[test]
        fn any_text_decodes_or_is_refused(text: Vec<u8>) {
            let _ = (unhex(&text), unescape(&text));
        }
    }

    #[test]
    fn text_stays_readable() {
        assert_eq!(escape("größe\t1\n".as_bytes()), "größe\\t1\\n");
        assert_eq!(escape(b"\xff\\\x1b[31m"), "\\xff\\\\\\x1b[31m");
        assert_eq!(escape("a\u{202e}b".as_bytes()), "a\\xe2\\x80\\xaeb");
    }

    #[test]
    fn bad_text_names_its_place() {
        assert_eq!(unescape(b"ab\\q").expect_err("unknown").position, 2);
        assert_eq!(unescape(b"ab\\x1").expect_err("short").position, 2);
        assert_eq!(unescape(b"ab\\").expect_err("end").position, 2);
        assert_eq!(unhex(b"abg0").expect_err("no digit").position, 2);
        assert_eq!(unhex(b"abc").expect_err("odd").position, 3);
    }
}
