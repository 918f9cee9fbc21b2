//! Requests as the layers above make them, on every backend.

mod backends;
mod names;
mod simulated;
