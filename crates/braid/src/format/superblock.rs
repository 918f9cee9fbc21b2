//! The slots of the superblock.

use codec::Fields;
use space::{Extent, PageId};
use wal::Lsn;

use super::VERSION;

/// Bytes of a superblock slot.
pub(crate) const SLOT_BYTES: usize = 4096;
/// The first bytes of a slot.
pub(crate) const MAGIC: [u8; 8] = *b"BRAIDSUP";
const CRC_AT: usize = 12;

/// Where the checkpoint image lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ImagePlace {
    /// Pages of the image.
    pub(crate) extent: Extent,
    /// Bytes of the image.
    pub(crate) length: u32,
    /// CRC-32C of these bytes.
    pub(crate) crc: u32,
}

/// One slot of the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    /// Identity of the database.
    pub(crate) database: [u8; 16],
    /// Rises with every write of a slot.
    pub(crate) generation: u64,
    /// Rises with every open that may write.
    pub(crate) epoch: u64,
    /// Bytes of a log segment.
    pub(crate) segment_bytes: u64,
    /// The newest checkpoint, if there was one.
    pub(crate) image: Option<ImagePlace>,
    /// Where the log ends, if nothing was written since the database was closed. Then the image is complete without the
    /// log.
    pub(crate) clean_end: Option<Lsn>,
}

impl Superblock {
    /// The same content, for the other slot.
    pub(crate) const fn newer(self) -> Self {
        Self { generation: self.generation + 1, ..self }
    }
}

/// Why a slot does not decode.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SlotError {
    /// The slot does not begin with the magic of a superblock.
    Magic,
    /// The slot has another version: the version, and whether the checksum holds.
    Version(u32, bool),
    /// The checksum does not hold: (stored, computed).
    Checksum(u32, u32),
    /// A field has a value that is never written.
    Field,
}

impl Superblock {
    /// The bytes of the slot.
    pub(crate) fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.database);
        bytes.extend_from_slice(&self.generation.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.segment_bytes.to_le_bytes());
        let (page, pages, length, crc) =
            self.image.map_or((0, 0, 0, 0), |image| (image.extent.page.0, image.extent.pages, image.length, image.crc));
        bytes.extend_from_slice(&page.to_le_bytes());
        for field in [pages, length, crc] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        bytes.extend_from_slice(&self.clean_end.map_or(0, |end| end.0).to_le_bytes());
        let mut slot = [0; SLOT_BYTES];
        slot[..bytes.len()].copy_from_slice(&bytes);
        seal_slot(&mut slot);
        slot
    }

    /// Decodes and checks a slot.
    pub(crate) fn decode(slot: &[u8; SLOT_BYTES]) -> Result<Self, SlotError> {
        if slot[..8] != MAGIC {
            return Err(SlotError::Magic);
        }
        let mut fields = Fields(&slot[8..]);
        let version = fields.u32().ok_or(SlotError::Field)?;
        let stored = fields.u32().ok_or(SlotError::Field)?;
        let computed = checksum::crc32c_blanked(slot, CRC_AT);
        if version != VERSION {
            return Err(SlotError::Version(version, stored == computed));
        }
        if stored != computed {
            return Err(SlotError::Checksum(stored, computed));
        }
        Self::decode_fields(&mut fields).ok_or(SlotError::Field)
    }

    fn decode_fields(fields: &mut Fields<'_>) -> Option<Self> {
        let database = fields.array()?;
        let (generation, epoch, segment_bytes) = (fields.u64()?, fields.u64()?, fields.u64()?);
        let (page, pages, length, crc) = (fields.u64()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let fits = u64::from(length) <= u64::from(pages) * space::PAGE as u64;
        let image = (pages > 0).then_some(ImagePlace { extent: Extent { page: PageId(page), pages }, length, crc });
        // No log ends at 0, because a segment begins with its header.
        let clean_end = Some(Lsn(fields.u64()?)).filter(|end| end.0 > 0);
        fits.then_some(Self { database, generation, epoch, segment_bytes, image, clean_end })
    }
}

/// Puts the checksum on a slot.
pub(crate) fn seal_slot(slot: &mut [u8; SLOT_BYTES]) {
    let crc = checksum::crc32c_blanked(slot, CRC_AT);
    slot[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}
