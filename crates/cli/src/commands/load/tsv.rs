//! Lines of key, tab, value.

use super::record::{Parsed, Record};
use crate::bytes::Format;

/// The record of a line.
pub(super) fn record(line: &[u8], format: Format) -> Parsed {
    let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
        return Err("there is no tab between key and value".into());
    };
    let decode = |what, text| format.decode(text).map_err(|problem| format!("{what}, {problem}"));
    let (key, value) = (decode("key", &line[..tab])?, decode("value", &line[tab + 1..])?);
    Ok(Some(Record { key, value, expires: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tab_ends_the_key() {
        let pair = |key: &[u8], value: &[u8]| Ok(Some(Record { key: key.into(), value: value.into(), expires: None }));
        assert_eq!(record(b"a\tb\tc", Format::Raw), pair(b"a", b"b\tc"));
        assert_eq!(record(b"a\\tb\t\\xff", Format::Escaped), pair(b"a\tb", &[255]));
        assert_eq!(record(b"6162\t", Format::Hex), pair(b"ab", &[]));
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        assert!(record(b"no tab", Format::Raw).expect_err("no tab").contains("tab"));
        assert!(record(b"6g\t00", Format::Hex).expect_err("no digit").contains("key, byte 2"));
        assert!(record(b"a\t\\q", Format::Escaped).expect_err("no escape").contains("value, byte 1"));
    }
}
