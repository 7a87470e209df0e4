//! The proof that a folder can be a shared store, at the start of each server.

use std::sync::Barrier;
use std::{io, thread};

use rustix::fs::{AtFlags, linkat, renameat};
use rustix::io::Errno;

use super::error::OwnerError;
use super::names::ProcessId;
use crate::folder::Folder;
use crate::volume::layout::PROOF;

/// Renames that two threads race for.
const RACES: u32 = 100;
/// Permissions of a file.
const FILE_MODE: u32 = 0o600;

/// Proves that the store has the operations that its servers rely on: hard links, renames of which
/// exactly one of two succeeds, and the sync of a folder. Leaves nothing behind, unless the process
/// dies.
///
/// # Errors
/// [`OwnerError::Unfit`] names the operation that the store lacks; others if it cannot be written.
pub fn prove(store: &Folder) -> Result<(), OwnerError> {
    let failed = |error| OwnerError::from_io("writing", store.path(), error);
    let name = format!("{PROOF}{}", ProcessId::random().map_err(failed)?);
    let folder = store.create_folder(&name)?;
    let proved = prove_links(&folder)
        .and_then(|()| prove_folders(&folder))
        .and_then(|()| prove_races(&folder));
    let removed = store.remove_tree(&name);
    let unfit = |what| OwnerError::Unfit { path: store.path().to_path_buf(), what };
    match proved {
        Err(Proof::Unfit(what)) => Err(unfit(what)),
        Err(Proof::Failed(error)) => Err(error),
        Ok(()) => Ok(removed?),
    }
}

/// A failure of a proof.
enum Proof {
    Unfit(&'static str),
    Failed(OwnerError),
}

impl<E: Into<OwnerError>> From<E> for Proof {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

fn prove_links(folder: &Folder) -> Result<(), Proof> {
    let file = folder.create_new("one", FILE_MODE)?;
    match linkat(folder, "one", folder, "two", AtFlags::empty()) {
        Ok(()) => {}
        Err(Errno::NOSPC | Errno::DQUOT) => {
            let path = folder.path().join("two");
            return Err(OwnerError::NoSpace { path }.into());
        }
        Err(_) => return Err(Proof::Unfit("it has no hard links")),
    }
    match folder.is_named("two", &file)? {
        true => Ok(()),
        false => Err(Proof::Unfit("its hard links are copies")),
    }
}

/// Proves that a rename never replaces a folder that is not empty, and that a folder can be synced.
fn prove_folders(folder: &Folder) -> Result<(), Proof> {
    for name in ["empty", "full"] {
        folder.create_folder(name)?.create_new("file", FILE_MODE)?;
    }
    if renameat(folder, "empty", folder, "full").is_ok() {
        return Err(Proof::Unfit("a rename replaces a folder that is not empty"));
    }
    folder.sync().map_err(|_| Proof::Unfit("a folder cannot be synced"))
}

/// Proves that of two renames of one file one succeeds, and the other finds no file.
fn prove_races(folder: &Folder) -> Result<(), Proof> {
    let barrier = Barrier::new(2);
    for race in 0..RACES {
        folder.create_new(&format!("race.{race}"), FILE_MODE)?;
    }
    let run = |runner: &'static str| {
        let rename = |race| {
            barrier.wait();
            let [from, to] = [format!("race.{race}"), format!("{runner}.{race}")];
            renameat(folder, &from, folder, &to)
        };
        (0..RACES).map(rename).collect::<Vec<_>>()
    };
    let failed = |error| Proof::Failed(OwnerError::from_io("proving", folder.path(), error));
    let both = thread::scope(|scope| -> io::Result<_> {
        let builder = thread::Builder::new().name("store-proof".to_owned());
        let other = builder.spawn_scoped(scope, || run("right"))?;
        let left = run("left");
        let right = other.join().map_err(|_| io::Error::other("a thread has ended"))?;
        Ok([left, right])
    });
    let [left, right] = both.map_err(failed)?;
    for (race, ends) in left.into_iter().zip(right).enumerate() {
        let has = |runner| folder.contains(&format!("{runner}.{race}"));
        match (ends, has("left")?, has("right")?) {
            ((Ok(()), Err(Errno::NOENT)), true, false)
            | ((Err(Errno::NOENT), Ok(())), false, true) => {}
            _ => return Err(Proof::Unfit("a rename succeeds for two at once, or for none")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_folder_can_be_a_store_and_stays_empty() {
        let temp = tempfile::tempdir().unwrap();
        let store = Folder::open(temp.path()).unwrap();
        prove(&store).unwrap();
        assert_eq!(store.entries().unwrap().len(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_refused_without_a_leftover() {
        let store = Folder::open(std::path::Path::new("/proc/self")).unwrap();
        let error = prove(&store).unwrap_err();
        assert!(error.to_string().contains("/proc/self"), "{error}");
    }
}
