//! The records of a relay, in memory: what they are on disk, `pelago-store` tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use pelago_wire::limits;
use pelago_wire::relay::{
    KeptRecord, RelayMessage, RelayOffer, RelaySpool, RelaySpools, SpoolPlace,
};

/// The spools of a relay, which outlive it.
#[derive(Default, Clone)]
pub(crate) struct Kept(Arc<Mutex<BTreeMap<[u8; 16], OfVolume>>>);

/// The spool of a volume.
type OfVolume = (RelayOffer, Records);

/// The records of a spool. A record has one place.
#[derive(Default, Clone)]
struct Records(Arc<Mutex<Vec<Stored>>>);

/// The body of a record, with its group and whether it ends that.
type Stored = (u64, bool, Vec<u8>);

/// A spool, with the first group that the mirror does not have.
struct Spool {
    records: Records,
    first: u64,
}

impl RelaySpools for Kept {
    fn kept(&self) -> Result<Vec<([u8; 16], RelayOffer)>, String> {
        Ok(self.0.lock().iter().map(|(volume, (offer, _))| (*volume, offer.clone())).collect())
    }

    fn open(&self, volume: [u8; 16], offer: &RelayOffer) -> Result<Box<dyn RelaySpool>, String> {
        let mut all = self.0.lock();
        let kept = all.get(&volume).filter(|(kept, _)| kept.run == offer.run);
        let records = kept.map(|(_, records)| records.clone()).unwrap_or_default();
        all.insert(volume, (offer.clone(), records.clone()));
        Ok(Box::new(Spool { records, first: 0 }))
    }
}

impl Spool {
    /// Returns the number of records of whole groups.
    fn whole(&self) -> usize {
        let records = self.records.0.lock();
        records.iter().rposition(|(_, is_last, _)| *is_last).map_or(0, |last| last + 1)
    }
}

impl RelaySpool for Spool {
    fn last_group(&self) -> u64 {
        let records = self.records.0.lock();
        records.iter().rev().find(|(_, is_last, _)| *is_last).map_or(0, |(group, _, _)| *group)
    }

    fn has_room(&self) -> bool {
        self.kept().0 < limits::RELAY_SPOOL_BYTES
    }

    fn append(&mut self, body: &[u8]) -> Result<(), String> {
        match RelayMessage::decode(body) {
            Ok(RelayMessage::Record(record)) => {
                let kept = (record.group, record.is_last, body.to_vec());
                self.records.0.lock().push(kept);
                Ok(())
            }
            other => Err(format!("{other:?}")),
        }
    }

    fn drop_partial(&mut self) -> Result<(), String> {
        let whole = self.whole();
        self.records.0.lock().truncate(whole);
        Ok(())
    }

    fn place_after(&self, group: u64) -> SpoolPlace {
        let records = self.records.0.lock();
        let next = records.iter().position(|(number, _, _)| *number > group);
        let whole = records.iter().rposition(|(_, is_last, _)| *is_last).map_or(0, |at| at + 1);
        SpoolPlace(next.unwrap_or(whole).min(whole) as u64)
    }

    fn read(&mut self, place: SpoolPlace) -> Result<Option<KeptRecord>, String> {
        let records = self.records.0.lock();
        let record = records.get(place.0 as usize);
        let next = SpoolPlace(place.0 + 1);
        Ok(record.map(|(_, _, body)| KeptRecord { body: body.clone(), next }))
    }

    fn remove_until(&mut self, group: u64) -> Result<(), String> {
        self.first = self.first.max(group + 1);
        Ok(())
    }

    fn kept(&self) -> (u64, u64) {
        let records = self.records.0.lock();
        let left = records.iter().filter(|(group, _, _)| *group >= self.first);
        let bytes = left.clone().map(|(_, _, body)| body.len() as u64).sum();
        (bytes, left.filter(|(_, is_last, _)| *is_last).count() as u64)
    }
}
