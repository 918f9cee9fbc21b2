//! Lines of JSON objects.

use serde::Deserialize;

use super::Parsed;
use crate::bytes::unhex;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_hex: Option<String>,
    value: Option<String>,
    value_hex: Option<String>,
}

/// The record of a line; a blank line has none.
pub(in crate::commands) fn record(line: &[u8]) -> Parsed {
    if line.trim_ascii().is_empty() {
        return Ok(None);
    }
    let line: Line = serde_json::from_slice(line).map_err(|error| {
        let what = error.to_string();
        // The line is known better than serde_json knows it.
        let what = what.split(" at line ").next().unwrap_or(&what);
        format!("column {}: {what}", error.column())
    })?;
    let key = field("key", line.key, line.key_hex)?;
    let value = field("value", line.value, line.value_hex)?;
    Ok(Some((key, value)))
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
        assert_eq!(record(br#"{"key":"a\n","value":"\u00fc"}"#), Ok(Some((b"a\n".to_vec(), "ü".as_bytes().to_vec()))));
        assert_eq!(record(br#"{"value_hex":"ff00","key":"a"}"#), Ok(Some((b"a".to_vec(), vec![255, 0]))));
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
