//! The search of histories finds every known mistake of isolation that is put in on purpose. One test in a process of
//! its own: the switch
//! is global.

#[path = "histories/store.rs"]
mod store;
#[path = "histories/world.rs"]
mod world;

use seeded::Bug;

/// Every mistake has to show within so many seeds.
const SEEDS: u64 = 200;

#[test]
fn every_known_mistake_of_isolation_is_found() {
    for bug in Bug::OF_ISOLATION {
        seeded::set(Some(bug));
        let found = (0..SEEDS).find_map(|seed| world::interleaved(seed).err());
        seeded::set(None);
        let Some(problem) = found else { panic!("{bug:?} stayed hidden through {SEEDS} seeds") };
        eprintln!("{bug:?} shows: {problem}");
        let names: &[&str] = match bug {
            Bug::PhantomMissed => &["G2-item", "G2:"],
            _ => &["lost update", "G-single", "G2-item"],
        };
        assert!(names.iter().any(|name| problem.contains(name)), "it is named wrongly");
    }
    // Each of them was off, or another one on, while the other seeds passed.
    (0..20).for_each(|seed| world::interleaved(seed).expect("without a mistake there is nothing to find"));
}
