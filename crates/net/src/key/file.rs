//! The file of a private key: its location, how it is read, and how it is created.
//!
//! Text: lines that begin with `#`, empty lines, and one line with the private key, Bech32m with
//! the name `pelagosecret`. The key of a user may also be a file of OpenSSH without a passphrase.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use pelago_wire::{Kind, limits};

use super::openssh::private::{self, PrivateFileError};
use super::{KeyTextError, NoRandomness, PrivateKey, openssh};
use crate::own_file::{OwnFile, OwnFileError, Readers};

/// The environment variable with the path of this user's key file.
pub const VARIABLE: &str = "PELAGO_KEY";
/// The file of a user's Ed25519 key of OpenSSH, in the user's home.
const OPENSSH: &str = ".ssh/id_ed25519";

/// The reason for which a key file is not used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyFileError {
    /// The environment does not say where this user's key is.
    #[error("neither {VARIABLE} nor HOME is set")]
    NoHome,
    /// The file is missing, exists already, is open to others, or a system call failed.
    #[error(transparent)]
    File(#[from] OwnFileError),
    /// It has no line with a key.
    #[error("{} has no private key", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// It has several lines with keys.
    #[error("{} has more than one key", path.display())]
    Several {
        /// The file.
        path: PathBuf,
    },
    /// A line is not a key.
    #[error("line {line} of {} is not a private key", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
        /// The fault.
        #[source]
        source: KeyTextError,
    },
    /// It is a file of OpenSSH that is no key here.
    #[error("{} is not a key that can be used", path.display())]
    OpenSsh {
        /// The file.
        path: PathBuf,
        /// The fault.
        #[source]
        source: PrivateFileError,
    },
    /// A new key could not be made.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

impl KeyFileError {
    /// Returns what the caller can do about the error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::NoHome
            | Self::Empty { .. }
            | Self::Several { .. }
            | Self::Line { .. }
            | Self::OpenSsh { .. } => Kind::Invalid,
            Self::File(error) => error.kind(),
            Self::NoRandomness(_) => Kind::Busy,
        }
    }

    /// Returns whether there is no key file.
    #[must_use]
    pub const fn is_missing(&self) -> bool {
        matches!(self, Self::File(OwnFileError::Missing { .. }))
    }
}

/// Returns the path of this user's key file: `$PELAGO_KEY`, else `$XDG_CONFIG_HOME/pelago/key`,
/// else `~/.config/pelago/key`. `variable` returns a variable of the environment.
///
/// # Errors
/// [`KeyFileError::NoHome`].
pub fn default_path(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, KeyFileError> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = path(VARIABLE) {
        return Ok(path);
    }
    // The XDG Base Directory Specification ignores relative paths.
    let config = path("XDG_CONFIG_HOME").filter(|path| path.is_absolute());
    let config = config.or_else(|| path("HOME").map(|home| home.join(".config")));
    Ok(config.ok_or(KeyFileError::NoHome)?.join("pelago/key"))
}

/// Returns the path of this user's Ed25519 key of OpenSSH, if the environment names a home.
#[must_use]
pub fn openssh_path(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let home = variable("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(OPENSSH))
}

/// Reads the key at a path that a user gave: a file of this program, or of OpenSSH.
///
/// # Errors
/// [`KeyFileError`]; [`KeyFileError::is_missing`] if there is none.
pub fn read(path: &Path) -> Result<PrivateKey, KeyFileError> {
    let (text, _) = OwnFile::of(path)?.read(Readers::Nobody, limits::KEY_FILE_BYTES)?;
    if !openssh::is_private(&text) {
        return parse(&text, path);
    }
    private::parse(&text).map_err(|source| KeyFileError::OpenSsh { path: path.to_owned(), source })
}

/// Creates a new key at a path that a user gave, and missing folders above it.
///
/// # Errors
/// [`KeyFileError`]; an existing file is never overwritten.
pub fn create(path: &Path) -> Result<PrivateKey, KeyFileError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        let path = parent.to_owned();
        made.map_err(|source| OwnFileError::Io { doing: "creating", path, source })?;
    }
    create_in(&OwnFile::of(path)?)
}

/// Reads the key of a file in an open folder, as that of a volume.
///
/// # Errors
/// [`KeyFileError`]; [`KeyFileError::is_missing`] if there is none.
pub fn read_from(file: &OwnFile) -> Result<PrivateKey, KeyFileError> {
    let (text, _) = file.read(Readers::Nobody, limits::KEY_FILE_BYTES)?;
    parse(&text, file.path())
}

/// Reads the key of a file in an open folder, and creates it if it is missing.
///
/// # Errors
/// [`KeyFileError`].
pub fn read_or_create(file: &OwnFile) -> Result<PrivateKey, KeyFileError> {
    match read_from(file) {
        Err(error) if error.is_missing() => {}
        read => return read,
    }
    match create_in(file) {
        // Another process created it meanwhile.
        Err(KeyFileError::File(OwnFileError::Exists { .. })) => read_from(file),
        created => created,
    }
}

fn create_in(file: &OwnFile) -> Result<PrivateKey, KeyFileError> {
    let key = PrivateKey::generate()?;
    file.create(&format!(
        "# A private key of pelago. Who can read it can act in its name.\n\
         # public key: {}\n\
         {}\n",
        key.public(),
        key.to_secret_text()
    ))?;
    Ok(key)
}

fn parse(text: &str, path: &Path) -> Result<PrivateKey, KeyFileError> {
    let path = || path.to_owned();
    let mut found = None;
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = PrivateKey::from_secret_text(line);
        let key =
            key.map_err(|source| KeyFileError::Line { path: path(), line: index + 1, source })?;
        if found.replace(key).is_some() {
            return Err(KeyFileError::Several { path: path() });
        }
    }
    found.ok_or_else(|| KeyFileError::Empty { path: path() })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn path_of(variables: &[(&str, &str)]) -> Result<PathBuf, KeyFileError> {
        default_path(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        })
    }

    #[test]
    fn the_environment_says_where_the_key_is() {
        let home = ("HOME", "/h");
        let cases: [(&[_], &str); 5] = [
            (&[home], "/h/.config/pelago/key"),
            (&[home, ("XDG_CONFIG_HOME", "/c")], "/c/pelago/key"),
            (&[home, ("XDG_CONFIG_HOME", "c")], "/h/.config/pelago/key"),
            (&[home, ("XDG_CONFIG_HOME", ""), (VARIABLE, "")], "/h/.config/pelago/key"),
            (&[home, ("XDG_CONFIG_HOME", "/c"), (VARIABLE, "k")], "k"),
        ];
        for (variables, path) in cases {
            assert_eq!(path_of(variables).unwrap(), Path::new(path));
        }
        assert!(matches!(path_of(&[]), Err(KeyFileError::NoHome)));
    }

    #[test]
    fn a_key_is_created_once_and_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/key");
        assert!(read(&path).unwrap_err().is_missing());
        let key = create(&path).unwrap();
        assert_eq!(read(&path).unwrap().public(), key.public());
        let error = create(&path).unwrap_err();
        assert!(matches!(error, KeyFileError::File(OwnFileError::Exists { .. })), "{error}");
        assert_eq!(read_or_create(&OwnFile::of(&path).unwrap()).unwrap().public(), key.public());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(&folder.path().join("a"))), (0o600, 0o700));
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.to_string().contains("`chmod 600"), "{error}");
    }

    #[test]
    fn the_key_of_openssh_is_in_the_home() {
        let path = |home: Option<&str>| openssh_path(|_| home.map(OsString::from));
        assert_eq!(path(Some("/h")), Some(PathBuf::from("/h/.ssh/id_ed25519")));
        assert_eq!((path(Some("")), path(None)), (None, None));
    }

    /// A server's key is a file of this program.
    #[test]
    fn a_file_of_openssh_is_a_users_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("id");
        let write = |text: &str, mode| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let plain = include_str!("../../../keynote/src/key/openssh/vectors/plain.key");
        write(plain, 0o600);
        let public = include_str!("../../../keynote/src/key/openssh/vectors/plain.pub");
        assert_eq!(read(&path).unwrap().public(), public.parse().unwrap());
        let error = read_from(&OwnFile::of(&path).unwrap()).unwrap_err();
        assert!(matches!(error, KeyFileError::Line { line: 1, .. }), "{error}");
        write(plain, 0o640);
        assert!(read(&path).unwrap_err().to_string().contains("`chmod 600"));
        write(include_str!("../../../keynote/src/key/openssh/vectors/passphrase.key"), 0o600);
        let error = read(&path).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        assert!(matches!(
            error,
            KeyFileError::OpenSsh { source: PrivateFileError::Passphrase { .. }, .. }
        ));
    }

    /// No message shows a part of the key.
    #[test]
    fn the_error_names_the_wrong_line() {
        let parse = |text: &str| parse(text, Path::new("/k")).map(|key| key.public());
        let key = PrivateKey::from_seed([5; 32]);
        let text = key.to_secret_text();
        assert_eq!(parse(&format!("# x\n\n  {text}  \n")).unwrap(), key.public());
        assert!(matches!(parse("# x\n"), Err(KeyFileError::Empty { .. })));
        assert!(matches!(parse(&format!("{text}\n{text}")), Err(KeyFileError::Several { .. })));
        let error = parse(&format!("# x\n{}", &text[..50])).unwrap_err();
        assert!(matches!(error, KeyFileError::Line { line: 2, .. }), "{error}");
        assert!(!format!("{error:?}").contains(&text[20..50]));
        assert!(parse(&key.public().to_string()).is_err());
    }
}
