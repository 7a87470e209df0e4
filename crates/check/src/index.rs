//! The comparison of the search index with the rows.
//!
//! A search trusts the index not to leave out a file. So names of rows that are older than its last
//! commit are sought in it, as many as take some seconds, spread over the volume. An entry without
//! a row does no harm: a search compares each file with its row.

use std::ops::ControlFlow;

use pelago_index::{Covered, Error, Names, Texts};
use pelago_store::folder::Folder;
use pelago_store::key::{self, RowKind};
use pelago_store::rows::{HalfCommits, IndexCommits, NameRow, Row, Stamp};
use pelago_store::table;

use super::{Check, CheckError, Damage, Finding, Repair};

/// The folder of the index in that of the volume.
pub(super) const FOLDER: &str = "index";
/// Most names that are sought.
const SOUGHT_NAMES: u64 = 1 << 16;

impl Check<'_> {
    /// Checks the search index in the folder of a volume, if there is one.
    pub(super) fn index(&mut self, volume: &Folder) -> Result<(), CheckError> {
        let opened = match volume.open_folder(FOLDER) {
            Err(error) if error.is_not_found() => return Ok(()),
            opened => opened.map_err(Error::from),
        };
        let is_right = match opened {
            Ok(folder) => self.both(&folder)?,
            Err(error) => Err(error),
        };
        match is_right {
            Ok(true) => Ok(()),
            // This includes an index of another version of this program: a search builds it again.
            Err(error) if !error.is_of_files() || matches!(error, Error::Foreign { .. }) => {
                tracing::warn!(%error, "the search index is not checked");
                Ok(())
            }
            Ok(false) | Err(_) => {
                let repair = Repair::nothing("remove the index; a search builds it again");
                let damage = Damage::Index;
                let repair = Some(repair);
                self.plan.add(Finding { damage, ino: None, key: Vec::new(), repair });
                Ok(())
            }
        }
    }

    /// Returns whether both indexes in a folder are of these rows, as far as they exist.
    fn both(&self, folder: &Folder) -> Result<Result<bool, Error>, table::Error> {
        let commits = self.table.get(&key::index_commits(self.shard.shard))?;
        let commits = commits.and_then(|value| IndexCommits::decode(&value).ok());
        let commits = commits.map(|(_, commits)| commits).unwrap_or_default();
        let is_of_rows = |covered: Option<Covered>, commits: HalfCommits| {
            covered.is_none_or(|Covered { origin, .. }| {
                origin.volume == self.volume.0 && commits.has(origin.commit)
            })
        };
        let has = |name| folder.contains(name).map_err(Error::from);
        let (has_names, has_texts) = match (has("names"), has("texts")) {
            (Ok(names), Ok(texts)) => (names, texts),
            (Err(error), _) | (_, Err(error)) => return Ok(Err(error)),
        };
        if has_texts {
            match Texts::open(folder) {
                Ok(texts) if is_of_rows(texts.covered(), commits.texts) => {}
                Ok(_) => return Ok(Ok(false)),
                Err(error) => return Ok(Err(error)),
            }
        }
        if !has_names {
            return Ok(Ok(true));
        }
        match Names::open(folder) {
            Ok(names) if is_of_rows(names.covered(), commits.names) => self.is_right(&names),
            Ok(_) => Ok(Ok(false)),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Returns whether the index has the names that it says it has.
    fn is_right(&self, names: &Names) -> Result<Result<bool, Error>, table::Error> {
        let Some(covered) = names.covered().filter(|covered| covered.is_complete) else {
            return Ok(Ok(true));
        };
        let all = key::all(RowKind::Name);
        let mut count = 0;
        self.table.scan(&all.from, &all.to, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        let every = count / SOUGHT_NAMES + 1;
        let mut number = 0_u64;
        let mut is_right = Ok(true);
        self.table.scan(&all.from, &all.to, &mut |key, value| {
            number += 1;
            if number.is_multiple_of(every) {
                is_right = self.has_name(names, &covered, key, value);
            }
            if matches!(is_right, Ok(true)) {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        Ok(is_right)
    }

    /// Returns whether an index has a name as its row has it. Rows that are newer than the index,
    /// damaged, or of a directory of another site are no concern of it.
    fn has_name(
        &self,
        names: &Names,
        covered: &Covered,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Error> {
        let (Some((_, _, name)), Ok((stamp, row))) = (key::parse_name(key), NameRow::decode(value))
        else {
            return Ok(true);
        };
        if self.is_elsewhere(row.ino()) {
            return Ok(true);
        }
        let Stamp { epoch, sequence } = stamp;
        if (u64::from(epoch), sequence) > (covered.epoch, covered.sequence) {
            return Ok(true);
        }
        let documents = names.documents_of(row.ino())?;
        Ok(documents.iter().any(|document| {
            let has_attributes = match &row {
                NameRow::Rnode(rnode) => {
                    (document.size, document.mtime, document.uid)
                        == (rnode.size, rnode.mtime, rnode.uid)
                }
                NameRow::Link { .. } => true,
            };
            document.name == name && document.kind == row.kind() && has_attributes
        }))
    }
}
