//! Which values are documents.

use braid::Structure;

/// Longer values are documents once they are in the structure.
pub(crate) fn inline_bytes_max(structure: Structure) -> usize {
    match structure {
        Structure::Append => 256,
        _ => 2048,
    }
}
