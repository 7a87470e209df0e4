//! A revocation by a guest who has the right `a`: of what others have shared in the folder.

use std::path::Path;

use pelago_keynote::{CredentialId, Revocation, SharedObject, hex};
use pelago_wire::{GuestAccess, InodeId, Name};

use super::{Args, RevokeError, ask, now, print};
use crate::credential::{self, Chain, Whereabouts};
use crate::failure::{Exit, Failure, Outcome};
use crate::licensed_key::licensed_key;
use crate::server_session::ServerSession;
use crate::verbs::access::{lookup, of_attached};

/// The fewest digits of an id that mean a credential: as many as `pelago access` prints.
const DIGITS: usize = 12;

/// Takes back a credential, which is in a file, or of which a guest is connected by it and its id
/// begins with the digits.
pub(super) fn revoke(args: &Args, path: &Path) -> Outcome<()> {
    let (session, own, guests) = of_attached(path)?;
    let key = licensed_key(&own.last.licensees().collect::<Vec<_>>())?;
    let volume = own.last.share.volume;
    let sentence = |id: CredentialId| Revocation::sign(volume, id, now(), &key.signing_key());
    let elsewhere = "the credential is of another volume";
    match args.what.to_str().filter(|text| is_id(text) && !args.what.exists()) {
        Some(digits) => {
            let id = of_guests(digits, &guests)?;
            let offices = ask(&session, sentence(id), Vec::new(), elsewhere)?;
            super::print_id(args, &id, &offices)
        }
        None => {
            let chain = credential::read(&args.what)?;
            show(&session, &chain)?;
            let text = chain.last.credential.text().to_owned();
            let id = chain.last.credential.id();
            let offices = ask(&session, sentence(id), vec![text], elsewhere)?;
            print(args, &chain, &chain.last, &offices)
        }
    }
}

/// Returns whether these are the digits with which the id of a credential begins.
fn is_id(text: &str) -> bool {
    let digits = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    digits && (DIGITS..=2 * size_of::<CredentialId>()).contains(&text.len())
}

/// Returns the credential of these guests whose id begins with some digits.
fn of_guests(digits: &str, guests: &[GuestAccess]) -> Outcome<CredentialId> {
    let mut ids: Vec<[u8; 32]> = guests.iter().map(|guest| guest.credential).collect();
    ids.retain(|id| hex::text(id).starts_with(digits));
    ids.sort_unstable();
    ids.dedup();
    match ids.as_slice() {
        [id] => Ok(CredentialId(*id)),
        ids => {
            let error = RevokeError::Id { digits: digits.to_owned(), count: ids.len() };
            Err(Failure::new(Exit::NotFound, error)
                .hint("`pelago access PATH` prints the ids of those who are connected"))
        }
    }
}

/// Has the server look at the file of a credential, by its name: it finds a file by its number only
/// if it has seen it.
fn show(session: &ServerSession, chain: &Chain) -> Outcome<()> {
    let SharedObject::File(_) = chain.last.share.object else { return Ok(()) };
    let comment = chain.last.credential.comment();
    let dir = Whereabouts::parent_in(comment).unwrap_or(InodeId::ROOT);
    let name = Whereabouts::raw_name_in(comment).unwrap_or_default();
    match Name::new(&name) {
        // The server decides, whatever it finds.
        Ok(name) => lookup(session, dir, name).map(drop),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::SessionId;

    use super::*;

    fn guest(credential: [u8; 32]) -> GuestAccess {
        let rights = b"r".to_vec();
        let session = SessionId(1);
        GuestAccess { session, key: [1; 32], credential, links: 1, rights, denied: Vec::new() }
    }

    #[test]
    fn digits_mean_the_one_credential_that_begins_with_them() {
        let mut near = [0xab; 32];
        near[31] = 0;
        let guests = [guest([0xab; 32]), guest([7; 32]), guest([7; 32])];
        let found = |digits: &str, guests: &[GuestAccess]| of_guests(digits, guests).ok();
        assert_eq!(found("070707070707", &guests), Some(CredentialId([7; 32])));
        assert_eq!(found(&"ab".repeat(32), &guests), Some(CredentialId([0xab; 32])));
        assert_eq!(found("080808080808", &guests), None);
        let guests = [guest([0xab; 32]), guest(near)];
        assert_eq!(found("abababababab", &guests), None, "two");
        assert_eq!(found(&hex::text(&near), &guests), Some(CredentialId(near)));
    }

    #[test]
    fn an_id_has_as_many_digits_as_are_printed_or_more() {
        assert!(is_id("0123456789ab") && is_id(&"f".repeat(64)));
        for other in ["", "0123456789a", "0123456789AB", "docs.cred", &"f".repeat(65)] {
            assert!(!is_id(other), "{other}");
        }
    }
}
