//! Where RocksDB comes as an archive that was built before (`ROCKSDB_LIB_DIR`), its package does not say that it needs liburing.

fn main() {
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    if std::env::var_os("ROCKSDB_LIB_DIR").is_some() {
        println!("cargo::rustc-link-arg=-luring");
    }
}
