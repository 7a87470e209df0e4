//! A share by a root of a volume that is up on this machine.

use std::path::Path;

use pelago_keynote::{
    Assertion, Authorizer, CREDENTIAL_BYTES, Credential, Grant, IssuingLicence, Principal, Right,
    Rights, policy,
};
use pelago_net::key::{PrivateKey, PublicKey};
use pelago_net::own_file::{OwnFileError, Readers};
use pelago_store::volume;

use super::error::{ShareError, elsewhere, not_here, written_failed};
use super::object::examine;
use super::{Shared, Spare, Terms};
use crate::failure::{Exit, Failure, Outcome};
use crate::locate::{self, VolumeRef};
use crate::output;
use crate::up_volume::{listen, volume_id};
use crate::verbs::key::{own_file, own_key};
use crate::verbs::site::sites_of;

/// Signs a credential for a folder or a file of the volume.
pub(super) fn share(
    found: VolumeRef,
    path: &Path,
    to: &PublicKey,
    at: Option<&str>,
    terms: &Terms,
) -> Outcome<Shared> {
    let VolumeRef { dir, mounted } = found;
    let point = match mounted {
        Some(point) if locate::is_volume(&dir) => point,
        _ => return Err(not_here(locate::absolute(path)?)),
    };
    let node = examine(&point, path)?;
    let object = node.shared(path, terms.by_name)?;
    let key = own_key()?;
    let own_site = sites_of(&dir)?.own;
    if node.ino.site() != own_site {
        return Err(elsewhere(path));
    }
    let address = listen(&dir, at)?;
    let rights = terms.rights.unwrap_or(Rights::READ);
    let volume = volume_id(&dir)?;
    let grant = Grant {
        volume,
        object,
        rights: if terms.may_share { rights.with(Right::Grant) } else { rights },
        until: terms.until.clone(),
        from: terms.from,
    };
    // After all steps that may fail, because the spare key is printed once.
    let spare = become_root(&dir, &key)?;
    if let Err(failure) = license_server(&dir, &key, volume, &address.key()) {
        // The share is not less for it, and the spare key must be printed.
        output::print_error(&format!(
            "note      who makes files here gets no credentials for them: {failure}"
        ));
    }
    let text = node.credential(&address, to, &grant, &key)?;
    Ok(Shared { chain: vec![text], grant, to: *to, address, spare })
}

/// Makes this user's key a root of the volume if this is its first share, and creates a spare root.
fn become_root(dir: &Path, key: &PrivateKey) -> Outcome<Option<Spare>> {
    let file = own_file(dir, volume::POLICY)?;
    let failed = |error: OwnFileError| Failure::new(Exit::from(error.kind()), error);
    let own = Principal(*key.public().as_bytes());
    // Of two first shares at once, the second waits for the first, and then finds its file.
    let edit = file.edit().map_err(failed)?;
    match file.read(Readers::Everybody, CREDENTIAL_BYTES) {
        Ok((text, _)) => {
            let present = Assertion::policy(text.as_bytes()).map_err(|error| {
                Failure::new(Exit::Damaged, ShareError::Policy(error))
                    .hint("restore the file `policy` from a copy")
            })?;
            match present.licensees().keys().any(|root| root == own) {
                true => Ok(None),
                false => Err(Failure::new(Exit::Denied, ShareError::NoRoot(key.public()))
                    .hint("use the key of the first share, or its spare: set PELAGO_KEY")),
            }
        }
        Err(OwnFileError::Missing { .. }) => {
            let spare =
                PrivateKey::generate().map_err(|error| Failure::new(Exit::Failed, error))?;
            let roots = [own, Principal(*spare.public().as_bytes())];
            let comment =
                ["the roots of this volume: whose credentials its server accepts".to_owned()];
            let text = policy(&roots, &comment).map_err(written_failed)?;
            edit.finish(&text).map_err(failed)?;
            Ok(Some(Spare { secret: spare.to_secret_text() }))
        }
        Err(error) => Err(failed(error)),
    }
}

/// Lets the server of the volume issue credentials to those who make files there, unless a present
/// root has done so.
fn license_server(
    dir: &Path,
    key: &PrivateKey,
    volume: [u8; 16],
    server: &PublicKey,
) -> Outcome<()> {
    let failed = |error: OwnFileError| Failure::new(Exit::from(error.kind()), error);
    let file = own_file(dir, volume::ISSUER)?;
    let edit = file.edit().map_err(failed)?;
    let server = Principal(*server.as_bytes());
    let licence = IssuingLicence { volume };
    if let Ok((text, _)) = file.read(Readers::Everybody, CREDENTIAL_BYTES)
        && let Ok(present) = Assertion::credential(text.as_bytes())
        && IssuingLicence::of(&present) == Some(licence)
        && present.licensees().only_key() == Some(server)
        && is_by_root(dir, &present)?
    {
        return Ok(());
    }
    let comment = ["lets the server issue credentials to those who make files".to_owned()];
    let conditions = licence.conditions();
    let credential = Credential { comment: &comment, licensee: server, conditions: &conditions };
    let text = credential.sign(&key.signing_key()).map_err(written_failed)?;
    edit.finish(&text).map_err(failed)
}

/// Returns whether a root of the volume has signed a credential.
fn is_by_root(dir: &Path, credential: &Assertion) -> Outcome<bool> {
    let file = own_file(dir, volume::POLICY)?;
    let roots = match file.read(Readers::Everybody, CREDENTIAL_BYTES) {
        Ok((text, _)) => Assertion::policy(text.as_bytes()).ok(),
        Err(error) => return Err(Failure::new(Exit::from(error.kind()), error)),
    };
    let signer = match credential.authorizer() {
        Authorizer::Key(key) => *key,
        Authorizer::Policy | Authorizer::Opaque(_) => return Ok(false),
    };
    let is_root = roots.is_some_and(|roots| roots.licensees().keys().any(|root| root == signer));
    Ok(is_root && credential.verify().is_ok())
}
