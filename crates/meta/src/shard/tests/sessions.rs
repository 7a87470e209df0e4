//! The rows of sessions, by which the next run of the server knows them.

use pelago_store::table;
use pelago_wire::{RecordedPeer, Reply, SessionId, SessionRecord};

use super::*;
use crate::reply_cache::RequestKey;

const ONE: SessionId = SessionId(1);
const TWO: SessionId = SessionId(2);
const RECORD: SessionRecord = SessionRecord::new([7; 16], RecordedPeer::User(3));

/// Returns a shard with two sessions, which is safe.
fn with_sessions() -> Rig {
    let rig = Rig::new();
    rig.shard.begin_session(ONE, &RECORD).unwrap();
    rig.shard.begin_session(TWO, &RECORD).unwrap();
    rig.table.persist().unwrap();
    rig
}

/// Returns the sessions that the next run knows.
fn known_after(rig: &Rig) -> Vec<(SessionId, SessionRecord)> {
    rig.cold().shard.earlier_sessions().unwrap()
}

/// The row is deleted again if the table that was opened again has it back.
#[test]
fn a_new_epoch_does_not_bring_back_a_forgotten_session() {
    let rig = with_sessions();
    rig.shard.forget_session(ONE).unwrap();
    assert_eq!(known_after(&rig), [(TWO, RECORD)]);
    rig.shard.reopen().unwrap();
    assert_eq!(known_after(&rig), [(TWO, RECORD)]);
    rig.shard.forget_session(TWO).unwrap();
    rig.table.crash(0);
    assert_eq!(known_after(&rig), [(TWO, RECORD)], "the table has the row back");
    rig.shard.reopen().unwrap();
    assert_eq!(known_after(&rig), []);
}

#[test]
fn a_forgotten_session_can_be_remembered() {
    let rig = with_sessions();
    rig.shard.forget_session(ONE).unwrap();
    rig.shard.forget_session(TWO).unwrap();
    rig.shard.remember_session(ONE).unwrap();
    assert_eq!(known_after(&rig), [(ONE, RECORD)]);
    rig.shard.reopen().unwrap();
    assert_eq!(known_after(&rig), [(ONE, RECORD)]);
}

#[test]
fn a_session_that_was_not_forgotten_is_remembered_at_no_cost() {
    let rig = with_sessions();
    let before = rig.table.unsafe_batches();
    rig.shard.remember_session(ONE).unwrap();
    rig.shard.end_session(TWO).unwrap();
    rig.shard.remember_session(TWO).unwrap();
    assert_eq!(rig.table.unsafe_batches(), before + 1, "the end of the session is the only batch");
    assert_eq!(known_after(&rig), [(ONE, RECORD)]);
}

/// Each change of a session asks for its reply: one that was never stored costs no read.
#[test]
fn a_reply_is_read_only_if_it_was_stored() {
    let rig = with_sessions();
    let request = |mutation| Context { session: ONE, mutation, ..CALLER };
    let reply = |mutation| rig.shard.cached_reply(&RequestKey::of(&request(mutation)).unwrap());
    rig.shard.store_reply(&request(1), &Reply::Done).unwrap();
    assert!(matches!(reply(1), Ok(Some(Reply::Done))));
    let source = Arc::new(std::io::Error::other("broken"));
    let lost = table::Error::Io { doing: "testing", source };
    rig.table.fail_at(0, lost);
    rig.table.persist().unwrap_err();
    assert!(reply(1).is_err() && matches!(reply(2), Ok(None)));
    rig.shard.reopen().unwrap();
    assert!(matches!(reply(1), Ok(None)), "the table has lost it");
}
