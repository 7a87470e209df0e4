//! `pelago access`.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_keynote::SharedObject;
use pelago_net::key::PublicKey;
use pelago_wire::{
    AccessPage, Code, Error, GuestAccess, Handle, InodeId, Name, NameError, Reply, Request,
    SessionId, limits,
};

use self::words::to_json;
use super::share::chain_of;
use crate::credential::{self, Chain, Whereabouts};
use crate::failure::{Exit, Failure, Outcome};
use crate::key_names::KeyNames;
use crate::licensed_key::licensed_key;
use crate::server_session::ServerSession;
use crate::{locate, output, runtime_dir};

mod words;

const AFTER: &str = "\
In the mount of a volume that is up on this machine it lists the guests that are connected now, \
each with its rights to PATH: r to read, w to write, x to run programs, c to create, d to remove, \
g to share it on, a to see what others have there, and to take it back. A guest who is not \
connected is not listed: no server knows of a credential before it is used. --for FILE asks about \
such a credential.

In the mount of `pelago attach` it prints the rights of this user there. With the right \
`a` to PATH it lists the other guests who have a right to it, too, and --for may be used.

--why adds, for each right that is missing, the first credential of the chain that denies it, who \
has signed that, and the test that is not met.";

/// The most pages of guests.
const PAGES: usize = 2 + limits::GUEST_SESSIONS / limits::ACCESS_GUESTS;

/// Print which guests have which rights to a path, and why.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// A path in the mount of a volume that is up on this machine, or of `pelago attach`
    path: PathBuf,
    /// Say which credential denies what is missing, and by which test
    #[arg(long)]
    why: bool,
    /// Ask about the holder of this credential, who need not be connected
    #[arg(long, value_name = "FILE")]
    r#for: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum AccessError {
    #[error("{} is in no mount of a volume that this machine serves or has attached", .0.display())]
    NotHere(PathBuf),
    #[error("{} cannot be examined", path.display())]
    Examined {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the name of {} is none of a volume", path.display())]
    Name {
        path: PathBuf,
        #[source]
        source: NameError,
    },
    #[error("the server {server} does not answer for {}", path.display())]
    Refused {
        server: String,
        path: PathBuf,
        #[source]
        source: Error,
    },
}

/// The place of PATH.
struct PathInMount {
    /// The folder of the volume, or of the process of the mount.
    dir: PathBuf,
    /// The mount point.
    point: PathBuf,
    /// PATH without symbolic links.
    path: PathBuf,
}

/// Asks the server, and prints the rights.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let place = PathInMount::of(&args.path)?;
    let is_attached = runtime_dir::is_one(&place.dir);
    let (session, node, own) = match is_attached {
        true => {
            let (session, node, chain) = of_guest(&args.path, &place)?;
            (session, node, chain.last.licensees().collect())
        }
        false => {
            let session = ServerSession::of_volume(&place.dir)?;
            let node = node_of(&session, &place, InodeId::ROOT)?;
            (session, node, Vec::new())
        }
    };
    let chain = match &args.r#for {
        Some(file) => credential::read(file)?.texts(),
        None => Vec::new(),
    };
    let chain = chain.into_iter().map(String::into_bytes).collect();
    let guests = guests(&session, &place, node, chain)?;
    if args.json {
        output::print_json(&to_json(&place.path, node.ino, &guests))?;
    } else {
        let names = KeyNames::of(&place.dir).ok().filter(|_| !is_attached);
        output::print(&said(args, &place.path, &guests, &own, names.as_ref()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns a session by the credentials by which a guest has a path, these credentials, and the
/// guests who have a right to it, as far as the server tells that guest.
pub(super) fn of_attached(path: &Path) -> Outcome<(ServerSession, Chain, Vec<GuestAccess>)> {
    let place = PathInMount::of(path)?;
    if !runtime_dir::is_one(&place.dir) {
        return Err(not_here(path));
    }
    let (session, node, chain) = of_guest(path, &place)?;
    let guests = guests(&session, &place, node, Vec::new())?;
    Ok((session, chain, guests))
}

/// A path in a mount, and a session with its server.
pub(super) struct NodeInMount {
    pub(super) session: ServerSession,
    pub(super) node: Handle,
    /// The folder of the volume; `None` in a mount of `pelago attach`.
    pub(super) volume: Option<PathBuf>,
}

/// Begins a session with the server of a path, as a guest if that is in a mount of
/// `pelago attach`.
pub(super) fn session_of(path: &Path) -> Outcome<NodeInMount> {
    let place = PathInMount::of(path)?;
    if runtime_dir::is_one(&place.dir) {
        let (session, node, _) = of_guest(path, &place)?;
        return Ok(NodeInMount { session, node, volume: None });
    }
    let session = ServerSession::of_volume(&place.dir)?;
    let node = node_of(&session, &place, InodeId::ROOT)?;
    Ok(NodeInMount { session, node, volume: Some(place.dir) })
}

/// Begins a session by the credentials by which a guest has a path, and finds that. Returns the
/// credentials too.
fn of_guest(path: &Path, place: &PathInMount) -> Outcome<(ServerSession, Handle, Chain)> {
    let chain = chain_of(&place.dir, &place.point, path)?;
    let key = licensed_key(&chain.last.licensees().collect::<Vec<_>>())?;
    let comment = chain.last.credential.comment();
    let named = match &chain.last.share.object {
        SharedObject::Folder(_) => None,
        SharedObject::File(ino) => Some((
            Handle::own(InodeId::from_raw(*ino)),
            Whereabouts::parent_in(comment).unwrap_or(InodeId::ROOT),
            Whereabouts::raw_name_in(comment).unwrap_or_default(),
        )),
        SharedObject::Name { directory, name } => {
            let directory = InodeId::from_raw(*directory);
            Some((Handle::own(directory), directory, name.as_bytes().to_vec()))
        }
    };
    let attached = InodeId::from_raw(chain.last.share.object.inode());
    let session = ServerSession::of_guest(&chain, key)?;
    let Some((own, dir, name)) = named else {
        let node = node_of(&session, place, attached)?;
        return Ok((session, node, chain));
    };
    // A file is found by its name; by its number alone if that is in the server's memory.
    let found = Name::new(&name).ok().map(|name| lookup(&session, dir, name)).transpose()?;
    Ok((session, found.and_then(Result::ok).unwrap_or(own), chain))
}

impl PathInMount {
    fn of(path: &Path) -> Outcome<Self> {
        let found = locate::find(None, Some(path))?;
        let is_here = runtime_dir::is_one(&found.dir) || locate::is_volume(&found.dir);
        let Some(point) = found.mounted.filter(|_| is_here) else {
            return Err(not_here(path));
        };
        let real = fs::canonicalize(path).map_err(|source| examined(path, source))?;
        if !real.starts_with(&point) {
            return Err(not_here(path));
        }
        Ok(Self { dir: found.dir, point, path: real })
    }

    /// Returns the inode of a path as the server knows it, whose inode of the root of the mount is
    /// `root`.
    fn inode(&self, path: &Path, root: InodeId) -> Outcome<(InodeId, fs::Metadata)> {
        let meta = fs::symlink_metadata(path).map_err(|source| examined(path, source))?;
        let point = fs::metadata(&self.point).map_err(|source| examined(&self.point, source))?;
        let ino = InodeId::from_raw(meta.ino());
        // Another mount may be on top.
        if meta.dev() != point.dev() || ino.is_of_mount() {
            return Err(not_here(path));
        }
        Ok((if ino == InodeId::ROOT { root } else { ino }, meta))
    }
}

/// Returns the handle of a path. A file is found by its name only.
fn node_of(session: &ServerSession, place: &PathInMount, root: InodeId) -> Outcome<Handle> {
    let path = &place.path;
    let (ino, meta) = place.inode(path, root)?;
    if meta.is_dir() {
        return Ok(Handle::own(ino));
    }
    let Some(parent) = path.parent() else { return Ok(Handle::own(ino)) };
    let Some(name) = path.file_name() else { return Ok(Handle::own(ino)) };
    let (dir, _) = place.inode(parent, root)?;
    let name = Name::new(name.as_bytes()).map_err(|source| {
        let path = path.clone();
        Failure::new(Exit::Usage, AccessError::Name { path, source }).hint("give another path")
    })?;
    lookup(session, dir, name)?.map_err(|error| refused(session, place, error))
}

pub(super) fn lookup(
    session: &ServerSession,
    dir: InodeId,
    name: Name,
) -> Outcome<Result<Handle, Error>> {
    Ok(match session.ask(Request::Lookup { dir: Handle::own(dir), name })? {
        Ok(Reply::Entry(entry)) => Ok(entry.handle),
        Ok(_) => Err(Code::Bug.into()),
        Err(error) => Err(error),
    })
}

/// Asks for all pages of guests.
fn guests(
    session: &ServerSession,
    place: &PathInMount,
    node: Handle,
    chain: Vec<Vec<u8>>,
) -> Outcome<Vec<GuestAccess>> {
    let mut all: Vec<GuestAccess> = Vec::new();
    let mut after = SessionId(0);
    for _ in 0..PAGES {
        let request = Request::Access { node, chain: chain.clone(), after };
        let AccessPage { guests, more } = match session.ask(request)? {
            Ok(Reply::Access(page)) => page,
            Ok(_) => return Err(refused(session, place, Code::Bug.into())),
            Err(error) => return Err(refused(session, place, error)),
        };
        let last = guests.last().map(|guest| guest.session);
        all.extend(guests);
        match last {
            Some(last) if more => after = last,
            _ => break,
        }
    }
    Ok(all)
}

/// Returns the lines for people; `own` are the keys of a guest who asks.
fn said(
    args: &Args,
    path: &Path,
    guests: &[GuestAccess],
    own: &[PublicKey],
    names: Option<&KeyNames>,
) -> String {
    let path = output::name(&path.display().to_string()).into_owned();
    let is_own = |guest: &GuestAccess| own.iter().any(|own| *own.as_bytes() == guest.key);
    let is_about_one = args.r#for.is_some() || !own.is_empty() && guests.iter().all(is_own);
    let mut text = String::new();
    for (at, guest) in guests.iter().enumerate() {
        // Of several sessions by one credential one is shown.
        let is_same = |other: &GuestAccess| {
            (other.key, other.credential, &other.rights, &other.denied)
                == (guest.key, guest.credential, &guest.rights, &guest.denied)
        };
        let is_new = !guests.iter().take(at).any(is_same);
        if is_new && (is_about_one || args.why || !guest.rights.is_empty()) {
            text.push_str(&words::line(guest, is_own(guest).then_some(&path), names));
            if args.why {
                text.push_str(&words::why(guest, names));
            }
        }
    }
    if is_about_one {
        return text;
    }
    if text.is_empty() {
        text.push_str("no guest that is connected has a right here\n");
    }
    text.push_str("not listed: who is not connected; a credential is unknown before it is used\n");
    text
}

fn refused(session: &ServerSession, place: &PathInMount, source: Error) -> Failure {
    let hint = match source.code {
        Code::Invalid => "the credentials are no chain that begins with a root of this volume",
        Code::Stale | Code::NotFound => "nothing of it is granted to you, or it is gone",
        Code::AccessDenied => "who asks about others needs the right `a` there",
        _ => "the log of the volume says why",
    };
    let exit = Exit::from(source.kind());
    let server = session.server.clone();
    let path = place.path.clone();
    Failure::new(exit, AccessError::Refused { server, path, source }).hint(hint)
}

fn examined(path: &Path, source: io::Error) -> Failure {
    Failure::new(Exit::NotFound, AccessError::Examined { path: path.to_owned(), source })
}

fn not_here(path: &Path) -> Failure {
    Failure::new(Exit::NotFound, AccessError::NotHere(path.to_owned()))
        .hint("run it on the machine of the volume, with a path in its mount")
}
