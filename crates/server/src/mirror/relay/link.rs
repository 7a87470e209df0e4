//! The connection to the relay in the place of one to the mirror: parts become records, and a group
//! that the relay keeps counts as one that the mirror has.

use std::time::{Duration, Instant};

use pelago_wire::mirror::{
    CloseLink, GroupPart, GroupState, LinkError, MirrorLink, MirrorSays, PrimaryRun,
};
use pelago_wire::relay::{Record, RelayLink};

use super::super::Mirror;

/// The longest time without an answer of the relay: it is gone, and the mirror is asked.
const SILENCE: Duration = Duration::from_secs(6);

/// A connection to the relay.
pub(super) struct RelayedLink<'a> {
    mirror: &'a Mirror,
    link: Box<dyn RelayLink>,
    reign: u64,
    run: PrimaryRun,
    /// The number of the last record of the run.
    last_record: &'a mut u64,
    /// The number of the group that has begun; 0 between two groups.
    group: u64,
    /// The last part, which is sent with the next one, or as the end of its group.
    held: Option<Vec<u8>>,
}

impl<'a> RelayedLink<'a> {
    pub(super) const fn new(
        mirror: &'a Mirror,
        link: Box<dyn RelayLink>,
        reign: u64,
        run: PrimaryRun,
        last_record: &'a mut u64,
    ) -> Self {
        Self { mirror, link, reign, run, last_record, group: 0, held: None }
    }

    /// Sends the part that is held back.
    fn send_held(&mut self, is_last: bool, is_awaited: bool) -> Result<(), LinkError> {
        let Some(sealed) = self.held.take() else { return Ok(()) };
        // The nonce of its seal: one number is never used for two records.
        *self.last_record += 1;
        let number = *self.last_record;
        let record = Record { group: self.group, number, is_last, is_awaited, sealed };
        self.mirror.set_busy(true);
        let sent = self.link.send(record);
        self.mirror.set_busy(false);
        sent
    }

    /// Has the relay answer.
    pub(super) fn ping(&mut self) -> Result<(), LinkError> {
        let pongs = self.mirror.state.lock().relay.pongs;
        self.link.ping()?;
        self.mirror.wait_for_relay(|relay| relay.pongs > pongs)
    }
}

impl Mirror {
    /// Waits until the relay has reported something.
    fn wait_for_relay(
        &self,
        has_come: impl Fn(&super::RelayState) -> bool,
    ) -> Result<(), LinkError> {
        let deadline = Instant::now() + SILENCE;
        self.set_busy(true);
        let mut state = self.state.lock();
        let result = loop {
            if has_come(&state.relay) {
                break Ok(());
            }
            if let Some(error) = &state.relay.ended {
                break Err(error.clone());
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break Err(LinkError::Lost("the relay does not answer".to_owned()));
            }
        };
        drop(state);
        self.set_busy(false);
        result
    }
}

impl MirrorLink for RelayedLink<'_> {
    fn send(&mut self, body: &[u8]) -> Result<(), LinkError> {
        self.send_held(false, false)?;
        if self.group == 0 {
            match GroupPart::decode(body) {
                Ok(GroupPart::Begin { number, .. }) => self.group = number,
                Ok(_) | Err(_) => {
                    return Err(LinkError::Lost("a relay takes groups only".to_owned()));
                }
            }
        }
        self.held = Some(body.to_vec());
        Ok(())
    }

    /// Ends the group. Returns once the relay has it.
    fn receive(&mut self) -> Result<GroupState, LinkError> {
        let is_awaited = self.mirror.state.lock().waits.await_sent();
        self.send_held(true, is_awaited)?;
        let number = std::mem::take(&mut self.group);
        self.mirror.wait_for_relay(|relay| relay.kept >= number)?;
        Ok(GroupState { reign: self.reign, run: self.run, number, says: MirrorSays::Safe })
    }

    fn closer(&self) -> CloseLink {
        self.link.closer()
    }
}
