//! An answer that is ready now or comes later.
//!
//! Most operations touch only memory: their answer is returned by value. Another thread completes
//! each of the others exactly once, through a [`Completer`]. The caller then gets a callback on
//! that thread, or waits.

use std::fmt;
use std::mem;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use pelago_wire::{Code, Error};

/// The answer to an operation, ready or still to come.
#[must_use = "an answer that nobody takes may be an error that nobody sees"]
pub struct Pending<T>(Inner<T>);

enum Inner<T> {
    Ready(Result<T, Error>),
    Later(Arc<Slot<T>>),
}

impl<T: Send + 'static> Pending<T> {
    /// An answer that is there already.
    pub const fn ready(result: Result<T, Error>) -> Self {
        Self(Inner::Ready(result))
    }

    /// An answer that comes when its completer is called.
    pub fn later() -> (Completer<T>, Self) {
        let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), done: Condvar::new() });
        (Completer(Some(Arc::clone(&slot))), Self(Inner::Later(slot)))
    }

    /// Whether [`Pending::then`] would call at once and [`Pending::wait`] would not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Inner::Ready(_) => true,
            Inner::Later(slot) => matches!(*slot.state.lock(), State::Done(_)),
        }
    }

    /// The same answer, by value where it was completed in the meantime.
    pub fn settle(self) -> Self {
        match self.0 {
            Inner::Later(slot) => match slot.take() {
                Some(result) => Self::ready(result),
                None => Self(Inner::Later(slot)),
            },
            Inner::Ready(result) => Self::ready(result),
        }
    }

    /// Calls `callback` with the answer: at once if it is ready, else later from the thread that
    /// completes it. Whatever `callback` does must be quick: it holds that thread up.
    pub fn then(self, callback: impl FnOnce(Result<T, Error>) + Send + 'static) {
        match self.settle().0 {
            Inner::Ready(result) => callback(result),
            Inner::Later(slot) => slot.call_back(Box::new(callback)),
        }
    }

    /// Waits for the answer. Never on a thread that others' answers depend on.
    ///
    /// # Errors
    /// The operation's.
    pub fn wait(self) -> Result<T, Error> {
        match self.0 {
            Inner::Ready(result) => result,
            Inner::Later(slot) => slot.wait(),
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Inner::Ready(_) => "Pending(ready)",
            Inner::Later(_) => "Pending(later)",
        })
    }
}

/// The duty to complete one [`Pending`]. Dropped without it, the answer is the error
/// [`Code::Bug`], so that nobody waits for ever.
#[derive(Debug)]
pub struct Completer<T: Send + 'static>(Option<Arc<Slot<T>>>);

impl<T: Send + 'static> Completer<T> {
    /// Completes the answer. A callback that is registered runs before this returns.
    pub fn complete(mut self, result: Result<T, Error>) {
        if let Some(slot) = self.0.take() {
            slot.complete(result);
        }
    }
}

impl<T: Send + 'static> Drop for Completer<T> {
    fn drop(&mut self) {
        if let Some(slot) = self.0.take() {
            slot.complete(Err(Code::Bug.into()));
        }
    }
}

type Callback<T> = Box<dyn FnOnce(Result<T, Error>) + Send>;

enum State<T> {
    Waiting,
    CallBack(Callback<T>),
    Done(Result<T, Error>),
    Taken,
}

/// Joins a completer and its answer. Its lock is a leaf: nothing is called under it.
struct Slot<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

impl<T> Slot<T> {
    fn complete(&self, result: Result<T, Error>) {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, State::Taken) {
            State::CallBack(callback) => {
                drop(state);
                callback(result);
            }
            State::Waiting | State::Done(_) | State::Taken => {
                *state = State::Done(result);
                drop(state);
                self.done.notify_one();
            }
        }
    }

    fn take(&self) -> Option<Result<T, Error>> {
        take_done(&mut self.state.lock())
    }

    fn call_back(&self, callback: Callback<T>) {
        let mut state = self.state.lock();
        match take_done(&mut state) {
            Some(result) => {
                drop(state);
                callback(result);
            }
            None => *state = State::CallBack(callback),
        }
    }

    fn wait(&self) -> Result<T, Error> {
        let mut state = self.state.lock();
        loop {
            if let Some(result) = take_done(&mut state) {
                return result;
            }
            self.done.wait(&mut state);
        }
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Slot")
    }
}

fn take_done<T>(state: &mut State<T>) -> Option<Result<T, Error>> {
    match mem::replace(state, State::Taken) {
        State::Done(result) => Some(result),
        other => {
            *state = other;
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_ready_answer_calls_back_at_once() {
        let (tell, told) = mpsc::channel();
        Pending::ready(Ok(7)).then(move |result| tell.send(result).unwrap());
        assert_eq!(told.try_recv(), Ok(Ok(7)));
    }

    #[test]
    fn a_promise_calls_back_from_its_own_thread() {
        let (completer, answer) = Pending::later();
        let (tell, told) = mpsc::channel();
        assert!(!answer.is_ready());
        answer.then(move |result| tell.send((result, thread::current().id())).unwrap());
        let keeper = thread::Builder::new().spawn(move || completer.complete(Ok(1))).unwrap();
        let id = keeper.thread().id();
        keeper.join().unwrap();
        assert_eq!(told.try_recv(), Ok((Ok(1), id)));
    }

    #[test]
    fn a_promise_kept_before_anybody_asks_is_settled() {
        let (completer, answer) = Pending::later();
        completer.complete(Ok("now"));
        assert!(answer.is_ready());
        assert!(matches!(answer.settle().0, Inner::Ready(Ok("now"))));
    }

    #[test]
    fn waiting_ends_when_the_promise_is_kept() {
        let (completer, answer) = Pending::later();
        let keeper = thread::Builder::new().spawn(move || completer.complete(Ok(2))).unwrap();
        assert_eq!(answer.wait(), Ok(2));
        keeper.join().unwrap();
    }

    #[test]
    fn a_dropped_promise_is_an_error_and_no_hang() {
        let (completer, answer) = Pending::<()>::later();
        drop(completer);
        assert_eq!(answer.wait(), Err(Code::Bug.into()));
    }
}
