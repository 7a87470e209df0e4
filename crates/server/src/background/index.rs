//! The worker `index`: builds the search index (`pelago_search`).

use pelago_search::{Again, BuildIndex, Built};
use pelago_wire::Error;

use super::{NextRun, WorkDone, Worker};

impl Worker for BuildIndex {
    fn work(&mut self) -> Result<WorkDone, Error> {
        let Built { files, again } = Self::work(self)?;
        let next = match again {
            Again::Soon => NextRun::Soon,
            Again::After(time) => NextRun::After(time),
            Again::OnNotify => NextRun::OnNotify,
        };
        Ok(WorkDone { items: files, next })
    }
}
