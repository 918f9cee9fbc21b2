use std::sync::Arc;

use proptest::prelude::*;

use super::*;

type Pages = Cache<u64, Arc<[u8]>>;

fn pages(capacity_bytes: u64) -> Pages {
    Cache::new(capacity_bytes, |_, page| page.len() as u64)
}

fn page(bytes: usize) -> Arc<[u8]> {
    vec![7; bytes].into()
}

#[test]
fn keeps_what_fits_and_counts() {
    let cache = pages(1 << 20);
    cache.insert(1, page(4096));
    assert!(cache.get(&1).is_some());
    assert!(cache.get(&2).is_none());
    assert!(cache.peek(&1).is_some() && cache.peek(&2).is_none());
    let stats = cache.stats();
    assert_eq!((stats.hits, stats.misses, stats.entries), (1, 1, 1));
    assert_eq!(stats.bytes, 4096 + 8 + 16 + ENTRY_OVERHEAD_BYTES);
    assert_eq!(cache.remove(&1).map(|page| page.len()), Some(4096));
    assert_eq!(cache.stats().bytes, 0);
}

#[test]
fn a_replaced_value_is_not_seen_again() {
    let cache = pages(1 << 20);
    cache.insert(1, page(4096));
    cache.insert(1, page(8192));
    assert_eq!(cache.get(&1).map(|page| page.len()), Some(8192));
    assert_eq!(cache.stats().entries, 1);
    // The new value is too heavy to keep, but the old value must not come back.
    cache.insert(1, page(2 << 20));
    assert!(cache.get(&1).is_none());
    assert_eq!(cache.stats().bytes, 0);
}

#[test]
fn clear_and_retain_forget() {
    let cache = pages(1 << 20);
    for key in 0..10 {
        cache.insert(key, page(4096));
    }
    cache.retain(|key, _| key % 2 == 0);
    assert_eq!(cache.stats().entries, 5);
    cache.clear();
    assert_eq!((cache.stats().entries, cache.stats().bytes), (0, 0));
}

#[test]
fn a_cache_of_nothing_keeps_nothing() {
    let cache = pages(0);
    cache.insert(1, page(1));
    assert!(cache.get(&1).is_none());
    assert_eq!(cache.stats().bytes, 0);
}

#[test]
fn a_small_cache_holds_large_pages() {
    // 1 MiB has to serve leaves of 64 KiB: they must be able to use most of its room.
    let cache = pages(1 << 20);
    for key in 0..100 {
        cache.insert(key, page(64 << 10));
    }
    assert!(cache.stats().entries >= 14, "{:?}", cache.stats());
}

#[test]
fn what_comes_once_is_kept_out_of_several_full_shards() {
    let cache = pages(32 << 20);
    for (key, length) in (0..20_000).zip((4000..4097).cycle()) {
        cache.insert(key, page(length));
    }
    // Each shard has some room left, but not for one more.
    assert!(cache.stats().bytes < (32 << 20) - 4096);
    let admitted = (100_000..101_000).filter(|key| cache.admits(key, 4096)).count();
    assert!(admitted < 10, "{admitted} of 1,000");
}

#[test]
fn a_scan_does_not_evict_what_is_hot() {
    let cache = pages(8 << 20);
    for _ in 0..3 {
        for key in 0..500 {
            if cache.get(&key).is_none() {
                cache.insert(key, page(4096));
            }
        }
    }
    for key in 10_000..30_000 {
        if cache.get(&key).is_none() {
            cache.insert(key, page(4096));
        }
    }
    let kept = (0..500).filter(|key| cache.peek(key).is_some()).count();
    assert!(kept > 400, "{kept} of 500 hot pages are left after a scan of 20,000");
}

#[test]
fn what_comes_once_is_kept_out_where_there_is_no_room() {
    let cache = pages(1 << 20);
    let mut next = 0;
    while cache.admits(&next, 64 << 10) {
        cache.insert(next, page(64 << 10));
        next += 1;
    }
    assert!((14..=16).contains(&next), "{next} values were let in while there was room");
    assert!(cache.admits(&next, 64 << 10), "it came again");
    let others = (1000..1100).filter(|key| cache.admits(key, 64 << 10)).count();
    assert_eq!(others, 0);
    cache.clear();
    assert!(cache.admits(&5000, 64 << 10), "there is room");
}

#[test]
fn what_is_too_large_leaves_the_room_to_others() {
    for large in [2 << 20, 900 << 10] {
        let cache = pages(1 << 20);
        cache.insert(0, page(256 << 10));
        assert!(!cache.admits(&1, large), "there is no room for {large} bytes");
        assert!(cache.admits(&2, 64 << 10), "there is room beside {large} bytes that were refused");
    }
    let cache = pages(1 << 20);
    assert!((0..2).all(|_| !cache.admits(&1, 2 << 20)), "it can never be kept");
}

#[test]
fn shards_are_few_when_the_cache_is_small() {
    assert_eq!(shards_for(0), 1);
    assert_eq!(shards_for(1 << 20), 1);
    assert_eq!(shards_for(7 << 20), 1);
    for capacity in [1 << 24, 12 << 20, 1 << 30, u64::MAX] {
        let shards = shards_for(capacity);
        assert!(shards.is_power_of_two() && shards <= SHARDS_MAX);
        assert!(capacity / shards >= SHARD_BYTES_MIN);
    }
}

#[test]
fn threads_together_stay_within_the_capacity() {
    let cache = pages(16 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let cache = &cache;
            scope.spawn(move || {
                for step in 0..2_000_u64 {
                    let key = (step * 31 + thread * 7) % 1_000;
                    if cache.get(&key).is_none() {
                        cache.insert(key, page(4096 << (key % 5)));
                    }
                    if step % 100 == 0 {
                        assert!(cache.stats().bytes <= 16 << 20);
                    }
                }
            });
        }
    });
    assert!(cache.stats().bytes <= 16 << 20);
}

/// A cache with a front of all its values.
type Fronted = Cache<u64, Arc<[u8; 4096]>, Values>;

struct Values(Front<[u8; 4096]>);

impl Beside<u64> for Values {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn forget(&self, key: &u64) {
        self.0.forget([*key, 1]);
    }

    fn clear(&self) {
        self.0.clear();
    }

    fn sweep(&self, asked: &mut dyn FnMut(&u64)) {
        self.0.sweep(|[key, _]| asked(&key));
    }
}

fn fronted(capacity_bytes: u64) -> Fronted {
    let front = Values(Front::new(front_slots(capacity_bytes)));
    Cache::with_front(capacity_bytes, |_, _| 4096, front)
}

/// As a lookup does: from the front, or from the policy into the front.
fn look(cache: &Fronted, key: u64) -> Option<Arc<[u8; 4096]>> {
    if let Some(held) = cache.front().0.get([key, 1]) {
        cache.count_front_hit();
        return Some(Arc::clone(held.shared()));
    }
    let value = cache.get(&key)?;
    cache.lift(&key, &cache.front().0, [key, 1], &value, |other| Arc::ptr_eq(other, &value));
    Some(value)
}

#[test]
fn what_is_asked_for_in_the_front_alone_is_not_evicted() {
    let cache = fronted(4 << 20);
    (0..200).for_each(|key| cache.insert(key, Arc::new([1; 4096])));
    let mut expected = 0;
    for key in 10_000..30_000 {
        (0..200).step_by(7).for_each(|key| assert!(look(&cache, key).is_some(), "key {key}"));
        cache.insert(key, Arc::new([2; 4096]));
        // Others become hot too, so that the policy has to choose among hot values.
        let others = (0..2).filter(|_| look(&cache, key - 100 * (key % 2)).is_some()).count() as u64;
        expected += 29 + others;
    }
    let (hits, found) = (cache.stats().hits, (0..200).filter(|key| cache.peek(key).is_some()).count());
    assert_eq!(hits, expected, "each lookup is counted once, and what the policy hears is not");
    assert!(found < 100, "{found} of those that nobody asked for are still there");
}

#[test]
fn threads_find_in_the_front_what_was_last_put_or_nothing() {
    let cache = fronted(1 << 20);
    let keys = 400_u64;
    let place = |key: u64| usize::try_from(key).expect("few");
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let cache = &cache;
            scope.spawn(move || {
                // Each key has one writer, which knows its last put.
                let mut last = vec![0_u8; 400];
                for step in 0..30_000_u64 {
                    let key = (step * 17 + thread * 101) % keys;
                    let own = key - key % 3 + thread;
                    if own < keys && step % 5 == 0 {
                        let value = last[place(own)].wrapping_add(1);
                        last[place(own)] = value;
                        cache.insert(own, Arc::new([value; 4096]));
                    }
                    if let Some(value) = look(cache, own) {
                        assert_eq!(value[0], last[place(own)], "key {own}");
                    }
                    let _ = look(cache, key);
                }
            });
        }
    });
    for key in 0..keys {
        let (front, policy) = (cache.front().0.get([key, 1]), cache.peek(&key));
        assert!(front.is_none_or(|front| policy.is_some_and(|policy| Arc::ptr_eq(front.shared(), &policy))));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn weight_never_exceeds_capacity_and_values_are_never_wrong(
        capacity in prop_oneof![Just(0_u64), Just(100_000), Just((1 << 20) + 13), Just((9 << 20) + 5)],
        steps in prop::collection::vec((0_u64..300, 0_usize..70_000, 0_u8..8), 1..600),
    ) {
        let cache = pages(capacity);
        let mut model = std::collections::HashMap::new();
        for (key, bytes, action) in steps {
            match action {
                0 => {
                    cache.remove(&key);
                    model.remove(&key);
                }
                1..=3 => {
                    if let Some(found) = cache.get(&key) {
                        prop_assert_eq!(Some(&found.len()), model.get(&key));
                    }
                }
                _ => {
                    cache.insert(key, page(bytes));
                    model.insert(key, bytes);
                }
            }
            prop_assert!(cache.stats().bytes <= capacity);
        }
    }

    #[test]
    fn a_front_has_what_is_in_the_policy_alone(
        capacity in prop_oneof![Just(0_u64), Just(100_000), Just((1 << 20) + 13)],
        steps in prop::collection::vec((0_u64..400, 0_u8..12), 1..800),
    ) {
        let cache = fronted(capacity);
        let mut model = std::collections::HashMap::new();
        for (number, (key, action)) in steps.into_iter().enumerate() {
            match action {
                0 => {
                    cache.remove(&key);
                    model.remove(&key);
                }
                1 if key < 4 => cache.retain(|key, _| key % 3 == 0),
                2 if key < 4 => cache.clear(),
                3 if key < 20 => cache.set_capacity(capacity / (1 + key % 3)),
                4..=8 => {
                    if let Some(found) = look(&cache, key) {
                        prop_assert_eq!(Some(&found[0]), model.get(&key));
                    }
                }
                _ => {
                    let value = number.to_le_bytes()[0];
                    cache.insert(key, Arc::new([value; 4096]));
                    model.insert(key, value);
                }
            }
            let stats = cache.stats();
            prop_assert!(stats.bytes + cache.front().bytes() <= stats.capacity_bytes || stats.bytes == 0);
            for key in 0..400 {
                let Some(front) = cache.front().0.get([key, 1]) else { continue };
                prop_assert!(cache.peek(&key).is_some_and(|value| Arc::ptr_eq(&value, front.shared())));
            }
        }
    }
}
