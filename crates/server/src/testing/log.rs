//! A log of the events of one thread, for tests.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber, subscriber};

/// The events of a level and of more severe ones, a line each.
#[derive(Clone)]
pub(crate) struct Log {
    level: Level,
    text: Arc<Mutex<String>>,
}

impl Log {
    /// Returns an empty log of warnings and errors.
    pub(crate) fn of_warnings() -> Self {
        Self { level: Level::WARN, text: Arc::default() }
    }

    /// Returns an empty log of errors.
    pub(crate) fn of_errors() -> Self {
        Self { level: Level::ERROR, text: Arc::default() }
    }

    /// Calls `call`, and records its events. Returns its result.
    pub(crate) fn during<T>(&self, call: impl FnOnce() -> T) -> T {
        subscriber::with_default(self.clone(), call)
    }

    /// Returns the lines that were recorded so far.
    pub(crate) fn text(&self) -> String {
        self.text.lock().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.text.lock().lines().count()
    }
}

impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text.lock())
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn event(&self, event: &Event<'_>) {
        let mut text = self.text.lock();
        event.record(&mut Line(&mut text));
        text.push('\n');
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}
