//! A fault between every two steps of a sync at level *remote*: each message of its group is lost,
//! or its answer, or the mirror is killed after that, or the line is cut for good and the primary
//! burns. A sync that is answered is at the promoted mirror.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use pelago_server::{Options, Passthrough, Server, WhenCut};
use pelago_wire::{Bulk, Context, Done, Error, Level, OpenId, Reply, Request};

use super::pair::{Event, Fate, connect_to, keeper};
use super::primary::put;
use super::program::{begin, promote, wait};
use crate::harness::requests::write;
use crate::harness::rig::DEADLINE;

/// A time after which a sync that can be answered was answered.
const SOON: Duration = Duration::from_millis(200);
/// As much as the program writes before its first name.
const BYTES: usize = 20_000;

/// What goes wrong at one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The connection is lost before the mirror has the message.
    Lost,
    /// The connection is lost after the mirror has the message.
    AnswerLost,
    /// The mirror is killed after it has the message.
    MirrorKilled,
    /// Nothing arrives from then on.
    Cut,
    /// The mirror has the message, and nothing arrives from then on.
    CutAfter,
}

const FAULTS: [Fault; 5] =
    [Fault::Lost, Fault::AnswerLost, Fault::MirrorKilled, Fault::Cut, Fault::CutAfter];

/// Has a fault happen at one message of those that are sent once it is armed. Counts them.
fn at_message(
    fault: Fault,
    chosen: usize,
    is_armed: Arc<AtomicBool>,
    sent: Arc<AtomicUsize>,
) -> impl FnMut(Event<'_>) -> Fate + Send + 'static {
    let mut kills_next = false;
    let mut is_cut = false;
    move |event| {
        if is_cut {
            return Fate::IsLost;
        }
        let Event::Sends(_) = event else {
            return if std::mem::take(&mut kills_next) { Fate::KillsMirror } else { Fate::Arrives };
        };
        if !is_armed.load(Ordering::Acquire) {
            return Fate::Arrives;
        }
        if sent.fetch_add(1, Ordering::AcqRel) != chosen {
            return Fate::Arrives;
        }
        is_cut = matches!(fault, Fault::Cut | Fault::CutAfter);
        kills_next = fault == Fault::MirrorKilled;
        match fault {
            Fault::Lost | Fault::Cut => Fate::IsLost,
            Fault::AnswerLost | Fault::MirrorKilled | Fault::CutAfter => Fate::AnswerIsLost,
        }
    }
}

/// Begins a sync at a level.
fn begin_sync(server: &Server, open: OpenId, level: Level) -> Receiver<Result<Reply, Error>> {
    let (sender, replies) = channel();
    let later_sender = sender.clone();
    let mut later = || -> Done {
        let sender = later_sender.clone();
        Box::new(move |reply| drop(sender.send(reply)))
    };
    let sync = Request::FsyncAt { open, level };
    let context = Context::direct(0, 0);
    if let Some(now) = server.service().ask(&context, sync, Bulk::None, &mut later) {
        sender.send(now).unwrap();
    }
    replies
}

/// Runs a sync with a fault at one message. Returns the number of messages.
fn sync_with(fault: Fault, chosen: usize) -> usize {
    let when = format!("{fault:?} at message {chosen}");
    let folder = tempfile::tempdir().unwrap();
    let mirrors = folder.path().join("mirrors");
    std::fs::create_dir(&mirrors).unwrap();
    let is_armed: Arc<AtomicBool> = Arc::default();
    let sent: Arc<AtomicUsize> = Arc::default();
    let decide = at_message(fault, chosen, Arc::clone(&is_armed), Arc::clone(&sent));
    let keeper = keeper(&mirrors, Box::new(decide));
    let options = Options {
        grace: Duration::ZERO,
        passthrough: Passthrough::Never,
        when_cut: WhenCut::Wait,
        sync_interval: Duration::from_millis(5),
        ..Options::default()
    };
    let server = Server::start(&folder.path().join("volume"), options).unwrap();
    let _traffic = connect_to(&server, &keeper, |_| {});
    let open = begin(&server);
    wait(&server);
    is_armed.store(true, Ordering::Release);
    write(&server, open, 0, &[1; BYTES]).unwrap();
    put(&server, "step-1", b"");
    let remote = begin_sync(&server, open, Level::Remote);
    let local = begin_sync(&server, open, Level::Local);
    assert!(matches!(local.recv_timeout(DEADLINE), Ok(Ok(_))), "{when}: local waits for nobody");
    let is_cut = matches!(fault, Fault::Cut | Fault::CutAfter);
    let patience = if is_cut { SOON } else { DEADLINE };
    let is_answered = matches!(remote.recv_timeout(patience), Ok(Ok(_)));
    let messages = sent.load(Ordering::Acquire);
    assert!(is_answered || is_cut, "{when}: the line is back, and the sync waits");
    let (_, named) = promote(keeper.store.lock().take().unwrap(), &when);
    assert!(named == 1 || !is_answered, "{when}: answered, and lost");
    drop(server);
    messages
}

#[test]
fn a_sync_that_is_answered_outlives_a_fault_between_every_two_steps() {
    let messages = sync_with(Fault::Lost, usize::MAX);
    assert!(messages >= 4, "a group has a beginning, rows, bytes and an end: {messages}");
    let all = |fault| {
        for chosen in 0..messages {
            sync_with(fault, chosen);
        }
    };
    thread::scope(|scope| {
        for fault in FAULTS {
            scope.spawn(move || all(fault));
        }
    });
}
