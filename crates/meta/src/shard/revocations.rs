//! Rows of revoked credentials. They are never deleted.

use std::ops::ControlFlow;

use pelago_store::key::{self, Key, RowKind};
use pelago_store::report::table_failed;
use pelago_store::rows::RevocationRow;
use pelago_wire::Error;

use super::Shard;

impl Shard {
    /// Returns the ids of the revoked credentials. A row whose value is damaged
    /// counts too; one whose key is damaged does not.
    ///
    /// # Errors
    /// Those of the table.
    pub fn revocations(&self) -> Result<Vec<[u8; 32]>, Error> {
        let mut credentials = Vec::new();
        let range = key::all(RowKind::Revocation);
        let visited = self.table.scan(&range.from, &range.to, &mut |key, _| {
            if let Some(Key::Revocation { credential }) = Key::parse(key) {
                credentials.push(credential);
            }
            ControlFlow::Continue(())
        });
        visited.map_err(|error| table_failed("reading revocations", &error))?;
        Ok(credentials)
    }

    /// Writes the row of a revoked credential. The caller puts the revocation in force.
    ///
    /// # Errors
    /// Those of the table.
    pub fn revoke(
        &self,
        credential: [u8; 32],
        revocation: &RevocationRow<'_>,
    ) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        // A full disk must not prevent a revocation.
        txn.batch.allow_reserve();
        txn.put(key::revocation(credential), revocation);
        txn.commit().map(drop)
    }
}
