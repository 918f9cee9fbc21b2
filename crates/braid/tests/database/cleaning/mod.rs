//! Cleaning of document segments: live documents move, dead ones give their space back, and nobody notices.

mod inline;

mod background;
mod by_hand;
mod faults;
mod model;
