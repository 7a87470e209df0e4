//! The timer of the thread that sends dirty bytes.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The timer of the thread that sends dirty bytes.
#[derive(Default)]
pub(crate) struct Timer {
    state: Mutex<TimerState>,
    changed: Condvar,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum TimerState {
    #[default]
    Idle,
    Armed,
    Ended,
}

impl Timer {
    /// Wakes the thread: there are dirty bytes.
    pub(crate) fn arm(&self) {
        let mut state = self.state.lock();
        if *state == TimerState::Idle {
            *state = TimerState::Armed;
            self.changed.notify_all();
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        *self.state.lock() = TimerState::Ended;
        self.changed.notify_all();
    }

    /// Waits until there are dirty bytes. Returns `false` if the thread is to end.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while *state == TimerState::Idle {
            self.changed.wait(&mut state);
        }
        *state == TimerState::Armed
    }

    /// Waits for this time, or until the thread is to end.
    pub(crate) fn pause(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        while *state != TimerState::Ended {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }

    /// Records that there are no dirty bytes.
    pub(crate) fn disarm(&self) {
        let mut state = self.state.lock();
        if *state == TimerState::Armed {
            *state = TimerState::Idle;
        }
    }
}
