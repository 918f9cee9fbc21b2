//! The primitives at which threads meet, replaceable by those of a model checker.
//!
//! With the feature `shuttle` the primitives are the model checker's, which decides at each of them which thread runs
//! next; otherwise they are those of `parking_lot` and the standard library. A modelled room takes from here every
//! primitive with which its threads wait for each other.
//!
//! - A condition takes and returns the guard, as the standard library's does.
//! - A mutex is not poisoned by panics, as `parking_lot`'s is not.
//! - A latch is for many threads that wait for one event. Setting a latch is one system call however many threads wait,
//!   and the woken threads take no lock.

#[cfg(not(feature = "shuttle"))]
mod primitives {
    pub use std::hint::spin_loop;
    use std::sync::OnceLock;
    pub use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
    pub use std::thread::yield_now;

    pub use parking_lot::{Mutex, MutexGuard};

    /// A condition to wait for, with the mutex that guards the condition.
    #[derive(Debug, Default)]
    pub struct Condvar(parking_lot::Condvar);

    impl Condvar {
        /// Releases the mutex while waiting.
        #[inline]
        #[must_use = "the guard comes back"]
        pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(&mut guard);
            guard
        }

        /// As [`Condvar::wait`], for at most `longest`.
        #[inline]
        #[must_use = "the guard comes back"]
        pub fn wait_for<'a, T>(&self, mut guard: MutexGuard<'a, T>, longest: std::time::Duration) -> MutexGuard<'a, T> {
            self.0.wait_for(&mut guard, longest);
            guard
        }

        /// Wakes one waiting thread.
        #[inline]
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiting threads.
        #[inline]
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// A value that is set once, and that any number of threads wait for.
    #[derive(Debug)]
    pub struct Latch<T>(OnceLock<T>);

    impl<T> Default for Latch<T> {
        fn default() -> Self {
            Self(OnceLock::new())
        }
    }

    impl<T: Clone> Latch<T> {
        /// Sets the value and wakes all waiting threads; the value that was set first stays.
        #[inline]
        pub fn set(&self, value: T) {
            let _kept = self.0.set(value);
        }

        /// Waits until the value is set.
        #[inline]
        pub fn wait(&self) -> T {
            self.0.wait().clone()
        }
    }
}

#[cfg(feature = "shuttle")]
mod primitives {
    pub use shuttle::hint::spin_loop;
    pub use shuttle::sync::MutexGuard;
    pub use shuttle::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
    pub use shuttle::thread::yield_now;

    /// A mutex that a panic of its holder leaves as it is.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        /// An unlocked mutex.
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        /// Waits for the mutex and locks it.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        /// Locks the mutex if no other thread holds the lock.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// A condition to wait for, with the mutex that guards the condition.
    #[derive(Debug, Default)]
    pub struct Condvar(shuttle::sync::Condvar);

    impl Condvar {
        /// Releases the mutex while waiting.
        #[must_use = "the guard comes back"]
        pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
            self.0.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
        }

        /// As [`Condvar::wait`], for at most `longest`. In a model, where time does not pass, the wait has no limit.
        #[must_use = "the guard comes back"]
        pub fn wait_for<'a, T>(&self, guard: MutexGuard<'a, T>, longest: std::time::Duration) -> MutexGuard<'a, T> {
            self.0.wait_timeout(guard, longest).unwrap_or_else(|poisoned| poisoned.into_inner()).0
        }

        /// Wakes one waiting thread.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiting threads.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// A value that is set once, and that any number of threads wait for.
    #[derive(Debug)]
    pub struct Latch<T> {
        value: Mutex<Option<T>>,
        set: Condvar,
    }

    impl<T> Default for Latch<T> {
        fn default() -> Self {
            Self { value: Mutex::new(None), set: Condvar::default() }
        }
    }

    impl<T: Clone> Latch<T> {
        /// Sets the value and wakes all waiting threads; the value that was set first stays.
        pub fn set(&self, value: T) {
            self.value.lock().get_or_insert(value);
            self.set.notify_all();
        }

        /// Waits until the value is set.
        pub fn wait(&self) -> T {
            let mut value = self.value.lock();
            loop {
                match &*value {
                    Some(value) => return value.clone(),
                    None => value = self.set.wait(value),
                }
            }
        }
    }
}

pub use primitives::{
    AtomicU32, AtomicU64, AtomicUsize, Condvar, Latch, Mutex, MutexGuard, Ordering, spin_loop, yield_now,
};

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::Latch;

    #[test]
    fn a_latch_lets_all_through_once_it_is_set_and_keeps_its_first_value() {
        let latch = Arc::new(Latch::default());
        let waiting: Vec<_> = (0..4)
            .map(|_| {
                let latch = Arc::clone(&latch);
                thread::spawn(move || latch.wait())
            })
            .collect();
        latch.set(7);
        latch.set(8);
        assert!(waiting.into_iter().all(|waits| waits.join().expect("no panic") == 7));
        assert_eq!(latch.wait(), 7);
    }
}
