//! The tree that the owner shares, and the credentials of its guests.

use std::fs;
use std::path::Path;

use pelago_client::{At, Files};
use pelago_keynote::{
    Assertion, Credential, CredentialId, Grant, Principal, Revocation, Right, Rights, SharedName,
    SharedObject, policy,
};
use pelago_net::key::PrivateKey;
use pelago_store::volume::{Format, POLICY, VolumeId};
use pelago_wire::{Context, Error, Handle, Name, NewMode, OpenFlags, SetAttr};

/// The file that is locked while it moves out.
pub(crate) const LOCKED_FILE: &str = "deep";

/// A guest, among all of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GuestNumber(pub(crate) usize);

/// A file or directory that the owner shares, among all of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SharedNode(pub(crate) usize);

/// Something that rights of guests depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// The credentials with which the session of a guest begins.
    First(GuestNumber),
    /// Those that it attaches.
    Attached(GuestNumber),
    /// The key of a second root in the policy.
    SecondRoot,
    /// The place of a node in the shared directory.
    Inside(SharedNode),
    /// The name by which a file is shared.
    Name,
}

/// The number of guests. All have all rights to a directory: the first one's right is signed by a
/// root, the second one's by a middle key, and that of the third one ends by the clock.
///
/// They attach further credentials. Of a public file that stays outside:
/// - the first one may read it by the second root of the volume,
/// - the second one has no right to it: the middle key that has signed one may not grant it,
/// - the third one may read it: the middle key that has signed all rights has no others,
/// - the last one may write it, and not read it, until a time.
///
/// And the third one may read the file whose names change under one of its names outside.
pub(crate) const GUESTS: usize = 4;
/// The guest whose first credential ends by the clock, and the one whose attached one does.
pub(crate) const ENDING: GuestNumber = GuestNumber(2);
pub(crate) const LAPSING: GuestNumber = GuestNumber(3);
const BY_SECOND_ROOT: GuestNumber = GuestNumber(0);
const BY_MIDDLE: GuestNumber = GuestNumber(1);
/// The volume.
pub(crate) const VOLUME: VolumeId = VolumeId([7; 16]);
/// The file that stays where it is, the one whose names change, the one in the directory that
/// moves, and the public one.
pub(crate) const STEADY: SharedNode = SharedNode(0);
pub(crate) const NAMED: SharedNode = SharedNode(1);
pub(crate) const DEEP: SharedNode = SharedNode(2);
pub(crate) const PUBLIC: SharedNode = SharedNode(3);
pub(crate) const SHARED_FILES: [SharedNode; 4] = [STEADY, NAMED, DEEP, PUBLIC];
/// The name under which the file whose names change is shared too.
pub(crate) const SHARED_NAME: &str = "fourth";
/// A name in the directory of the public file that no guest may remove.
pub(crate) const SPARE: &str = "spare";
const CONTEXT: Context = Context::direct(0, 0);
const ROOT_KEY: u8 = 1;
const MIDDLE_KEY: u8 = 2;
const SERVER_KEY: u8 = 3;
const SECOND_ROOT_KEY: u8 = 4;
const OTHER_MIDDLE_KEY: u8 = 5;
const FIRST_GUEST_KEY: u8 = 10;
const RIGHTS: &str = "rwcd";
/// The bits of a file whose bytes guests change: a set-id bit is among them.
const SET_ID_MODE: u16 = 0o4666;

/// The nodes that the owner shares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SharedTree {
    /// The directory that guests may use, and one beside it.
    pub(crate) inside: Handle,
    pub(crate) outside: Handle,
    /// The directory that moves between both.
    pub(crate) moving: Handle,
    /// The directory of the public file.
    pub(crate) public: Handle,
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
    write_policy(dir, true);
}

/// Writes the roots of the volume.
pub(crate) fn write_policy(dir: &Path, has_second_root: bool) {
    let roots = [principal(ROOT_KEY), principal(SECOND_ROOT_KEY)];
    let count = if has_second_root { 2 } else { 1 };
    let policy = policy(&roots[..count], &[]).expect("a policy");
    // No server reads a half of it.
    let new = dir.join("policy.new");
    fs::write(&new, policy).expect("a file");
    fs::rename(&new, dir.join(POLICY)).expect("a file");
}

/// Returns the chains that give a guest a right to a node, any right without one, each with all
/// that it depends on.
pub(crate) fn granting(
    guest: GuestNumber,
    node: SharedNode,
    right: Option<Right>,
) -> Vec<Vec<Source>> {
    let attached = Source::Attached(guest);
    let mut chains = Vec::new();
    let mut add = |rights: &[Right], sources: Vec<Source>| {
        if right.is_none_or(|right| rights.contains(&right)) {
            chains.push(sources);
        }
    };
    let all = [Right::Read, Right::Write, Right::Create, Right::Delete];
    match node {
        PUBLIC => match guest {
            BY_SECOND_ROOT => add(&[Right::Read], vec![attached, Source::SecondRoot]),
            ENDING => add(&[Right::Read], vec![attached]),
            LAPSING => add(&[Right::Write], vec![attached]),
            _ => {}
        },
        _ => add(&all, vec![Source::First(guest), Source::Inside(node)]),
    }
    if (node, guest) == (NAMED, ENDING) {
        add(&[Right::Read], vec![attached, Source::Name]);
    }
    chains
}

/// Makes the tree, as the server's own mount does.
pub(crate) fn prepare(files_of: &Files) -> Result<SharedTree, Error> {
    let make_dir = |dir: Handle, text: &str| -> Result<Handle, Error> {
        let mode = NewMode::exactly(0o777);
        Ok(files_of.make_dir(&CONTEXT, name_in(dir, text), mode).wait()?.handle)
    };
    let make = |dir: Handle, text: &str| -> Result<Handle, Error> {
        let mode = NewMode::exactly(0o666);
        let at = name_in(dir, text);
        let created = files_of.create(&CONTEXT, at, mode, OpenFlags::READ_WRITE).wait()?;
        files_of.flush(&CONTEXT, created.open, None).wait()?;
        files_of.fsync(&CONTEXT, created.open, false).wait()?;
        files_of.release(&CONTEXT, created.open).wait()?;
        Ok(created.entry.handle)
    };
    let inside = make_dir(Handle::ROOT, "inside")?;
    let outside = make_dir(Handle::ROOT, "outside")?;
    let moving = make_dir(inside, "moving")?;
    let public = make_dir(Handle::ROOT, "public")?;
    make(public, SPARE)?;
    let files = [
        make(inside, "steady")?,
        make(inside, "named")?,
        make(moving, "deep")?,
        make(public, "public")?,
    ];
    let set = SetAttr { mode: Some(SET_ID_MODE), ..SetAttr::default() };
    files_of.set_attr(&CONTEXT, files[STEADY.0], None, set).wait()?;
    Ok(SharedTree { inside, outside, moving, public, files })
}

/// A credential that is signed.
struct Signed<'a> {
    by: u8,
    to: u8,
    rights: &'a str,
    object: SharedObject,
    /// The time at which it ends, in seconds after the beginning.
    until: Option<u64>,
}

impl Signed<'_> {
    fn text(self) -> Vec<u8> {
        let Self { by, to, rights, object, until } = self;
        let rights = rights.parse::<Rights>().expect("rights");
        let until = until.map(digits);
        let grant = Grant { volume: VOLUME.0, object, rights, until, from: None };
        let conditions = grant.conditions();
        let credential =
            Credential { comment: &[], licensee: principal(to), conditions: &conditions };
        credential.sign(&key(by).signing_key()).expect("a credential").into_bytes()
    }
}

/// The times at which rights end, in seconds after the beginning.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndTimes {
    /// That of the first credential of [`ENDING`].
    pub(crate) first: u64,
    /// That of the attached one of [`LAPSING`].
    pub(crate) attached: u64,
}

/// Returns the credentials with which the session of a guest begins.
fn first_chain(guest: GuestNumber, tree: &SharedTree, ends: EndTimes) -> Vec<Vec<u8>> {
    let to = key_number(guest);
    let object = SharedObject::Folder(tree.inside.ino.raw());
    let until = (guest == ENDING).then_some(ends.first);
    let own = |by| Signed { by, to, rights: RIGHTS, object: object.clone(), until }.text();
    match guest {
        BY_MIDDLE => {
            let rights = format!("{RIGHTS}g");
            let of_middle = Signed {
                by: ROOT_KEY,
                to: MIDDLE_KEY,
                rights: &rights,
                object: object.clone(),
                until: None,
            };
            vec![of_middle.text(), own(MIDDLE_KEY)]
        }
        _ => vec![own(ROOT_KEY)],
    }
}

/// Returns the chains of credentials that a guest attaches.
fn attached_chains(guest: GuestNumber, tree: &SharedTree, ends: EndTimes) -> Vec<Vec<Vec<u8>>> {
    let own = key_number(guest);
    let public = || SharedObject::Folder(tree.public.ino.raw());
    let sign = |by, to, rights, object| Signed { by, to, rights, object, until: None }.text();
    match guest {
        BY_SECOND_ROOT => vec![vec![sign(SECOND_ROOT_KEY, own, "r", public())]],
        BY_MIDDLE => vec![vec![
            sign(ROOT_KEY, MIDDLE_KEY, "rw", public()),
            sign(MIDDLE_KEY, own, "rw", public()),
        ]],
        ENDING => {
            let name = SharedName::new(SHARED_NAME.as_bytes()).expect("a name");
            let name = SharedObject::Name { directory: tree.outside.ino.raw(), name };
            vec![
                vec![
                    sign(ROOT_KEY, OTHER_MIDDLE_KEY, "rg", public()),
                    sign(OTHER_MIDDLE_KEY, own, RIGHTS, public()),
                ],
                vec![sign(ROOT_KEY, own, "r", name)],
            ]
        }
        _ => {
            let until = Some(ends.attached);
            let signed = Signed { by: ROOT_KEY, to: own, rights: "w", object: public(), until };
            vec![vec![signed.text()]]
        }
    }
}

/// Returns the chains of credentials of a guest, the first one of which opens its session.
pub(crate) fn chains(guest: GuestNumber, tree: &SharedTree, ends: EndTimes) -> Vec<Vec<Vec<u8>>> {
    let mut chains = vec![first_chain(guest, tree, ends)];
    chains.extend(attached_chains(guest, tree, ends));
    chains
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
pub(crate) fn credential_revocation(guest: GuestNumber, tree: &SharedTree) -> Vec<u8> {
    revocation_of(&first_chain(guest, tree, NO_ENDS))
}

/// Returns the sentence by which the root takes back the credential that the first guest attaches.
/// Its session goes on.
pub(crate) fn attached_revocation(tree: &SharedTree) -> (GuestNumber, Vec<u8>) {
    let chains = attached_chains(BY_SECOND_ROOT, tree, NO_ENDS);
    (BY_SECOND_ROOT, revocation_of(chains.first().expect("a chain")))
}

/// For credentials that have no end.
const NO_ENDS: EndTimes = EndTimes { first: 0, attached: 0 };

fn revocation_of(chain: &[Vec<u8>]) -> Vec<u8> {
    let text = chain.first().expect("a credential");
    let id: CredentialId = Assertion::credential(text).expect("a credential").id();
    Revocation::sign(VOLUME.0, id, 1_700_000_000, &key(ROOT_KEY).signing_key()).into_bytes()
}
