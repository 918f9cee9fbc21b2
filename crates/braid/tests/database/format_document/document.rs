//! The tables of docs/format.md, and decoding with them.

use std::collections::BTreeMap;

pub(crate) type Outcome<T> = Result<T, String>;

/// Fails with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// How many bytes a field has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Bytes(usize),
    /// As many as the value of an earlier field.
    Field(String),
}

/// A row of a table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// None where it follows something of variable length.
    pub(crate) offset: Option<usize>,
    pub(crate) size: Size,
    pub(crate) field: String,
}

/// The layouts of the document, by heading.
#[derive(Clone)]
pub(crate) struct Document {
    pub(crate) layouts: BTreeMap<String, Vec<Row>>,
}

/// Decoded fields.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    layout: String,
    fields: BTreeMap<String, Vec<u8>>,
    /// Where each field is.
    places: BTreeMap<String, std::ops::Range<usize>>,
    /// Bytes that all of them take.
    pub(crate) length: usize,
}

fn cells(line: &str) -> Option<Vec<&str>> {
    let inside = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inside.split('|').map(str::trim).collect())
}

impl Document {
    /// Every table whose columns begin with offset, bytes, field, under the heading before it.
    pub(crate) fn parse(text: &str) -> Outcome<Self> {
        let mut layouts: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        let (mut heading, mut inside) = (String::new(), false);
        for line in text.lines() {
            if line.starts_with('#') {
                heading = line.trim_start_matches('#').trim().to_lowercase();
            }
            let Some(cells) = cells(line) else {
                inside = false;
                continue;
            };
            if cells[..3] == ["offset", "bytes", "field"] {
                inside = true;
                ensure!(layouts.insert(heading.clone(), Vec::new()).is_none(), "two tables under {heading}");
            } else if inside && !cells[0].starts_with("---") {
                let row = row(&cells).ok_or_else(|| format!("{heading}: a row that makes no sense: {line}"))?;
                layouts.get_mut(&heading).ok_or("a table without a heading")?.push(row);
            }
        }
        Ok(Self { layouts })
    }

    /// Decodes what begins `bytes` as `layout`. `known` are fields of something around it that sizes refer to.
    pub(crate) fn decode(&self, layout: &str, bytes: &[u8], known: &[(&str, usize)]) -> Outcome<Values> {
        let rows = self.layouts.get(layout).ok_or_else(|| format!("there is no table for {layout}"))?;
        let mut values =
            Values { layout: layout.to_owned(), fields: BTreeMap::new(), places: BTreeMap::new(), length: 0 };
        for row in rows {
            let at = values.length;
            ensure!(row.offset.is_none_or(|offset| offset == at), "{layout}: {} is not at {at}", row.field);
            let size = match &row.size {
                Size::Bytes(bytes) => *bytes,
                Size::Field(name) => match known.iter().find(|(field, _)| field == name) {
                    Some((_, value)) => *value,
                    None => values.size(name)?,
                },
            };
            let end = if let Some(entry) = row.field.strip_prefix("list of ") {
                let mut end = at;
                for _ in 0..size {
                    end += self.decode(entry, bytes.get(end..).unwrap_or_default(), known)?.length;
                }
                end
            } else {
                at.saturating_add(size)
            };
            let field = bytes.get(at..end).ok_or_else(|| format!("{layout}: {} ends at {end}", row.field))?;
            ensure!(row.field != "zero" || field.iter().all(|byte| *byte == 0), "{layout}: byte {at} is not zero");
            let name =
                if values.fields.contains_key(&row.field) { format!("{} {at}", row.field) } else { row.field.clone() };
            values.fields.insert(name.clone(), field.to_vec());
            values.places.insert(name, at..end);
            values.length = end;
        }
        Ok(values)
    }
}

fn row(cells: &[&str]) -> Option<Row> {
    let offset = if cells[0] == "." { None } else { Some(cells[0].parse().ok()?) };
    let size = match cells[1].parse() {
        Ok(bytes) => Size::Bytes(bytes),
        Err(_) => Size::Field(cells[1].to_owned()),
    };
    // "[table entries](#table-entry)" is a list of what is under that heading.
    let field = match cells[2].strip_prefix('[').and_then(|link| link.strip_suffix(')')?.split_once("](#")) {
        Some((text, anchor)) if text.ends_with("ies") => format!("list of {}", anchor.replace('-', " ")),
        Some((text, _)) => text.to_owned(),
        None => cells[2].to_owned(),
    };
    (!field.is_empty()).then_some(Row { offset, size, field })
}

/// A little-endian number of up to eight bytes.
pub(crate) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Values {
    pub(crate) fn bytes(&self, field: &str) -> Outcome<&[u8]> {
        let bytes = self.fields.get(field).map(Vec::as_slice);
        bytes.ok_or_else(|| format!("{}: there is no row for {field}", self.layout))
    }

    pub(crate) fn number(&self, field: &str) -> Outcome<u64> {
        let bytes = self.bytes(field)?;
        ensure!(bytes.len() <= 8, "{}: {field} is no number", self.layout);
        Ok(number(bytes))
    }

    pub(crate) fn size(&self, field: &str) -> Outcome<usize> {
        usize::try_from(self.number(field)?).map_err(|error| format!("{}: {field}: {error}", self.layout))
    }

    /// Where a field is.
    pub(crate) fn place(&self, field: &str) -> Outcome<std::ops::Range<usize>> {
        self.places.get(field).cloned().ok_or_else(|| format!("{}: there is no row for {field}", self.layout))
    }

    /// Checks numbers.
    pub(crate) fn expect(&self, expected: &[(&str, u64)]) -> Outcome<()> {
        for (field, expected) in expected {
            let found = self.number(field)?;
            ensure!(found == *expected, "{}: {field} is {found}, not {expected}", self.layout);
        }
        Ok(())
    }

    pub(crate) fn expect_magic(&self, magic: &[u8]) -> Outcome<()> {
        let found = self.bytes("magic")?;
        ensure!(found == magic, "{}: magic is {}", self.layout, found.escape_ascii());
        Ok(())
    }

    /// The fields, in no particular order.
    pub(crate) fn fields(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.fields
    }
}
