//! One target under libFuzzer: the one that `BRAID_FUZZ_TARGET` names.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<fuzz::Target> = LazyLock::new(|| {
    let name = std::env::var("BRAID_FUZZ_TARGET").expect("BRAID_FUZZ_TARGET names a target");
    fuzz::target(&name).unwrap_or_else(|| panic!("there is no target {name}"))
});

fuzz_target!(|bytes: &[u8]| TARGET.run(bytes));
