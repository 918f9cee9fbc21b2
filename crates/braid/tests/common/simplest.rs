//! Tests that hold for the structure that is for tests alone, too.

/// Makes tests of functions that take a structure.
macro_rules! on_the_simplest_structure {
    ($($test:ident),* $(,)?) => {
        mod sorted {
            $(#[test]
            fn $test() {
                super::$test(braid::Structure::Sorted);
            })*
        }
    };
}
