//! Measures the device under a directory and prints its profile.
//!
//! `cargo run --release -p braid-psync --example profile -- <directory>`

use std::path::PathBuf;
use std::time::Instant;

use psync::{Psync, probe};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("which directory?")?);
    let psync = Psync::new(None)?;
    let begin = Instant::now();
    let profile = probe::profile(&psync, &directory)?;
    println!("{}", serde_json::to_string_pretty(&profile)?);
    println!("measured in {:?}", begin.elapsed());
    Ok(())
}
