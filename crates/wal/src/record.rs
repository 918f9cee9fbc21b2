//! A record on its way into the log.

/// A record to append.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRecord<'a> {
    pub(crate) kind: u8,
    pub(crate) payload: &'a [&'a [u8]],
    pub(crate) payload_len: u32,
    pub(crate) sequenced: bool,
}
