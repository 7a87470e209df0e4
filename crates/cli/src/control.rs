//! How other processes ask a volume that is up: a socket in its folder, one line of JSON each way.
//!
//! It never goes through the mount, so it answers while that hangs. Whoever asks must be the user
//! whose volume it is, or root. A request is `{"version":1,"ask":"status"}` or
//! `{"version":1,"ask":"unmount","force":false}`; the answer is an object, and after the one to
//! `unmount` the connection ends when the process does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pelago_store::folder::Folder;
use pelago_store::volume;
use serde_json::{Value, json};

pub(crate) use ask::{AskError, Conversation, ask};
pub(crate) use serve::Control;

mod ask;
mod serve;

/// The version of what is said on the socket.
const PROTOCOL: u64 = 1;
/// Bytes of a line, either way.
const LINE_BYTES: u64 = 1 << 20;

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// How are you?
    Status,
    /// Unmount, then stop.
    Unmount {
        /// Whoever uses the mount: their next request fails.
        force: bool,
    },
}

impl Request {
    fn to_json(self) -> Value {
        match self {
            Self::Status => json!({ "version": PROTOCOL, "ask": "status" }),
            Self::Unmount { force } => {
                json!({ "version": PROTOCOL, "ask": "unmount", "force": force })
            }
        }
    }

    /// The request that a line says, or why it says none.
    fn parse(line: &[u8]) -> Result<Self, &'static str> {
        let object: Value = serde_json::from_slice(line).map_err(|_| "not a JSON object")?;
        if object["version"] != PROTOCOL {
            return Err("another version of the protocol");
        }
        match object["ask"].as_str() {
            Some("status") => Ok(Self::Status),
            Some("unmount") => Ok(Self::Unmount { force: object["force"] == true }),
            _ => Err("not something that can be asked"),
        }
    }
}

/// A path to the socket of the volume in this folder that is short enough for a socket's address,
/// as long as the folder is open.
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
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn echo() -> Arc<serve::Handler> {
        Arc::new(|request| json!({ "asked": format!("{request:?}") }))
    }

    #[test]
    fn requests_survive_the_way() {
        for request in [Request::Status, Request::Unmount { force: true }] {
            let line = request.to_json().to_string();
            assert_eq!(Request::parse(line.as_bytes()), Ok(request));
        }
        for wrong in ["", "[]", "7", "{}", r#"{"version":2,"ask":"status"}"#, "{\"version\":1}"] {
            assert!(Request::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    /// The address of a socket has 108 bytes; folders may be longer.
    #[test]
    fn a_folder_with_a_long_name_has_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a".repeat(150)).join("b".repeat(150));
        fs::create_dir_all(&dir).unwrap();
        let control = Control::open(&Folder::open(&dir).unwrap(), echo()).unwrap();
        let (answer, _) = ask(&dir, Request::Status, LONG).unwrap();
        assert_eq!(answer["asked"], "Status");
        drop(control);
        assert!(matches!(ask(&dir, Request::Status, LONG), Err(AskError::NotUp)));
    }

    #[test]
    fn a_socket_that_was_left_behind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        drop(std::os::unix::net::UnixListener::bind(volume::socket_path(folder.path())).unwrap());
        assert!(matches!(ask(folder.path(), Request::Status, LONG), Err(AskError::NotUp)));
        let _control = Control::open(&Folder::open(folder.path()).unwrap(), echo()).unwrap();
        ask(folder.path(), Request::Status, LONG).unwrap();
    }

    #[test]
    fn nonsense_is_answered_with_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let _control = Control::open(&Folder::open(folder.path()).unwrap(), echo()).unwrap();
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

    /// A volume whose process stands still must not make the question stand still.
    #[test]
    fn silence_has_a_deadline() {
        let folder = tempfile::tempdir().unwrap();
        let opened = Folder::open(folder.path()).unwrap();
        let path = short_path(&opened);
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let asked = ask(folder.path(), Request::Status, Duration::from_millis(50));
        assert!(matches!(asked, Err(AskError::Silent)), "{asked:?}");
    }
}
