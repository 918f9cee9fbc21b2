//! JSON, as far as a saved profile needs it: objects, lists, texts, numbers and truth values.
//!
//! 1. [`parse`] reads RFC 8259 strictly. Numbers stay text, so that a whole number of any width is read exactly.
//! 2. [`Value::field`] and its kin take a value apart. A refusal says what was wanted and what was found.
//! 3. [`Writer`] writes two spaces of indentation a level.
//!
//! Invariant: no input makes the parser go deeper than [`DEPTH_MAX`].
//!
//! Left to others: what a value means, and how long an input may be.

use std::fmt::Write;
use std::str::FromStr;

/// Most objects and lists in one another.
const DEPTH_MAX: usize = 16;

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// As it is written.
    Number(String),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Value {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a truth value",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// What `read` makes of a field, which must be there once. Other fields do not matter.
    pub(crate) fn field<T>(&self, name: &str, read: impl FnOnce(&Self) -> Result<T, String>) -> Result<T, String> {
        let Self::Object(fields) = self else { return Err(format!("{} instead of an object", self.kind())) };
        let mut found = fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value);
        let Some(value) = found.next() else { return Err(format!("missing field `{name}`")) };
        if found.next().is_some() {
            return Err(format!("duplicate field `{name}`"));
        }
        read(value).map_err(|problem| format!("field `{name}`: {problem}"))
    }

    /// What `read` makes of each value of a list.
    pub(crate) fn list<T>(&self, read: impl Fn(&Self) -> Result<T, String>) -> Result<Vec<T>, String> {
        let Self::List(values) = self else { return Err(format!("{} instead of a list", self.kind())) };
        values.iter().map(read).collect()
    }

    /// A number of this type.
    pub(crate) fn number<T: FromStr>(&self) -> Result<T, String> {
        let Self::Number(text) = self else { return Err(format!("{} instead of a number", self.kind())) };
        text.parse().map_err(|_| format!("{text} is not a {}", std::any::type_name::<T>()))
    }

    pub(crate) fn bool(&self) -> Result<bool, String> {
        if let Self::Bool(value) = self { Ok(*value) } else { Err(format!("{} instead of a truth value", self.kind())) }
    }

    pub(crate) fn text(&self) -> Result<&str, String> {
        if let Self::Text(text) = self { Ok(text) } else { Err(format!("{} instead of a text", self.kind())) }
    }
}

/// The value that these bytes are.
///
/// # Errors
/// The defect, and where it is.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0).and_then(|value| parser.end().map(|()| value));
    value.map_err(|problem| {
        let before = &text.as_bytes()[..parser.at.min(text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        format!("{problem} at line {line} column {column}")
    })
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Passes bytes for as long as they are of a kind; returns them.
    fn pass(&mut self, is_of: impl Fn(u8) -> bool) -> &'a str {
        let text = self.text;
        let rest = &text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii() && is_of(**byte)).count();
        self.at += count;
        &text[self.at - count..self.at]
    }

    /// The next byte behind white space.
    fn next(&mut self) -> Option<u8> {
        self.pass(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        self.peek()
    }

    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.next() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.takes(byte) { Ok(()) } else { Err(format!("expected `{}`", char::from(byte))) }
    }

    fn end(&mut self) -> Result<(), String> {
        if self.next().is_none() { Ok(()) } else { Err("more behind the end".to_owned()) }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err("too many objects in one another".to_owned());
        }
        match self.next() {
            None => Err("it ends early".to_owned()),
            Some(b'{') => {
                let mut fields = Vec::new();
                self.items(b'}', |parser| {
                    parser.next();
                    let name = parser.string()?;
                    parser.expect(b':')?;
                    fields.push((name, parser.value(depth + 1)?));
                    Ok(())
                })?;
                Ok(Value::Object(fields))
            }
            Some(b'[') => {
                let mut values = Vec::new();
                self.items(b']', |parser| {
                    values.push(parser.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(Value::List(values))
            }
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'-' | b'0'..=b'9') => Ok(Value::Number(self.number()?)),
            Some(_) => match self.pass(|byte| byte.is_ascii_alphabetic()) {
                "null" => Ok(Value::Null),
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err("expected a value".to_owned()),
            },
        }
    }

    /// Items with commas between them, behind the byte that opens them and up to the one that closes them.
    fn items(&mut self, close: u8, mut item: impl FnMut(&mut Self) -> Result<(), String>) -> Result<(), String> {
        self.at += 1;
        if self.takes(close) {
            return Ok(());
        }
        loop {
            item(self)?;
            if self.takes(close) {
                return Ok(());
            }
            self.expect(b',')?;
        }
    }

    fn number(&mut self) -> Result<String, String> {
        let begin = self.at;
        let invalid = || "invalid number".to_owned();
        self.at += usize::from(self.peek() == Some(b'-'));
        let whole = self.pass(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 1 && whole.starts_with('0') {
            return Err(invalid());
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            if self.pass(|byte| byte.is_ascii_digit()).is_empty() {
                return Err(invalid());
            }
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            if self.pass(|byte| byte.is_ascii_digit()).is_empty() {
                return Err(invalid());
            }
        }
        Ok(self.text[begin..self.at].to_owned())
    }

    fn string(&mut self) -> Result<String, String> {
        if self.peek() != Some(b'"') {
            return Err("expected a text".to_owned());
        }
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|next: char| next == '"' || next == '\\' || next < ' ').unwrap_or(rest.len());
            text.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escaped()?),
                Some(_) => return Err("a control character in a text".to_owned()),
                None => return Err("it ends in a text".to_owned()),
            }
        }
    }

    /// The character of an escape.
    fn escaped(&mut self) -> Result<char, String> {
        self.at += 1;
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(letter @ (b'"' | b'\\' | b'/')) => char::from(letter),
            Some(b'u') => {
                let mut units = vec![self.unit()?];
                if (0xd800..0xdc00).contains(&units[0]) && self.text[self.at..].starts_with("\\u") {
                    self.at += 2;
                    units.push(self.unit()?);
                }
                let text = String::from_utf16(&units).map_err(|error| error.to_string())?;
                text.chars().next().expect("a unit is a character, or an error")
            }
            _ => {
                self.at -= 1;
                return Err("invalid escape".to_owned());
            }
        })
    }

    fn unit(&mut self) -> Result<u16, String> {
        let digits =
            self.text.as_bytes().get(self.at..self.at + 4).filter(|four| four.iter().all(u8::is_ascii_hexdigit));
        if digits.is_none() {
            return Err("invalid escape".to_owned());
        }
        self.at += 4;
        u16::from_str_radix(&self.text[self.at - 4..self.at], 16).map_err(|error| error.to_string())
    }
}

/// Writes one object, with those in it.
#[derive(Default)]
pub(crate) struct Writer {
    text: String,
    depth: usize,
    /// Whether an item is before the next in the innermost object or list.
    has_item: bool,
}

impl Writer {
    /// Writes an object or a list between these brackets, whose items `write` writes.
    fn enclosed(&mut self, [open, close]: [char; 2], write: impl FnOnce(&mut Self)) {
        self.text.push(open);
        (self.depth, self.has_item) = (self.depth + 1, false);
        write(self);
        self.depth -= 1;
        if self.has_item {
            self.line();
        }
        self.text.push(close);
        self.has_item = true;
    }

    fn line(&mut self) {
        self.text.push('\n');
        self.text.extend(std::iter::repeat_n("  ", self.depth));
    }

    fn item(&mut self) {
        if self.has_item {
            self.text.push(',');
        }
        self.line();
        self.has_item = true;
    }

    pub(crate) fn object(&mut self, write: impl FnOnce(&mut Self)) {
        self.enclosed(['{', '}'], write);
    }

    /// A field, whose value `write` writes.
    pub(crate) fn field(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        self.item();
        self.string(name);
        self.text.push_str(": ");
        write(self);
    }

    /// A list, each of whose values `write` writes.
    pub(crate) fn list<T>(&mut self, values: &[T], write: impl Fn(&mut Self, &T)) {
        self.enclosed(['[', ']'], |list| {
            for value in values {
                list.item();
                write(list, value);
            }
        });
    }

    /// A value that is written as `Debug` shows it: whole numbers and truth values.
    pub(crate) fn plain(&mut self, value: impl std::fmt::Debug) {
        let _ = write!(self.text, "{value:?}");
    }

    /// A number; `null` for what is none.
    pub(crate) fn float(&mut self, value: f64) {
        if value.is_finite() { self.plain(value) } else { self.text.push_str("null") }
    }

    /// A name without quotes, backslashes and control characters.
    pub(crate) fn string(&mut self, name: &str) {
        debug_assert!(name.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\'), "{name:?}");
        let _ = write!(self.text, "\"{name}\"");
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(value: &serde_json::Value) -> Value {
        match value {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(value) => Value::Bool(*value),
            serde_json::Value::Number(number) => Value::Number(number.to_string()),
            serde_json::Value::String(text) => Value::Text(text.clone()),
            serde_json::Value::Array(values) => Value::List(values.iter().map(of).collect()),
            serde_json::Value::Object(fields) => {
                Value::Object(fields.iter().map(|(name, value)| (name.clone(), of(value))).collect())
            }
        }
    }

    #[test]
    fn a_defect_is_told_with_its_place() {
        for (text, problem) in [
            ("", "it ends early at line 1 column 1"),
            ("{\n  \"a\" 1}", "expected `:` at line 2 column 7"),
            ("[1,]", "expected a value at line 1 column 4"),
            ("[1 2]", "expected `,` at line 1 column 4"),
            ("{1: 2}", "expected a text at line 1 column 2"),
            ("01", "invalid number at line 1 column 3"),
            ("1.", "invalid number at line 1 column 3"),
            ("true false", "more behind the end at line 1 column 6"),
            ("\"a", "it ends in a text at line 1 column 3"),
            ("\"\\x\"", "invalid escape at line 1 column 3"),
            ("[[[[[[[[[[[[[[[[[[[[", "too many objects in one another at line 1 column 18"),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(problem.to_owned()), "{text}");
        }
        assert!(parse(b"\xff").expect_err("no text").contains("utf-8"));
        assert!(parse(b"\"\\ud800\"").is_err() && parse(b"\"\\ud800\\u0041\"").is_err());
    }

    #[test]
    fn a_value_of_another_kind_is_told() {
        let value = parse(br#"{"a": 1.5, "b": "x", "a": 2, "c": {"d": [true, -1]}}"#).expect("sound");
        assert_eq!(value.field("a", Value::number::<u64>), Err("duplicate field `a`".to_owned()));
        assert_eq!(value.field("e", Value::number::<u64>), Err("missing field `e`".to_owned()));
        assert_eq!(value.field("b", Value::number::<u64>), Err("field `b`: a text instead of a number".to_owned()));
        let inner = |value: &Value| value.field("d", |value| value.list(Value::number::<u64>));
        let problem = "field `c`: field `d`: a truth value instead of a number";
        assert_eq!(value.field("c", inner), Err(problem.to_owned()));
        assert_eq!(Value::Number("-1".to_owned()).number::<u64>(), Err("-1 is not a u64".to_owned()));
        assert_eq!(Value::Number("1e3".to_owned()).number::<f64>(), Ok(1000.0));
    }

    proptest! {
        #[test]
        fn what_another_library_writes_is_read(text in ".*", number: f64, whole: i64, is_true: bool, pretty: bool) {
            let value = serde_json::json!({
                "text": text, text.clone(): [number, whole, null_or(is_true)], "empty": [[], {}], "is_true": is_true,
            });
            let bytes = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) };
            prop_assert_eq!(parse(&bytes.expect("plain data")), Ok(of(&value)));
        }

        #[test]
        fn garbage_is_refused_as_by_another_library(text in "[\\[\\]{}:,\"\\\\0-9eE+.u -]{0,12}") {
            let other = serde_json::from_str::<serde_json::Value>(&text);
            match parse(text.as_bytes()) {
                Ok(_) => prop_assert!(other.is_ok() || other.is_err_and(|error| error.to_string().contains("out of range"))),
                Err(problem) => prop_assert!(other.is_err(), "{}: {}", text, problem),
            }
        }
    }

    fn null_or(is_true: bool) -> Option<bool> {
        is_true.then_some(true)
    }
}
