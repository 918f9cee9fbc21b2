//! What the device can do, measured.
