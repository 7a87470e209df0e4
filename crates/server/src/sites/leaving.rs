//! The departure of a site from the volume.
//!
//! A site that leaves is the home of nothing: what it had was moved or removed before, by `mv` and
//! `rm`. The first site records that it has left, and the next list does not name it.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLockReadGuard;
use pelago_store::rows::{SiteRow, SiteState};
use pelago_wire::{Code, Error, InodeId, Request, SitePeer};

use super::Sites;

/// Directories that are named to a person, at most.
const NAMED: usize = 10;

/// The reason why a site cannot leave the volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeaveError {
    /// It is the first one.
    #[error("the first site of a volume cannot leave it")]
    Founder,
    /// It has directories.
    #[error("this site has folders: {0}")]
    HasHomes(Homes),
    /// Files of other sites have their bytes only here, or bytes are kept for people.
    #[error("{0} files of other offices have their bytes only here, or are kept here")]
    HasBytes(usize),
    /// The first site has not recorded it, or its answer was lost.
    #[error("the first site has not answered")]
    NotAnswered(#[source] Error),
    /// The table failed.
    #[error("the table failed")]
    Table(#[source] Error),
}

/// Directories of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Homes {
    /// Their paths in the volume as they were last seen, at most ten; `#` and the number of one
    /// that has no path.
    pub paths: Vec<String>,
    /// There are more.
    pub has_more: bool,
}

impl fmt::Display for Homes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let more = if self.has_more { ", and more" } else { "" };
        write!(f, "{}{more}", self.paths.join(", "))
    }
}

impl Sites {
    /// Leaves the volume, of which this folder has no part any more when this returns. Blocks until
    /// the first site has recorded it.
    ///
    /// # Errors
    /// [`LeaveError`]. After `NotAnswered` no directories are made in those of other sites until
    /// this succeeds, or the server starts again: the first site may have recorded it.
    pub(crate) fn leave(self: &Arc<Self>) -> Result<(), LeaveError> {
        if self.own == InodeId::ROOT.site() {
            return Err(LeaveError::Founder);
        }
        // From here on no directory is made here that another site would name, and no bytes of a
        // file of another one stay here.
        *self.is_leaving.write() = true;
        if let Err(why) = self.expect_nothing() {
            *self.is_leaving.write() = false;
            return Err(why);
        }
        self.flush();
        // What was under way before.
        if let Err(why) = self.expect_nothing() {
            *self.is_leaving.write() = false;
            return Err(why);
        }
        let founder = self.upstream(InodeId::ROOT.site()).map_err(LeaveError::NotAnswered)?;
        founder.ask_and_wait(Request::LeaveSite).map_err(LeaveError::NotAnswered)?;
        self.has_left().map_err(LeaveError::Table)
    }

    /// Checks that this site is the home of nothing, and has no bytes of others: also none that are
    /// on their way to their home.
    fn expect_nothing(&self) -> Result<(), LeaveError> {
        let nodes = self.stays.nodes();
        if nodes > 0 {
            return Err(LeaveError::HasBytes(nodes));
        }
        match self.homes().map_err(LeaveError::Table)? {
            Some(homes) => Err(LeaveError::HasHomes(homes)),
            None => Ok(()),
        }
    }

    /// Records that this site has left the volume: its folder is served no more.
    ///
    /// # Errors
    /// Those of the table.
    pub(crate) fn has_left(&self) -> Result<(), Error> {
        let name = "this".to_owned();
        let state = SiteState::Left { key: [0; 32] };
        let invalidations = self.durability.invalidations();
        self.shard.put_site(self.own, &SiteRow { state, name, address: String::new() })?;
        self.wait_until_safe(invalidations)
    }

    /// Returns a guard under which this site makes a directory that another one names.
    ///
    /// # Errors
    /// `ReadOnly` if this site is leaving.
    pub(crate) fn remains(&self) -> Result<RwLockReadGuard<'_, bool>, Error> {
        let is_leaving = self.is_leaving.read();
        match *is_leaving {
            true => Err(Code::ReadOnly.into()),
            false => Ok(is_leaving),
        }
    }

    /// Records that another site has left the volume.
    ///
    /// # Errors
    /// `NotSupported` at another site than the first one; those of the table.
    pub(crate) fn site_leaves(self: &Arc<Self>, peer: SitePeer) -> Result<(), Error> {
        if self.own != InodeId::ROOT.site() {
            return Err(Code::NotSupported.into());
        }
        let mut others = self.others.lock();
        let row = others.get(&peer.site).ok_or(Code::AccessDenied)?;
        if matches!(row.state, SiteState::Left { .. }) {
            return Ok(());
        }
        let state = SiteState::Left { key: peer.key };
        let left = SiteRow { state, address: String::new(), ..row.clone() };
        tracing::info!(site = peer.site, name = left.name, "a site has left the volume");
        self.write(&mut others, vec![(peer.site, left)])?;
        drop(others);
        self.origins.end_site(&self.shard, peer.site);
        self.connect_again(peer.site);
        Ok(())
    }

    /// Returns the directories of this site whose names are at other ones; `None` if there are
    /// none.
    fn homes(&self) -> Result<Option<Homes>, Error> {
        let mut homes = self.shard.dirs_named_elsewhere(NAMED + 1)?;
        let has_more = homes.len() > NAMED;
        homes.truncate(NAMED);
        let chains = self.chains.lock();
        let path = |ino: InodeId| chains.path(ino).unwrap_or_else(|| format!("#{ino}"));
        let mut paths: Vec<_> = homes.into_iter().map(path).collect();
        paths.sort_unstable();
        Ok((!paths.is_empty()).then_some(Homes { paths, has_more }))
    }
}
