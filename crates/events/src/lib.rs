//! Events for whoever traces a program: [`error!`], [`warn!`] and [`debug!`].
//!
//! With feature `tracing` they are those of crate `tracing`, and the target of an event is the module that tells it.
//! Without, the same arguments are taken, checked by the compiler, and never evaluated.
//!
//! Left to others: whether anybody listens.

#[cfg(feature = "tracing")]
pub use tracing::{debug, error, warn};

/// Takes the fields and the message of an event, one after the other: `%name`, `name = %value`, `name = value`, `name`,
/// and a literal.
#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! untold {
    () => {};
    ($message:literal $(,)?) => {};
    (% $name:ident, $($others:tt)*) => {
        $crate::shown(&$name);
        $crate::untold!($($others)*);
    };
    ($name:ident = % $value:expr, $($others:tt)*) => {
        $crate::shown(&$value);
        $crate::untold!($($others)*);
    };
    ($name:ident = $value:expr, $($others:tt)*) => {
        let _ = &$value;
        $crate::untold!($($others)*);
    };
    ($name:ident, $($others:tt)*) => {
        let _ = &$name;
        $crate::untold!($($others)*);
    };
}

/// What is shown in an event can be shown.
#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
pub fn shown(_: &impl std::fmt::Display) {}

/// An event that nobody is told of.
#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! silent {
    ($($event:tt)*) => {
        if false {
            $crate::untold!($($event)*);
        }
    };
}

#[cfg(not(feature = "tracing"))]
pub use {silent as debug, silent as error, silent as warn};

#[cfg(test)]
mod tests {
    #[test]
    fn events_take_names_values_and_what_is_shown() {
        let (error, pages, file) = ("none", 3, "data");
        let tell = |table: &str| crate::warn!(%error, table, "an event in an expression");
        tell("t");
        crate::debug!(file = %file, pages, total = pages + 1, "file grown");
        crate::error!("a message alone");
    }

    #[cfg(not(feature = "tracing"))]
    #[test]
    fn nothing_of_an_event_without_a_listener_is_evaluated() {
        let evaluated = || -> u32 { unreachable!("nobody listens") };
        crate::error!(value = evaluated(), shown = %evaluated(), "an event");
    }
}
