//! A key-value store for flash SSDs that hands the device a batch on every path.
