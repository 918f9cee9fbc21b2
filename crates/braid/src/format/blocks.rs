//! Fields that several records have.

use codec::Fields;
use index::Seq;

use crate::words::applied::AppliedThrough;

/// Appends a block of steps: seq and key of each.
pub(super) fn put_applied(bytes: &mut Vec<u8>, applied: &AppliedThrough) {
    let mut block = Vec::new();
    for (key, seq) in applied.steps() {
        block.extend_from_slice(&seq.0.to_le_bytes());
        put_block(&mut block, key);
    }
    put_block(bytes, &block);
}

pub(super) fn applied(fields: &mut Fields<'_>) -> Option<AppliedThrough> {
    let mut block = Fields(fields.block()?);
    let mut steps = Vec::new();
    while !block.0.is_empty() {
        let seq = Seq(block.u64()?);
        steps.push((block.block()?.to_vec(), seq));
    }
    AppliedThrough::from_steps(steps)
}

pub(super) fn length_of(length: usize) -> u32 {
    u32::try_from(length).expect("blocks are bounded by the log record and the image, both below 4 GiB")
}

pub(super) fn put_block(bytes: &mut Vec<u8>, block: &[u8]) {
    bytes.extend_from_slice(&length_of(block.len()).to_le_bytes());
    bytes.extend_from_slice(block);
}
