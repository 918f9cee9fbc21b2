//! The limit of documents.

/// Maximum size of a document, in bytes.
pub const DOCUMENT_BYTES_MAX: u64 = 512 << 20;
