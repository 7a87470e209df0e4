//! Keys that the `ssh-keygen` of this machine makes.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use pelago_net::key::file::{self, KeyFileError};
use pelago_net::key::openssh::line::KeyLineError;
use pelago_net::key::openssh::private::PrivateFileError;
use pelago_net::key::{KeyTextError, PublicKey};

/// Makes a key and its `.pub`; says if there is no `ssh-keygen`.
fn keygen(path: &Path, kind: &[&str], passphrase: &str, comment: &str) -> bool {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-N", passphrase, "-C", comment, "-f"]).arg(path).args(kind);
    match command.stdin(Stdio::null()).status() {
        Ok(status) => status.success(),
        Err(error) => {
            println!("skipped: not here: ssh-keygen: {error}");
            false
        }
    }
}

fn public_of(path: &Path) -> Result<PublicKey, KeyTextError> {
    fs::read_to_string(path.with_extension("pub")).expect("the public half").parse()
}

/// Comments of all lengths up to a block, and so paddings of all lengths.
#[test]
fn both_halves_of_a_new_key_are_one_key() {
    let folder = tempfile::tempdir().unwrap();
    for length in 0..8 {
        let path = folder.path().join(format!("id{length}"));
        if !keygen(&path, &["-t", "ed25519"], "", &"c".repeat(length)) {
            return;
        }
        let private = file::read(&path).unwrap().public();
        assert_eq!(public_of(&path), Ok(private));
    }
}

#[test]
fn a_new_key_with_a_passphrase_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for cipher in ["aes256-ctr", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"] {
        let path = folder.path().join(cipher.split('@').next().unwrap());
        if !keygen(&path, &["-t", "ed25519", "-a", "1", "-Z", cipher], "secret words", "c") {
            return;
        }
        let Err(KeyFileError::OpenSsh { source, .. }) = file::read(&path) else { panic!() };
        let public = public_of(&path).unwrap();
        assert_eq!(source, PrivateFileError::Passphrase { public });
    }
}

#[test]
fn new_keys_of_other_types_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let kinds = [
        (&["-t", "rsa", "-b", "1024"][..], "ssh-rsa"),
        (&["-t", "ecdsa", "-b", "384"], "ecdsa-sha2-nistp384"),
    ];
    for (number, (kind, name)) in kinds.into_iter().enumerate() {
        let path = folder.path().join(format!("id{number}"));
        if !keygen(&path, kind, "", "c") {
            return;
        }
        let Err(KeyFileError::OpenSsh { source, .. }) = file::read(&path) else { panic!() };
        assert_eq!(source, PrivateFileError::OtherType { name: name.to_owned() });
        assert_eq!(public_of(&path), Err(KeyTextError::Line(KeyLineError::OtherType { name })));
    }
}
