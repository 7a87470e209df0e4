//! A share by a root of a volume that is up on this machine.

use std::path::Path;

use pelago_keynote::{
    Assertion, Authorizer, CREDENTIAL_BYTES, Credential, Grant, IssuingLicence, Principal, Right,
    Rights, policy,
};
use pelago_net::key::address::ServerAddress;
use pelago_net::key::{PrivateKey, PublicKey};
use pelago_net::own_file::{OwnFileError, Readers};
use pelago_store::volume;
use pelago_wire::InodeId;

use super::error::{ShareError, not_here, written_failed};
use super::object::examine;
use super::{Shared, Spare, Terms};
use crate::charter;
use crate::control::SitesReport;
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
    let sites = sites_of(&dir)?;
    let home = node.ino.site();
    let is_here = home == sites.own;
    let address = match is_here {
        true => listen(&dir, at)?,
        false => address_there(&sites, home, path, at)?,
    };
    let rights = terms.rights.unwrap_or(Rights::READ);
    let volume = volume_id(&dir)?;
    let grant = Grant {
        volume,
        object,
        rights: if terms.may_share { rights.with(Right::Grant) } else { rights },
        until: terms.until.clone(),
        from: terms.from,
    };
    if !is_here && sites.own != InodeId::ROOT.site() {
        expect_root_everywhere(&dir, &key, &office(&sites, home))?;
    }
    // After all steps that may fail, because the spare key is printed once.
    let spare = become_root(&dir, &key)?;
    if is_here && let Err(failure) = license_server(&dir, &key, volume, &address.key()) {
        // The share is not less for it, and the spare key must be printed.
        output::print_error(&format!(
            "note      who makes files here gets no credentials for them: {failure}"
        ));
    }
    let text = node.credential(&address, to, &grant, &key)?;
    Ok(Shared { chain: vec![text], grant, to: *to, address, spare })
}

/// Returns the address of the server of another office, which has the folder or file.
fn address_there(
    sites: &SitesReport,
    home: u16,
    path: &Path,
    at: Option<&str>,
) -> Outcome<ServerAddress> {
    let name = office(sites, home);
    let path = path.to_owned();
    if at.is_some() {
        return Err(Failure::new(Exit::Usage, ShareError::AtElsewhere { path, office: name })
            .hint("share it without `--at`"));
    }
    let there = sites.others.iter().find(|line| line.site == home);
    let address = there.and_then(|line| format!("{}@{}", line.key, line.address).parse().ok());
    address.ok_or_else(|| {
        let hint = format!("let it listen there: `pelago up DIR --listen HOST:PORT` in {name}");
        Failure::new(Exit::Unreachable, ShareError::Unreachable { path, office: name }).hint(hint)
    })
}

/// Returns the name of an office, for people.
fn office(sites: &SitesReport, site: u16) -> String {
    let line = sites.others.iter().find(|line| line.site == site);
    line.map_or_else(|| site.to_string(), |line| line.name.clone())
}

/// Checks that this user's key is a root of the first office, whose roots count everywhere.
fn expect_root_everywhere(dir: &Path, key: &PrivateKey, office: &str) -> Outcome<()> {
    let own = Principal(*key.public().as_bytes());
    match charter::roots(dir)?.contains(&own) {
        true => Ok(()),
        false => Err(Failure::new(Exit::Denied, ShareError::NotOfFirst(key.public())).hint(format!(
            "share it in the office {office}, or with a root of the first office: set PELAGO_KEY"
        ))),
    }
}

/// Makes this user's key a root of the volume if this is its first share, and creates a spare root.
/// A root of the first office is one everywhere.
fn become_root(dir: &Path, key: &PrivateKey) -> Outcome<Option<Spare>> {
    let file = own_file(dir, volume::POLICY)?;
    let failed = |error: OwnFileError| Failure::new(Exit::from(error.kind()), error);
    let own = Principal(*key.public().as_bytes());
    if charter::roots(dir)?.contains(&own) {
        return Ok(None);
    }
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
        Err(OwnFileError::Missing { .. }) => None,
        Err(error) => return Err(Failure::new(Exit::from(error.kind()), error)),
    };
    let signer = match credential.authorizer() {
        Authorizer::Key(key) => *key,
        Authorizer::Policy | Authorizer::Opaque(_) => return Ok(false),
    };
    let is_here = roots.is_some_and(|roots| roots.licensees().keys().any(|root| root == signer));
    let is_root = is_here || charter::roots(dir)?.contains(&signer);
    Ok(is_root && credential.verify().is_ok())
}
