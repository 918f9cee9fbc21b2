//! Lines of key, tab, value.

use super::Parsed;
use crate::bytes::Format;

/// The record of a line.
pub(super) fn record(line: &[u8], format: Format) -> Parsed {
    let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
        return Err("there is no tab between key and value".into());
    };
    let decode = |what, text| format.decode(text).map_err(|problem| format!("{what}, {problem}"));
    Ok(Some((decode("key", &line[..tab])?, decode("value", &line[tab + 1..])?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_tab_ends_the_key() {
        assert_eq!(record(b"a\tb\tc", Format::Raw), Ok(Some((b"a".to_vec(), b"b\tc".to_vec()))));
        assert_eq!(record(b"a\\tb\t\\xff", Format::Escaped), Ok(Some((b"a\tb".to_vec(), vec![255]))));
        assert_eq!(record(b"6162\t", Format::Hex), Ok(Some((b"ab".to_vec(), vec![]))));
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        assert!(record(b"no tab", Format::Raw).expect_err("no tab").contains("tab"));
        assert!(record(b"6g\t00", Format::Hex).expect_err("no digit").contains("key, byte 2"));
        assert!(record(b"a\t\\q", Format::Escaped).expect_err("no escape").contains("value, byte 1"));
    }
}
