//! The thread of a relay that has the connection of one primary.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use pelago_wire::frame::FrameKind;
use pelago_wire::relay::{RelayMessage, RelayReport, RelaySays};
use rustix::event::PollFlags;
use rustls::ServerConnection;

use super::super::datagrams::Waker;
use super::super::frames::Frames;
use super::route::{Begun, Route};
use crate::clients::list::ClientList;
use crate::key::PublicKey;

/// The longest sleep: a mirror that takes nothing shows by that.
const PATIENCE: Duration = Duration::from_millis(500);
/// Messages that are taken before reports are sent.
const BATCH: usize = 16;

/// Takes records of a primary until its connection ends. Fails with the reason, for the primary.
pub(super) fn serve(
    frames: &mut Frames<ServerConnection>,
    route: &Route,
    begun: Begun,
    waker: &Arc<Waker>,
    is_allowed: &IsAllowed<'_>,
) -> Result<(), String> {
    let Begun { turn, mut told, .. } = begun;
    let io = |error: std::io::Error| error.to_string();
    let socket = frames.another_socket().map_err(io)?;
    loop {
        is_allowed.check()?;
        let takes_more = route.takes_more(turn)?;
        let mut taken = 0;
        while takes_more && taken < BATCH {
            let Some((kind, body)) = frames.poll().map_err(|error| error.to_string())? else {
                break;
            };
            if kind != FrameKind::Relay {
                return Err(format!("a frame of kind {kind:?} came"));
            }
            match RelayMessage::decode(&body) {
                Ok(RelayMessage::Record(record)) => route.keep(turn, &record, &body)?,
                Ok(RelayMessage::Ping) => send(
                    frames,
                    RelayReport {
                        number: route.state().spool.last_group(),
                        says: RelaySays::Ready,
                    },
                )?,
                Ok(RelayMessage::Offer(_) | RelayMessage::Report(_)) => {
                    return Err("a second offer or a report came".to_owned());
                }
                Err(error) => return Err(error.to_string()),
            }
            taken += 1;
        }
        for report in route.reports(&mut told) {
            send(frames, report)?;
        }
        if taken < BATCH {
            let wanted = if takes_more { PollFlags::IN } else { PollFlags::RDHUP };
            waker.wait(&[(socket.as_fd(), wanted)], Some(PATIENCE)).map_err(io)?;
        }
    }
}

/// The check whether a primary may send.
pub(super) struct IsAllowed<'a> {
    pub(super) clients: &'a ClientList,
    pub(super) key: PublicKey,
}

impl IsAllowed<'_> {
    fn check(&self) -> Result<(), String> {
        match self.clients.allows(&self.key) {
            true => Ok(()),
            false => Err("the key was removed from the relay's list".to_owned()),
        }
    }
}

/// Sends a report at once.
pub(super) fn send(
    frames: &mut Frames<ServerConnection>,
    report: RelayReport,
) -> Result<(), String> {
    let body = RelayMessage::Report(report).encode().map_err(|error| error.to_string())?;
    let sent = frames.send(FrameKind::Relay, &body).and_then(|()| frames.flush());
    sent.map_err(|error| error.to_string())
}
