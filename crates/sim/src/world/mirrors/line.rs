//! The line between a primary and its mirror. Its messages are those of the product, and wait for
//! each other in memory: the product's connection blocks in the kernel, where no turn ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pelago_server::{MirrorStore, Offer};
use pelago_store::volume::VolumeId;
use pelago_wire::mirror::{
    CloseLink, GroupKind, GroupPart, GroupState, LinkError, MirrorLink, MirrorSays, Mirrors as _,
    OfferRefused, Via,
};

use crate::engine_thread::EngineThread;
use crate::turns::{self, Machine};

/// Most messages take so long, in microseconds; one in so many takes longer.
const DELAY_MICROS: u64 = 1_000;
const LONG_DELAY_MICROS: u64 = 400_000;
const LONG_DELAYS: u64 = 100;

/// What is on its way in one direction.
type InFlight<T> = VecDeque<(Duration, T)>;

/// The messages of a connection that have not arrived.
#[derive(Default)]
struct Messages {
    to_mirror: InFlight<Vec<u8>>,
    to_primary: InFlight<Result<GroupState, LinkError>>,
    is_cut: bool,
}

/// A connection. Only its two ends wait for it.
#[derive(Default)]
struct Wire {
    messages: Mutex<Messages>,
    changed: Condvar,
}

/// The state of the line that faults set.
#[derive(Default)]
struct State {
    /// Connections that the mirror has not taken.
    asking: VecDeque<(Arc<Wire>, VolumeId, Offer)>,
    wire: Option<Arc<Wire>>,
    /// Nothing arrives before this time.
    stopped_until: Duration,
    /// The answer to the next group that the mirror has is lost.
    loses_answer: bool,
    is_gone: bool,
    /// The number of comparisons that have begun.
    resyncs: u64,
}

/// The line from a primary to its mirror.
#[derive(Default)]
pub(super) struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

impl Line {
    /// Has a mirror take connections, on threads of its machine.
    pub(super) fn serve(
        self: &Arc<Self>,
        machine: Machine,
        store: &Arc<MirrorStore>,
        engine: &Arc<EngineThread>,
    ) {
        let line = Arc::clone(self);
        let store = Arc::clone(store);
        let engine = Arc::clone(engine);
        turns::on(machine, || {
            start("mirror", move || {
                while let Some((wire, volume, offer)) = line.accept() {
                    let line = Arc::clone(&line);
                    let store = Arc::clone(&store);
                    let engine = Arc::clone(&engine);
                    start("mirrored", move || line.connect(&wire, store, &engine, volume, offer));
                }
            });
        });
    }

    /// Returns the next connection; `None` if there is no line any more.
    fn accept(&self) -> Option<(Arc<Wire>, VolumeId, Offer)> {
        let mut state = self.state.lock();
        while state.asking.is_empty() && !state.is_gone {
            self.changed.wait(&mut state);
        }
        state.asking.pop_front()
    }

    /// The mirror's end of a connection.
    fn connect(
        &self,
        wire: &Wire,
        store: Arc<MirrorStore>,
        engine: &EngineThread,
        volume: VolumeId,
        offer: Offer,
    ) {
        let offered = move || {
            let offered = store.offer(volume.0, offer.reign, offer.run, Via::Primary);
            drop(store);
            offered
        };
        let mut groups = match engine.run(offered) {
            Ok(groups) => groups,
            Err(OfferRefused::Failed(why)) => return self.answer(wire, Err(LinkError::Lost(why))),
            Err(OfferRefused::NotPrimary(reign)) => {
                return self.answer(wire, Err(LinkError::Replaced { reign }));
            }
        };
        self.answer(wire, Ok(groups.ready()));
        while let Some(body) = self.next(wire, |messages| &mut messages.to_mirror) {
            if let Ok(GroupPart::Begin { kind, .. }) = GroupPart::decode(&body) {
                self.state.lock().resyncs += u64::from(kind == GroupKind::Resync);
            }
            let (back, taken) = engine.run(move || {
                let taken = groups.take(&body);
                (groups, taken)
            });
            groups = back;
            let answer = match taken {
                Ok(None) => continue,
                Ok(Some(answer)) => answer,
                Err(why) => {
                    self.answer(wire, Err(LinkError::Lost(why)));
                    break;
                }
            };
            let is_safe = answer.says == MirrorSays::Safe;
            if is_safe && std::mem::take(&mut self.state.lock().loses_answer) {
                wire.cut();
                break;
            }
            self.answer(wire, Ok(answer));
            // It may be promoted before the group is carried out.
            thread::sleep(Duration::from_micros(turns::random(DELAY_MICROS)));
            let (back, done) = engine.run(move || {
                let done = if is_safe { groups.carry_out() } else { Ok(()) };
                (groups, done)
            });
            groups = back;
            if let Err(why) = done {
                self.answer(wire, Err(LinkError::Lost(why)));
                break;
            }
        }
        engine.run(move || drop(groups));
    }

    fn answer(&self, wire: &Wire, answer: Result<GroupState, LinkError>) {
        wire.messages.lock().to_primary.push_back((arrival(), answer));
        wire.changed.notify_all();
    }

    /// Returns the next message in a direction, once it has arrived; `None` if the line is cut.
    fn next<T>(&self, wire: &Wire, of: impl Fn(&mut Messages) -> &mut InFlight<T>) -> Option<T> {
        loop {
            let arrives = {
                let mut messages = wire.messages.lock();
                while of(&mut messages).is_empty() && !messages.is_cut {
                    wire.changed.wait(&mut messages);
                }
                if messages.is_cut {
                    return None;
                }
                of(&mut messages).front().map_or(Duration::ZERO, |(arrives, _)| *arrives)
            };
            let arrives = arrives.max(self.state.lock().stopped_until);
            match arrives.checked_sub(turns::now()).filter(|left| !left.is_zero()) {
                Some(left) => thread::sleep(left),
                None => return of(&mut wire.messages.lock()).pop_front().map(|(_, it)| it),
            }
        }
    }

    /// Connects a primary to the mirror.
    pub(super) fn dial(
        self: &Arc<Self>,
        volume: VolumeId,
        offer: Offer,
    ) -> Result<(Box<dyn MirrorLink>, GroupState), LinkError> {
        let wire = Arc::new(Wire::default());
        {
            let mut state = self.state.lock();
            if state.is_gone || state.stopped_until > turns::now() {
                return Err(lost());
            }
            if let Some(old) = state.wire.replace(Arc::clone(&wire)) {
                old.cut();
            }
            state.asking.push_back((Arc::clone(&wire), volume, offer));
        }
        self.changed.notify_all();
        let mut link = Link { line: Arc::clone(self), wire };
        let ready = link.receive()?;
        Ok((Box::new(link), ready))
    }

    /// Ends the connection: messages on their way are lost.
    pub(super) fn cut(&self) {
        if let Some(wire) = self.state.lock().wire.take() {
            wire.cut();
        }
    }

    /// Carries nothing for this time.
    pub(super) fn stop(&self, time: Duration) {
        self.state.lock().stopped_until = turns::now() + time;
    }

    /// Carries everything again.
    pub(super) fn mend(&self) {
        self.state.lock().stopped_until = Duration::ZERO;
    }

    /// Loses the answer to the next group that the mirror has.
    pub(super) fn lose_answer(&self) {
        self.state.lock().loses_answer = true;
    }

    /// Returns the number of comparisons that have begun.
    pub(super) fn resyncs(&self) -> u64 {
        self.state.lock().resyncs
    }

    /// Carries nothing any more.
    pub(super) fn end(&self) {
        self.state.lock().is_gone = true;
        self.changed.notify_all();
        self.cut();
    }
}

impl Wire {
    fn cut(&self) {
        self.messages.lock().is_cut = true;
        self.changed.notify_all();
    }
}

/// The primary's end of a connection.
struct Link {
    line: Arc<Line>,
    wire: Arc<Wire>,
}

impl MirrorLink for Link {
    fn send(&mut self, body: &[u8]) -> Result<(), LinkError> {
        let mut messages = self.wire.messages.lock();
        if messages.is_cut {
            return Err(lost());
        }
        messages.to_mirror.push_back((arrival(), body.to_vec()));
        drop(messages);
        self.wire.changed.notify_all();
        Ok(())
    }

    fn receive(&mut self) -> Result<GroupState, LinkError> {
        let answer = self.line.next(&self.wire, |messages| &mut messages.to_primary);
        answer.unwrap_or_else(|| Err(lost()))
    }

    fn closer(&self) -> CloseLink {
        let wire = Arc::clone(&self.wire);
        Box::new(move || wire.cut())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.wire.cut();
    }
}

/// Starts a thread of the mirror, which ends with its connection or its line.
fn start(name: &str, run: impl FnOnce() + Send + 'static) {
    thread::Builder::new().name(name.to_owned()).spawn(run).expect("a thread");
}

fn lost() -> LinkError {
    LinkError::Lost("the line is cut".to_owned())
}

/// Returns when a message that is sent now arrives.
fn arrival() -> Duration {
    let is_long = turns::random(LONG_DELAYS) == 0;
    let most = if is_long { LONG_DELAY_MICROS } else { DELAY_MICROS };
    turns::now() + Duration::from_micros(turns::random(most))
}
