//! `pelago revoke`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_keynote::{CredentialId, Grant, Principal, Revocation};
use pelago_net::clients::KeyName;
use pelago_net::key::{KeyTextError, PublicKey};
use pelago_store::clock;
use pelago_store::volume::VolumeId;
use pelago_wire::{Code, Error, Reply, Request};
use serde_json::json;

use super::key::own_key;
use crate::control::{AskError, ask_status};
use crate::credential::{self, Chain, Link};
use crate::failure::{Exit, Failure, Outcome};
use crate::key_argument::{self, KeyArgumentError};
use crate::key_names::{KeyNames, described};
use crate::licensed_key::licensed_key;
use crate::server_session::{PATIENCE, ServerSession};
use crate::status_report::StatusReport;
use crate::up_volume::{Mirrored, mirrored, volume_id};
use crate::{json, locate, output, runtime_dir};

mod by_auditor;

const AFTER: &str = "\
A root of the volume takes back any credential, on the machine of its server, in any of its \
offices, while that is up; of a file with several the last one. Or he takes back a key: it is no \
guest any more, whatever was shared with it and will be, and no credential that it has signed \
counts. A guest takes back what he has shared on, from anywhere: the first one of the file that he \
has signed. What was handed on after it is void with it, for ever, also after a restart: who came \
with it reads nothing more, by name or by an open file. What was read before stays read.

It holds in all offices. Those that can be reached are waited for; each other one has a line, and \
goes on serving guests as before while it is cut off, for a day at most. Once its line is back it \
holds there before a guest is served. On the machine of a volume with a mirror it waits until the \
mirror has it, for two seconds at most; if it does not have it then, a line says so.

With --mount a guest who has the right `a` there takes back what others have shared in it: the \
last credential of a file, or one by which a guest is connected, by the first digits of its id, as \
`pelago access` prints them.";

/// Take a credential back, or all that a key has.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The file with the credential that `pelago share` printed; `-` is the input. Or the key of a
    /// guest, or its name in the volume; with --mount the id of a credential
    #[arg(value_name = "KEY|NAME|FILE")]
    what: PathBuf,
    /// The volume's folder
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// A path in the mount of `pelago attach`, to which you have the right `a`
    #[arg(long, value_name = "PATH", conflicts_with = "volume")]
    mount: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, thiserror::Error)]
enum RevokeError {
    #[error("the server {server} does not take it back")]
    Refused {
        /// The server, for people.
        server: String,
        #[source]
        source: Error,
    },
    #[error("no volume that is mounted here is the one of the credential")]
    NotUp,
    #[error("{0} is neither a file nor the name of a key in the volume")]
    Unknown(KeyName),
    #[error("this is not a key")]
    Key(#[source] KeyTextError),
    #[error(transparent)]
    Argument(KeyArgumentError),
    #[error("{count} credentials by which guests have a right there begin with {digits}")]
    Id { digits: String, count: usize },
}

/// The credential or key that is taken back.
enum Meant {
    /// The last credential of a file, or the one that this user has signed.
    File,
    /// A key.
    Key(PublicKey),
}

/// Signs a revocation, and sends it to the server.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if let Some(path) = &args.mount {
        by_auditor::revoke(args, path)?;
        return Ok(ExitCode::SUCCESS);
    }
    match meant(args)? {
        Meant::Key(key) => revoke_key(args, &key),
        Meant::File => revoke_credential(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what the argument means. A name and a file of the same name are an error: the name takes
/// back more.
fn meant(args: &Args) -> Outcome<Meant> {
    let Some(text) = args.what.to_str() else { return Ok(Meant::File) };
    match text.parse::<PublicKey>() {
        Ok(key) => return Ok(Meant::Key(key)),
        Err(KeyTextError::Beginning) => {}
        // It may be secret, so it is no path in a message.
        Err(error) => return Err(Failure::new(Exit::Usage, RevokeError::Key(error))),
    }
    let is_file = args.what.exists();
    let Some(name) = text.parse::<KeyName>().ok().filter(|_| text != "-") else {
        return Ok(of_file(&args.what));
    };
    let found = match (locate::find(args.volume.as_deref(), None), &args.volume) {
        (Err(failure), Some(_)) => return Err(failure),
        (found, _) => found.ok().filter(|found| !runtime_dir::is_one(&found.dir)),
    };
    let names = found.map(|found| KeyNames::of(&found.dir));
    let named = match names {
        // A list that cannot be read is no reason to keep a credential in force.
        Some(Err(_)) if is_file => None,
        names => names.transpose()?.map(|names| names.key(&name)).transpose()?.flatten(),
    };
    match (named, is_file) {
        (Some(_), true) => {
            let error = RevokeError::Argument(KeyArgumentError::Ambiguous(name));
            Err(Failure::new(Exit::Usage, error).hint("give the key, or the path of the file"))
        }
        (Some(key), false) => Ok(Meant::Key(key)),
        (None, true) => Ok(of_file(&args.what)),
        (None, false) => Err(Failure::new(Exit::NotFound, RevokeError::Unknown(name))
            .hint("`pelago key list` prints the names; `-V DIR` names the volume")),
    }
}

/// Returns what a file means: the key in it, or the credential.
fn of_file(path: &Path) -> Meant {
    // A pipe can be read once.
    let text = path.to_str().filter(|_| path.is_file());
    text.and_then(|text| key_argument::read(text).ok()).map_or(Meant::File, Meant::Key)
}

/// Takes back a key, with all that it has and has shared on.
fn revoke_key(args: &Args, taken: &PublicKey) -> Outcome<()> {
    let dir = locate::find(args.volume.as_deref(), None)?.dir;
    let names = KeyNames::of(&dir).ok();
    let name = names.as_ref().and_then(|names| names.name(taken));
    let key = own_key()?;
    let subject = Principal(*taken.as_bytes());
    let sentence = Revocation::sign(volume_id(&dir)?, subject, now(), &key.signing_key());
    let invalid = "a root is taken out of the file `policy` of the volume instead";
    let offices = of_volume(&dir, sentence, invalid)?;
    wait_for_mirror(&dir);
    if args.json {
        return output::print_json(&json!({
            "version": json::VERSION,
            "revoked": taken.to_string(),
            "name": name.map(KeyName::as_str),
            "unreached": offices.away,
            "refused": offices.refused,
        }));
    }
    let who = described(taken, name);
    let machine = match names.as_ref().is_some_and(|names| names.is_machine(taken)) {
        true => format!("machine   it may still connect as one: `pelago key remove {taken}`\n"),
        false => String::new(),
    };
    output::print(&format!(
        "revoked   {who}: it is no guest any more, and what it has shared on is void\n{machine}{}",
        offices.lines()
    ))
}

/// Waits for a moment until the mirror of the volume in `dir`, if it has one, has what was taken
/// back, and says if it does not: the revocation holds here all the same.
fn wait_for_mirror(dir: &Path) {
    match mirrored(dir, None) {
        // It has no mirror.
        Ok(Mirrored { done: true, .. }) | Err(AskError::Refused { .. }) => {}
        Ok(Mirrored { done: false, .. }) | Err(_) => output::print_error(
            "not yet   at the mirror: if it is promoted before it has this, guests go on there as \
             before. `pelago wait --level remote` returns once it has it",
        ),
    }
}

fn now() -> u64 {
    u64::try_from(clock::now().seconds).unwrap_or_default()
}

/// Takes back a credential.
fn revoke_credential(args: &Args) -> Outcome<()> {
    let chain = credential::read(&args.what)?;
    let signers: Vec<PublicKey> = chain.links().map(|link| link.signer).collect();
    // A root may take back what another root has shared.
    let key = licensed_key(&signers).or_else(|_| own_key())?;
    // A guest takes back what he has signed himself, and all that follows is void with it.
    let of_guest = chain.divide_at(&key.public()).filter(|_| args.volume.is_none());
    let revoked = of_guest.as_ref().map_or(&chain.last, |(_, own)| own);
    let id = revoked.credential.id();
    let sentence = Revocation::sign(revoked.share.volume, id, now(), &key.signing_key());
    let elsewhere = "the credential is of another volume: name that with `-V DIR`";
    // Its end, after which the revocation is of no use, is in the text.
    let texts = vec![revoked.credential.text().to_owned()];
    let offices = match (&args.volume, &of_guest) {
        // The server of a guest says nothing of its mirror.
        (None, Some((above, _))) => {
            ask(&ServerSession::of_guest(above, key)?, sentence, texts, elsewhere)?
        }
        (volume, _) => {
            let dir = match volume {
                Some(dir) => locate::find(Some(dir), None)?.dir,
                None => volume_of(&chain.last.share)?,
            };
            let offices = ask(&ServerSession::of_volume(&dir)?, sentence, texts, elsewhere)?;
            wait_for_mirror(&dir);
            offices
        }
    };
    print(args, &chain, revoked, &offices)
}

/// The offices in which what was taken back may still be in use.
struct Offices {
    /// Those that were not reached.
    away: Vec<String>,
    /// Those in which it is refused.
    refused: Vec<String>,
}

impl Offices {
    /// Returns a line for each office, and what becomes of it.
    fn lines(&self) -> String {
        let away = self.away.iter().map(|office| {
            format!(
                "not yet   in {office}, which was not reached: while it is cut off guests go on \
                 there as before, for a day at most\n"
            )
        });
        let then = "then      it holds there by itself once the line is back, before a guest is \
                    served\n";
        let then = (!self.away.is_empty()).then(|| then.to_owned());
        let refused = self.refused.iter().map(|office| {
            format!(
                "refused   in {office}: guests may go on there as before. The logs of the offices \
                 say why; it is tried again by itself, at least once an hour\n"
            )
        });
        away.chain(then).chain(refused).collect()
    }
}

/// Returns the folder of a credential's volume, if it is up and mounted on this machine.
fn volume_of(share: &Grant) -> Outcome<PathBuf> {
    let id = VolumeId(share.volume).to_string();
    let is_it = |dir: &PathBuf| match ask_status(dir, PATIENCE) {
        Ok(StatusReport::Up(report)) => report.id == id,
        Ok(_) | Err(_) => false,
    };
    locate::all_up().into_iter().find(is_it).ok_or_else(|| {
        Failure::new(Exit::NotFound, RevokeError::NotUp).hint("name its folder with `-V DIR`")
    })
}

/// Prints that the credential with this id is taken back.
fn print_id(args: &Args, id: &CredentialId, offices: &Offices) -> Outcome<()> {
    match args.json {
        true => output::print_json(&json!({
            "version": json::VERSION,
            "revoked": id.to_string(),
            "unreached": offices.away,
            "refused": offices.refused,
        })),
        false => output::print(&format!(
            "revoked   {id}: it grants nothing any more\n{}",
            offices.lines()
        )),
    }
}

fn print(args: &Args, chain: &Chain, revoked: &Link, offices: &Offices) -> Outcome<()> {
    if args.json {
        return print_id(args, &revoked.credential.id(), offices);
    }
    let file = args.what.display();
    let said = match chain.links().count() {
        1 => format!("revoked   {file}: it grants nothing any more\n"),
        _ => format!(
            "revoked   {file}: it grants nothing any more\n\
             was       {}\n",
            revoked.words()
        ),
    };
    output::print(&format!("{said}{}", offices.lines()))
}

/// Sends a revocation to the server of the volume in `dir`, over its socket. Returns the offices in
/// which it may not hold yet.
fn of_volume(dir: &Path, sentence: String, invalid: &'static str) -> Outcome<Offices> {
    ask(&ServerSession::of_volume(dir)?, sentence, Vec::new(), invalid)
}

/// Sends a revocation; of a guest with the text of the credential. Returns the offices in which it
/// may not hold yet. `invalid` is the hint if the server does not take the sentence as one.
fn ask(
    session: &ServerSession,
    sentence: String,
    texts: Vec<String>,
    invalid: &'static str,
) -> Outcome<Offices> {
    let chain = texts.into_iter().map(String::into_bytes).collect();
    let answer = session.ask(Request::Revoke { sentence: sentence.into_bytes(), chain })?;
    let answer = answer.and_then(|reply| match reply {
        Reply::Unreached { away, refused } => Ok(Offices { away, refused }),
        _ => Err(Code::Bug.into()),
    });
    answer.map_err(|source: Error| {
        let hint = match source.code {
            Code::AccessDenied if session.is_guest => {
                "a root of the volume can take it back, there; with `--mount` who has the right `a`"
            }
            Code::AccessDenied => "only a root takes it back: use the key of the first share",
            Code::Invalid => invalid,
            Code::NoSpace => "the volume has as many revocations as it can have",
            _ => "the log of the volume says why",
        };
        let exit = Exit::from(source.kind());
        let server = session.server.clone();
        Failure::new(exit, RevokeError::Refused { server, source }).hint(hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_office_in_which_it_does_not_hold_has_a_line_that_says_what_that_means() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let lines = |away: &[&str], refused: &[&str]| {
            let offices = Offices { away: names(away), refused: names(refused) };
            offices.lines()
        };
        assert_eq!(lines(&[], &[]), "");
        assert_eq!(
            lines(&["berlin", "rome"], &[]),
            "not yet   in berlin, which was not reached: while it is cut off guests go on there as \
             before, for a day at most\n\
             not yet   in rome, which was not reached: while it is cut off guests go on there as \
             before, for a day at most\n\
             then      it holds there by itself once the line is back, before a guest is served\n"
        );
        assert_eq!(
            lines(&[], &["first"]),
            "refused   in first: guests may go on there as before. The logs of the offices say \
             why; it is tried again by itself, at least once an hour\n"
        );
        assert_eq!(lines(&["rome"], &["berlin"]).lines().count(), 3);
    }
}
