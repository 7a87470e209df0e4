//! The folder of what only a primary had that was replaced and became a mirror.
//!
//! `kept/VOLUME.REIGN` has a tree `files` with the files that the new primary has not, or has with
//! other bytes, by their paths, and a file `list` with a line of JSON for each change. It is made
//! beside its place, and gets its name once it is safe and before the group of the new primary is
//! carried out; if it is there, it is not made again. `docs/format.md`, 6.2, describes it.

use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, fchown};
use std::path::Path;
use std::time::{Duration, SystemTime};

use pelago_data::{ContentPiece, read_piece};
use pelago_store::content::FileAccess;
use pelago_store::folder::Folder;
use pelago_store::key::{self, Key};
use pelago_store::rows::{Inline, Rnode, Row as _, Xattr};
use pelago_store::spool::Spool;
use pelago_store::volume::{VolumeId, read_mirrored};
use pelago_wire::mirror::{GroupPart, VolumeFile};
use pelago_wire::{FileKind, InodeId, Name, Time};
use rustix::fs::{Mode, XattrFlags, fchmod, fsetxattr, symlinkat, syncfs};

use super::error::MirrorError;
use super::image::Image;
use super::own_changes::{self, Own, OwnChange};
use list::line_of;

pub use list::{KeptChange, KeptChanges, kept_changes, kept_count};

mod list;

/// The name of the folder, in the folder of the server.
pub(super) const KEPT: &str = "kept";
/// The names in the folder of one volume.
const FILES: &str = "files";
const LIST: &str = "list";
/// Permissions of files that are being written.
const MODE: u32 = 0o600;

/// Returns the name of the folder of the changes of a primary.
pub(super) fn name(volume: VolumeId, reign: u64) -> String {
    format!("{volume}.{reign}")
}

/// Keeps what only this image has, a primary of this reign that was replaced, before the group in
/// the spool is carried out.
pub(super) fn keep(
    kept: &Folder,
    image: &Image,
    spool: &mut Spool,
    reign: u64,
) -> Result<(), MirrorError> {
    let name = name(image.volume.id(), reign);
    if kept.contains(&name)? {
        return Ok(());
    }
    let new = format!("{name}.new");
    let path = kept.path().join(&new);
    match fs::remove_dir_all(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(MirrorError::Kept { doing: "removing", path, source });
        }
        _ => {}
    }
    let changes = own_changes::find(image, spool, reign)?;
    image.expect_room(bytes_of(&changes))?;
    let folder = kept.create_folder(&new)?;
    keep_beside(&folder, image, spool)?;
    let files = folder.create_folder(FILES)?;
    let mut keeper = Keeper { image, files, folders: Vec::new() };
    let mut list = BufWriter::new(folder.create_new(LIST, MODE)?);
    let not_listed = |source| failed("writing", &folder.path().join(LIST), source);
    for own in &changes {
        let bytes = keeper.keep(own)?;
        let xattrs = own.rnode.as_ref().map(|rnode| xattrs_of(image, rnode)).transpose()?;
        let line = line_of(own, bytes, &xattrs.unwrap_or_default());
        writeln!(list, "{line}").map_err(not_listed)?;
    }
    list.flush().map_err(not_listed)?;
    keeper.finish()?;
    let synced = syncfs(&folder);
    synced.map_err(|error| failed("syncing", folder.path(), error.into()))?;
    kept.rename(&new, &name)?;
    kept.sync()?;
    let count = changes.len();
    let path = kept.path().join(&name);
    tracing::warn!(count, path = %path.display(), "what only the replaced primary had is kept");
    Ok(())
}

fn failed(doing: &'static str, path: &Path, source: io::Error) -> MirrorError {
    MirrorError::Kept { doing, path: path.into(), source }
}

/// Returns the bytes that the files take which are kept.
fn bytes_of(changes: &[Own]) -> u64 {
    let of_file =
        |own: &Own| own.rnode.as_ref().map_or(0, |rnode| rnode.size.min(rnode.blocks << 9));
    changes.iter().filter(|own| is_kept(own)).map(of_file).sum()
}

/// Returns whether the file of a change is kept.
fn is_kept(own: &Own) -> bool {
    matches!(own.what, OwnChange::Missing | OwnChange::Changed)
}

/// Keeps the files beside the table that the group replaces by others.
fn keep_beside(folder: &Folder, image: &Image, spool: &mut Spool) -> Result<(), MirrorError> {
    for body in spool.bodies()? {
        let GroupPart::File { file, bytes } = GroupPart::decode(&body?)? else { continue };
        let name = match file {
            VolumeFile::Policy => "policy",
            VolumeFile::Clients => "clients",
            VolumeFile::Keys => "keys",
            VolumeFile::Format | VolumeFile::Seed => continue,
        };
        let ours = read_mirrored(image.volume.folder(), file)?;
        if let Some(ours) = ours.filter(|ours| bytes.as_ref() != Some(ours)) {
            let mut copy = folder.replace_file(name, MODE)?;
            copy.write_all(&ours).map_err(|source| failed("writing", folder.path(), source))?;
        }
    }
    Ok(())
}

/// The writer of the tree.
struct Keeper<'a> {
    image: &'a Image,
    files: Folder,
    /// The folders that get their attributes at the end: until then files can be put into them.
    folders: Vec<(Vec<Vec<u8>>, Rnode)>,
}

impl Keeper<'_> {
    /// Keeps the file of a change. Returns its bytes; `None` if it is not kept.
    fn keep(&mut self, own: &Own) -> Result<Option<u64>, MirrorError> {
        let Some(rnode) = own.rnode.as_ref().filter(|_| is_kept(own)) else { return Ok(None) };
        if rnode.kind == FileKind::Directory {
            let chain = own.above.iter().copied().chain([rnode.ino]);
            return Ok(self.folder_of(&own.path, chain)?.map(|_| 0));
        }
        let Some((last, above)) = own.path.split_last() else { return Ok(None) };
        let name = Name::new(last).ok().map(|name| name.as_bytes().to_vec());
        let folder = self.folder_of(above, own.above.iter().copied())?;
        let (folder, name) = match folder.zip(name) {
            Some((folder, name)) if !folder.contains(os(&name))? => (folder, name),
            // A damaged name.
            Some(_) | None => {
                (self.files.clone(), format!("inode {}", rnode.ino.raw()).into_bytes())
            }
        };
        match rnode.kind {
            FileKind::Symlink => {
                let made = symlinkat(rnode.target.as_slice(), &folder, name.as_slice());
                made.map_err(|error| failed("writing", folder.path(), error.into()))?;
                Ok(Some(0))
            }
            // Its bytes are at another office.
            FileKind::Regular if rnode.bytes_at.is_some() => Ok(None),
            FileKind::Regular => {
                let file = folder.create_new(os(&name), MODE)?;
                self.write(&file, &folder.path().join(os(&name)), rnode)?;
                Ok(Some(rnode.size))
            }
            FileKind::Directory
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice => Ok(None),
        }
    }

    /// Returns the folder of a path, which is made with those above; `None` if it cannot have these
    /// names. `chain`: the folders of the path.
    fn folder_of(
        &mut self,
        path: &[Vec<u8>],
        chain: impl Iterator<Item = InodeId>,
    ) -> Result<Option<Folder>, MirrorError> {
        let mut folder = self.files.clone();
        let mut chain = chain;
        for (depth, name) in path.iter().enumerate() {
            let ino = chain.next();
            if Name::new(name).is_err() {
                return Ok(None);
            }
            if !folder.contains(os(name))?
                && let Some(ino) = ino
                && let Some(value) = self.image.get(&key::inode(ino))?
                && let Ok((_, rnode)) = Rnode::decode(&value)
            {
                self.folders.push((path[..=depth].to_vec(), rnode));
            }
            folder = folder.create_folder(os(name))?;
        }
        Ok(Some(folder))
    }

    /// Writes bytes and attributes of a file.
    fn write(&self, file: &File, path: &Path, rnode: &Rnode) -> Result<(), MirrorError> {
        let failed = |source| failed("writing", path, source);
        if rnode.flags.inline {
            let value = self.image.get(&key::inline(rnode.ino))?;
            let inline = value.as_deref().and_then(|value| Inline::decode(value).ok());
            if let Some((_, Inline { bytes })) = inline {
                file.write_all_at(bytes, 0).map_err(failed)?;
            }
        } else if let Some(generation) = rnode.generation.filter(|_| rnode.flags.has_content)
            && let Some(content) =
                self.image.content.open_file(rnode.ino, generation, FileAccess::Read)?
        {
            let mut at = 0;
            while at < rnode.size {
                let piece = read_piece(&content, at..rnode.size)?;
                at = piece.range().end;
                if let ContentPiece::Bytes { offset, bytes } = piece {
                    file.write_all_at(&bytes, offset).map_err(failed)?;
                }
            }
        }
        file.set_len(rnode.size).map_err(failed)?;
        for (name, value) in xattrs_of(self.image, rnode)? {
            // Not each file system has them.
            let _refused = fsetxattr(file, name.as_slice(), &value, XattrFlags::empty());
        }
        // Only root can give a file away. The bits setuid and setgid are listed alone.
        let _refused = fchown(file, Some(rnode.uid), Some(rnode.gid));
        let mode = Permissions::from_mode(u32::from(rnode.mode) & 0o777);
        file.set_permissions(mode).map_err(failed)?;
        if let Some(time) = system_time(rnode.mtime) {
            let _refused = file.set_modified(time);
        }
        Ok(())
    }

    /// Gives the folders their attributes, the deepest ones first: a folder is opened only if it is
    /// this user's alone.
    fn finish(self) -> Result<(), MirrorError> {
        for (path, rnode) in self.folders.into_iter().rev() {
            let mut folder = self.files.clone();
            for name in &path {
                folder = folder.open_folder(os(name))?;
            }
            let _refused = fchown(&folder, Some(rnode.uid), Some(rnode.gid));
            // This user can still remove it.
            let mode = Mode::from_raw_mode(u32::from(rnode.mode) & 0o777 | 0o700);
            let _refused = fchmod(&folder, mode);
        }
        Ok(())
    }
}

/// Returns a time of the volume as one of the system; `None` before 1970.
fn system_time(time: Time) -> Option<SystemTime> {
    let since = Duration::new(u64::try_from(time.seconds).ok()?, time.nanos);
    SystemTime::UNIX_EPOCH.checked_add(since)
}

/// An extended attribute: its name and its value.
type Attribute = (Vec<u8>, Vec<u8>);

/// Returns the extended attributes of a file that any user may have.
fn xattrs_of(image: &Image, rnode: &Rnode) -> Result<Vec<Attribute>, MirrorError> {
    let mut found = Vec::new();
    if !rnode.flags.has_xattrs {
        return Ok(found);
    }
    let range = key::xattrs_of(rnode.ino);
    image.scan(&range.from, &range.to, &mut |row_key, value| {
        if let Some(Key::Xattr { name, .. }) = Key::parse(row_key)
            && name.starts_with(b"user.")
            && let Ok((_, Xattr { value })) = Xattr::decode(value)
        {
            found.push((name.to_vec(), value.to_vec()));
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

fn os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}
