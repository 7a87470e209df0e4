//! The pending reply of a request: its callback, and its name for a cancel (I-8).

use pelago_wire::{Context, Done, Error, Reply, RequestId, SessionId};

/// The name of a request by which its caller can cancel it: the number in its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CancelKey {
    pub(crate) session: SessionId,
    /// 0 for a request that is never cancelled.
    pub(crate) request: RequestId,
}

impl From<&Context> for CancelKey {
    fn from(context: &Context) -> Self {
        Self { session: context.session, request: context.request }
    }
}

/// The callback of a request whose reply comes later. Its type makes a second reply impossible, and
/// its `drop` asserts that there was one.
pub(crate) struct Completion(Option<Done>);

impl Completion {
    /// Returns a completion that calls `done`.
    #[must_use]
    pub(crate) fn new(done: Done) -> Self {
        Self(Some(done))
    }

    /// Replies.
    pub(crate) fn reply(self, result: Result<Reply, Error>) {
        (self.into_done())(result);
    }

    /// Returns the callback, which the receiver must call.
    pub(crate) fn into_done(mut self) -> Done {
        self.0.take().expect("taken only here, by value")
    }
}

/// Has `serve` carry out a request, and passes the result to `done`: at once, or when it comes
/// later.
pub(crate) fn deliver(
    done: Done,
    serve: impl FnOnce(&mut dyn FnMut() -> Done) -> Option<Result<Reply, Error>>,
) {
    let mut done = Some(done);
    let now = serve(&mut || done.take().expect("a service asks for one callback"));
    if let (Some(result), Some(done)) = (now, done) {
        done(result);
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        assert!(
            self.0.is_none() || std::thread::panicking(),
            "I-8: a request was dropped without a reply"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_reply_reaches_the_callback() {
        let (sender, receiver) = channel();
        Completion::new(Box::new(move |result| sender.send(result).unwrap()))
            .reply(Ok(Reply::Done));
        assert!(matches!(receiver.recv().unwrap(), Ok(Reply::Done)));
    }

    #[test]
    #[should_panic(expected = "I-8")]
    fn a_request_without_a_reply_is_an_error() {
        drop(Completion::new(Box::new(|_| {})));
    }
}
