//! Targets of the fuzzers. For tests of the workspace alone.

use std::path::Path;

use crate::BackendKind;
use crate::learn::format::{Origin, decode, encode};
use crate::learn::{RequestKind, RequestTimes};
use crate::probe::{DeviceProfile, parse};

/// A name, the function that takes bytes, and the function that gives the encodings to begin with.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// The formats that this crate reads from a disk.
pub const TARGETS: &[Target] = &[("psync_profile", profile, profiles), ("psync_learned", learned, all_learned)];

fn profile(bytes: &[u8]) {
    let path = Path::new("device.json");
    match parse(path, bytes) {
        Ok(profile) => {
            let again = parse(path, profile.to_text().as_bytes()).expect("its own text");
            assert_eq!(again, profile);
            assert!(profile.parallelism() >= 1);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn profiles() -> Vec<Vec<u8>> {
    vec![DeviceProfile::default().to_text().into_bytes()]
}

fn learned(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some(content) = bytes.len().checked_sub(4) {
        let crc = checksum::crc32c(&bytes[..content]);
        bytes[content..].copy_from_slice(&crc.to_le_bytes());
    }
    match decode(&bytes) {
        Ok((origin, histograms)) => {
            let times = RequestTimes::default();
            times.replace(histograms);
            assert!(encode(origin, &times) == bytes, "it comes back");
        }
        Err(problem) => assert!(!problem.is_empty()),
    }
}

fn all_learned() -> Vec<Vec<u8>> {
    let origin = Origin { device: 7, backend: BackendKind::IoUring };
    let times = RequestTimes::default();
    let none = encode(origin, &times);
    times.note(0, RequestKind::Read, 1, 1, 80.0, 1);
    times.note(0, RequestKind::Read, 1, 64, 9.0, 64);
    times.note(0, RequestKind::Write, 16, 64, 90.0, 64);
    vec![none, encode(origin, &times)]
}
