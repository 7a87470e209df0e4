//! The control socket in a volume's folder: commands send its process a request, one line of JSON,
//! and get a reply, another line.
//!
//! The socket is independent of the mount, so it answers while the mount hangs. It serves the
//! volume's user and root. A request is `{"version":1,"ask":"status"}` or
//! `{"version":1,"ask":"unmount","force":false}`,
//! `"ask":"listen"` with `"at"`, `"ask":"invite"` with `"name"`, `"key"` and `"until"`,
//! `"ask":"sites"`, `"ask":"leave"`, `"ask":"mirror"` with `"peer"` and `"relay"`,
//! `"ask":"end-mirror"`,
//! `"ask":"wait-for-mirror"` with `"commit"`, `"ask":"make-safe"`, `"ask":"hand-over"` with
//! `"force"`, `"ask":"verify"` with `"begin"` and `"apply"`,
//! `"ask":"credentials"` with `"name"`, `"ask":"issue"` with `"ino"` and, of a file, `"dir"` and
//! `"name"`,
//! `"ask":"promote"` with `"volume"`, `"ask":"conflicts"` with `"inode"`, or `"ask":"drop-kept"`
//! with `"node"`; the reply is an object ([`ControlReply`]). After a
//! successful `unmount` the connection stays open until the process ends.

use std::path::{Path, PathBuf};
use std::{fs, io};

use pelago_store::folder::Folder;
use pelago_store::volume;
use serde_json::{Value, json};

pub(crate) use conflicts::{ConflictLine, ConflictsReport};

pub(crate) use ask::{AskError, Conversation, ask, ask_status, server_pid};
pub(crate) use reply::ControlReply;
pub(crate) use serve::Control;
pub(crate) use sites::{SiteLine, SitesReport};
pub(crate) use verified::VerifiedReport;

mod ask;
mod conflicts;
mod reply;
mod serve;
mod sites;
mod verified;

/// The version of the protocol.
const PROTOCOL: u64 = 1;
/// The limit for a line, in either direction.
const LINE_BYTES: u64 = 1 << 20;

/// A request to a volume's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Report the volume's state.
    Status,
    /// Unmount the volume and stop.
    Unmount {
        /// Unmount even if the mount is in use; its users then get errors.
        force: bool,
    },
    /// Tell the credentials by which this is the mount of a guest.
    Credentials {
        /// The name in the root of the mount that they are for, as printable ASCII; `None` for the
        /// root itself.
        name: Option<String>,
    },
    /// Have the server issue a credential for what was made in this mount of a guest.
    Issue {
        /// The inode number of the file or folder, as the server knows it.
        ino: u64,
        /// Of a file: where it is found.
        file: Option<FileName>,
    },
    /// Invite another site to the volume.
    Invite {
        /// The name of the site.
        name: String,
        /// The public key of the invitation.
        key: String,
        /// The time from which the invitation is void, in seconds since 1970.
        until: u64,
    },
    /// List the other sites.
    Sites,
    /// List the versions of files that others have passed over.
    Conflicts {
        /// The inode number of a file, for its versions only.
        inode: Option<u64>,
    },
    /// Remove such a version.
    DropKept {
        /// The inode number under which its bytes are kept.
        node: u64,
    },
    /// Leave the volume, of which this is a site, and stop.
    Leave,
    /// Listen for other machines, now and after each start, unless the process listens already.
    Listen {
        /// The address, as `HOST:PORT`; `None` means the default port of all addresses.
        at: Option<String>,
    },
    /// Make a server the mirror of the volume.
    Mirror {
        /// The address of the server, `KEY@HOST:PORT`.
        peer: String,
        /// The address of the relay to it, if there is one.
        relay: Option<String>,
    },
    /// Give up the mirror of the volume.
    EndMirror,
    /// Compare the mirror with the volume, or say how far that is.
    Verify {
        /// Begin a comparison, unless one is under way.
        begin: bool,
        /// Send what differs again.
        apply: bool,
        /// The inode number of the file or folder to compare, with all below it; `None` means all
        /// of the volume.
        inode: Option<u64>,
    },
    /// Make the mirror of the volume its primary, and stop.
    HandOver {
        /// Unmount even if the mount is in use.
        force: bool,
    },
    /// Wait for a moment until the mirror has all changes that are done.
    WaitForMirror {
        /// The group commit before which the changes were done; `None` means all changes up to now.
        commit: Option<u64>,
    },
    /// Make all that is done safe on this machine.
    MakeSafe,
    /// Promote the mirror of a volume.
    Promote {
        /// The id of the volume, in hexadecimal digits.
        volume: String,
    },
}

/// The name of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileName {
    /// The inode number of the directory, as the server knows it.
    pub(crate) dir: u64,
    /// The name, as printable ASCII.
    pub(crate) name: String,
}

impl Request {
    fn to_json(&self) -> Value {
        match self {
            Self::Status => json!({ "version": PROTOCOL, "ask": "status" }),
            Self::Unmount { force } => {
                json!({ "version": PROTOCOL, "ask": "unmount", "force": force })
            }
            Self::Invite { name, key, until } => json!({
                "version": PROTOCOL, "ask": "invite", "name": name, "key": key, "until": until
            }),
            Self::Credentials { name } => {
                json!({ "version": PROTOCOL, "ask": "credentials", "name": name })
            }
            Self::Issue { ino, file } => json!({
                "version": PROTOCOL,
                "ask": "issue",
                "ino": ino,
                "dir": file.as_ref().map(|file| file.dir),
                "name": file.as_ref().map(|file| file.name.clone()),
            }),
            Self::Sites => json!({ "version": PROTOCOL, "ask": "sites" }),
            Self::Conflicts { inode } => {
                json!({ "version": PROTOCOL, "ask": "conflicts", "inode": inode })
            }
            Self::DropKept { node } => {
                json!({ "version": PROTOCOL, "ask": "drop-kept", "node": node })
            }
            Self::Leave => json!({ "version": PROTOCOL, "ask": "leave" }),
            Self::Listen { at } => json!({ "version": PROTOCOL, "ask": "listen", "at": at }),
            Self::Mirror { peer, relay } => {
                json!({ "version": PROTOCOL, "ask": "mirror", "peer": peer, "relay": relay })
            }
            Self::EndMirror => json!({ "version": PROTOCOL, "ask": "end-mirror" }),
            Self::Verify { begin, apply, inode } => json!({
                "version": PROTOCOL,
                "ask": "verify",
                "begin": begin,
                "apply": apply,
                "inode": inode,
            }),
            Self::HandOver { force } => {
                json!({ "version": PROTOCOL, "ask": "hand-over", "force": force })
            }
            Self::WaitForMirror { commit } => {
                json!({ "version": PROTOCOL, "ask": "wait-for-mirror", "commit": commit })
            }
            Self::MakeSafe => json!({ "version": PROTOCOL, "ask": "make-safe" }),
            Self::Promote { volume } => {
                json!({ "version": PROTOCOL, "ask": "promote", "volume": volume })
            }
        }
    }

    /// Parses a line; the error is a text for the sender.
    fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let object: Value = serde_json::from_slice(line).map_err(|_| "not a JSON object")?;
        if object["version"] != PROTOCOL {
            return Err("another version of the protocol");
        }
        match object["ask"].as_str() {
            Some("status") => Ok(Self::Status),
            Some("unmount") => Ok(Self::Unmount { force: object["force"] == true }),
            Some("credentials") => {
                Ok(Self::Credentials { name: object["name"].as_str().map(str::to_owned) })
            }
            Some("issue") => {
                let ino = object["ino"].as_u64().ok_or("a credential for nothing")?;
                let file = match (object["dir"].as_u64(), object["name"].as_str()) {
                    (Some(dir), Some(name)) => Some(FileName { dir, name: name.to_owned() }),
                    _ => None,
                };
                Ok(Self::Issue { ino, file })
            }
            Some("sites") => Ok(Self::Sites),
            Some("conflicts") => Ok(Self::Conflicts { inode: object["inode"].as_u64() }),
            Some("drop-kept") => match object["node"].as_u64() {
                Some(node) => Ok(Self::DropKept { node }),
                None => Err("a version without a number"),
            },
            Some("leave") => Ok(Self::Leave),
            Some("invite") => {
                let text = |field: &str| object[field].as_str().map(str::to_owned);
                let until = object["until"].as_u64();
                match (text("name"), text("key"), until) {
                    (Some(name), Some(key), Some(until)) => Ok(Self::Invite { name, key, until }),
                    _ => Err("an invitation without a name, a key or an end"),
                }
            }
            Some("listen") => Ok(Self::Listen { at: object["at"].as_str().map(str::to_owned) }),
            Some("end-mirror") => Ok(Self::EndMirror),
            Some("verify") => Ok(Self::Verify {
                begin: object["begin"] == true,
                apply: object["apply"] == true,
                inode: object["inode"].as_u64(),
            }),
            Some("hand-over") => Ok(Self::HandOver { force: object["force"] == true }),
            Some("wait-for-mirror") => {
                Ok(Self::WaitForMirror { commit: object["commit"].as_u64() })
            }
            Some("make-safe") => Ok(Self::MakeSafe),
            Some("mirror") => match object["peer"].as_str() {
                Some(peer) => Ok(Self::Mirror {
                    peer: peer.to_owned(),
                    relay: object["relay"].as_str().map(str::to_owned),
                }),
                None => Err("a mirror without an address"),
            },
            Some("promote") => match object["volume"].as_str() {
                Some(volume) => Ok(Self::Promote { volume: volume.to_owned() }),
                None => Err("a promotion of no volume"),
            },
            _ => Err("unknown request"),
        }
    }
}

/// Returns a path to the socket in this folder that fits into the 108 bytes of a socket address. It
/// is valid while the folder is open.
fn short_path(folder: &Folder) -> PathBuf {
    volume::socket_path(&folder.proc_path())
}

/// Removes a socket that a dead process has left behind.
fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::status_report::{PromotedReport, StatusReport, UpReport};

    const LONG: Duration = Duration::from_secs(60);

    fn serve(dir: &Path) -> Control {
        let handler = |request| match request {
            Request::Status => ControlReply::Status(Box::new(UpReport::sample())),
            Request::Unmount { .. } => ControlReply::Busy("/v/files".into()),
            Request::Listen { at } => ControlReply::Listening(at.unwrap_or_default()),
            Request::Invite { .. } => ControlReply::Invited(1),
            Request::Credentials { .. } | Request::Issue { .. } => {
                ControlReply::Credentials("block".to_owned())
            }
            Request::Sites => ControlReply::Sites(SitesReport::sample()),
            Request::Conflicts { .. } => ControlReply::Conflicts(ConflictsReport::sample()),
            Request::DropKept { .. } => ControlReply::KeptDropped,
            Request::Leave => ControlReply::Left,
            Request::Mirror { .. } | Request::EndMirror => ControlReply::MirrorSet,
            Request::WaitForMirror { .. } => ControlReply::Mirrored { commit: 1, done: true },
            Request::MakeSafe => ControlReply::MadeSafe,
            Request::HandOver { .. } => ControlReply::HandedOver { reign: 2 },
            Request::Verify { .. } => ControlReply::Verified(None),
            Request::Promote { .. } => ControlReply::Promoted(PromotedReport::sample()),
        };
        Control::open(&Folder::open(dir).unwrap(), Arc::new(handler)).unwrap()
    }

    #[test]
    fn a_request_survives_the_socket() {
        let listen = Request::Listen { at: Some("h:1".to_owned()) };
        let invite = Request::Invite { name: "b".to_owned(), key: "k".to_owned(), until: 9 };
        let unmount = Request::Unmount { force: true };
        let promote = Request::Promote { volume: "ab".to_owned() };
        let relay = Some("key@h:2".to_owned());
        let mirror = Request::Mirror { peer: "key@h:1".to_owned(), relay };
        let wait = Request::WaitForMirror { commit: Some(7) };
        let end = Request::EndMirror;
        let status = Request::Status;
        let sites = Request::Sites;
        let leave = Request::Leave;
        let conflicts = Request::Conflicts { inode: None };
        let conflict = Request::Conflicts { inode: Some(9) };
        let drop = Request::DropKept { node: 1 << 48 | 7 };
        let safe = Request::MakeSafe;
        let over = Request::HandOver { force: true };
        let verify = Request::Verify { begin: true, apply: false, inode: Some(9) };
        let own = Request::Credentials { name: None };
        let folder = Request::Issue { ino: 7, file: None };
        let file = FileName { dir: 7, name: "a%20b".to_owned() };
        let file = Request::Issue { ino: 8, file: Some(file) };
        let all = [
            status, unmount, listen, invite, sites, leave, promote, mirror, wait, end, own, folder,
            file, conflicts, conflict, drop, safe, over, verify,
        ];
        for request in all {
            let line = request.to_json().to_string();
            assert_eq!(Request::parse(line.as_bytes()), Ok(request));
        }
    }

    #[test]
    fn a_line_that_is_no_request_is_refused() {
        for wrong in ["", "[]", "7", "{}", r#"{"version":2,"ask":"status"}"#, "{\"version\":1}"] {
            assert!(Request::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_request_gets_its_answer() {
        let folder = tempfile::tempdir().unwrap();
        let _control = serve(folder.path());
        let up = StatusReport::Up(Box::new(UpReport::sample()));
        assert_eq!(ask_status(folder.path(), LONG).unwrap(), up);
        let (answer, _) = ask(folder.path(), Request::Unmount { force: false }, LONG).unwrap();
        assert_eq!(answer, ControlReply::Busy("/v/files".into()));
    }

    /// The address of a socket has 108 bytes; folders may be longer.
    #[test]
    fn a_folder_with_a_long_name_has_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a".repeat(150)).join("b".repeat(150));
        fs::create_dir_all(&dir).unwrap();
        let _control = serve(&dir);
        assert!(ask_status(&dir, LONG).is_ok());
    }

    #[test]
    fn a_closed_socket_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        drop(serve(folder.path()));
        assert!(matches!(ask_status(folder.path(), LONG), Err(AskError::NotUp)));
        assert!(!volume::socket_path(folder.path()).exists());
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(volume::socket_path(folder.path())).unwrap());
        assert!(matches!(ask_status(folder.path(), LONG), Err(AskError::NotUp)));
        let _control = serve(folder.path());
        assert!(ask_status(folder.path(), LONG).is_ok());
    }

    #[test]
    fn a_malformed_request_gets_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let _control = serve(folder.path());
        let opened = Folder::open(folder.path()).unwrap();
        let path = short_path(&opened);
        for line in ["nonsense\n", "{\"version\":9}\n"] {
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            let mut answer = String::new();
            BufReader::new(stream).read_line(&mut answer).unwrap();
            assert!(answer.contains("\"error\""), "{answer}");
        }
    }

    #[test]
    fn a_process_that_does_not_answer_is_given_up_at_the_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let opened = Folder::open(folder.path()).unwrap();
        let _listener = UnixListener::bind(short_path(&opened)).unwrap();
        let asked = ask_status(folder.path(), Duration::from_millis(50));
        assert!(matches!(asked, Err(AskError::Silent)), "{asked:?}");
    }
}
