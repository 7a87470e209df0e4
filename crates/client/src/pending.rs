//! Pending results: ready now, or completed later by another thread.
//!
//! Most operations need only memory, and return their result by value. Each of the others is
//! completed exactly once by another thread, through a [`Completer`]; the caller gets a callback on
//! that thread, or waits.

use std::sync::Arc;
use std::{fmt, mem};

use parking_lot::{Condvar, Mutex};
use pelago_wire::{Code, Error};

/// The result of an operation, ready or to be completed later.
#[must_use = "an unused result may be an unseen error"]
pub struct Pending<T>(Inner<T>);

enum Inner<T> {
    Ready(Result<T, Error>),
    Later(Arc<Slot<T>>),
}

impl<T: Send + 'static> Pending<T> {
    /// Returns a result that is ready.
    pub const fn ready(result: Result<T, Error>) -> Self {
        Self(Inner::Ready(result))
    }

    /// Returns the completer of a later result, and the result.
    pub fn later() -> (Completer<T>, Self) {
        let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), done: Condvar::new() });
        (Completer(Some(Arc::clone(&slot))), Self(Inner::Later(slot)))
    }

    /// Returns whether [`Pending::then`] would call at once and [`Pending::wait`] would not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.0 {
            Inner::Ready(_) => true,
            Inner::Later(slot) => matches!(*slot.state.lock(), State::Done(_)),
        }
    }

    /// Returns the same result, by value if it has been completed.
    pub fn settle(self) -> Self {
        match self.0 {
            Inner::Later(slot) => match slot.take() {
                Some(result) => Self::ready(result),
                None => Self(Inner::Later(slot)),
            },
            Inner::Ready(result) => Self::ready(result),
        }
    }

    /// Calls `callback` with the result: at once if it is ready, else later on the thread that
    /// completes it. `callback` must be quick, because it blocks that thread.
    pub fn then(self, callback: impl FnOnce(Result<T, Error>) + Send + 'static) {
        match self.settle().0 {
            Inner::Ready(result) => callback(result),
            Inner::Later(slot) => slot.call_back(Box::new(callback)),
        }
    }

    /// Waits for the result. A thread that completes other results must not call this.
    ///
    /// # Errors
    /// The error of the operation.
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

/// The duty to complete one [`Pending`]. If it is dropped, the result is the error [`Code::Bug`],
/// so that no caller waits for ever.
#[derive(Debug)]
pub struct Completer<T: Send + 'static>(Option<Arc<Slot<T>>>);

impl<T: Send + 'static> Completer<T> {
    /// Sets the result. A registered callback runs before this returns.
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

/// Connects a completer with its result. Its lock is a leaf: no callback runs under it.
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
    fn a_ready_result_calls_back_at_once() {
        let (tell, told) = mpsc::channel();
        Pending::ready(Ok(7)).then(move |result| tell.send(result).unwrap());
        assert_eq!(told.try_recv(), Ok(Ok(7)));
    }

    #[test]
    fn a_completer_calls_back_on_its_own_thread() {
        let (completer, answer) = Pending::later();
        let (tell, told) = mpsc::channel();
        assert!(!answer.is_ready());
        answer.then(move |result| tell.send((result, thread::current().id())).unwrap());
        let thread = thread::Builder::new().spawn(move || completer.complete(Ok(1))).unwrap();
        let id = thread.thread().id();
        thread.join().unwrap();
        assert_eq!(told.try_recv(), Ok((Ok(1), id)));
    }

    #[test]
    fn a_result_that_came_before_the_caller_asks_is_ready() {
        let (completer, answer) = Pending::later();
        completer.complete(Ok("now"));
        assert!(answer.is_ready());
        assert!(matches!(answer.settle().0, Inner::Ready(Ok("now"))));
    }

    #[test]
    fn a_wait_ends_when_the_result_is_set() {
        let (completer, answer) = Pending::later();
        let thread = thread::Builder::new().spawn(move || completer.complete(Ok(2))).unwrap();
        assert_eq!(answer.wait(), Ok(2));
        thread.join().unwrap();
    }

    #[test]
    fn a_dropped_completer_is_an_error() {
        let (completer, answer) = Pending::<()>::later();
        drop(completer);
        assert_eq!(answer.wait(), Err(Code::Bug.into()));
    }
}
