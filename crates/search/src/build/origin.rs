//! The rows from which an index was made: the number of each commit is in a row too (decision 31).

use pelago_index::{Covered, Error as IndexError, Origin};
use pelago_store::folder::Folder;
use pelago_store::rows::HalfCommits;
use pelago_wire::{Code, Error};

use super::reading::Part;
use super::{BuildIndex, Failure};
use crate::search_index::{Halves, IndexPlace};

impl BuildIndex {
    /// Checks that both indexes were made from these rows: a folder may be put back without the
    /// other, or come from another volume.
    pub(super) fn check_origin(
        &self,
        place: &IndexPlace,
        folder: &Folder,
        halves: &Halves,
    ) -> Result<(), Failure> {
        let commits = self.shard.index_commits()?;
        let found =
            [(halves.names.covered(), commits.names), (halves.texts.covered(), commits.texts)];
        for (covered, commits) in found {
            let Some(Covered { origin, .. }) = covered else { continue };
            let what = match (origin.volume == place.volume.0, commits.has(origin.commit)) {
                (true, true) => continue,
                (false, _) => "it is of another volume",
                (true, false) => "it is not of these rows: one of both was put back",
            };
            let folder = folder.path().to_owned();
            let what = what.to_owned();
            return Err(IndexError::Foreign { folder, what }.into());
        }
        Ok(())
    }

    /// Commits what one index was given, once it is safe, and with it the number of the commit.
    pub(super) fn commit(
        &self,
        halves: &Halves,
        part: Part,
        covered: Covered,
    ) -> Result<(), Failure> {
        let at = |covered: Option<Covered>| covered.map_or(0, |covered| covered.origin.commit);
        let mut commits = self.shard.index_commits()?;
        let (half, now) = match part {
            Part::Names => (&mut commits.names, halves.names.covered()),
            Part::Texts => (&mut commits.texts, halves.texts.covered()),
        };
        *half = HalfCommits::after(at(now)).map_err(|_| Error::from(Code::Io))?;
        let commit = half.last;
        self.shard.set_index_commits(&commits)?;
        self.wait_until_safe()?;
        let volume = self.index.wanted_place().map_or([0; 16], |place| place.volume.0);
        let covered = Covered { origin: Origin { volume, commit }, ..covered };
        match part {
            Part::Names => halves.names.commit(&covered)?,
            Part::Texts => halves.texts.commit(&covered)?,
        }
        Ok(())
    }
}
