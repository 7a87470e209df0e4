//! The requests of a download, one after the other, until the file is whole.

use std::time::{Duration, Instant};

use hyper::header::{
    ACCEPT, CONTENT_RANGE, CONTENT_TYPE, ETAG, IF_MATCH, IF_RANGE, LOCATION, RANGE, RETRY_AFTER,
};
use hyper::http::request::Builder;
use hyper::{Method, Request};
use pelago_wire::Code;
use pelago_wire::blocks::{BLOCKS_TYPE, BlockReader, ExtentHash, Extents, HAVE_TYPE};

use crate::conditions::text;
use crate::fetch::any_order::{BlocksDownload, BodyEnd, UnreadableExtents, read_head};
use crate::fetch::connect::{Incomplete, ask};
use crate::fetch::error::FetchError;
use crate::fetch::event::FetchEvent;
use crate::fetch::plain;
use crate::fetch::received::Received;
use crate::fetch::run::{Done, Restart, Run, Step, is_strong};
use crate::fetch::state::{Form, StateHead};
use crate::fetch::violation::ServerViolation;

/// The pause before a file that cannot be sent now is requested again, unless the server names a
/// time.
const BUSY: Duration = Duration::from_secs(5);
const LONGEST_BUSY: u64 = 60;

impl Run<'_> {
    /// Sends requests until the file is whole.
    pub(super) async fn run(&mut self) -> Result<Done, FetchError> {
        loop {
            match self.attempt().await? {
                Step::Done(done) => return Ok(done),
                Step::Again => {}
                Step::Retry(why) => self.pause(why).await?,
                Step::Busy { why, .. } if !self.plan.wait => return Err(FetchError::Busy { why }),
                Step::Busy { why, after } => {
                    (self.observe)(FetchEvent::Waiting { why, after });
                    tokio::time::sleep(after).await;
                    self.stalled_since = Instant::now();
                    self.gained_before = self.gained;
                }
                Step::Restart(restart) => self.begin_again(restart)?,
            }
        }
    }

    async fn attempt(&mut self) -> Result<Step, FetchError> {
        let (request, body) = self.request()?;
        let is_post = !body.is_empty();
        let mut answer = match ask(&self.url, self.plan.timeout, request, body).await {
            Ok(answer) => answer,
            Err(why) => return Ok(Step::Retry(why)),
        };
        let status = answer.response.status();
        match status.as_u16() {
            200 if text(answer.headers(), &CONTENT_TYPE) == Some(BLOCKS_TYPE) => {
                self.blocks(answer).await
            }
            200 => plain::whole(self, answer).await,
            206 => plain::rest(self, answer).await,
            412 => Ok(Step::Restart(Restart::Changed("the file has changed"))),
            416 => plain::behind_end(self, text(answer.headers(), &CONTENT_RANGE)),
            400 | 405 | 415 | 428 | 501 if is_post => {
                let why = "the server does not go on with what another one began";
                Ok(Step::Restart(Restart::Changed(why)))
            }
            503 if answer.headers().contains_key(RETRY_AFTER) => {
                let after = text(answer.headers(), &RETRY_AFTER).and_then(|it| it.parse().ok());
                let after = after.map(|it: u64| Duration::from_secs(it.clamp(1, LONGEST_BUSY)));
                let why = said(&mut answer).await.unwrap_or_else(|| "it is busy".to_owned());
                Ok(Step::Busy { why, after: after.unwrap_or(BUSY) })
            }
            // 501 is a refusal: only another server can send the file.
            408 | 429 | 500 | 502..=599 => Ok(Step::Retry(format!("it answers {status}"))),
            301 | 302 | 303 | 307 | 308 => {
                let location = text(answer.headers(), &LOCATION).unwrap_or_default().to_owned();
                Err(FetchError::Moved { location })
            }
            _ => {
                let text = said(&mut answer).await.map_or_else(String::new, |it| format!(": {it}"));
                Err(FetchError::Refused { status, text })
            }
        }
    }

    fn request(&mut self) -> Result<(Builder, Vec<u8>), FetchError> {
        let get = || Request::builder().method(Method::GET);
        let fresh = || get().header(ACCEPT, format!("{BLOCKS_TYPE}, */*;q=0.5"));
        Ok(match (&self.head, &mut self.received) {
            (Some(StateHead { form: Form::Blocks, tag, .. }), Some(received)) => {
                let post = Request::builder()
                    .method(Method::POST)
                    .header(ACCEPT, BLOCKS_TYPE)
                    .header(CONTENT_TYPE, HAVE_TYPE)
                    .header(IF_MATCH, tag);
                (post, received.prepare_resume().encode())
            }
            (Some(StateHead { form: Form::Plain, tag, .. }), _) if !tag.is_empty() => {
                match self.work.length()? {
                    0 => (fresh(), Vec::new()),
                    have => {
                        let range = format!("bytes={have}-");
                        (get().header(RANGE, range).header(IF_RANGE, tag), Vec::new())
                    }
                }
            }
            _ => (fresh(), Vec::new()),
        })
    }

    async fn blocks(&mut self, mut answer: Incomplete) -> Result<Step, FetchError> {
        let tag = text(answer.headers(), &ETAG).unwrap_or_default().to_owned();
        let expected = self.head.as_ref().filter(|it| it.form == Form::Blocks);
        if !is_strong(&tag) || expected.is_some_and(|head| head.tag != tag) {
            return self.wrong(ServerViolation::Tag { found: tag }.into());
        }
        let mut reader = BlockReader::default();
        let (file, first) = match read_head(&mut answer, &mut reader).await {
            Ok(begun) => begun,
            Err(end) => return self.end(end),
        };
        match (expected.and_then(|head| head.size), self.received.is_some()) {
            (Some(expected), true) if expected != file.size() => {
                let found = file.size();
                return self.wrong(ServerViolation::OtherSize { found, expected }.into());
            }
            (Some(_), true) => {}
            _ => {
                let url = self.url.text.clone();
                let size = Some(file.size());
                self.begin(StateHead { url, tag, form: Form::Blocks, size })?;
            }
        }
        let received = self.received.take().unwrap_or_else(|| Received::new(file));
        let have = received.bytes();
        let total = Some(file.size());
        (self.observe)(FetchEvent::Began { have, total, verified: true });
        let mut download = BlocksDownload {
            work: &mut self.work,
            received,
            observe: &mut *self.observe,
            gained: 0,
            mismatched: Vec::new(),
            unreadable: None,
            buffer: Vec::new(),
        };
        let end = download.receive(&mut answer, &mut reader, first).await;
        let BlocksDownload { received, gained, mismatched, unreadable, .. } = download;
        let is_whole = received.is_whole();
        self.received = Some(received);
        self.gained += gained;
        self.refetched.extend(mismatched);
        match end? {
            BodyEnd::Whole(root) => match unreadable {
                Some(unreadable) => Err(not_read(file, &unreadable)),
                None if is_whole => self.verified(file, root),
                None => self.end(BodyEnd::Whole(root)),
            },
            end => self.end(end),
        }
    }

    /// Compares the root with the server's root, if the server knows one. An equal root confirms
    /// the hashes that an earlier run has recorded; without one, the hash of each such extent is
    /// requested.
    fn verified(&mut self, file: Extents, root: Option<ExtentHash>) -> Result<Step, FetchError> {
        let own = self.work.root(file)?;
        let is_confirmed = root == Some(own);
        match self.received.as_mut().filter(|received| received.has_notes()) {
            Some(received) if !is_confirmed => {
                received.doubt_notes(root.is_some());
                self.resumed = self.resumed.min(received.bytes());
                Ok(Step::Again)
            }
            None if root.is_some() && !is_confirmed => {
                self.forget()?;
                Err(FetchError::Root)
            }
            _ => Ok(Step::Done(Done { bytes: file.size(), root: Some(own), is_confirmed })),
        }
    }

    fn end(&mut self, end: BodyEnd) -> Result<Step, FetchError> {
        match end {
            BodyEnd::Whole(_) => Ok(Step::Again),
            // The next response says whether the file has another version by now.
            BodyEnd::Changed => Ok(Step::Retry("the file was changed".to_owned())),
            BodyEnd::Cut(why) => Ok(Step::Retry(why)),
            BodyEnd::Wrong(error) => self.wrong(error),
        }
    }
}

/// Returns the first line of a response's body, if that is plain text.
async fn said(answer: &mut Incomplete) -> Option<String> {
    let line = answer.first_line().await;
    let is_text =
        text(answer.headers(), &CONTENT_TYPE).is_some_and(|it| it.starts_with("text/plain"));
    (is_text && !line.is_empty()).then_some(line)
}

fn not_read(file: Extents, unreadable: &UnreadableExtents) -> FetchError {
    let UnreadableExtents { first: extent, code, count } = *unreadable;
    let why = code.map_or("a reason that only a newer pelago knows", Code::says);
    let offset = file.extent(extent).start;
    FetchError::Unreadable { extent, offset, count, why }
}
