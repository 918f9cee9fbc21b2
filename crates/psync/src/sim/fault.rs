//! The faults of a simulated disk that can be asked for.

/// The operations that [`SimDisk::fail_operation`](super::SimDisk::fail_operation) counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Any of the kinds below.
    Any,
    /// A read.
    Read,
    /// A write, durable or not, or a change of length.
    Write,
    /// A write or change of length that makes the file longer.
    Growth,
    /// A flush of a file, or of the bytes of a durable write.
    Flush,
    /// A creation, a removal, a renaming or a flush of a directory.
    Name,
}

/// The damage of a read that reports success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garble {
    /// One flipped bit.
    Bit,
    /// The bytes from this distance further on in the file, or before where that is negative; zeros outside the file.
    Elsewhere(i64),
}
