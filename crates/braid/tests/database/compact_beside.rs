//! A table is compacted while another is written: nothing of either is lost when the power goes.

use braid::Structure;

use crate::beside::life;

fn what_is_compacted_and_what_is_written_beside_it_survive_every_crash(structure: Structure) {
    (0..60).for_each(|seed| life(structure, seed).expect("nothing is lost"));
}

on_every_structure!(what_is_compacted_and_what_is_written_beside_it_survive_every_crash,);
