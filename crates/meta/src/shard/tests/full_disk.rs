//! A full disk: what frees space, and what a server needs to come up, may use the reserve.

use pelago_wire::{RecordedPeer, Reply, SessionId, SessionRecord};

use super::*;
use crate::reply_cache::RequestKey;

const SESSION: SessionId = SessionId(7);
const RECORD: SessionRecord = SessionRecord::new([0; 16], RecordedPeer::User(0));

fn request(mutation: u64) -> Context {
    Context { session: SESSION, mutation, ..CALLER }
}

fn truncated(rig: &Rig, handle: Handle) -> Reply {
    let live = LiveAttrs { size: 0, blocks: 0, mtime: at(202), ctime: at(202) };
    let inline = InlineBytes::Delete;
    let change = BytesChange { live: Some(live), inline, ..BytesChange::NOTHING };
    let (attr, _) = rig.shard.commit_bytes(handle, &change).unwrap();
    Reply::Attr(attr)
}

/// A request that has freed space must not fail after that.
#[test]
fn the_reply_to_a_truncation_is_stored_on_a_full_disk() {
    let rig = Rig::new();
    rig.shard.begin_session(SESSION, &RECORD).unwrap();
    let handle = rig.file(ROOT, "f", 110).handle;
    let live = LiveAttrs { size: 3, blocks: 8, mtime: at(112), ctime: at(112) };
    let inline = InlineBytes::Put(b"abc");
    let change = BytesChange { live: Some(live), inline, ..BytesChange::NOTHING };
    rig.shard.commit_bytes(handle, &change).unwrap();
    rig.table.set_full(true);
    let refused = rig.shard.commit_bytes(handle, &change);
    assert_eq!(refused.unwrap_err().code, Code::NoSpace);
    let reply = truncated(&rig, handle);
    rig.shard.store_reply(&request(1), &reply).unwrap();
    let key = RequestKey::of(&request(1)).unwrap();
    assert!(matches!(rig.shard.cached_reply(&key).unwrap(), Some(Reply::Attr(_))));
}

#[test]
fn a_server_starts_on_a_full_disk_with_replies_of_a_session_that_ended() {
    let rig = Rig::new();
    rig.shard.begin_session(SESSION, &RECORD).unwrap();
    rig.shard.store_reply(&request(1), &Reply::Done).unwrap();
    rig.shard.forget_session(SESSION).unwrap();
    rig.table.set_full(true);
    let next = rig.cold();
    assert_eq!(next.shard.earlier_sessions().unwrap(), []);
    let key = RequestKey::of(&request(1)).unwrap();
    assert!(next.table.get(&key.key()).unwrap().is_none(), "it is deleted");
}
