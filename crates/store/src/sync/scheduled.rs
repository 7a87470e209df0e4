//! Locks that the Shuttle scheduler controls, with the methods of `parking_lot` that we use.
//!
//! A wait with a timeout may end at any moment, because the scheduler knows no time: it ends after
//! the other threads have had a turn.

#![allow(missing_docs, reason = "the documentation is that of parking_lot")]

use std::ops::{Deref, DerefMut};
use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use shuttle::sync;
use shuttle::thread::yield_now;

#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// Holds the lock; empty only while [`Condvar::wait_for`] has given it back.
#[derive(Debug)]
pub struct MutexGuard<'a, T>(&'a Mutex<T>, Option<sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self, Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(self, Some(guard))),
            Err(TryLockError::Poisoned(guard)) => Some(MutexGuard(self, Some(guard.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub fn try_lock_for(&self, _: Duration) -> Option<MutexGuard<'_, T>> {
        self.try_lock().or_else(|| {
            yield_now();
            self.try_lock()
        })
    }

    pub fn is_locked(&self) -> bool {
        self.try_lock().is_none()
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.1.as_ref().expect("a guard holds its lock")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.1.as_mut().expect("a guard holds its lock")
    }
}

#[derive(Debug, Default)]
pub struct Condvar;

impl Condvar {
    pub const fn new() -> Self {
        Self
    }

    /// Lets other threads run, and then holds the lock again: every wait may end without a cause.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) {
        guard.1 = None;
        yield_now();
        guard.1 = guard.0.lock().1;
    }

    pub fn notify_one(&self) {}

    pub fn notify_all(&self) {}
}

#[derive(Debug, Default)]
pub struct RwLock<T>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }

    pub fn read(&self) -> sync::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn try_read(&self) -> Option<sync::RwLockReadGuard<'_, T>> {
        self.0.try_read().ok()
    }

    pub fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
