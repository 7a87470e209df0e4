//! Chains of credentials: the first is signed by a root of the volume, and each other one by a key
//! that the one before licenses.
//!
//! A credential that a server has issued to the maker of a file follows the chain by which the file
//! was made and
//! a licence of the server. Its rights are those of the maker, and not cut by that chain; it ends
//! with it.

use std::fmt::{self, Display, Formatter};

use pelago_keynote::share::chain_ids;
use pelago_keynote::{
    AddressRange, Assertion, AssertionError, Authorizer, Grant, IssuedGrant, IssuingLicence,
    Principal, Right, Rights, ShareFormError, SharedObject,
};
use pelago_net::key::PublicKey;

use super::whereabouts::Whereabouts;
use super::words::{granted, until};

/// A chain of credentials whose signatures are right.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    /// The texts of all credentials, from that of a root on.
    texts: Vec<String>,
    /// The credentials of chains by which something was made, if the others were issued for that.
    makers: Vec<Link>,
    /// The credentials before the last one whose rights it narrows.
    above: Vec<Link>,
    /// The last credential.
    pub(crate) last: Link,
}

/// A credential of a chain.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    /// The credential.
    pub(crate) credential: Assertion,
    /// The key that has signed it.
    pub(crate) signer: PublicKey,
    /// The rights that it grants.
    pub(crate) share: Grant,
    /// The id of the chain by which its holder has made what it grants, if a server has issued it.
    bound_to: Option<[u8; 32]>,
}

/// The reason why texts are not a chain.
#[derive(Debug, thiserror::Error)]
pub(crate) struct ChainError {
    /// The place of the credential in the chain, from 1.
    place: usize,
    /// The number of credentials.
    count: usize,
    #[source]
    why: LinkError,
}

/// The reason why a credential is none of a chain.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("there is none")]
    Missing,
    #[error(transparent)]
    Text(#[from] AssertionError),
    #[error(transparent)]
    Form(#[from] ShareFormError),
    #[error("its signature is wrong: it was changed, or is cut")]
    Signature,
    #[error("{0} has signed it, and the one before is not for that key")]
    NotLicensed(PublicKey),
    #[error("it is for another volume than the one before")]
    OtherVolume,
    #[error("it was issued for another chain than the one before")]
    OtherChain,
}

/// The rights that the holder of a chain asks to grant to another key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted<'a> {
    /// The rights; `None` for those to read that the holder has.
    pub(crate) rights: Option<Rights>,
    /// The right to share it on comes with them.
    pub(crate) may_share: bool,
    /// The end, as 14 digits; `None` for the holder's own.
    pub(crate) until: Option<&'a str>,
    /// The addresses; `None` for the holder's own.
    pub(crate) from: Option<AddressRange>,
}

/// The reason why the holder of a chain cannot grant what was asked for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NarrowError {
    #[error("{0} did not let you share it on: it would grant nothing")]
    NotShared(PublicKey),
    #[error("you do not have the right `{}` here: it would grant nothing", .0.letter())]
    Right(Right),
    #[error("you have no right to read here: it would grant nothing")]
    NoReading,
    #[error("what you have ends at {own}: after that it would grant nothing")]
    Later {
        /// The end of the chain, for people.
        own: String,
    },
    #[error("what you have ended at {own}: it would grant nothing")]
    Ended {
        /// The end of the chain, for people.
        own: String,
    },
}

impl Chain {
    /// Parses a chain, and verifies each signature.
    ///
    /// # Errors
    /// [`ChainError`].
    pub(crate) fn parse(texts: &[String]) -> Result<Self, ChainError> {
        let failed = |at, why| ChainError { place: at + 1, count: texts.len(), why };
        let mut makers: Vec<Link> = Vec::new();
        let mut links: Vec<Link> = Vec::new();
        let mut licences: Vec<Assertion> = Vec::new();
        let mut ids: Vec<[u8; 32]> = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            let credential = read(text).map_err(|why| failed(at, why))?;
            if at > 0 && IssuingLicence::of(&credential).is_some() {
                ids.push(credential.id().0);
                licences.push(credential);
                continue;
            }
            let before = links.last();
            ids.push(credential.id().0);
            let link = Link::of(credential, before, &licences).map_err(|why| failed(at, why))?;
            if let Some(chain) = &link.bound_to {
                if !chain_ids(ids.iter().copied()).contains(chain) {
                    return Err(failed(at, LinkError::OtherChain));
                }
                makers.append(&mut links);
            }
            links.push(link);
        }
        let last = links.pop().ok_or_else(|| failed(0, LinkError::Missing))?;
        Ok(Self { texts: texts.to_vec(), makers, above: links, last })
    }

    /// Returns the credentials that people are shown: all but licences of the server.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Link> {
        self.makers.iter().chain(self.links())
    }

    /// Returns the credentials that grant what the holder has, from that of a root or of a server
    /// on. Each narrows the one before.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link> {
        self.above.iter().chain([&self.last])
    }

    /// Returns the texts of the credentials.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.clone()
    }

    /// Divides the chain at the first credential that a key has signed: the credentials before it,
    /// by which its holder is a guest, and that one. `None` if the key has signed none, or the
    /// first one, as a root.
    pub(crate) fn divide_at(&self, signer: &PublicKey) -> Option<(Self, &Link)> {
        let at = self.links().position(|link| link.signer == *signer)?;
        let mut above: Vec<Link> = self.links().take(at).cloned().collect();
        let last = above.pop()?;
        let own = self.links().nth(at)?;
        let before = self.texts.iter().take_while(|text| *text != own.credential.text());
        let texts = before.cloned().collect();
        Some((Self { texts, makers: self.makers.clone(), above, last }, own))
    }

    /// Returns whether the chain may grant a right to change something.
    pub(crate) fn may_change(&self) -> bool {
        let changes = [Right::Write, Right::Create, Right::Delete];
        let all = |right: &Right| self.links().all(|link| link.share.rights.has(*right));
        changes.iter().any(all)
    }

    /// Returns the first credential that has ended at a time, which is given as 14 digits.
    pub(crate) fn ended(&self, now: &str) -> Option<&Link> {
        let has_ended = |link: &&Link| link.share.until.as_deref().is_some_and(|end| end <= now);
        self.shown().find(has_ended)
    }

    /// Returns the end of the chain, which is the earliest one, as 14 digits.
    fn end(&self) -> Option<&str> {
        self.shown().filter_map(|link| link.share.until.as_deref()).min()
    }

    /// Returns the rights to an object that the holder may grant to another key, at the time
    /// `now`.
    ///
    /// # Errors
    /// [`NarrowError`] if the server would not accept them of the holder.
    pub(crate) fn narrowed(
        &self,
        object: SharedObject,
        wanted: Wanted<'_>,
        now: &str,
    ) -> Result<Grant, NarrowError> {
        if let Some(link) = self.ended(now) {
            let own = link.share.until.as_deref().map(until).unwrap_or_default();
            return Err(NarrowError::Ended { own });
        }
        let lacks = |right| self.links().find(|link| !link.share.rights.has(right));
        if let Some(link) = lacks(Right::Grant) {
            return Err(NarrowError::NotShared(link.signer));
        }
        let rights = match wanted.rights {
            Some(rights) => rights,
            None => Rights::READ
                .iter()
                .filter(|right| lacks(*right).is_none())
                .map(Right::letter)
                .collect::<String>()
                .parse()
                .map_err(|_| NarrowError::NoReading)?,
        };
        if let Some(right) = rights.iter().find(|right| lacks(*right).is_some()) {
            return Err(NarrowError::Right(right));
        }
        let own = self.end();
        if let (Some(own), Some(wanted)) = (own, wanted.until)
            && wanted > own
        {
            return Err(NarrowError::Later { own: until(own) });
        }
        let rights = if wanted.may_share { rights.with(Right::Grant) } else { rights };
        let until = wanted.until.or(own).map(str::to_owned);
        let volume = self.last.share.volume;
        let from = wanted.from.or(self.last.share.from);
        Ok(Grant { volume, object, rights, until, from })
    }
}

/// Reads a credential, and verifies its signature.
fn read(text: &str) -> Result<Assertion, LinkError> {
    let credential = Assertion::credential(text.as_bytes())?;
    // Before the signature: a test that is not taken is named.
    if IssuingLicence::of(&credential).is_none() && IssuedGrant::of(&credential).is_err() {
        Grant::of(&credential)?;
    }
    credential.verify().map_err(|_| LinkError::Signature)?;
    Ok(credential)
}

impl Link {
    /// Returns the link that a credential is. `before` is the one before in the chain, and
    /// `licences` are those of servers before.
    fn of(
        credential: Assertion,
        before: Option<&Self>,
        licences: &[Assertion],
    ) -> Result<Self, LinkError> {
        let Authorizer::Key(Principal(signer)) = *credential.authorizer() else {
            return Err(LinkError::Text(AssertionError::Missing("Authorizer")));
        };
        let is_licensed = |licence: &Assertion| {
            licence.licensees().keys().any(|Principal(licensee)| licensee == signer)
        };
        let (share, bound_to) = match licences.iter().any(is_licensed) {
            true => {
                let issued = IssuedGrant::of(&credential)?;
                (issued.grant, Some(issued.chain))
            }
            false => (Grant::of(&credential)?, None),
        };
        let link = Self { credential, signer: PublicKey::new(signer), share, bound_to };
        match before {
            _ if link.bound_to.is_some() => Ok(link),
            Some(before) if !before.licenses(&link.signer) => {
                Err(LinkError::NotLicensed(link.signer))
            }
            Some(before) if before.share.volume != link.share.volume => Err(LinkError::OtherVolume),
            _ => Ok(link),
        }
    }

    /// Returns the keys that may use the credential.
    pub(crate) fn licensees(&self) -> impl Iterator<Item = PublicKey> {
        self.credential.licensees().keys().map(|Principal(key)| PublicKey::new(key))
    }

    /// Returns whether the credential is for a key.
    pub(crate) fn licenses(&self, key: &PublicKey) -> bool {
        self.licensees().any(|licensee| licensee == *key)
    }

    /// Returns the line for a person: who grants what to whom.
    pub(crate) fn words(&self) -> String {
        let name =
            Whereabouts::name_in(self.credential.comment()).unwrap_or(match self.share.object {
                SharedObject::Folder(_) => "a folder",
                SharedObject::File(_) | SharedObject::Name { .. } => "a file",
            });
        let keys: Vec<String> = self.licensees().map(|key| key.to_string()).collect();
        let signer = self.signer;
        if self.bound_to.is_some() {
            return format!("{name} made by {}, {}", keys.join(" or "), granted(&self.share));
        }
        format!("{name} by {signer} with {}, {}", keys.join(" or "), granted(&self.share))
    }
}

impl Display for ChainError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.count {
            0 | 1 => write!(f, "the credential cannot be used"),
            count => write!(f, "credential {} of {count} cannot be used", self.place),
        }
    }
}

#[cfg(test)]
mod tests {
    use pelago_keynote::Credential;
    use pelago_net::key::PrivateKey;

    use super::*;

    const NOW: &str = "20260101000000";

    /// A credential between the keys of two seeds.
    struct Granted<'a> {
        by: u8,
        to: u8,
        directory: u64,
        rights: &'a str,
        until: Option<&'a str>,
    }

    impl Granted<'_> {
        fn text(&self) -> String {
            let share = Grant {
                volume: [5; 16],
                object: SharedObject::Folder(self.directory),
                rights: self.rights.parse().unwrap(),
                until: self.until.map(str::to_owned),
                from: None,
            };
            let licensee = Principal(*key(self.to).public().as_bytes());
            let conditions = share.conditions();
            let credential = Credential {
                comment: &["name docs".to_owned()],
                licensee,
                conditions: &conditions,
            };
            credential.sign(&key(self.by).signing_key()).unwrap()
        }
    }

    fn key(seed: u8) -> PrivateKey {
        PrivateKey::from_seed([seed; 32])
    }

    fn granted<'a>(by: u8, to: u8, rights: &'a str, until: Option<&'a str>) -> Granted<'a> {
        Granted { by, to, directory: 0x2a, rights, until }
    }

    fn chain(of: &[Granted<'_>]) -> Result<Chain, String> {
        let texts: Vec<String> = of.iter().map(Granted::text).collect();
        Chain::parse(&texts).map_err(|error| format!("{error}: {}", error.why))
    }

    fn narrowed(chain: &Chain, rights: &str, until: Option<&str>) -> Result<String, String> {
        let rights = Some(rights).filter(|rights| !rights.is_empty());
        let rights = rights.map(|rights| rights.parse().unwrap());
        let wanted = Wanted { rights, may_share: false, until, from: None };
        let share = chain
            .narrowed(SharedObject::Folder(0x3f), wanted, NOW)
            .map_err(|error| error.to_string())?;
        assert_eq!((share.volume, share.object.inode()), ([5; 16], 0x3f));
        Ok(super::granted(&share))
    }

    #[test]
    fn each_credential_is_signed_by_a_key_of_the_one_before() {
        let good = chain(&[granted(1, 2, "rxg", None), granted(2, 3, "rx", None)]).unwrap();
        assert!(good.last.licenses(&key(3).public()) && !good.last.licenses(&key(2).public()));
        let (own, handed_on) = good.divide_at(&key(2).public()).unwrap();
        assert!(own.last.licenses(&key(2).public()));
        assert_eq!(handed_on.credential.text(), good.last.credential.text());
        assert!(good.divide_at(&key(1).public()).is_none(), "a root is no guest");
        assert!(good.divide_at(&key(3).public()).is_none(), "it has signed nothing");
        let words: Vec<String> = good.links().map(Link::words).collect();
        let person = |seed| key(seed).public();
        assert_eq!(
            words,
            [
                format!("docs by {} with {}, to be read; may be shared on", person(1), person(2)),
                format!("docs by {} with {}, to be read", person(2), person(3)),
            ]
        );
        let gap = chain(&[granted(1, 2, "rxg", None), granted(4, 3, "rx", None)]).unwrap_err();
        assert!(gap.starts_with("credential 2 of 2 cannot be used: "), "{gap}");
        assert!(gap.contains(&person(4).to_string()), "{gap}");
        assert!(chain(&[]).is_err());
    }

    /// Returns the chain of Bob, who has made a file by a share with `c`, with a share of that.
    fn issued() -> Vec<String> {
        let until = Some("20261231180000");
        let parent = granted(1, 2, "xc", until).text();
        let sign = |by: u8, to: u8, conditions: &pelago_keynote::Conditions| {
            let licensee = Principal(*key(to).public().as_bytes());
            let comment = &["name made".to_owned()];
            Credential { comment, licensee, conditions }.sign(&key(by).signing_key()).unwrap()
        };
        let licence = sign(1, 9, &IssuingLicence { volume: [5; 16] }.conditions());
        let object = SharedObject::File(0x3f);
        let rights = Rights::OF_MAKER;
        let until = until.map(str::to_owned);
        let grant = Grant { volume: [5; 16], object, rights, until, from: None };
        let read = Assertion::credential(parent.as_bytes()).unwrap();
        let chain = chain_ids([read.id().0])[0];
        let made = sign(9, 2, &IssuedGrant { grant, chain }.conditions());
        vec![parent, licence, made]
    }

    #[test]
    fn a_maker_has_the_rights_that_were_issued_until_the_end_of_his_chain() {
        let made = Chain::parse(&issued()).unwrap();
        assert_eq!(made.texts(), issued());
        assert!(made.may_change());
        assert_eq!(
            narrowed(&made, "rw", None).unwrap(),
            "to be read, written, but not run, until 2026-12-31 18:00 UTC"
        );
        let words: Vec<String> = made.shown().map(Link::words).collect();
        let [parent, own] = words.as_slice() else { panic!("{words:?}") };
        assert!(parent.contains(", to be added to, run, until "), "{parent}");
        let bob = key(2).public();
        let says =
            format!("made made by {bob}, to be read, written, added to, removed from, until ");
        assert!(own.starts_with(&says), "{own}");
        assert!(made.ended("20270101000000").is_some());
        let mut handed_on = issued();
        handed_on.push(granted(2, 3, "rx", None).text());
        let chain = Chain::parse(&handed_on).unwrap();
        let (own, below) = chain.divide_at(&bob).unwrap();
        assert_eq!(own.texts(), issued(), "with the chain to which it is bound");
        assert_eq!(below.credential.text(), handed_on[3]);
        let [parent, licence, made] = <[String; 3]>::try_from(issued()).unwrap();
        assert!(Chain::parse(&[parent.clone(), made.clone()]).is_err(), "no licence");
        assert!(Chain::parse(&[licence.clone(), made.clone()]).is_err(), "no chain");
        let other = granted(1, 2, "rxc", None).text();
        assert!(Chain::parse(&[other, licence, made]).is_err(), "another chain");
        assert!(Chain::parse(&[parent.clone(), parent]).is_err());
    }

    #[test]
    fn a_guest_is_one_by_what_is_above_his_own_signature() {
        let all: Vec<Granted<'_>> = (1..=3).map(|at| granted(at, at + 1, "rxg", None)).collect();
        let chain = chain(&all).unwrap();
        for (signer, count) in [(2, 1), (3, 2)] {
            let (own, below) = chain.divide_at(&key(signer).public()).unwrap();
            assert!(own.last.licenses(&key(signer).public()));
            assert_eq!(own.links().count(), count);
            assert_eq!(below.credential.text(), chain.texts()[count]);
        }
        for signer in [1, 4] {
            assert!(chain.divide_at(&key(signer).public()).is_none(), "{signer}");
        }
    }

    #[test]
    fn a_chain_of_sixteen_is_read_and_each_signature_is_verified() {
        let all: Vec<Granted<'_>> = (1..=16).map(|at| granted(at, at + 1, "rxg", None)).collect();
        assert_eq!(chain(&all).unwrap().links().count(), 16);
        for at in 0..16 {
            let mut texts: Vec<String> = all.iter().map(Granted::text).collect();
            texts[at] = texts[at].replacen("/2a/", "/1/", 1);
            let error = Chain::parse(&texts).unwrap_err();
            assert_eq!(error.place, at + 1);
            assert!(matches!(error.why, LinkError::Signature), "{error:?}");
        }
    }

    #[test]
    fn a_holder_grants_no_more_than_the_chain_has() {
        let until = Some("20261231180000");
        let chain = chain(&[granted(1, 2, "rxga", until), granted(2, 3, "rxg", None)]).unwrap();
        let end = ", until 2026-12-31 18:00 UTC";
        assert_eq!(narrowed(&chain, "", None), Ok(format!("to be read{end}")));
        assert_eq!(narrowed(&chain, "r", until), Ok(format!("to be read, but not run{end}")));
        let sooner = narrowed(&chain, "rg", Some("20260601000000")).unwrap();
        assert_eq!(sooner, "to be read, but not run, until 2026-06-01 00:00 UTC; may be shared on");
        for (rights, end) in [("ra", None), ("rw", None), ("rx", Some("20261231180001"))] {
            let error = narrowed(&chain, rights, end).unwrap_err();
            assert!(error.ends_with("it would grant nothing"), "{error}");
        }
        let wanted = Wanted { rights: None, may_share: true, until: None, from: None };
        let share = chain.narrowed(SharedObject::Folder(0x3f), wanted, NOW).unwrap();
        assert_eq!(share.rights.to_string(), "rxg");
    }

    #[test]
    fn a_holder_who_may_not_share_on_or_not_any_more_grants_nothing() {
        let plain = chain(&[granted(1, 2, "rx", None)]).unwrap();
        let error = narrowed(&plain, "", None).unwrap_err();
        assert_eq!(
            error,
            format!("{} did not let you share it on: it would grant nothing", key(1).public())
        );
        let ended = chain(&[granted(1, 2, "rxg", Some(NOW))]).unwrap();
        assert!(ended.ended(NOW).is_some() && ended.ended("20251231235959").is_none());
        let error = narrowed(&ended, "", None).unwrap_err();
        assert_eq!(error, "what you have ended at 2026-01-01 00:00 UTC: it would grant nothing");
        let only = chain(&[granted(1, 2, "g", None)]).unwrap();
        let error = narrowed(&only, "", None).unwrap_err();
        assert!(error.ends_with("it would grant nothing"), "{error}");
    }

    #[test]
    fn what_can_be_read_only_is_granted_so() {
        let plain = chain(&[granted(1, 2, "rg", None)]).unwrap();
        assert_eq!(narrowed(&plain, "", None), Ok("to be read, but not run".to_owned()));
    }
}
