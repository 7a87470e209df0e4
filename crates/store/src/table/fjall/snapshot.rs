//! Snapshots of a table.

use std::sync::Arc;

use fjall::Readable;

use super::engine::Engine;
use super::inner::TableInner;
use crate::table::{Error, TableRead, Visitor, bounds};

/// A snapshot. It keeps no file of the engine open, so a reopen need not wait until it is dropped.
pub(super) struct FjallSnapshot {
    inner: Arc<TableInner>,
    instant: fjall::Snapshot,
    /// The number of reopens when the snapshot was taken.
    reopens: u64,
}

impl FjallSnapshot {
    /// Takes a snapshot that lies between two batches.
    pub(super) fn take(inner: &Arc<TableInner>) -> Result<Self, Error> {
        inner.call_engine(|engine| {
            let instant = inner.between_batches(|| engine.database().snapshot());
            Ok(Self { inner: Arc::clone(inner), instant, reopens: inner.reopens() })
        })
    }

    fn with_engine<T>(&self, call: impl FnOnce(&Engine) -> Result<T, Error>) -> Result<T, Error> {
        self.inner.with_engine(|engine| {
            if self.inner.reopens() != self.reopens {
                return Err(Error::StaleSnapshot);
            }
            call(engine)
        })
    }
}

impl TableRead for FjallSnapshot {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        self.with_engine(|engine| {
            let value = self.inner.catch(|| {
                let value = self.instant.get(engine.rows(), key);
                value.map_err(|error| engine.error("reading a row", error))
            })?;
            Ok(value.map(|value| value.to_vec()))
        })
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut Visitor<'_>) -> Result<(), Error> {
        let Some(bounds) = bounds(from, to) else { return Ok(()) };
        self.with_engine(|engine| {
            let mut rows =
                self.inner.catch(|| Ok(self.instant.range::<&[u8], _>(engine.rows(), bounds)))?;
            // `visit` is the caller's code: it runs outside of `catch`, which would take its panic
            // for one of the engine.
            while let Some((key, value)) = self.inner.catch(|| {
                let row = rows.next().map(fjall::Guard::into_inner).transpose();
                row.map_err(|error| engine.error("reading rows", error))
            })? {
                if visit(&key, &value).is_break() {
                    break;
                }
            }
            Ok(())
        })
    }
}
