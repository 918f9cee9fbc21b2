//! Bytes that nobody foresees: for identities, and for waits that are not to coincide.

use random::Random;
use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};

/// Bytes of the system.
///
/// # Panics
/// If the system has no random bytes, as before Linux 3.17.
pub(crate) fn bytes<const N: usize>() -> [u8; N] {
    let (mut bytes, mut done) = ([0; N], 0);
    while done < N {
        match getrandom(&mut bytes[done..], GetRandomFlags::empty()) {
            Err(Errno::INTR) => {}
            read => done += read.expect("a system has random bytes"),
        }
    }
    bytes
}

/// Other numbers each time.
pub(crate) fn numbers() -> Random {
    Random::from_seed(u64::from_le_bytes(bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_others_each_time() {
        let [one, other]: [[u8; 16]; 2] = [bytes(), bytes()];
        assert!(one != other && one != [0; 16]);
        assert_ne!(numbers().number(), numbers().number());
    }
}
