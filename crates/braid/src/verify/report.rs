//! The progress and the result of a verification.

/// The progress of a verification.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// The table being checked.
    pub table: String,
    /// Live keys checked so far, over all tables.
    pub keys: u64,
    /// Bytes of pages and documents checked so far.
    pub bytes: u64,
}

/// The result of a verification.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Verification {
    /// All problems, with file and offset. Empty: the database is whole.
    pub findings: Vec<String>,
    /// Tables checked.
    pub tables: u64,
    /// Live keys checked.
    pub keys: u64,
    /// Documents checked.
    pub documents: u64,
    /// Bytes of these documents, before compression.
    pub document_bytes: u64,
    /// Bytes of these documents as stored: fewer where they are compressed.
    pub document_stored_bytes: u64,
    /// Log records of commits and tables checked.
    pub log_records: u64,
    /// Bytes of pages and documents checked.
    pub bytes: u64,
}
