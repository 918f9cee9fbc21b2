//! Tests that hold for tables of every structure, that for tests alone included.

/// As `on_every_structure`, which the file that uses this has too. Tests behind the semicolon are for structures with
/// files alone.
macro_rules! on_every_kind {
    ($($test:ident),* $(,)?; $($other:ident),* $(,)?) => {
        on_every_structure!($($test,)* $($other,)*);

        mod sorted {
            $(#[test]
            fn $test() {
                super::$test(braid::Structure::Sorted);
            })*
        }
    };
}
