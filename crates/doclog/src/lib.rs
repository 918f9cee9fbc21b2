//! Append-only documents: values too large for an index.
