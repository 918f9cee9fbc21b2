//! The `braid` command: load, read, check and measure a Braid database.
//!
//! 1. `main` parses the arguments and hands them to one command. A wrong argument ends the process here, with exit code
//!    2 and a message that names the argument.
//! 2. Each command is a file in `commands`: its arguments with their help, and its code.
//! 3. Results go to standard output, for people or with `--json` for programs. Progress, notes and errors go to
//!    standard error.
//! 4. The exit code tells how the command ended ([`exit`]).
//!
//! Invariants: commands that only read open the database read-only; a command that stops early reports its committed
//! work.

mod bytes;
mod commands;
mod exit;
mod interrupt;
mod open;
mod output;
mod progress;
mod units;

use std::process::ExitCode;

use clap::Parser;

use crate::commands::Command;

/// Braid is an embedded key-value store for flash SSDs: ordered, durable, and fast because it hands the device its work
/// in batches.
///
/// A database is a directory. It holds tables; a table maps keys to values, in key order. Keys are 1 byte to 1 KiB (8
/// KiB in `append` tables), values up to 512 MiB, any bytes.
#[derive(Parser, Debug)]
#[command(name = "braid", version, max_term_width = 100, after_help = after_help())]
struct Cli {
    /// Print JSON, one object a line, instead of text for people
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

/// Examples, then the exit codes.
fn after_help() -> String {
    format!("{EXAMPLES}\n\n{}", exit::HELP)
}

const EXAMPLES: &str = "\
Examples:
  braid tour                                  what it does, on real files
  braid put my.db ada 1815                    store; creates the database
  braid get my.db ada                         read it back
  braid load my.db --files ~/src              a directory: path -> content
  braid scan my.db --prefix main/ --limit 10  records in key order
  braid verify my.db                          check every byte of it
  braid bench fillrandom,multireadrandom      beside the device's own limits

`braid COMMAND --help` has more of them for each command.";

/// One thread makes buffers and cached leaves, and another frees them. With the C library's allocator the process then
/// holds up to twice what is in use.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command.run(cli.json) {
        Ok(exit) => exit.into(),
        Err(error) => {
            if !error.is_silent() {
                eprintln!("braid: {error}");
            }
            error.exit().into()
        }
    }
}
