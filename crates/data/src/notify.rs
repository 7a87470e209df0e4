//! The callback by which this crate wakes a background worker.

use std::sync::Arc;

/// A callback that wakes a background worker, and returns at once.
pub type WakeWorker = Arc<dyn Fn() + Send + Sync>;
