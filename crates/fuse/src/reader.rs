//! A thread that reads requests from a descriptor of the device and carries them out.

use std::sync::Arc;

use crate::device::Device;
use crate::hand::Hand;
use crate::operation::Operation;
use crate::reply_to::ReplyTo;
use crate::request::{Header, Malformed, parse};
use crate::server::Server;

/// The state of a thread that reads requests.
pub(crate) struct Reader<'a> {
    server: &'a Server,
    hand: Arc<Hand>,
    /// The destination of the reply to the next request.
    to: ReplyTo,
}

impl<'a> Reader<'a> {
    /// Returns the state of a thread that reads from `device`.
    pub(crate) fn new(server: &'a Server, device: &Arc<Device>) -> Self {
        let hand = Arc::new(Hand::of(device));
        server.add_reader(&hand);
        Self { server, to: hand.reply_to(), hand }
    }

    /// Carries out a request, and the requests that were parked while no thread could.
    pub(crate) fn carry_out(&mut self, request: Result<(Header, Operation<'_>), Malformed>) {
        if let Ok((header, operation)) = &request {
            self.hand.takes(header, operation.wait());
            self.server.begins();
        }
        self.server.take(&self.to, request);
        self.hand.is_free();
        if self.to.renew() {
            self.hand.replies_to(&self.to);
        }
        if self.server.parked().is_on() {
            self.carry_out_parked();
        }
    }

    #[cold]
    fn carry_out_parked(&self) {
        while let Some(request) = self.server.parked().next() {
            // Its caller was recorded as waiting when it was parked.
            self.hand.takes(&request.note.header, request.note.wait);
            let parsed = parse(&request.bytes, self.server.layouts);
            self.server.take(&request.note.to, parsed);
            self.hand.is_free();
        }
    }
}
