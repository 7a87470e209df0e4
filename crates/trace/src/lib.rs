//! The life of a request, as a span of `tracing`: from its arrival until its reply is sent.
//!
//! A request arrives at one of two places, and its span begins there: `fuse`, which reads it from
//! the kernel, and `net`, which reads it from a session's connection. What owes the reply has the
//! span, so it ends with the reply, or with a panic before it. A thread that works for the request
//! is in the span meanwhile; a request that moves to another thread takes it along
//! ([`RequestSpan::current`]).
//!
//! All that looks at requests is a layer over these spans: the context of log lines, and
//! [`SlowRequests`]. Without a layer that wants them (the level DEBUG is off) no span is made: the
//! price is one load of a number in memory.

#![forbid(unsafe_code)]

mod slow;

pub use self::slow::{SlowRequest, SlowRequests};

use tracing::level_filters::LevelFilter;

/// The target of the spans. A filter of the log, as in `PELAGO_LOG=pelago::request=debug`, means
/// them by it.
pub const TARGET: &str = "pelago::request";

/// The description of a request, as the fields of its span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// The name of the operation, in the words of the protocol by which it has come.
    pub operation: &'static str,
    /// The first inode that it names.
    pub inode: Option<u64>,
    /// The session, if it has come from one.
    pub session: Option<u64>,
    /// The thread of the caller, if it has come from the kernel: 0 if no process waits for it.
    pub thread: Option<u32>,
}

/// The span of one request. It ends when the last of its clones is dropped.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RequestSpan(
    /// In a box: a span is as large as a small reply, and most often there is none.
    Option<Box<tracing::Span>>,
);

impl RequestSpan {
    /// Begins the span of a request that has arrived. `describe` is called only if there is a layer
    /// that wants spans.
    #[inline]
    pub fn begin(describe: impl FnOnce() -> Described) -> Self {
        if is_off() {
            return Self::default();
        }
        Self::begin_described(describe())
    }

    #[cold]
    fn begin_described(described: Described) -> Self {
        let Described { operation, inode, session, thread } = described;
        // It is in no other span, although the thread that reads requests may be.
        let span = tracing::debug_span!(
            target: TARGET, parent: None, "request", operation, inode, session, thread
        );
        Self::of(span)
    }

    /// Returns the span that this thread is in, for a request that another thread goes on with.
    #[inline]
    pub fn current() -> Self {
        if is_off() {
            return Self::default();
        }
        Self::of(tracing::Span::current())
    }

    fn of(span: tracing::Span) -> Self {
        Self((!span.is_disabled()).then(|| Box::new(span)))
    }

    /// Calls `work` in the span: it is time in which a thread worked for the request.
    #[inline]
    pub fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        match &self.0 {
            None => work(),
            Some(span) => span.in_scope(work),
        }
    }
}

/// Returns whether no layer wants spans.
#[inline]
fn is_off() -> bool {
    LevelFilter::current() < LevelFilter::DEBUG
}
