//! The comparison trees hold what a map holds, whatever is done to them, with pools that hold next to nothing.

mod batched;
mod in_place;
mod model;
