//! Rows of revoked credentials and keys. One is deleted only after the credential has ended.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::table_failed;
use pelago_store::rows::{RevocationRow, Row as _};
use pelago_wire::Error;

use super::Shard;

/// A revoked credential or key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedCredential {
    /// The id of the credential, or the key.
    pub id: [u8; 32],
    /// The sentence that has revoked it; empty if the row is damaged.
    pub sentence: Vec<u8>,
    /// The second, since 1970, from which the credential is void in any case; 0 if it has no end.
    pub end: u64,
}

impl Shard {
    /// Returns the revoked credentials. A row whose value is damaged counts too; one whose key is
    /// damaged does not.
    ///
    /// # Errors
    /// Those of the table.
    pub fn revocations(&self) -> Result<Vec<RevokedCredential>, Error> {
        let mut credentials = Vec::new();
        let range = key::all(RowKind::Revocation);
        let visited = self.table.scan(&range.from, &range.to, &mut |key, value| {
            if let Some(Key::Revocation { credential }) = Key::parse(key) {
                let row = RevocationRow::decode(value).ok();
                let row = row.map(|(_, row)| (row.sentence.to_vec(), row.end));
                let (sentence, end) = row.unwrap_or_default();
                credentials.push(RevokedCredential { id: credential, sentence, end });
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading revocations", &error))?;
        Ok(credentials)
    }

    /// Returns one revoked credential; `None` without a row, or if that is damaged.
    ///
    /// # Errors
    /// Those of the table.
    pub fn revocation(&self, id: [u8; 32]) -> Result<Option<RevokedCredential>, Error> {
        let value = self.table.get(&key::revocation(id));
        let value = value.map_err(|error| table_failed("reading a revocation", &error))?;
        Ok(value.and_then(|value| {
            let (_, row) = RevocationRow::decode(&value).ok()?;
            Some(RevokedCredential { id, sentence: row.sentence.to_vec(), end: row.end })
        }))
    }

    /// Writes the row of a revoked credential; that of a root also on a full disk. Deletes the rows
    /// of `ended` ones. The caller puts the revocation in force.
    ///
    /// # Errors
    /// Those of the table.
    pub fn revoke(
        &self,
        credential: [u8; 32],
        revocation: &RevocationRow<'_>,
        is_of_root: bool,
        ended: &[[u8; 32]],
    ) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        if is_of_root {
            // A full disk must not prevent it. A guest may not use up the reserve.
            txn.batch.allow_reserve();
        }
        for ended in ended {
            txn.delete(key::revocation(*ended));
        }
        txn.put(key::revocation(credential), revocation);
        txn.commit().map(drop)
    }
}
