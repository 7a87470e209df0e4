//! The state of a download under way, and its limits for retries.

use std::time::{Duration, Instant};

use pelago_wire::blocks::{ExtentHash, Extents};
use pelago_wire::limits::ENTITY_TAG_BYTES;

use crate::fetch::error::FetchError;
use crate::fetch::event::FetchEvent;
use crate::fetch::plan::{FetchPlan, Fetched};
use crate::fetch::received::Received;
use crate::fetch::state::{Form, StateHead};
use crate::fetch::url::Url;
use crate::fetch::workspace::Workspace;

/// The number of times that a download begins again because the file has changed.
const RESTARTS: u32 = 3;
/// The number of responses that may break the protocol before the download fails.
const VIOLATIONS: u32 = 3;
/// The pauses after a failed request: the first one, and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A download under way.
pub(super) struct Run<'a> {
    pub(super) plan: &'a FetchPlan,
    pub(super) url: Url,
    pub(super) work: Workspace,
    pub(super) observe: &'a mut dyn FnMut(FetchEvent),
    /// The head of the state file beside the target.
    pub(super) head: Option<StateHead>,
    pub(super) received: Option<Received>,
    pub(super) gained: u64,
    pub(super) resumed: u64,
    pub(super) refetched: Vec<u64>,
    pub(super) restarts: u32,
    pub(super) violations: u32,
    /// The time since which no byte has been received.
    pub(super) stalled_since: Instant,
    /// The value of `gained` at that time.
    pub(super) gained_before: u64,
    pub(super) pause: Duration,
}

/// The step after a response.
pub(super) enum Step {
    /// The file is whole.
    Done(Done),
    /// The rest is requested at once.
    Again,
    /// The rest is requested after a pause: the server cannot be reached, or does not go on.
    Retry(String),
    /// The server cannot send the file now.
    Busy { why: String, after: Duration },
    /// The bytes that were received are of no use.
    Restart(Restart),
}

/// The reason why a download begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    /// The file has changed; with a text for people.
    Changed(&'static str),
    /// The response was cut, and the server can send the file only from its first byte.
    Cut,
}

/// A file that is whole, and its root.
pub(super) struct Done {
    pub(super) bytes: u64,
    pub(super) root: Option<ExtentHash>,
    pub(super) is_confirmed: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        plan: &'a FetchPlan,
        url: Url,
        work: Workspace,
        observe: &'a mut dyn FnMut(FetchEvent),
    ) -> Result<Self, FetchError> {
        let head = work.head().filter(|head| head.url == url.text);
        let mut run = Self {
            plan,
            url,
            work,
            observe,
            head,
            received: None,
            gained: 0,
            resumed: 0,
            refetched: Vec::new(),
            restarts: 0,
            violations: 0,
            stalled_since: Instant::now(),
            gained_before: 0,
            pause: PAUSE,
        };
        match &run.head {
            Some(StateHead { form: Form::Plain, .. }) => run.resumed = run.work.length()?,
            Some(StateHead { form: Form::Blocks, size, .. }) => match size.and_then(Extents::of) {
                Some(file) => {
                    let mut received = run.work.received(file)?;
                    received.prepare_resume();
                    run.resumed = received.bytes();
                    run.received = Some(received);
                }
                None => run.head = None,
            },
            None => {}
        }
        Ok(run)
    }

    /// Puts the file at its target.
    pub(super) fn finish(self, done: Done) -> Result<Fetched, FetchError> {
        let Done { bytes, root, is_confirmed } = done;
        let Self { gained: received, resumed, refetched, restarts, .. } = self;
        let path = self.work.finish()?;
        Ok(Fetched { path, bytes, received, resumed, root, is_confirmed, refetched, restarts })
    }

    /// Leaves the received bytes for another run.
    pub(super) fn leave(mut self) {
        // Bytes of another URL stay.
        if self.work.head().is_none() {
            return self.work.remove();
        }
        if let Err(error) = self.work.sync() {
            tracing::debug!(%error, "what was received is not safe");
        }
    }

    /// Counts a response that breaks the protocol, and retries: a proxy on the path may have
    /// changed it.
    pub(super) fn wrong(&mut self, error: FetchError) -> Result<Step, FetchError> {
        self.violations += 1;
        if self.violations > VIOLATIONS {
            return Err(error);
        }
        let why = std::error::Error::source(&error).map(ToString::to_string);
        Ok(Step::Retry(format!("{error}: {}", why.unwrap_or_default())))
    }

    /// Begins a file of which nothing was received.
    pub(super) fn begin(&mut self, head: StateHead) -> Result<(), FetchError> {
        self.work.begin(&head)?;
        self.received = None;
        self.head = Some(head);
        Ok(())
    }

    /// Counts a restart, and removes the received bytes.
    pub(super) fn begin_again(&mut self, restart: Restart) -> Result<(), FetchError> {
        self.forget()?;
        if self.restarts == RESTARTS {
            let times = RESTARTS + 1;
            return Err(match restart {
                Restart::Changed(_) => FetchError::Changed { times },
                Restart::Cut => FetchError::Cut { times },
            });
        }
        self.restarts += 1;
        let why = match restart {
            Restart::Changed(why) => why,
            Restart::Cut => "the answer was cut, and the server sends the whole file",
        };
        (self.observe)(FetchEvent::Restarted { why });
        Ok(())
    }

    pub(super) fn forget(&mut self) -> Result<(), FetchError> {
        self.work.forget()?;
        self.head = None;
        self.received = None;
        self.resumed = 0;
        Ok(())
    }

    /// Waits before the next request; fails if no byte was received for the plan's timeout.
    pub(super) async fn pause(&mut self, why: String) -> Result<(), FetchError> {
        if self.gained != self.gained_before {
            self.stalled_since = Instant::now();
            self.gained_before = self.gained;
            self.pause = PAUSE;
        }
        let left = self.plan.timeout.saturating_sub(self.stalled_since.elapsed());
        if left.is_zero() {
            return Err(FetchError::Unreachable { why });
        }
        let after = self.pause.min(left);
        (self.observe)(FetchEvent::Retrying { why, after });
        tokio::time::sleep(after).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Returns whether a text is a strong entity tag.
pub(super) fn is_strong(tag: &str) -> bool {
    tag.len() > 2 && tag.len() <= ENTITY_TAG_BYTES && tag.starts_with('"') && tag.ends_with('"')
}
