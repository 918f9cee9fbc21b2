//! States that are retained: opened again, and gone back to.

mod faults;
mod follow;
mod retained;
mod rolled_back;
mod space;
mod world;
