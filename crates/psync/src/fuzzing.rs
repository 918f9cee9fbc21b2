//! What a fuzzer gives bytes to. For tests of the workspace alone.

use std::path::Path;

use crate::probe::{DeviceProfile, parse};

/// A name, what takes bytes, and the encodings to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// What of this crate is read from a disk.
pub const TARGETS: &[Target] = &[("psync_profile", profile, profiles)];

fn profile(bytes: &[u8]) {
    let path = Path::new("device.json");
    match parse(path, bytes) {
        Ok(profile) => {
            let text = serde_json::to_vec(&profile).expect("a profile is plain data");
            let again = parse(path, &text).expect("its own text");
            // Figures come back but for the last bit.
            assert_eq!(
                (again.device, again.backend, again.best_depth),
                (profile.device, profile.backend, profile.best_depth)
            );
            assert!(profile.parallelism() >= 1);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn profiles() -> Vec<Vec<u8>> {
    vec![serde_json::to_vec_pretty(&DeviceProfile::default()).expect("a profile is plain data")]
}
