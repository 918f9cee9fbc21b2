//! The checker finds what is there, and nothing else.

mod by_hand;
mod kept;
mod made;
mod reference;
