//! The argument KEY of a command: a public key as text, or the path of a file with one.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use pelago_net::clients::KeyName;
use pelago_net::key::{KeyTextError, PublicKey};

/// Bytes of the file of a public key; the largest RSA key of OpenSSH, which is refused by its name,
/// has fewer.
const FILE_BYTES: usize = 8192;

/// The reason for which an argument is not a public key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyArgumentError {
    /// It is meant as a key, and is none.
    #[error(transparent)]
    Text(#[from] KeyTextError),
    /// It is neither meant as a key nor the path of a file. It is not shown: it may be secret.
    #[error("{}, and no file has this name", KeyTextError::Beginning)]
    Neither,
    /// It is the name of a key, and the path of a file.
    #[error("{0} is the name of a key and that of a file here: `./{0}` is the file")]
    Ambiguous(KeyName),
    /// The file cannot be read.
    #[error("reading {} failed", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file is too large, or no text.
    #[error("{} is not a text of at most {FILE_BYTES} bytes", .0.display())]
    NotText(PathBuf),
    /// The file has no key or several.
    #[error("{} has not one line with a key", .0.display())]
    Lines(PathBuf),
    /// The text in the file is not a public key.
    #[error("{} has no key that can be used here", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: KeyTextError,
    },
}

/// Returns the public key of an argument. A path is tried only if the text begins like no key.
pub(crate) fn read(text: &str) -> Result<PublicKey, KeyArgumentError> {
    match text.parse() {
        Err(KeyTextError::Beginning) if Path::new(text).exists() => read_file(Path::new(text)),
        Err(KeyTextError::Beginning) => Err(KeyArgumentError::Neither),
        parsed => Ok(parsed?),
    }
}

fn read_file(path: &Path) -> Result<PublicKey, KeyArgumentError> {
    let path_of = || path.to_owned();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|source| KeyArgumentError::Read { path: path_of(), source })?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() <= FILE_BYTES);
    let text = text.ok_or_else(|| KeyArgumentError::NotText(path_of()))?;
    let lines = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
    let lines: Vec<&str> = lines.collect();
    let parsed = match lines.as_slice() {
        [line] => line.parse(),
        // The file of a private key has more lines.
        lines => match lines.join("\n").parse::<PublicKey>() {
            Err(KeyTextError::Private) => Err(KeyTextError::Private),
            _ => return Err(KeyArgumentError::Lines(path_of())),
        },
    };
    parsed.map_err(|source| KeyArgumentError::File { path: path_of(), source })
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::fs;

    use pelago_net::key::PrivateKey;

    use super::*;

    /// The key of the seed 1.
    const LINE: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c ann@desk";

    fn key() -> PublicKey {
        PrivateKey::from_seed([1; 32]).public()
    }

    #[test]
    fn a_key_is_a_text_or_a_file_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("id.pub");
        let own = key().to_string();
        for text in [LINE, &own] {
            assert_eq!(read(text).unwrap(), key());
            fs::write(&path, format!("# Ann's\n{text}\n\n")).unwrap();
            assert_eq!(read(path.to_str().unwrap()).unwrap(), key());
        }
    }

    #[test]
    fn what_is_wrong_in_a_file_is_said_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("id.pub");
        let said = |text: &str| {
            fs::write(&path, text).unwrap();
            let error = read(path.to_str().unwrap()).unwrap_err();
            let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            format!("{error}{source}").replace(path.to_str().unwrap(), "FILE")
        };
        assert_eq!(said(&format!("{LINE}\n{LINE}")), "FILE has not one line with a key");
        assert_eq!(said("# nothing\n"), "FILE has not one line with a key");
        let secret = PrivateKey::from_seed([1; 32]).to_secret_text();
        for private in
            [&format!("# A key\n{secret}\n"), "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n"]
        {
            let said = said(private);
            let wanted = "FILE has no key that can be used here: this is a private key, ";
            assert!(said.starts_with(wanted) && !said.contains(&secret[20..]), "{said}");
        }
        let rsa = "FILE has no key that can be used here: this is a key of the type ssh-rsa, ";
        assert!(said("ssh-rsa AAAAB3NzaC1yc2E").starts_with(rsa));
        let other =
            "FILE has no key that can be used here: a key begins with pelago1 or with ssh-ed25519";
        assert_eq!(said("hello"), other);
        let long = "#".repeat(FILE_BYTES + 1);
        assert_eq!(said(&long), "FILE is not a text of at most 8192 bytes");
        let folder = folder.path().to_str().unwrap();
        let error = read(folder).unwrap_err().to_string();
        assert_eq!(error, format!("reading {folder} failed"));
        let neither = "a key begins with pelago1 or with ssh-ed25519, and no file has this name";
        assert_eq!(read(&format!("{folder}/none")).unwrap_err().to_string(), neither);
    }
}
