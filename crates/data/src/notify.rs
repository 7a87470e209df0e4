//! How this crate tells background work that there is something to do.

use std::sync::Arc;

/// Wakes up a background worker; returns at once.
pub type WakeWorker = Arc<dyn Fn() + Send + Sync>;
