//! Values of which half become shorter when they are compressed, and half do not.

/// One that `first` tells apart from others.
pub(crate) fn value(first: u8, bytes: usize) -> Vec<u8> {
    let mut state = u64::from(first);
    let mut next = |at: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let noise = (state >> 33).to_le_bytes()[0];
        if first.is_multiple_of(2) { first.wrapping_add(at.to_le_bytes()[0]) } else { noise }
    };
    (0..bytes).map(|at| if at == 0 { first } else { next(at) }).collect()
}
