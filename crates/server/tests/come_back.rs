//! Sessions that come back to the next run of a server: their locks, and their appends that were
//! not answered.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pelago_server::Options;
use pelago_store::table;
use pelago_wire::{
    Bulk, Code, Context, Done, Error, FileLock, Handle, LockKind, LockMode, LockOwner, NewMode,
    OpenFlags, OpenId, RecordedPeer, Reply, Request, RequestId, SessionId, SessionRecord, SetAttr,
    WriteEra, WriteFlags, limits,
};

use crate::harness::rig::{DEADLINE, Rig, by_hand, name};

const ONE: SessionId = SessionId(7);
const TWO: SessionId = SessionId(8);
const FLAGS: OpenFlags = OpenFlags::READ_WRITE;

fn asks(session: SessionId, number: u64) -> Context {
    let request = RequestId(number);
    let mutation = number;
    Context { session, request, mutation, ..Context::direct(10, 20) }
}

/// Waits for the sessions of the last run until a test says that they are back.
fn waiting() -> Options {
    Options { grace: Duration::from_secs(600), ..by_hand() }
}

/// Creates a file in a session. Returns its handle; its open is 1.
fn create(rig: &Rig, session: SessionId, text: &str) -> Handle {
    let dir = Handle::ROOT;
    let mode = NewMode::exactly(0o644);
    let open = OpenId(1);
    let create = Request::Create { dir, name: name(text), mode, flags: FLAGS, open };
    match rig.call_as(&asks(session, 1), create, &[]) {
        Ok(Reply::Created { entry, .. }) => entry.handle,
        other => panic!("{other:?}"),
    }
}

fn open(rig: &Rig, session: SessionId, node: Handle) {
    let open = Request::Open { node, flags: FLAGS, open: OpenId(1) };
    rig.call_as(&asks(session, 1), open, &[]).unwrap();
}

fn reopen(rig: &Rig, session: SessionId, node: Handle) {
    let open = Request::Reopen { node, flags: FLAGS, open: OpenId(1) };
    rig.call_as(&Context { mutation: 0, ..asks(session, 100) }, open, &[]).unwrap();
}

fn lock(mode: LockMode) -> FileLock {
    FileLock { kind: LockKind::Posix, mode, start: 0, end: 9, pid: 1 }
}

fn set(rig: &Rig, session: SessionId, owner: u64, mode: LockMode) -> Result<Reply, Code> {
    let open = OpenId(1);
    let owner = LockOwner(owner);
    let lock = lock(mode);
    let request = Request::SetLock { open, owner, lock, wait: false };
    rig.call_as(&Context { mutation: 0, ..asks(session, 101) }, request, &[])
}

fn reclaim(rig: &Rig, session: SessionId, owner: u64, mode: LockMode) -> Result<Reply, Code> {
    let open = OpenId(1);
    let owner = LockOwner(owner);
    let lock = lock(mode);
    let request = Request::ReclaimLock { open, owner, lock };
    rig.call_as(&Context { mutation: 0, ..asks(session, 102) }, request, &[])
}

/// Sends a request without waiting for its answer.
fn send(
    rig: &Rig,
    who: &Context,
    request: Request,
    bytes: &[u8],
) -> Receiver<Result<Reply, Error>> {
    let (sender, replies) = channel();
    let later = sender.clone();
    let now = rig.server.service().ask(who, request, Bulk::Borrowed(bytes), &mut || -> Done {
        let later = later.clone();
        Box::new(move |result| later.send(result).unwrap())
    });
    if let Some(now) = now {
        sender.send(now).unwrap();
    }
    replies
}

/// The two sessions have opened their files and asked for their locks again, and have nothing more
/// that was kept back.
fn all_are_back(rig: &Rig) {
    let service = rig.server.session_service();
    for session in [ONE, TWO] {
        service.reclaimed(session);
        service.flushed(session);
    }
}

#[test]
fn a_lock_is_given_back_before_all_else_and_only_then() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    open(&rig, TWO, file);
    set(&rig, ONE, 5, LockMode::Write).unwrap();
    assert_eq!(reclaim(&rig, ONE, 5, LockMode::Write).err(), Some(Code::LockHeld), "no restart");
    let rig = rig.restarted(false, waiting());
    assert_eq!(reclaim(&rig, ONE, 5, LockMode::Write).err(), Some(Code::BadOpen));
    [ONE, TWO].into_iter().for_each(|session| reopen(&rig, session, file));
    // The other session has asked for the lock first; but that is new.
    let open = OpenId(1);
    let owner = LockOwner(6);
    let lock = lock(LockMode::Write);
    let asked = Request::SetLock { open, owner, lock, wait: false };
    let asked = send(&rig, &Context { mutation: 0, ..asks(TWO, 5) }, asked, &[]);
    for _ in 0..2 {
        reclaim(&rig, ONE, 5, LockMode::Write).unwrap();
    }
    assert_eq!(reclaim(&rig, TWO, 6, LockMode::Read).err(), Some(Code::LockHeld));
    assert_eq!(reclaim(&rig, ONE, 5, LockMode::Unlock).err(), Some(Code::Invalid));
    // A session that the last run did not have.
    let new = SessionId(9);
    reopen(&rig, new, file);
    assert_eq!(reclaim(&rig, new, 5, LockMode::Read).err(), Some(Code::LockHeld));
    assert!(asked.try_recv().is_err(), "it waits");
    all_are_back(&rig);
    let code = asked.recv_timeout(DEADLINE).unwrap().map_err(|error| error.code);
    assert_eq!(code.err(), Some(Code::LockHeld));
    set(&rig, ONE, 5, LockMode::Unlock).unwrap();
    assert_eq!(reclaim(&rig, ONE, 5, LockMode::Write).err(), Some(Code::LockHeld), "too late");
    set(&rig, TWO, 6, LockMode::Write).unwrap();
}

/// A client that has given a request up asks what became of it, without the request.
#[test]
fn the_next_run_knows_what_became_of_a_change() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    let rig = rig.restarted(false, waiting());
    let stored = |mutation| rig.server.session_service().stored_reply(ONE, mutation).unwrap();
    assert!(
        matches!(stored(1), Some(Reply::Created { entry, .. }) if entry.handle.ino == file.ino)
    );
    assert!(stored(2).is_none());
}

/// A session was silent for its term, and its lock goes to the server's own mount. If the machine
/// loses power at that moment, the next run does not know the session: its client, which believes
/// that it has the lock, cannot have it back.
#[test]
fn a_session_is_forgotten_for_good_before_others_get_its_locks() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    set(&rig, ONE, 5, LockMode::Write).unwrap();
    let open = rig.open(file).unwrap();
    let owner = LockOwner(5);
    let lock = lock(LockMode::Write);
    let wait = Request::SetLock { open, owner, lock, wait: true };
    let waits = send(&rig, &Context::direct(10, 20), wait, &[]);
    assert!(waits.try_recv().is_err(), "it waits");
    rig.server.session_service().end_session(ONE);
    assert!(matches!(waits.recv_timeout(DEADLINE), Ok(Ok(Reply::Done))));
    let left = rig.crashed(0, waiting());
    assert!(left.server.session_service().earlier_sessions().is_empty());
}

/// The same if the session stays away after a restart.
#[test]
fn a_session_that_stays_away_is_forgotten_before_others_go_on() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    set(&rig, ONE, 5, LockMode::Write).unwrap();
    rig.sync();
    let rig = rig.restarted(false, Options { grace: Duration::from_millis(300), ..by_hand() });
    assert_eq!(rig.server.session_service().earlier_sessions().len(), 1);
    // Answered once the server waits no longer.
    let open = rig.open(file).unwrap();
    let owner = LockOwner(5);
    let lock = lock(LockMode::Write);
    rig.call(Request::SetLock { open, owner, lock, wait: false }).unwrap();
    let left = rig.crashed(0, waiting());
    assert!(left.server.session_service().earlier_sessions().is_empty());
}

/// A session that comes back late goes on, and the run after that waits for it.
#[test]
fn a_session_that_came_back_late_is_known_to_the_next_run() {
    let rig = Rig::new(by_hand());
    create(&rig, ONE, "file");
    rig.sync();
    let rig = rig.restarted(false, Options { grace: Duration::from_millis(100), ..by_hand() });
    rig.sync();
    let left = rig.crashed(0, waiting());
    assert!(left.server.session_service().earlier_sessions().is_empty(), "it was given up");
    rig.server.session_service().reclaimed(ONE);
    let next = rig.restarted(true, waiting());
    let earlier = next.server.session_service().earlier_sessions();
    assert_eq!(earlier.iter().map(|(session, _)| *session).collect::<Vec<_>>(), [ONE]);
}

/// The row of a session that has ended cannot be deleted at first: the next run would know it, so
/// others do not get its lock before that.
#[test]
fn a_lock_stays_until_its_session_is_forgotten() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    let open = rig.open(file).unwrap();
    set(&rig, ONE, 5, LockMode::Write).unwrap();
    rig.sync();
    rig.table.fail_at(0, table::Error::NoSpace);
    rig.server.session_service().end_session(ONE);
    // A thread of the pool tries it; nothing says when it has. If it is slower, this proves less.
    std::thread::sleep(Duration::from_millis(300));
    let sessions =
        || rig.crashed(usize::MAX, waiting()).server.session_service().earlier_sessions();
    assert_eq!(sessions().len(), 1);
    let owner = LockOwner(6);
    let lock = lock(LockMode::Write);
    let own = || rig.call(Request::SetLock { open, owner, lock, wait: false });
    assert_eq!(own().err(), Some(Code::LockHeld));
    let record = SessionRecord::new([1; 16], RecordedPeer::User(0));
    let begin = || rig.server.session_service().begin_session(SessionId(9), record);
    begin().or_else(|_| begin()).unwrap();
    rig.sync();
    own().unwrap();
    assert_eq!(sessions().len(), 1, "the new one");
}

/// Sends a byte that the client has kept back under a lease of this era.
fn send_kept_back(rig: &Rig, number: u64, era: u32) -> Receiver<Result<Reply, Error>> {
    let flags = WriteFlags { behind: Some(WriteEra(era)), ..WriteFlags::NONE };
    let write = Request::Write { open: OpenId(1), offset: 0, flags };
    send(rig, &asks(ONE, number), write, b"x")
}

/// A client that has had no answer sends what it has kept back to each run. Once others went on
/// they may have written there, and no later run takes it.
#[test]
fn what_was_kept_back_is_taken_until_others_have_gone_on_in_some_run() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    open(&rig, TWO, file);
    let code = |answer: &Receiver<Result<Reply, Error>>| {
        answer.recv_timeout(DEADLINE).unwrap().map_err(|error| error.code).err()
    };
    let come_back = |rig: &Rig| [ONE, TWO].into_iter().for_each(|it| reopen(rig, it, file));
    // Two runs in which no session goes on.
    let rig = rig.restarted(false, waiting()).restarted(false, waiting());
    come_back(&rig);
    let sent = [send_kept_back(&rig, 200, 1), send_kept_back(&rig, 201, 2)];
    all_are_back(&rig);
    assert_eq!(sent.each_ref().map(code), [None, Some(Code::LeaseLost)]);
    assert_eq!(code(&send_kept_back(&rig, 202, 1)), Some(Code::LeaseLost), "others went on");
    let rig = rig.restarted(false, waiting());
    come_back(&rig);
    let sent = [send_kept_back(&rig, 202, 1), send_kept_back(&rig, 203, 2)];
    all_are_back(&rig);
    assert_eq!(sent.each_ref().map(code), [Some(Code::LeaseLost), None]);
}

/// A client sends it at its own pace, and some of it only after the answer to other writes. Others
/// go on when it says that nothing is left, and the server takes nothing after that.
#[test]
fn what_was_kept_back_is_taken_until_its_client_has_sent_all() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    open(&rig, TWO, file);
    let rig = rig.restarted(false, waiting());
    [ONE, TWO].into_iter().for_each(|it| reopen(&rig, it, file));
    let service = rig.server.session_service();
    let first = send_kept_back(&rig, 200, 1);
    let read = Request::Read { open: OpenId(1), offset: 0, size: 1 };
    let other = send(&rig, &Context { mutation: 0, ..asks(TWO, 300) }, read, &[]);
    [ONE, TWO].into_iter().for_each(|session| service.reclaimed(session));
    first.recv_timeout(DEADLINE).unwrap().unwrap();
    service.flushed(TWO);
    for number in [201, 202] {
        send_kept_back(&rig, number, 1).recv_timeout(DEADLINE).unwrap().unwrap();
    }
    let not_its = send_kept_back(&rig, 203, 2).recv_timeout(DEADLINE).unwrap();
    assert_eq!(not_its.unwrap_err().code, Code::LeaseLost, "another era");
    assert!(other.try_recv().is_err(), "it waits");
    service.flushed(ONE);
    let read = other.recv_timeout(DEADLINE).unwrap().unwrap();
    assert!(matches!(read, Reply::Data(bytes) if bytes.as_bytes() == b"x"));
    let late = send_kept_back(&rig, 204, 1).recv_timeout(DEADLINE).unwrap();
    assert_eq!(late.unwrap_err().code, Code::LeaseLost, "others went on");
}

/// Another session had asked for a change of the file when the server ended, which waited until the
/// client had sent what it kept back. So does its repetition.
#[test]
fn what_others_repeat_comes_after_what_was_kept_back() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    open(&rig, TWO, file);
    let rig = rig.restarted(false, waiting());
    [ONE, TWO].into_iter().for_each(|it| reopen(&rig, it, file));
    let set = SetAttr { size: Some(0), ..SetAttr::default() };
    let cut = Request::SetAttr { node: file, open: None, set };
    let cut = send(&rig, &asks(TWO, 300), cut, &[]);
    let service = rig.server.session_service();
    [ONE, TWO].into_iter().for_each(|session| service.reclaimed(session));
    service.flushed(TWO);
    send_kept_back(&rig, 200, 1).recv_timeout(DEADLINE).unwrap().unwrap();
    assert!(cut.try_recv().is_err(), "it waits");
    service.flushed(ONE);
    cut.recv_timeout(DEADLINE).unwrap().unwrap();
    assert_eq!(rig.lookup(Handle::ROOT, "file").unwrap().attr.size, 0);
}

/// A session ends for its client while a change of it waits with all others: they do not wait for
/// that session, and the next run does not know it.
#[test]
fn a_session_that_ends_is_not_waited_for_although_it_has_asked_for_changes() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    rig.sync();
    let rig = rig.restarted(false, waiting());
    let mode = NewMode::exactly(0o755);
    let made = Request::MakeDir { dir: Handle::ROOT, name: name("dir"), mode };
    let made = send(&rig, &asks(ONE, 200), made, &[]);
    assert!(made.try_recv().is_err(), "it waits");
    rig.server.session_service().ending(ONE);
    rig.open(file).unwrap();
    made.recv_timeout(DEADLINE).unwrap().unwrap();
    let left = rig.crashed(0, waiting());
    assert!(left.server.session_service().earlier_sessions().is_empty());
}

/// Others wait for it no longer than for a session that stays away.
#[test]
fn what_was_kept_back_is_waited_for_as_long_as_a_session() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    let rig = rig.restarted(false, Options { grace: Duration::from_millis(300), ..by_hand() });
    reopen(&rig, ONE, file);
    rig.server.session_service().reclaimed(ONE);
    rig.open(file).unwrap();
    let late = send_kept_back(&rig, 200, 1).recv_timeout(DEADLINE).unwrap();
    assert_eq!(late.unwrap_err().code, Code::LeaseLost);
}

fn append() -> Request {
    Request::Write {
        open: OpenId(1),
        offset: 0,
        flags: WriteFlags { append: true, ..WriteFlags::NONE },
    }
}

fn written(reply: Result<Reply, Code>) -> (u64, u64) {
    match reply {
        Ok(Reply::Written { bytes, size }) => (bytes, size),
        other => panic!("{other:?}"),
    }
}

/// Repeats appends as clients do that have come back, and returns the answers.
fn repeat(rig: &Rig, appends: &[(SessionId, u64, &[u8])]) -> Vec<(u64, u64)> {
    let send = |(session, number, bytes): &(SessionId, u64, &[u8])| {
        send(rig, &asks(*session, *number), append(), bytes)
    };
    let sent: Vec<_> = appends.iter().map(send).collect();
    all_are_back(rig);
    let answer = |answer: Receiver<Result<Reply, Error>>| {
        written(answer.recv_timeout(DEADLINE).unwrap().map_err(|error| error.code))
    };
    sent.into_iter().map(answer).collect()
}

/// In a row and in a content file: what the last run has written is written to the same place, and
/// the rest goes behind it. Each append costs one batch.
#[test]
fn an_append_is_carried_out_once_over_a_restart() {
    for begin in [b"begin ".to_vec(), vec![b'.'; 200_000]] {
        let rig = Rig::new(by_hand());
        let file = create(&rig, ONE, "file");
        open(&rig, TWO, file);
        let start = begin.len() as u64;
        rig.call_as(&asks(ONE, 2), append(), &begin).unwrap();
        let batches = rig.table.unsafe_batches();
        let first = written(rig.call_as(&asks(ONE, 3), append(), b"one "));
        let second = written(rig.call_as(&asks(TWO, 2), append(), b"two "));
        assert_eq!([first, second], [(4, start + 4), (4, start + 8)]);
        assert_eq!(rig.table.unsafe_batches(), batches + 2);
        let rig = rig.restarted(false, waiting());
        [ONE, TWO].into_iter().for_each(|session| reopen(&rig, session, file));
        let new: &[u8] = b"three ";
        let again = repeat(&rig, &[(TWO, 3, new), (ONE, 3, b"one "), (TWO, 2, b"two ")]);
        assert_eq!(again, [(6, start + 14), first, second]);
        let expected = [&begin[..], b"one two three "].concat();
        assert!(rig.read(file, expected.len() as u64).unwrap() == expected, "from {start}");
        assert_eq!(rig.lookup(Handle::ROOT, "file").unwrap().attr.size, expected.len() as u64);
    }
}

/// Returns the file of this size in a folder or one below it.
fn content_file(folder: &Path, size: u64) -> Option<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find_map(|path| {
        match path.is_dir() {
            true => content_file(&path, size),
            false => (path.metadata().unwrap().len() == size).then_some(path),
        }
    })
}

/// The server dies between the row of an append and its bytes. An append that was never begun does
/// not take their place, although its session is back first.
#[test]
fn an_append_that_was_begun_keeps_its_place() {
    let begin = vec![b'.'; limits::INLINE_DEFAULT_BYTES + 1];
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    open(&rig, TWO, file);
    rig.call_as(&asks(ONE, 2), append(), &begin).unwrap();
    rig.call_as(&asks(ONE, 3), append(), b"one ").unwrap();
    let rig = rig.damaged(waiting(), |folder| {
        let content = content_file(folder, begin.len() as u64 + 4).unwrap();
        let content = fs::OpenOptions::new().write(true).open(content).unwrap();
        content.set_len(begin.len() as u64).unwrap();
    });
    [ONE, TWO].into_iter().for_each(|session| reopen(&rig, session, file));
    repeat(&rig, &[(TWO, 2, b"two "), (ONE, 3, b"one ")]);
    let expected = [&begin[..], b"one two "].concat();
    assert!(rig.read(file, expected.len() as u64).unwrap() == expected);
}

/// Others may have appended since: its bytes must not go over theirs.
#[test]
fn an_append_of_a_session_that_comes_too_late_fails() {
    let rig = Rig::new(by_hand());
    let file = create(&rig, ONE, "file");
    rig.call_as(&asks(ONE, 2), append(), b"one ").unwrap();
    let rig = rig.restarted(false, waiting());
    reopen(&rig, ONE, file);
    all_are_back(&rig);
    assert_eq!(rig.call_as(&asks(ONE, 2), append(), b"one ").err(), Some(Code::Io));
    assert_eq!(rig.read(file, 10).unwrap(), b"one ");
}
