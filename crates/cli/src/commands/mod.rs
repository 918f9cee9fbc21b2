//! The commands, one file each.

mod backup;
mod bench;
mod changes;
mod compact;
mod crash;
mod del;
mod device;
mod dump;
mod get;
mod history;
mod load;
mod put;
mod reproduce;
mod restore;
mod rollback;
mod salvage;
mod scan;
mod stats;
mod tables;
mod tour;
mod verify;

use clap::Subcommand;

use crate::exit::{Exit, Result};

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Load(load::Load),
    Get(get::Get),
    Put(put::Put),
    Del(del::Del),
    Scan(scan::Scan),
    Tables(tables::Tables),
    Stats(stats::Stats),
    Verify(verify::Verify),
    Salvage(salvage::Salvage),
    Changes(changes::Changes),
    History(history::History),
    Rollback(rollback::Rollback),
    Compact(compact::Compact),
    Backup(backup::Backup),
    Restore(restore::Restore),
    Dump(dump::Dump),
    Device(device::Device),
    Bench(Box<bench::Bench>),
    Reproduce(reproduce::Reproduce),
    Tour(tour::Tour),
    #[command(hide = true)]
    CrashChild(crash::CrashChild),
}

impl Command {
    pub(crate) fn run(self, json: bool) -> Result<Exit> {
        match self {
            Self::Load(load) => load.run(json),
            Self::Get(get) => get.run(json),
            Self::Put(put) => put.run(json),
            Self::Del(del) => del.run(json),
            Self::Scan(scan) => scan.run(json),
            Self::Tables(tables) => tables.run(json),
            Self::Stats(stats) => stats.run(json),
            Self::Verify(verify) => verify.run(json),
            Self::Salvage(salvage) => salvage.run(json),
            Self::Changes(changes) => changes.run(),
            Self::History(history) => history.run(json),
            Self::Rollback(rollback) => rollback.run(json),
            Self::Compact(compact) => compact.run(json),
            Self::Backup(backup) => backup.run(json),
            Self::Restore(restore) => restore.run(json),
            Self::Dump(dump) => dump.run(),
            Self::Device(device) => device.run(json),
            Self::Bench(bench) => bench.run(json),
            Self::Reproduce(reproduce) => reproduce.run(json),
            Self::Tour(tour) => tour.run(json),
            Self::CrashChild(child) => child.run(),
        }
    }
}
