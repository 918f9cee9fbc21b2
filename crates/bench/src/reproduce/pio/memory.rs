//! Sizes of memory, as figures print them.

/// A size in bytes as text, such as `1.5 MiB` or `96 KiB`.
pub(super) fn text(bytes: u64) -> String {
    if bytes >= 1 << 20 {
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        return if bytes.is_multiple_of(1 << 20) {
            format!("{mebibytes:.0} MiB")
        } else {
            format!("{mebibytes:.1} MiB")
        };
    }
    format!("{} KiB", bytes >> 10)
}

/// A budget beside its data, such as `memory 2 MiB, 1/512 of the data`.
pub(super) fn beside(memory_bytes: u64, data_bytes: u64) -> String {
    format!("memory {}, 1/{} of the data", text(memory_bytes), data_bytes / memory_bytes.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        assert_eq!([96 << 10, 2 << 20, 3 << 19].map(text), ["96 KiB", "2 MiB", "1.5 MiB"]);
        assert_eq!(beside(2 << 20, 1 << 30), "memory 2 MiB, 1/512 of the data");
    }
}
