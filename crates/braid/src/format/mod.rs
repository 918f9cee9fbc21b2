//! Every byte of this crate that reaches storage: superblock, checkpoint image, log records.
//!
//! All numbers are little-endian. The file `superblock` has two slots of 4 KiB. A flip writes the older slot, so a torn
//! write leaves the other one whole. A slot defends against these faults:
//!
//! | fault | defence |
//! |---|---|
//! | foreign file | magic |
//! | newer software | version |
//! | torn write, bit rot | CRC |
//! | copy from another database | the uuid, which stands in every file |
//! | lost flip | generation |
//!
//! | slot offset | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic `BRAIDSUP` |
//! | 8 | 4 | format version |
//! | 12 | 4 | CRC-32C of the slot with this field zero |
//! | 16 | 16 | database uuid |
//! | 32 | 8 | generation: the slot with the larger one counts |
//! | 40 | 8 | open-epoch: rises with every open that may write |
//! | 48 | 8 | bytes of a log segment |
//! | 56 | 8 | first page of the checkpoint image in `data` |
//! | 64 | 4 | pages of the image; 0: no checkpoint yet |
//! | 68 | 4 | bytes of the image |
//! | 72 | 4 | CRC-32C of the image |
//! | 76 | 8 | clean end: where the log ends, if the database was closed; else 0 |
//!
//! The image is [`Image`], field by field in its order of declaration. The kinds of log records are in `kind`; the log
//! frames and checks each record.

mod blocks;
mod commit;
pub(crate) mod decoded;
mod flush_end;
mod history;
mod image;
pub(crate) mod pieces;
mod ranges;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod samples;
mod settings;
mod superblock;
mod table;

pub(crate) use self::commit::{
    COMMIT_TIME_BYTES, Logged, Operations, documents_of, put_commit_time, put_delete_range, put_operation,
};
pub(crate) use self::flush_end::{FlushEnd, FlushEndPiece};
pub(crate) use self::history::{Restored, RetainedHeader, RollBack, SetHistory};
pub(crate) use self::image::{IMAGE_MAGIC, Image, TableImage};
pub use self::settings::TableSettings;
#[cfg(feature = "fuzzing")]
pub(crate) use self::superblock::seal_slot;
pub(crate) use self::superblock::{ImagePlace, SLOT_BYTES, SlotError, Superblock};
pub(crate) use self::table::{CreateTable, decode_table, encode_table};

/// Version of everything in a database directory. A newer version is refused; an older one is read while it is
/// supported.
pub(crate) const VERSION: u32 = 1;

/// Kinds of log records; 0 is never valid.
pub(crate) mod kind {
    /// Operations of one commit.
    pub(crate) const COMMIT: u8 = 1;
    /// A structure has operations that it lacked, and its data is on stable storage.
    pub(crate) const FLUSH_END: u8 = 2;
    /// A table begins.
    pub(crate) const CREATE_TABLE: u8 = 3;
    /// A table ends.
    pub(crate) const DROP_TABLE: u8 = 4;
    /// A piece of a flush-end that does not fit one record.
    pub(crate) const FLUSH_END_PART: u8 = 5;
    /// A load ends; its entries are in no commit.
    pub(crate) const LOAD: u8 = 6;
    /// A table goes back to an older state.
    pub(crate) const ROLL_BACK: u8 = 7;
    /// So many states of a table are retained from here on.
    pub(crate) const SET_HISTORY: u8 = 8;
}

#[cfg(test)]
mod tests;
