//! The words about the rights of a guest.

use std::path::Path;

use pelago_keynote::hex;
use pelago_net::key::PublicKey;
use pelago_wire::{DenialCause, DeniedRight, GuestAccess, InodeId};
use serde_json::{Value, json};

use crate::credential::until;
use crate::key_names::{KeyNames, described};
use crate::{json, output};

/// The digits of a credential's id that are shown.
const DIGITS: usize = 12;
/// The width of all letters.
const LETTERS: usize = 7;

/// Returns the line of a guest: of its user, at a path, or else of the guest with this key.
pub(super) fn line(guest: &GuestAccess, path: Option<&String>, names: Option<&KeyNames>) -> String {
    let rights = match letters(&guest.rights) {
        letters if letters.is_empty() => "-".to_owned(),
        letters => letters,
    };
    match path {
        Some(path) => format!("{rights:LETTERS$}  {path}\n"),
        None => {
            let key = who(guest.key, names);
            let id = hex::text(&guest.credential);
            let id = id.get(..DIGITS).unwrap_or(&id);
            format!("{rights:LETTERS$}  {key}, by the credential {id}\n")
        }
    }
}

/// Returns a line for each reason why a guest lacks rights.
pub(super) fn why(guest: &GuestAccess, names: Option<&KeyNames>) -> String {
    let mut reasons: Vec<(String, &DeniedRight)> = Vec::new();
    for denied in &guest.denied {
        let letter = char::from(denied.right);
        let is_same = |other: &DeniedRight| {
            (other.link, other.cause, &other.detail) == (denied.link, denied.cause, &denied.detail)
        };
        match reasons.iter_mut().find(|(_, other)| is_same(other)) {
            Some((letters, _)) => letters.push(letter),
            None => reasons.push((letter.to_string(), denied)),
        }
    }
    let lines = reasons.iter().map(|(letters, denied)| {
        let says = says(denied, letters.len() > 1);
        match denied.link {
            0 => format!("    no {letters}: {says}\n"),
            link => {
                let signer = who(denied.signer, names);
                let links = guest.links;
                format!("    no {letters}: credential {link} of {links}, by {signer}, {says}\n")
            }
        }
    });
    lines.collect()
}

/// Returns a key, by its name in the volume if it has one.
fn who(key: [u8; 32], names: Option<&KeyNames>) -> String {
    let key = PublicKey::new(key);
    described(&key, names.and_then(|names| names.name(&key)))
}

fn says(denied: &DeniedRight, are_several: bool) -> String {
    let detail = output::name(&denied.detail);
    match denied.cause {
        DenialCause::Right if are_several => "does not have these rights".to_owned(),
        DenialCause::Right => "does not have this right".to_owned(),
        DenialCause::Grant => "may not be shared on, so what follows it is void".to_owned(),
        DenialCause::Place => format!("is for inode {detail}, and this is not that, nor in it"),
        DenialCause::Ended => format!("ended at {}", output::name(&until(&denied.detail))),
        DenialCause::Address => format!("is for the addresses {detail} only"),
        DenialCause::Volume => "is for another volume".to_owned(),
        DenialCause::Conditions if detail.is_empty() => "its conditions are not met".to_owned(),
        DenialCause::Conditions => format!("has conditions that are not met: {detail}"),
        DenialCause::Revoked => "was taken back".to_owned(),
        DenialCause::NoRoot => "is signed by a key that is no root of the volume".to_owned(),
        DenialCause::Policy => {
            "the file `policy` of the volume does not let a root grant it".to_owned()
        }
        DenialCause::Steps => "the conditions take too long".to_owned(),
        DenialCause::Modes if detail.is_empty() => "its mode or access list denies it".to_owned(),
        DenialCause::Modes => format!("its mode or access list denies it to {detail}"),
        DenialCause::User => {
            "no user, or another one than its session's, is known for it".to_owned()
        }
    }
}

/// Returns the rights of guests as an object.
pub(super) fn to_json(path: &Path, node: InodeId, guests: &[GuestAccess]) -> Value {
    let guests: Vec<Value> = guests.iter().map(guest_json).collect();
    json!({
        "version": json::VERSION,
        "path": path.to_string_lossy(),
        "inode": node.raw(),
        "guests": guests,
    })
}

fn guest_json(guest: &GuestAccess) -> Value {
    let denied = |denied: &DeniedRight| {
        json!({
            "right": char::from(denied.right).to_string(),
            "link": denied.link,
            "by": (denied.link > 0).then(|| PublicKey::new(denied.signer).to_string()),
            "cause": cause(denied.cause),
            "detail": denied.detail,
        })
    };
    let denied: Vec<Value> = guest.denied.iter().map(denied).collect();
    json!({
        "key": PublicKey::new(guest.key).to_string(),
        "credential": hex::text(&guest.credential),
        "links": guest.links,
        "rights": letters(&guest.rights),
        "denied": denied,
    })
}

const fn cause(cause: DenialCause) -> &'static str {
    match cause {
        DenialCause::Right => "right",
        DenialCause::Grant => "grant",
        DenialCause::Place => "place",
        DenialCause::Ended => "ended",
        DenialCause::Address => "address",
        DenialCause::Volume => "volume",
        DenialCause::Conditions => "conditions",
        DenialCause::Revoked => "revoked",
        DenialCause::NoRoot => "no-root",
        DenialCause::Policy => "policy",
        DenialCause::Steps => "steps",
        DenialCause::Modes => "modes",
        DenialCause::User => "user",
    }
}

fn letters(rights: &[u8]) -> String {
    rights.iter().map(|letter| char::from(*letter)).collect()
}

#[cfg(test)]
mod tests {
    use pelago_wire::SessionId;

    use super::*;

    fn denied(right: u8, link: u8, cause: DenialCause, detail: &str) -> DeniedRight {
        DeniedRight { right, link, signer: [1; 32], cause, detail: detail.to_owned() }
    }

    #[test]
    fn each_reason_is_said_once_for_all_rights_that_it_denies() {
        let guest = GuestAccess {
            session: SessionId(7),
            key: [2; 32],
            credential: [0xab; 32],
            links: 2,
            rights: b"rx".to_vec(),
            denied: vec![
                denied(b'w', 1, DenialCause::Right, ""),
                denied(b'c', 1, DenialCause::Right, ""),
                denied(b'd', 2, DenialCause::Right, ""),
                denied(b'g', 2, DenialCause::Ended, "20261231180000"),
                denied(b'a', 0, DenialCause::Policy, ""),
            ],
        };
        let key = PublicKey::new([2; 32]);
        let signer = PublicKey::new([1; 32]);
        let first = format!("rx       {key}, by the credential abababababab\n");
        assert_eq!(line(&guest, None, None), first);
        assert_eq!(line(&guest, Some(&"/m/f".to_owned()), None), "rx       /m/f\n");
        let nothing = GuestAccess { rights: Vec::new(), ..guest.clone() };
        assert_eq!(line(&nothing, Some(&"/m/f".to_owned()), None), "-        /m/f\n");
        let lines = format!(
            "    no wc: credential 1 of 2, by {signer}, does not have these rights\n    \
             no d: credential 2 of 2, by {signer}, does not have this right\n    \
             no g: credential 2 of 2, by {signer}, ended at 2026-12-31 18:00 UTC\n    \
             no a: the file `policy` of the volume does not let a root grant it\n"
        );
        assert_eq!(why(&guest, None), lines);
    }

    /// The conditions are a stranger's text.
    #[test]
    fn no_detail_controls_a_terminal() {
        for cause in [DenialCause::Conditions, DenialCause::Place, DenialCause::Ended] {
            let denied = vec![denied(b'r', 1, cause, "\u{1b}]0;x\u{7}\n")];
            let guest = GuestAccess {
                session: SessionId(0),
                key: [2; 32],
                credential: [0; 32],
                links: 1,
                rights: Vec::new(),
                denied,
            };
            let says = why(&guest, None);
            assert!(!says.contains(['\u{1b}', '\u{7}']), "{says}");
            assert_eq!(says.matches('\n').count(), 1, "{says}");
        }
    }
}
