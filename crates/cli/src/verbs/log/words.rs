//! The words of a line of the audit log.

use pelago_keynote::{Grant, Right, SharedName, SharedObject, hex};
use pelago_net::key::PublicKey;
use serde_json::Value;

use crate::credential::granted;
use crate::key_names::{KeyNames, described};
use crate::output;

/// The digits of a credential's id that are shown.
const DIGITS: usize = 12;

/// The names of keys.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    /// The names in the volume; `None` if its lists cannot be read.
    pub(super) names: Option<&'a KeyNames>,
}

/// Returns a line for people. Each text of the object is shown so that it cannot control a
/// terminal.
pub(super) fn words(line: &Value, keys: Keys<'_>) -> String {
    let time = text(line, "time");
    let key = keys.key(line, "key");
    let left_out = match number(line, "omitted") {
        None => String::new(),
        Some(1) => "; one line like this before it was left out".to_owned(),
        Some(count) => format!("; {count} lines like this before it were left out"),
    };
    let says = match line["what"].as_str().unwrap_or_default() {
        "share" => {
            let links = line["chain"].as_array().into_iter().flatten();
            let links: Vec<String> =
                links.map(|link| format!("\n    {}", grant(link, keys))).collect();
            format!("{key} came for the first time, with {}:{}", credential(line), links.concat())
        }
        "use" => {
            let right = match text(line, "rights").as_str() {
                letter if letter.chars().count() == 1 => format!("the right `{letter}`"),
                _ => "what is shared".to_owned(),
            };
            format!("{key} used {right} for the first time: {}", action(line))
        }
        "denial" => {
            let needs = match text(line, "rights").as_str() {
                _ if text(line, "why") == "modes" => {
                    "a mode or an access list denies it".to_owned()
                }
                "" => "no guest may do that".to_owned(),
                letter if letter.chars().count() == 1 => format!("it needs the right `{letter}`"),
                letters if letters == all_rights() => "it needs any right there".to_owned(),
                letters => format!("it needs the rights `{letters}`"),
            };
            format!("{key} was denied {}: {needs}", action(line))
        }
        "issue" => {
            let issued = text(line, "issued");
            let issued = issued.get(..DIGITS).unwrap_or(&issued);
            let node = number(line, "node").unwrap_or_default();
            format!("{key} got the credential {issued} for inode {node}, which it has made")
        }
        "refusal" => format!("{key} was not let in: {} {}", credential(line), why(line)),
        "lapse" => format!("{key} goes on without {}: it {}", credential(line), why(line)),
        "end" => format!("{key} was cut off: {} {}", credential(line), why(line)),
        "revocation" => format!("{} took back {}", keys.key(line, "by"), credential(line)),
        "policy" => {
            let roots = line["roots"].as_array().into_iter().flatten();
            let roots: Vec<String> = roots.map(|root| keys.key_of(root)).collect();
            match roots.is_empty() {
                true => "the volume has no roots".to_owned(),
                false => format!("the roots are {}", roots.join(", ")),
            }
        }
        "omitted" => return format!("{time}  {}", omitted(line)),
        "damaged" => return format!("a line is damaged: {}", text(line, "line")),
        _ => output::name(&line.to_string()).into_owned(),
    };
    format!("{time}  {says}{left_out}")
}

fn omitted(line: &Value) -> String {
    let of = match line.get("credential") {
        Some(_) => format!(" about {}", credential(line)),
        None => String::new(),
    };
    match number(line, "omitted") {
        Some(1) => format!("one line{of} was left out before"),
        Some(count) => format!("{count} lines{of} were left out before"),
        None => format!("further lines{of} are left out on this day: there are too many"),
    }
}

/// Returns the letters of all rights, of which one is needed.
fn all_rights() -> String {
    Right::ALL.iter().map(|right| right.letter()).collect()
}

fn action(line: &Value) -> String {
    let operation = text(line, "operation");
    match number(line, "node") {
        Some(node) => format!("{operation} of inode {node}"),
        None => operation,
    }
}

/// Returns why a chain opens no session.
fn why(line: &Value) -> String {
    match line["why"].as_str().unwrap_or_default() {
        "expired" => "has ended".to_owned(),
        "revoked" => "was taken back".to_owned(),
        "no-root" => "is signed by a key that is no root any more".to_owned(),
        "closed" => "is still in force; the client has ended the session".to_owned(),
        _ => text(line, "why"),
    }
}

/// Returns what a credential of a chain grants.
fn grant(link: &Value, keys: Keys<'_>) -> String {
    let by = keys.key(link, "by");
    let to = link["to"].as_array().into_iter().flatten();
    let to: Vec<String> = to.map(|key| keys.key_of(key)).collect();
    let grants = match share(link) {
        Some(share) => format!("{}, {}", object(&share.object), granted(&share)),
        None => format!("what its conditions say, {}", text(link, "conditions")),
    };
    format!("{by} with {}, to {}: {grants}", credential(link), to.join(", "))
}

/// Returns an object of a share in words.
fn object(object: &SharedObject) -> String {
    match object {
        SharedObject::Folder(inode) => format!("the folder of inode {inode}"),
        SharedObject::File(inode) => format!("the file of inode {inode}"),
        SharedObject::Name { directory, name } => {
            let name = name.to_string();
            format!("the file {} in the folder of inode {directory}", output::name(&name))
        }
    }
}

/// Returns the rights of a credential that Pelago has written.
fn share(link: &Value) -> Option<Grant> {
    let from = match link.get("from") {
        Some(from) => Some(from.as_str()?.parse().ok()?),
        None => None,
    };
    let object = match (number(link, "file"), link.get("name")) {
        (Some(file), _) => SharedObject::File(file),
        (None, Some(name)) => SharedObject::Name {
            directory: number(link, "directory")?,
            name: SharedName::new(name.as_str()?.as_bytes())?,
        },
        (None, None) => SharedObject::Folder(number(link, "directory")?),
    };
    Some(Grant {
        volume: [0; 16],
        object,
        rights: link["rights"].as_str()?.parse().ok()?,
        until: link.get("until").and_then(Value::as_str).map(str::to_owned),
        from,
    })
}

fn number(line: &Value, field: &str) -> Option<u64> {
    line.get(field)?.as_u64()
}

fn text(line: &Value, field: &str) -> String {
    output::name(line[field].as_str().unwrap_or_default()).into_owned()
}

impl Keys<'_> {
    fn key(self, line: &Value, field: &str) -> String {
        self.key_of(&line[field])
    }

    /// Returns a key as `pelago key show` prints it, with its name in the volume if it has one.
    fn key_of(self, digits: &Value) -> String {
        let digits = digits.as_str().unwrap_or_default();
        let Some(key) = hex::read(digits).map(PublicKey::new) else {
            return output::name(digits).into_owned();
        };
        described(&key, self.names.and_then(|names| names.name(&key)))
    }
}

fn credential(line: &Value) -> String {
    let id = text(line, "credential");
    format!("the credential {}", id.get(..DIGITS).unwrap_or(&id))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the words of a line at one time, without that.
    fn said(line: Value) -> String {
        let mut line = line;
        line["time"] = "2026-11-28T11:02:26Z".into();
        words(&line, Keys { names: None }).replacen("2026-11-28T11:02:26Z  ", "", 1)
    }

    #[test]
    fn each_kind_of_line_is_said_in_words() {
        let key = "11".repeat(32);
        let name = PublicKey::new([0x11; 32]).to_string();
        let id = "ab".repeat(32);
        let chain = json!([{
            "by": key, "to": [key], "credential": id, "rights": "rx", "directory": 42,
            "until": "20261231180000",
        }]);
        for (line, says) in [
            (
                json!({ "what": "share", "key": key, "credential": id, "chain": chain }),
                format!(
                    "{name} came for the first time, with the credential abababababab:\n    \
                     {name} with the credential abababababab, to {name}: the folder of inode 42, \
                     to be read, until 2026-12-31 18:00 UTC"
                ),
            ),
            (
                json!({ "what": "use", "key": key, "rights": "r", "operation": "read", "node": 9 }),
                format!("{name} used the right `r` for the first time: read of inode 9"),
            ),
            (
                json!({
                    "what": "denial", "key": key, "rights": "", "operation": "create", "node": 9,
                    "omitted": 7,
                }),
                format!(
                    "{name} was denied create of inode 9: no guest may do that; 7 lines like this \
                     before it were left out"
                ),
            ),
            (
                json!({ "what": "denial", "key": key, "rights": "w", "operation": "write" }),
                format!("{name} was denied write: it needs the right `w`"),
            ),
            (
                json!({
                    "what": "denial", "key": key, "rights": "r", "operation": "open", "node": 9,
                    "why": "modes",
                }),
                format!("{name} was denied open of inode 9: a mode or an access list denies it"),
            ),
            (
                json!({ "what": "refusal", "key": key, "credential": id, "why": "expired" }),
                format!("{name} was not let in: the credential abababababab has ended"),
            ),
            (
                json!({ "what": "end", "key": key, "credential": id, "why": "revoked" }),
                format!("{name} was cut off: the credential abababababab was taken back"),
            ),
            (
                json!({ "what": "revocation", "by": key, "credential": id }),
                format!("{name} took back the credential abababababab"),
            ),
            (
                json!({ "what": "issue", "key": key, "credential": id, "node": 9,
                        "issued": "cd".repeat(32) }),
                format!("{name} got the credential cdcdcdcdcdcd for inode 9, which it has made"),
            ),
            (json!({ "what": "policy", "roots": [key] }), format!("the roots are {name}")),
            (json!({ "what": "policy", "roots": [] }), "the volume has no roots".to_owned()),
            (json!({ "what": "omitted", "omitted": 3 }), "3 lines were left out before".to_owned()),
            (
                json!({ "what": "omitted", "credential": id }),
                "further lines about the credential abababababab are left out on this day: there \
                 are too many"
                    .to_owned(),
            ),
        ] {
            assert_eq!(said(line), says);
        }
    }

    /// The file may have been written by anyone.
    #[test]
    fn no_line_controls_a_terminal_or_ends_the_program() {
        let evil = "\u{1b}]0;x\u{7}\n";
        for line in [
            json!({ "what": evil, "time": evil }),
            json!({ "what": "share", "key": evil, "chain": [evil, { "by": evil }] }),
            json!({ "what": "refusal", "credential": "é", "why": 7 }),
            json!({ "what": "denial", "operation": evil, "rights": evil, "node": -1 }),
            json!({ "what": "end", "why": evil, "omitted": "7" }),
            json!({ "what": "policy", "roots": [evil, 7] }),
            json!({ "what": "damaged", "line": evil }),
            json!([]),
            json!(7),
        ] {
            let says = words(&line, Keys { names: None });
            assert!(!says.contains(['\u{1b}', '\u{7}']), "{says:?}");
        }
    }
}
