//! Tests that hold for tables of every structure.

/// Makes tests of functions that take a structure: one for each.
macro_rules! on_every_structure {
    ($($test:ident),* $(,)?) => {
        mod btree {
            $(#[test]
            fn $test() {
                super::$test(braid::Structure::BTree);
            })*
        }

        mod append {
            $(#[test]
            fn $test() {
                super::$test(braid::Structure::Append);
            })*
        }

        mod lsm {
            $(#[test]
            fn $test() {
                super::$test(braid::Structure::Lsm);
            })*
        }
    };
}
