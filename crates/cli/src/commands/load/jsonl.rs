//! Lines of JSON objects.

use std::time::{Duration, SystemTime};

use serde::Deserialize;

use super::record::{Parsed, Record};
use crate::bytes::unhex;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_hex: Option<String>,
    value: Option<String>,
    value_hex: Option<String>,
    /// Milliseconds since 1970.
    expires_ms: Option<u64>,
}

/// The record of a line; a blank line has none.
pub(in crate::commands) fn record(line: &[u8]) -> Parsed {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| {
        let what = error.to_string();
        // The caller knows the line number better than serde_json, which sees one line alone.
        let what = what.split(" at line ").next().unwrap_or(&what);
        format!("column {}: {what}", error.column())
    })?;
    let key = field("key", line.key, line.key_hex)?;
    let value = field("value", line.value, line.value_hex)?;
    let expires = line.expires_ms.map(|millis| SystemTime::UNIX_EPOCH + Duration::from_millis(millis));
    Ok(Some(Record { key, value, expires }))
}

fn field(name: &str, text: Option<String>, hex: Option<String>) -> Result<Vec<u8>, String> {
    match (text, hex) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(hex)) => unhex(hex.as_bytes()).map_err(|problem| format!("{name}_hex, {problem}")),
        (None, None) => Err(format!("there is neither `{name}` nor `{name}_hex`")),
        (Some(_), Some(_)) => Err(format!("there are both `{name}` and `{name}_hex`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_hex() {
        let pair = |key: &[u8], value: &[u8]| Record { key: key.into(), value: value.into(), expires: None };
        assert_eq!(record(br#"{"key":"a\n","value":"\u00fc"}"#), Ok(Some(pair(b"a\n", "ü".as_bytes()))));
        assert_eq!(record(br#"{"value_hex":"ff00","key":"a"}"#), Ok(Some(pair(b"a", &[255, 0]))));
        let expires = Some(SystemTime::UNIX_EPOCH + Duration::from_millis(1_800_000_000_123));
        let expiring = Record { expires, ..pair(b"a", b"b") };
        assert_eq!(record(br#"{"key":"a","value":"b","expires_ms":1800000000123}"#), Ok(Some(expiring)));
        assert_eq!(record(b"  "), Ok(None));
    }

    #[test]
    fn bad_lines_say_what_is_wrong() {
        for (line, what) in [
            (r#"{"key":"a"}"#, "neither `value`"),
            (r#"{"key":"a","key_hex":"61","value":""}"#, "both `key`"),
            (r#"{"key":"a","value":1}"#, "expected a string"),
            (r#"{"key":"a","value":"b","ttl":3}"#, "unknown field `ttl`"),
            (r#"{"key":"a","value_hex":"0"}"#, "value_hex"),
            ("{", "column 1"),
            ("\u{7}", "column"),
        ] {
            let problem = record(line.as_bytes()).expect_err(line);
            assert!(problem.contains(what), "{line}: {problem}");
        }
    }
}
