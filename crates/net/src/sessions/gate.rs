//! The gate for frames that show the state of the volume. It is shut while a server of a shared
//! store may not be the owner of the volume any more: a client must not see a state that the next
//! owner has changed.

use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{Closing, ClosingCode, RefusalCode, Refused};

use super::{Sessions, refused};
use crate::link::{Bytes, Link};

impl Sessions {
    /// Sends a frame that shows the state of the volume. If the server may not answer, it ends the
    /// connection instead: the client repeats its requests, here or elsewhere.
    pub(crate) fn tell<const PIECES: usize>(&self, link: &Link, frame: [Bytes; PIECES]) {
        match self.service.may_answer() {
            true => link.send(frame),
            false => self.send_away(link),
        }
    }

    /// Ends a connection whose client is to go to the owner. The last frame shows nothing of the
    /// volume.
    pub(super) fn send_away(&self, link: &Link) {
        let text = self.service.owner_elsewhere().unwrap_or_default();
        let closing = Closing { code: ClosingCode::NotOwner, text }.encode();
        let bytes = u32::try_from(closing.len()).unwrap_or(u32::MAX);
        let head = Header::new(FrameKind::Closing, bytes, 0).encode();
        link.send([Bytes::Header(head), Bytes::Owned(closing)]);
        link.close();
    }

    /// Returns the refusal for each client, if another server owns the volume.
    pub(crate) fn owner_elsewhere(&self) -> Option<Refused> {
        let text = self.service.owner_elsewhere()?;
        Some(Refused { text, ..refused(RefusalCode::NotOwner) })
    }

    /// Returns the last message of all connections: the server stops, or another one owns the
    /// volume.
    pub(super) fn last_closing(&self) -> Closing {
        match self.service.owner_elsewhere() {
            Some(text) => Closing { code: ClosingCode::NotOwner, text },
            None => Closing { code: ClosingCode::ShuttingDown, text: String::new() },
        }
    }
}
