//! The command line of the fuzz targets:
//!
//! - `braid-fuzz list` prints the names of all targets;
//! - `braid-fuzz valid DIR` writes their valid encodings and kept inputs, a directory for each target, to begin with;
//! - `braid-fuzz run TARGET FILE…` passes the bytes of files to a target.

use std::{error::Error, fs, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["list"] => fuzz::targets().iter().for_each(|target| println!("{}", target.name)),
        ["valid", directory] => write_valid(Path::new(directory))?,
        ["run", name, ref files @ ..] => {
            let target = fuzz::target(name).ok_or_else(|| format!("there is no target {name}"))?;
            for file in files {
                target.run(&fs::read(file)?);
            }
        }
        _ => return Err("use: braid-fuzz list | valid DIR | run TARGET FILE…".into()),
    }
    Ok(())
}

fn write_valid(directory: &Path) -> Result<(), Box<dyn Error>> {
    for target in fuzz::targets() {
        let directory = directory.join(target.name);
        fs::create_dir_all(&directory)?;
        for (number, bytes) in target.valid().into_iter().chain(target.kept()?).enumerate() {
            fs::write(directory.join(format!("begin-{number}")), bytes)?;
        }
    }
    Ok(())
}
