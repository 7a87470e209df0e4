//! The layer that names slow requests.

use std::time::{Duration, Instant};

use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::TARGET;

/// A request whose reply took long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowRequest {
    /// See [`Described::operation`](crate::Described::operation).
    pub operation: String,
    /// The first inode that it names.
    pub inode: Option<u64>,
    /// The session, if it has come from one.
    pub session: Option<u64>,
    /// The thread of the caller, if it has come from the kernel.
    pub thread: Option<u64>,
    /// The time from its arrival until its reply was sent.
    pub took: Duration,
    /// The part of `took` in which no thread of this process worked for it: it was in a queue, or
    /// waited for the disk's group commit, a lock, another client or the network.
    pub waited: Duration,
}

/// Calls a function with each request whose reply took a given time or longer, when it is sent.
pub struct SlowRequests<F> {
    limit: Duration,
    report: F,
}

impl<F: Fn(&SlowRequest)> SlowRequests<F> {
    /// Returns a layer that calls `report`, on the thread that ends the request.
    pub fn new(limit: Duration, report: F) -> Self {
        Self { limit, report }
    }
}

impl<F> std::fmt::Debug for SlowRequests<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlowRequests").field("limit", &self.limit).finish_non_exhaustive()
    }
}

/// The times and fields of a request, among the extensions of its span.
struct Life {
    began: Instant,
    /// The time in which at least one thread was in the span, without the present one.
    worked: Duration,
    /// The threads that are in the span now, and since when one is.
    threads: u32,
    since: Instant,
    fields: Fields,
}

#[derive(Default)]
struct Fields {
    operation: String,
    inode: Option<u64>,
    session: Option<u64>,
    thread: Option<u64>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "inode" => self.inode = Some(value),
            "session" => self.session = Some(value),
            "thread" => self.thread = Some(value),
            _ => {}
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "operation" {
            value.clone_into(&mut self.operation);
        }
    }

    fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
}

impl<S, F> Layer<S> for SlowRequests<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    F: Fn(&SlowRequest) + Send + Sync + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().target() != TARGET {
            return;
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let now = Instant::now();
        let life = Life { began: now, worked: Duration::ZERO, threads: 0, since: now, fields };
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(life);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        with_life(id, &context, |life| {
            if life.threads == 0 {
                life.since = Instant::now();
            }
            life.threads += 1;
        });
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        with_life(id, &context, |life| {
            life.threads = life.threads.saturating_sub(1);
            if life.threads == 0 {
                life.worked += life.since.elapsed();
            }
        });
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        // The extensions are locked: they are free again before anything is reported.
        let Some(life) = span.extensions_mut().remove::<Life>() else { return };
        let took = life.began.elapsed();
        if took < self.limit {
            return;
        }
        let waited = took.saturating_sub(life.worked);
        let Fields { operation, inode, session, thread } = life.fields;
        (self.report)(&SlowRequest { operation, inode, session, thread, took, waited });
    }
}

fn with_life<S>(id: &Id, context: &Context<'_, S>, change: impl FnOnce(&mut Life))
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if let Some(span) = context.span(id)
        && let Some(life) = span.extensions_mut().get_mut::<Life>()
    {
        change(life);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::{Described, RequestSpan};

    const READ: Described =
        Described { operation: "read", inode: Some(7), session: Some(3), thread: None };

    /// Calls `requests` under a layer with this limit, and returns what it has reported.
    fn reported(limit: Duration, requests: impl FnOnce()) -> Vec<SlowRequest> {
        let slow: Arc<Mutex<Vec<SlowRequest>>> = Arc::default();
        let report = {
            let slow = Arc::clone(&slow);
            move |request: &SlowRequest| slow.lock().unwrap().push(request.clone())
        };
        let layers = tracing_subscriber::registry().with(SlowRequests::new(limit, report));
        tracing::subscriber::with_default(layers, requests);
        let slow = slow.lock().unwrap();
        slow.clone()
    }

    #[test]
    fn a_request_ends_with_the_last_clone_and_says_how_long_it_waited() {
        let slow = reported(Duration::from_millis(20), || {
            let span = RequestSpan::begin(|| READ);
            let moved = span.in_scope(RequestSpan::current);
            drop(span);
            // Only the clock ends it: nothing works for the request.
            thread::sleep(Duration::from_millis(30));
            // Only the clock ends it: this is the work.
            moved.in_scope(|| thread::sleep(Duration::from_millis(10)));
        });
        let [request] = &slow[..] else { panic!("{slow:?}") };
        assert_eq!(request.operation, "read");
        assert_eq!((request.inode, request.session, request.thread), (Some(7), Some(3), None));
        assert!(request.waited >= Duration::from_millis(30), "{request:?}");
        assert!(request.took >= request.waited + Duration::from_millis(10), "{request:?}");
    }

    #[test]
    fn quick_requests_and_other_spans_are_not_reported() {
        let slow = reported(Duration::from_secs(60), || {
            drop(RequestSpan::begin(|| READ));
            drop(tracing::debug_span!("other").entered());
        });
        assert_eq!(slow, []);
        let slow = reported(Duration::ZERO, || drop(tracing::debug_span!("other").entered()));
        assert_eq!(slow, []);
    }

    #[test]
    fn a_span_begins_outside_of_others() {
        let slow = reported(Duration::ZERO, || {
            let outer = RequestSpan::begin(|| READ);
            let inner =
                outer.in_scope(|| RequestSpan::begin(|| Described { operation: "write", ..READ }));
            drop(outer);
            drop(inner);
        });
        let operations: Vec<&str> = slow.iter().map(|request| &*request.operation).collect();
        assert_eq!(operations, ["read", "write"]);
    }
}
