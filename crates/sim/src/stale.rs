//! The stale answers of the server of a site, by which the history knows what may be old.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pelago_server::Server;

/// The number of stale answers of a site's server, in all of its runs.
#[derive(Clone, Default)]
pub(crate) struct StaleAnswers(Arc<Mutex<Run>>);

/// The present run of a server.
#[derive(Default)]
struct Run {
    number: u64,
    server: Weak<Server>,
}

/// A mark that is another one after each stale answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StaleMark {
    run: u64,
    answers: u64,
}

impl StaleAnswers {
    /// Begins to count the answers of a new run.
    pub(crate) fn begin_run(&self, server: &Arc<Server>) {
        let mut run = self.0.lock();
        run.number += 1;
        run.server = Arc::downgrade(server);
    }

    /// Returns the present mark.
    pub(crate) fn mark(&self) -> StaleMark {
        let run = self.0.lock();
        let number = run.number;
        let server = run.server.upgrade();
        drop(run);
        // Without a lock of the server: this thread is of a client, which may be stopped for ever.
        StaleMark { run: number, answers: server.map_or(0, |server| server.stale_answers()) }
    }
}
