//! The settings of a table, chosen when the table is created. They stay with the table: in the record that begins the
//! table, in every checkpoint, and in every copy.
//!
//! The encoding has room for more settings. Zero in an unused byte means the behaviour from before there was a choice;
//! any other value is refused.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | compression: 1 none, 2 LZ4, 3 Zstandard |
//! | 1 | 1 | zero |
//! | 2 | 2 | one more than the bytes of the longest value that is stored beside its key; 0: as the structure has it |
//! | 4 | 4 | history: how many headers are retained |
//! | 8 | 8 | zero |

use codec::Fields;
use doclog::Compression;

/// Bytes of encoded settings.
const BYTES: usize = 16;

/// The settings chosen for a table when it was created ([`TableOptions`](crate::TableOptions)). They hold for the life
/// of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableSettings {
    /// How values are compressed that are stored apart from their keys.
    pub compression: Compression,
    /// How many states of the table are retained, to be opened again and rolled back to: see
    /// [`Table::history`](crate::Table::history). Only this setting can be changed later
    /// ([`Table::set_history`](crate::Table::set_history)).
    pub history: u32,
    /// The longest value that is stored beside its key, bytes; none where that is as the structure has it
    /// ([`Structure::inline_bytes`](crate::Structure::inline_bytes)).
    pub inline_bytes: Option<u16>,
}

impl TableSettings {
    pub(super) fn encode(self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[0] = match self.compression {
            Compression::Lz4 => 2,
            Compression::Zstd => 3,
            Compression::None => 1,
        };
        let inline_bytes = self.inline_bytes.map_or(0, |bytes| bytes.saturating_add(1));
        bytes[2..4].copy_from_slice(&inline_bytes.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.history.to_le_bytes());
        bytes
    }

    /// Reads settings; none if they have values that this version does not write.
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let mut fields = Fields(fields.bytes(BYTES)?);
        let compression = match fields.u8()? {
            1 => Compression::None,
            2 => Compression::Lz4,
            3 => Compression::Zstd,
            _ => return None,
        };
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let before = is_zero(fields.bytes(1)?);
        let inline_bytes = fields.u16()?.checked_sub(1);
        let history = fields.u32()?;
        (before && is_zero(fields.0)).then_some(Self { compression, history, inline_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_were_written_and_nothing_else_is() {
        for (compression, code) in Compression::ALL.into_iter().zip([1, 2, 3]) {
            let settings = TableSettings { compression, history: 0x0102_0304, inline_bytes: Some(0x0506) };
            let bytes = settings.encode();
            assert_eq!(bytes, [code, 0, 7, 5, 4, 3, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
            assert_eq!(TableSettings::read(&mut Fields(&bytes)), Some(settings));
            for at in [1].into_iter().chain(8..BYTES) {
                let mut other = bytes;
                other[at] = 1;
                assert_eq!(TableSettings::read(&mut Fields(&other)), None, "byte {at}");
            }
            assert_eq!(TableSettings::read(&mut Fields(&bytes[1..])), None);
        }
        for code in [0].into_iter().chain(4..=u8::MAX) {
            let mut bytes = TableSettings::default().encode();
            bytes[0] = code;
            assert_eq!(TableSettings::read(&mut Fields(&bytes)), None, "code {code}");
        }
    }
}
