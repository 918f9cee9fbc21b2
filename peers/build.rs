//! Links liburing where RocksDB comes as a prebuilt archive (`ROCKSDB_LIB_DIR`), because its package does not declare
//! that dependency.

fn main() {
    println!("cargo::rerun-if-env-changed=ROCKSDB_LIB_DIR");
    if std::env::var_os("ROCKSDB_LIB_DIR").is_some() {
        println!("cargo::rustc-link-arg=-luring");
    }
}
