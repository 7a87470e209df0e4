//! The tree that the owner shares, and the credentials of its guests.

use std::fs;
use std::path::Path;

use pelago_client::{At, Files};
use pelago_keynote::share::SharedObject;
use pelago_keynote::{Credential, CredentialId, Grant, Principal, Revocation, Rights, policy};
use pelago_net::key::PrivateKey;
use pelago_store::volume::{Format, POLICY, VolumeId};
use pelago_wire::{Context, Error, Handle, InodeId, Name, NewMode, OpenFlags};

use crate::grants::{GuestNumber, SharedNode};

/// The number of guests. The second one has its right from a middle key, and the right of the last
/// one ends by the clock.
pub(crate) const GUESTS: usize = 3;
/// The guest whose right ends by the clock.
pub(crate) const ENDING: GuestNumber = GuestNumber(GUESTS - 1);
/// The volume.
pub(crate) const VOLUME: VolumeId = VolumeId([7; 16]);
/// The file that stays where it is, the one whose names change, and the one in the directory that
/// moves.
pub(crate) const STEADY: SharedNode = SharedNode(0);
pub(crate) const NAMED: SharedNode = SharedNode(1);
pub(crate) const DEEP: SharedNode = SharedNode(2);
pub(crate) const SHARED_FILES: [SharedNode; 3] = [STEADY, NAMED, DEEP];
const CONTEXT: Context = Context::direct(0, 0);
const ROOT_KEY: u8 = 1;
const MIDDLE_KEY: u8 = 2;
const SERVER_KEY: u8 = 3;
const FIRST_GUEST_KEY: u8 = 10;
const RIGHTS: &str = "rwcd";

/// The nodes that the owner shares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedTree {
    /// The directory that guests may use, and one beside it.
    pub(crate) inside: Handle,
    pub(crate) outside: Handle,
    /// The directory that moves between both.
    pub(crate) moving: Handle,
    /// The files, by the numbers of [`SHARED_FILES`].
    pub(crate) files: [Handle; SHARED_FILES.len()],
}

/// Returns a name in a directory.
pub(crate) fn name_in(dir: Handle, text: &str) -> At {
    At::new(dir, Name::new(text.as_bytes()).expect("a name"))
}

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

fn principal(number: u8) -> Principal {
    Principal(*key(number).public().as_bytes())
}

fn key_number(guest: GuestNumber) -> u8 {
    FIRST_GUEST_KEY + u8::try_from(guest.0).unwrap_or(0)
}

/// Returns the key of the server.
pub(crate) fn server_key() -> PrivateKey {
    key(SERVER_KEY)
}

/// Returns the key of a guest.
pub(crate) fn guest_key(guest: GuestNumber) -> PrivateKey {
    key(key_number(guest))
}

/// Writes the files of a volume by which its server has guests.
pub(crate) fn write_files(dir: &Path) {
    let format = Format {
        id: VOLUME,
        inline_bytes: 0,
        needed_features: 0,
        optional_features: 0,
        site: 0,
        shards: 1,
    };
    fs::write(dir.join("format"), format.encode()).expect("a file");
    let policy = policy(&[principal(ROOT_KEY)], &[]).expect("a policy");
    fs::write(dir.join(POLICY), policy).expect("a file");
}

/// Makes the tree, as the server's own mount does.
pub(crate) fn prepare(files: &Files) -> Result<SharedTree, Error> {
    let make_dir = |dir: Handle, text: &str| -> Result<Handle, Error> {
        let mode = NewMode::exactly(0o777);
        Ok(files.make_dir(&CONTEXT, name_in(dir, text), mode).wait()?.handle)
    };
    let make = |dir: Handle, text: &str| -> Result<Handle, Error> {
        let mode = NewMode::exactly(0o666);
        let at = name_in(dir, text);
        let created = files.create(&CONTEXT, at, mode, OpenFlags::READ_WRITE).wait()?;
        files.flush(&CONTEXT, created.open, None).wait()?;
        files.fsync(&CONTEXT, created.open, false).wait()?;
        files.release(&CONTEXT, created.open).wait()?;
        Ok(created.entry.handle)
    };
    let inside = make_dir(Handle::ROOT, "inside")?;
    let outside = make_dir(Handle::ROOT, "outside")?;
    let moving = make_dir(inside, "moving")?;
    let files = [make(inside, "steady")?, make(inside, "named")?, make(moving, "deep")?];
    Ok(SharedTree { inside, outside, moving, files })
}

/// Signs a credential for a directory, which ends at `until`, 14 digits, if that is given.
fn sign(by: u8, licensee: u8, rights: &str, directory: InodeId, until: Option<String>) -> String {
    let grant = Grant {
        volume: VOLUME.0,
        object: SharedObject::Folder(directory.raw()),
        rights: rights.parse::<Rights>().expect("rights"),
        until,
        from: None,
    };
    let conditions = grant.conditions();
    let credential =
        Credential { comment: &[], licensee: principal(licensee), conditions: &conditions };
    credential.sign(&key(by).signing_key()).expect("a credential")
}

/// Returns the chain of credentials of a guest to a directory. `ends` is the time at which that of
/// [`ENDING`] ends, in seconds after the beginning.
pub(crate) fn chain(guest: GuestNumber, directory: InodeId, ends: u64) -> Vec<String> {
    let own = key_number(guest);
    match guest {
        ENDING => vec![sign(ROOT_KEY, own, RIGHTS, directory, Some(digits(ends)))],
        GuestNumber(1) => vec![
            sign(ROOT_KEY, MIDDLE_KEY, &format!("{RIGHTS}g"), directory, None),
            sign(MIDDLE_KEY, own, RIGHTS, directory, None),
        ],
        GuestNumber(_) => vec![sign(ROOT_KEY, own, RIGHTS, directory, None)],
    }
}

/// Returns a time as credentials have it: some seconds after the beginning of all clocks, which is
/// 22:13:20 of a day.
fn digits(seconds: u64) -> String {
    let seconds = 13 * 60 + 20 + seconds;
    format!("2023111422{:02}{:02}", seconds / 60, seconds % 60)
}

/// Returns the sentence by which the root takes back the key that a guest's right depends on: its
/// own, or for the second one the middle key.
pub(crate) fn revocation(guest: GuestNumber) -> Vec<u8> {
    let taken = if guest.0 == 1 { MIDDLE_KEY } else { key_number(guest) };
    let at = 1_700_000_000;
    Revocation::sign(VOLUME.0, principal(taken), at, &key(ROOT_KEY).signing_key()).into_bytes()
}

/// Returns the sentence by which the root takes back the first credential of a guest.
pub(crate) fn credential_revocation(guest: GuestNumber, directory: InodeId) -> Vec<u8> {
    let chain = chain(guest, directory, 0);
    let text = chain.first().map(String::as_bytes).unwrap_or_default();
    let id: CredentialId = pelago_keynote::Assertion::credential(text).expect("a credential").id();
    Revocation::sign(VOLUME.0, id, 1_700_000_000, &key(ROOT_KEY).signing_key()).into_bytes()
}
