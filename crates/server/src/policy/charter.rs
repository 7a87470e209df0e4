//! The charter: what the first site says to all others about the roots of the volume, and about the
//! users as whom guests act.
//!
//! The first site signs it from its files `policy` and `keys`, with a version that rises; at each
//! other site it is in force beside the files there. Both keep it in the file `charter`.

use std::io::Read as _;
use std::sync::Arc;

use pelago_keynote::key::PrivateKey;
use pelago_keynote::{CHARTER_BYTES, Charter, Principal, SignedCharter};
use pelago_store::folder::Folder;
use pelago_store::report::volume_failed;
use pelago_store::volume::{self, ReplacedFile, replace_file};
use pelago_wire::{Code, Error, limits};
use rustix::fs::OFlags;

use super::roots::{InForce, Roots};
use super::users::BoundElsewhere;
use super::{Policy, moment};

/// The seconds by which the version that another office has may be ahead of this clock.
const AHEAD: u64 = 366 * 24 * 60 * 60;

/// The limits of the wire are those of the parser.
const _: () = assert!(CHARTER_BYTES == limits::CHARTER_BYTES);

/// The charter, as it is known here.
#[derive(Default)]
pub(super) struct KnownCharter {
    /// `None` if there is none yet.
    charter: Option<Charter>,
    text: Arc<[u8]>,
    /// The newest version that another site has named.
    heard: u64,
}

impl KnownCharter {
    fn version(&self) -> u64 {
        self.charter.as_ref().map_or(0, |charter| charter.version)
    }
}

impl Policy {
    /// Reads the charter that the last run has left. At another site than the first one it is in
    /// force from now on.
    pub(crate) fn load_charter(&self, is_first: bool) {
        let Some(folder) = self.roots.as_ref().map(Roots::folder) else { return };
        let parsed = match read(folder) {
            Ok(None) => return,
            Ok(Some(text)) => SignedCharter::parse(&text)
                .map(|charter| (charter.unverified(), text))
                .map_err(|error| error.to_string()),
            Err(error) => Err(error),
        };
        let loaded = parsed.and_then(|(charter, text)| {
            if charter.volume != self.volume.0 {
                return Err("it is of another volume".to_owned());
            }
            if !is_first {
                self.put_in_force(read_texts(&charter)?);
            }
            Ok(KnownCharter { charter: Some(charter), text: text.into(), heard: 0 })
        });
        match loaded {
            Ok(known) => *self.charter.lock() = known,
            // Another site gets it again; the first one signs it again, with a version that follows
            // the newest of which it hears.
            Err(why) => tracing::error!(why, "the file `charter` of the volume cannot be used"),
        }
    }

    /// Signs a new charter if the roots or the named keys of the volume have changed. Returns
    /// whether it did. Blocks on the disk.
    ///
    /// # Errors
    /// `Io` if it cannot be written.
    pub(crate) fn renew_charter(&self, key: &PrivateKey) -> Result<bool, Error> {
        let (Some(roots), Some(users)) = (&self.roots, &self.users) else { return Ok(false) };
        // What cannot be read at the moment is what it was.
        let (Some(policy), Some(keys)) = (roots.text(), users.text()) else { return Ok(false) };
        let mut known = self.charter.lock();
        let is_same = match &known.charter {
            Some(charter) => charter.policy == policy && charter.keys == keys,
            // A volume that was never shared has none.
            None => policy.is_none() && keys.is_empty(),
        };
        if is_same {
            return Ok(false);
        }
        // A folder that was put back does not give a version twice: it is later now, and the others
        // tell which they have.
        let newest = known.version().max(known.heard).max(moment::seconds());
        let version = newest.saturating_add(1);
        let charter = Charter { volume: self.volume.0, version, policy, keys };
        let text = charter.sign(&key.signing_key()).into_bytes();
        write(roots.folder(), &text)?;
        tracing::info!(version, "the charter of the volume is signed anew");
        known.charter = Some(charter);
        known.text = text.into();
        Ok(true)
    }

    /// Returns the version of the charter; 0 if there is none.
    pub(crate) fn charter_version(&self) -> u64 {
        self.charter.lock().version()
    }

    /// Returns the charter for a site that has this version; `None` if that is the newest one.
    pub(crate) fn charter_after(&self, version: u64) -> Option<Vec<u8>> {
        let mut known = self.charter.lock();
        if version > known.version().max(known.heard) {
            let own = known.version();
            tracing::error!(
                version,
                own,
                "another office has a newer charter than this one, whose folder may be a copy that \
                 was put back: any change of `policy` or `keys` makes a newer one"
            );
        }
        // No office may use the numbers up.
        if version <= moment::seconds().saturating_add(AHEAD) {
            known.heard = known.heard.max(version);
        }
        (known.version() != version && known.version() > 0).then(|| known.text.to_vec())
    }

    /// Takes over a charter that the first site has sent, whose server has the key `founder`.
    /// Returns whether it is a new one. Blocks on the disk.
    ///
    /// # Errors
    /// `Invalid` if it is none, not signed by that key, or of another volume; `Stale` if a newer
    /// one is known; `Io` if it cannot be written. Nothing has changed then.
    pub(crate) fn take_charter(&self, founder: &Principal, text: &[u8]) -> Result<bool, Error> {
        let refused = |why: String| {
            tracing::error!(why, "a charter of the volume is refused");
            Error::from(Code::Invalid)
        };
        let roots = self.roots.as_ref().ok_or(Code::NotSupported)?;
        let parsed = SignedCharter::parse(text).map_err(|error| refused(error.to_string()))?;
        let charter = parsed.verify(founder).map_err(|error| refused(error.to_string()))?;
        if charter.volume != self.volume.0 {
            return Err(refused("it is of another volume".to_owned()));
        }
        let mut known = self.charter.lock();
        if charter.version == known.version() && *known.text == *text {
            return Ok(false);
        }
        if charter.version <= known.version() {
            let versions = (charter.version, known.version());
            tracing::error!(
                ?versions,
                "the first office has an older charter than this one, which keeps its own: the \
                 folder there may be a copy that was put back"
            );
            return Err(Code::Stale.into());
        }
        // Looks accounts up, which no change of a guest waits for.
        let texts = read_texts(&charter).map_err(refused)?;
        write(roots.folder(), text)?;
        let no_change = self.hold_guests();
        self.put_in_force(texts);
        drop(no_change);
        tracing::info!(version = charter.version, "the charter of the volume has changed");
        known.charter = Some(charter);
        known.text = text.into();
        Ok(true)
    }

    /// Returns whether there may be guests: there is a root.
    pub(crate) fn may_have_guests(&self) -> bool {
        self.roots.as_ref().and_then(Roots::policy).is_some()
    }

    fn put_in_force(&self, texts: CharterTexts) {
        if let (Some(roots), Some(users)) = (&self.roots, &self.users) {
            let CharterTexts { of_policy, of_keys } = texts;
            // A root without its user would act as that of the volume: one that comes, and one that
            // goes. So the user of a guest is found before both have changed, or after.
            let _no_user_is_found = self.changing_charter.write();
            users.set_elsewhere(of_keys);
            roots.set_elsewhere(of_policy);
        }
    }
}

/// The texts of a charter, as they were read.
struct CharterTexts {
    of_policy: InForce,
    of_keys: BoundElsewhere,
}

/// Reads the texts of a charter, and looks up its users.
///
/// # Errors
/// If they are no policy and no list.
fn read_texts(charter: &Charter) -> Result<CharterTexts, String> {
    let of_policy = charter.policy.as_ref().map(|text| InForce::read(text.as_bytes()));
    let of_policy = of_policy.transpose()?.unwrap_or_default();
    let of_keys = BoundElsewhere::read(&charter.keys)?;
    Ok(CharterTexts { of_policy, of_keys })
}

fn write(folder: &Folder, text: &[u8]) -> Result<(), Error> {
    let replaced = replace_file(folder, ReplacedFile::Charter, Some(text));
    replaced.map_err(|error| volume_failed(&error))
}

fn read(folder: &Folder) -> Result<Option<Vec<u8>>, String> {
    let file = match folder.open_file(volume::CHARTER, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let mut text = Vec::new();
    let read = file.take(CHARTER_BYTES as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| error.to_string())?;
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use pelago_keynote::{Credential, Grant, policy};
    use pelago_store::volume::VolumeId;
    use pelago_wire::SessionId;
    use tempfile::TempDir;

    use super::*;

    const VOLUME: VolumeId = VolumeId([3; 16]);
    const FOUNDER: u8 = 9;

    fn key(number: u8) -> PrivateKey {
        PrivateKey::from_seed([number; 32])
    }

    fn principal(number: u8) -> Principal {
        Principal(*key(number).public().as_bytes())
    }

    fn charter(version: u64, root: u8) -> Charter {
        let policy = Some(policy(&[principal(root)], &[]).unwrap());
        Charter { volume: VOLUME.0, version, policy, keys: String::new() }
    }

    fn signed(charter: &Charter, by: u8) -> String {
        charter.sign(&key(by).signing_key())
    }

    /// Returns the policy of another site than the first one, in this folder.
    fn of(folder: &TempDir) -> Policy {
        let opened = Folder::open(folder.path()).unwrap();
        let policy = Policy::new(VOLUME, Some(opened), Vec::new(), None);
        policy.load_charter(false);
        policy
    }

    #[test]
    fn a_charter_is_taken_whole_or_not_at_all_and_none_is_older_than_the_last_one() {
        let folder = tempfile::tempdir().unwrap();
        let there = of(&folder);
        let take = |text: &str| {
            let taken = there.take_charter(&principal(FOUNDER), text.as_bytes());
            taken.map_err(|error| error.code)
        };
        let good = signed(&charter(7, 1), FOUNDER);
        assert_eq!(take(&good), Ok(true));
        assert_eq!(take(&good), Ok(false), "it is repeated");
        assert!(there.is_root(&principal(1)));
        let before = there.terms().rights_number;
        let next = charter(8, 2);
        let other_volume = Charter { volume: [4; 16], ..next.clone() };
        let no_policy = Charter { policy: Some("no policy".to_owned()), ..next.clone() };
        let no_list = Charter { keys: "no key\n".to_owned(), ..next.clone() };
        let signed_next = signed(&next, FOUNDER);
        let changed = signed_next.replacen("Version: 8", "Version: 9", 1);
        let long = format!("{signed_next}{}", "x".repeat(CHARTER_BYTES));
        for (what, wrong, code) in [
            ("another key", signed(&next, 8), Code::Invalid),
            ("another volume", signed(&other_volume, FOUNDER), Code::Invalid),
            ("no policy", signed(&no_policy, FOUNDER), Code::Invalid),
            ("no list of keys", signed(&no_list, FOUNDER), Code::Invalid),
            ("a changed version", changed, Code::Invalid),
            ("cut", signed_next[..signed_next.len() - 1].to_owned(), Code::Invalid),
            ("too long", long, Code::Invalid),
            ("nothing", String::new(), Code::Invalid),
            ("older", signed(&charter(6, 2), FOUNDER), Code::Stale),
            ("two with one version", signed(&charter(7, 2), FOUNDER), Code::Stale),
        ] {
            assert_eq!(take(&wrong), Err(code), "{what}");
            assert!(there.is_root(&principal(1)) && !there.is_root(&principal(2)), "{what}");
            assert_eq!(fs::read_to_string(folder.path().join("charter")).unwrap(), good, "{what}");
        }
        assert_eq!(there.terms().rights_number, before);
        // The next run has it, and takes the next one.
        drop(there);
        let there = of(&folder);
        assert!(there.is_root(&principal(1)));
        assert_eq!(there.charter_version(), 7);
        let taken = there.take_charter(&principal(FOUNDER), signed_next.as_bytes());
        assert_eq!(taken, Ok(true));
        assert!(there.is_root(&principal(2)) && !there.is_root(&principal(1)));
        assert!(there.terms().rights_number > 1);
    }

    /// A guest of a root that comes and goes together with its user acts as that user, and never as
    /// the owner of the volume.
    #[test]
    fn no_key_is_a_root_without_its_user_while_a_charter_changes() {
        let folder = tempfile::tempdir().unwrap();
        let there = of(&folder);
        let charters = [1, 2].map(|root| {
            let keys = format!("{} root{root} user=500{root}\n", key(root).public());
            Charter { keys, ..charter(u64::from(root), root) }
        });
        there.put_in_force(read_texts(&charters[0]).unwrap());
        let conditions = Grant::to_read(VOLUME.0, 7).conditions();
        let credential =
            Credential { comment: &[], licensee: principal(3), conditions: &conditions };
        let text = credential.sign(&key(1).signing_key()).unwrap().into_bytes();
        let grant = there.admit(&principal(3).0, &[text], None).unwrap();
        let session = SessionId::new(1, 1);
        there.begin(session, &grant).unwrap();
        let guest = there.guest(session).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000 {
                    there.put_in_force(read_texts(&charters[round % 2]).unwrap());
                }
                is_over.store(true, Ordering::Release);
            });
            let mut seen = [0; 2];
            while !is_over.load(Ordering::Acquire) {
                match there.acting_user(&guest) {
                    Ok(user) => {
                        assert_eq!(user.uid, 5001);
                        seen[0] += 1;
                    }
                    Err(_) => seen[1] += 1,
                }
            }
            assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
        });
    }

    #[test]
    fn the_version_rises_above_all_of_which_others_have_told() {
        let folder = tempfile::tempdir().unwrap();
        let opened = || Folder::open(folder.path()).unwrap();
        let first = Policy::new(VOLUME, Some(opened()), Vec::new(), None);
        first.load_charter(true);
        assert_eq!(first.renew_charter(&key(FOUNDER)), Ok(false), "nothing was shared");
        assert_eq!(first.charter_after(0), None);
        fs::write(folder.path().join("policy"), policy(&[principal(1)], &[]).unwrap()).unwrap();
        let first = Policy::new(VOLUME, Some(opened()), Vec::new(), None);
        assert_eq!(first.renew_charter(&key(FOUNDER)), Ok(true));
        assert_eq!(first.renew_charter(&key(FOUNDER)), Ok(false));
        let version = |text: Option<Vec<u8>>| {
            SignedCharter::parse(&text.unwrap()).unwrap().unverified().version
        };
        let old = first.charter_version();
        assert_eq!(version(first.charter_after(0)), old);
        assert_eq!(first.charter_after(old), None);
        // Another site has a newer one: this folder was put back.
        let newer = old + 1_000_000;
        assert_eq!(version(first.charter_after(newer)), old);
        // One that would use the numbers up is not believed.
        assert_eq!(version(first.charter_after(u64::MAX)), old);
        fs::write(folder.path().join("policy"), policy(&[principal(2)], &[]).unwrap()).unwrap();
        let state = first.roots.as_ref().unwrap();
        state.look();
        assert_eq!(first.renew_charter(&key(FOUNDER)), Ok(true));
        assert_eq!(version(first.charter_after(newer)), newer + 1);
        // The next run goes on from there.
        let next = Policy::new(VOLUME, Some(opened()), Vec::new(), None);
        next.load_charter(true);
        assert_eq!(next.renew_charter(&key(FOUNDER)), Ok(false));
        assert_eq!(next.charter_version(), newer + 1);
    }
}
