//! The choice of the mirror: the server that is set as the mirror of the volume, and its end.

use std::io;
use std::sync::Arc;

use pelago_store::rows::{MirrorRole, MirrorRow};
use pelago_wire::{Code, limits};

use super::relay::RelayState;
use super::waits::WaitsEnd;
use super::{
    ConnectMirror, ConnectRelay, Mirror, MirrorPhase, OnReplaced, SetMirrorError, State, sender,
};

impl Mirror {
    /// Sets the function that connects to the mirror, and begins to send if there is a mirror. A
    /// second call does nothing.
    ///
    /// # Errors
    /// The system's, if it gives no thread.
    pub(crate) fn set_connect(
        self: &Arc<Self>,
        connect: ConnectMirror,
        on_replaced: OnReplaced,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.connect.is_some() {
            return Ok(());
        }
        state.connect = Some(connect);
        state.on_replaced = Some(on_replaced);
        self.start_sender(&mut state)
    }

    /// Sets the function that connects to the relay. A second call does nothing.
    pub(crate) fn set_connect_relay(&self, connect: ConnectRelay) {
        self.state.lock().connect_relay.get_or_insert(connect);
    }

    /// Makes the server at this address, `KEY@HOST:PORT`, the mirror of the volume, and another one
    /// its relay, unless that is empty; on stable storage.
    ///
    /// # Errors
    /// [`SetMirrorError`].
    pub(crate) fn set_peer(
        self: &Arc<Self>,
        peer: &str,
        relay: &str,
    ) -> Result<(), SetMirrorError> {
        self.check_peer(peer)?;
        if relay.len() > limits::SITE_ADDRESS_BYTES || [peer, relay].concat().contains('\0') {
            return Err(SetMirrorError::RelayAddress);
        }
        let mut state = self.state.lock();
        expect_no_other(&state.row, peer)?;
        if state.connect.is_none() || state.has_stopped {
            return Err(SetMirrorError::Stopped);
        }
        let row = MirrorRow { peer: peer.to_owned(), relay: relay.to_owned(), ..state.row.clone() };
        self.parts.shard.put_mirror_row(&row).map_err(SetMirrorError::Table)?;
        self.parts.table.persist().map_err(|_| SetMirrorError::Table(Code::Io.into()))?;
        if state.row.relay != row.relay {
            state.relay.change();
        }
        state.row = row;
        self.changed.notify_all();
        self.start_sender(&mut state).map_err(|_| SetMirrorError::NoThread)
    }

    /// Returns whether a relay is set, so that level *network* means something.
    pub(crate) fn has_relay(&self) -> bool {
        !self.state.lock().row.relay.is_empty()
    }

    /// Returns whether the volume has a mirror.
    pub(crate) fn has_peer(&self) -> bool {
        !self.state.lock().row.peer.is_empty()
    }

    /// Checks that the server at this address can be the mirror, as far as that is known here.
    ///
    /// # Errors
    /// [`SetMirrorError`].
    pub(crate) fn check_peer(&self, peer: &str) -> Result<(), SetMirrorError> {
        expect_no_other(&self.state.lock().row, peer)?;
        if let Some(hindrance) = &self.parts.hindrance {
            return Err(hindrance.clone());
        }
        if peer.is_empty() || peer.len() > limits::SITE_ADDRESS_BYTES {
            return Err(SetMirrorError::Address);
        }
        match self.parts.opens.any_external_writers() {
            true => Err(SetMirrorError::Passthrough),
            false => Ok(()),
        }
    }

    fn start_sender(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let is_wanted = !state.row.peer.is_empty() && state.row.role == MirrorRole::Primary;
        if !is_wanted || state.sender.is_some() || state.has_stopped {
            return Ok(());
        }
        let this = Arc::clone(self);
        let run = MirrorRow::new_run()?;
        let thread = pelago_threads::spawn("pelago-mirror", move || sender::run(&this, run))?;
        state.sender = Some(thread);
        Ok(())
    }

    /// Removes the mirror, for this run and all later ones. It keeps its state, and no changes are
    /// collected for it any more.
    ///
    /// # Errors
    /// [`SetMirrorError::None`] if there is none; if the table fails, the mirror stays.
    pub(crate) fn remove_peer(&self) -> Result<(), SetMirrorError> {
        let row = self.state.lock().row.clone();
        if row.peer.is_empty() {
            return Err(SetMirrorError::None);
        }
        let row = MirrorRow { peer: String::new(), relay: String::new(), ..row };
        self.parts.shard.put_mirror_row(&row).map_err(SetMirrorError::Table)?;
        self.parts.table.persist().map_err(|_| SetMirrorError::Table(Code::Io.into()))?;
        self.end_sender(WaitsEnd::Removed);
        self.drop_cut();
        self.parts.shard.end_collecting();
        self.parts.opens.changes().end();
        let mut state = self.state.lock();
        state.row = row;
        state.has_stopped = false;
        state.phase = MirrorPhase::Connecting { problem: None };
        state.as_of = None;
        state.relay = RelayState::default();
        Ok(())
    }
}

/// Checks that a volume has no other mirror.
fn expect_no_other(row: &MirrorRow, peer: &str) -> Result<(), SetMirrorError> {
    match row.peer.is_empty() || row.peer == peer {
        true => Ok(()),
        false => Err(SetMirrorError::Another(row.peer.clone())),
    }
}
