//! Stored replies to requests that may be repeated.

use pelago_store::report::row_damaged;
use pelago_store::rows::{CachedReply, Row};
use pelago_store::table::Table;
use pelago_wire::{Code, Context, Error, Reply};

use super::{Shard, stored};
use crate::reply_cache::{self, OpContext, RequestKey};

/// Stores the reply to a request whose change is in rows already.
pub(super) fn store(shard: &Shard, context: &Context, reply: &Reply) -> Result<(), Error> {
    let request_key = RequestKey::of(context);
    let mut txn = shard.begin(OpContext { request_key, ..OpContext::UPKEEP });
    // A full disk that let the change through must not fail its request.
    txn.batch.allow_reserve();
    txn.store_reply(reply);
    txn.commit().map(drop)
}

/// Returns the reply to a request, if it is stored.
pub(super) fn get(table: &dyn Table, request_key: &RequestKey) -> Result<Option<Reply>, Error> {
    let key = request_key.key();
    let Some(value) = stored::get(table, &key)? else { return Ok(None) };
    let (_, row) = CachedReply::decode(&value).map_err(|error| row_damaged(&key, error))?;
    let reply = reply_cache::decode(row.reply).ok_or_else(|| {
        let key = key.escape_ascii();
        tracing::error!(%key, "a stored reply cannot be decoded; run `pelago check`");
        Code::Corrupt
    })?;
    Ok(Some(reply))
}
