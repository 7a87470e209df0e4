//! Properties of random shares and of random changes to valid texts, from fixed seeds.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use pelago_keynote::{
    AddressRange, Assertion, Conditions, Credential, Grant, Principal, Relation, Revocation, Right,
    Rights, SharedName, SharedObject, Test, armor, unarmor,
};

use signed::{credential, key, share};

#[path = "common/signed.rs"]
mod signed;

/// Pieces of the language, which random changes insert into a text.
const PIECES: [&str; 32] = [
    "\n",
    "\t",
    " ",
    "\"",
    "\\",
    ":",
    ";",
    "(",
    ")",
    "&&",
    "||",
    "->",
    "==",
    "~=",
    "!",
    "$",
    "@",
    "#",
    "{",
    "\r",
    "\u{e4}",
    "_",
    "a",
    "0",
    "\"true\"",
    "Signature:",
    "Conditions: ",
    "\nComment: ",
    "Authorizer: \"POLICY\"",
    "sig-ed25519-hex:",
    "ed25519-hex:",
    "/2a/",
];

/// Xorshift numbers.
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// Returns an offset between two letters of a text.
    fn place(&mut self, text: &str) -> usize {
        let at = self.below(text.len() + 1);
        (at..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap()
    }

    /// Returns the text with one random change.
    fn change(&mut self, text: &str) -> String {
        let at = self.place(text);
        let piece = PIECES[self.below(PIECES.len())];
        let end = (at + self.below(4)).min(text.len());
        let end = (end..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap();
        let from = self.place(text);
        let until = (from + self.below(100)).min(text.len());
        let until = (until..=text.len()).find(|end| text.is_char_boundary(*end)).unwrap();
        let rest = &text[at..];
        match self.below(5) {
            0 => format!("{}{piece}{rest}", &text[..at]),
            1 => format!("{}{piece}{}", &text[..at], &text[end..]),
            2 => format!("{}{}", &text[..at], &text[end..]),
            3 => format!("{}{}{rest}", &text[..at], &text[from..until]),
            _ => text[..at].to_owned(),
        }
    }

    fn share(&mut self) -> Grant {
        let mut volume = [0; 16];
        volume[..8].copy_from_slice(&self.next().to_le_bytes());
        volume[8..].copy_from_slice(&self.next().to_le_bytes());
        let shift = self.below(64);
        let object = self.object(shift);
        let until = format!("{:014}", self.next() % 100_000_000_000_000);
        let first = Right::ALL[self.below(7)].letter().parse::<Rights>().unwrap();
        let rights = (0..self.below(4)).fold(first, |set, _| set.with(Right::ALL[self.below(7)]));
        Grant {
            volume,
            object,
            rights,
            until: Some(until).filter(|_| self.below(2) == 0),
            from: Some(self.addresses()).filter(|_| self.below(2) == 0),
        }
    }

    fn object(&mut self, shift: usize) -> SharedObject {
        let ino = self.next() >> shift;
        match self.below(3) {
            0 => SharedObject::Folder(ino),
            1 => SharedObject::File(ino),
            _ => SharedObject::Name { directory: ino, name: self.name() },
        }
    }

    /// Returns a name of any bytes, with many that have a meaning in a text or a pattern.
    fn name(&mut self) -> SharedName {
        loop {
            let length = 1 + self.below(40);
            let letters = *b"\"\\ $./^*(|0a~&;-";
            let mut letter = || match self.below(3) {
                0 => self.next().to_le_bytes()[3],
                _ => letters[self.below(letters.len())],
            };
            let bytes: Vec<u8> = (0..length).map(|_| letter()).collect();
            if let Some(name) = SharedName::new(&bytes) {
                return name;
            }
        }
    }

    fn addresses(&mut self) -> AddressRange {
        let bits = self.below(33);
        let address = u32::try_from(self.next() >> 32).unwrap();
        let address = address & u32::MAX.checked_shl(32 - bits as u32).unwrap_or(0);
        let shift = self.below(129);
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        let wide = wide & u128::MAX.checked_shl(128 - shift as u32).unwrap_or(0);
        match self.below(2) {
            0 => format!("{}/{bits}", std::net::Ipv4Addr::from_bits(address)).parse().unwrap(),
            _ => format!("{}/{shift}", std::net::Ipv6Addr::from_bits(wide)).parse().unwrap(),
        }
    }

    /// Returns a printable text, with many quotes and backslashes.
    fn text(&mut self) -> String {
        let length = self.below(12);
        let letters = ['"', '\\', ' ', '\t', 'a', '~', '(', ';', ':', '-', '>', '&'];
        (0..length).map(|_| letters[self.below(letters.len())]).collect()
    }

    /// Returns an attribute and a text.
    fn compared(&mut self) -> (&'static str, String) {
        let names = ["a", "right", "A_1", "true", "_9"];
        (names[self.below(names.len())], self.text())
    }

    fn comparison(&mut self) -> Test {
        let relation = Relation::ALL[self.below(Relation::ALL.len())];
        let (name, text) = self.compared();
        Test::compares(name, relation, &text)
    }

    fn test(&mut self) -> Test {
        match self.below(3) {
            0 => self.comparison(),
            1 => {
                let (name, text) = self.compared();
                Test::matches(name, &text)
            }
            _ => {
                let count = 2 + self.below(15);
                Test::Any((0..count).map(|_| self.comparison()).collect())
            }
        }
    }
}

/// Checks the properties of each text that parses. Returns whether this one parses.
fn is_read(text: &str) -> bool {
    let Ok(read) = Assertion::parse(text.as_bytes()) else {
        assert!(Assertion::credential(text.as_bytes()).is_err(), "{text}");
        assert!(Assertion::policy(text.as_bytes()).is_err(), "{text}");
        return false;
    };
    assert_eq!(read.text(), text);
    let again = Assertion::parse(read.text().as_bytes()).unwrap();
    assert_eq!(again.id(), read.id());
    assert_eq!(again, read);
    if let Some(conditions) = read.conditions() {
        // Printed once more in another assertion they are the same.
        let licensee = Principal::of(&key(2));
        let printed = format!(
            "KeyNote-Version: 2\nAuthorizer: \"POLICY\"\nLicensees: \"{licensee}\"\n\
             Conditions: {conditions}\n"
        );
        let printed = Assertion::parse(printed.as_bytes());
        assert_eq!(printed.unwrap().conditions(), Some(conditions), "{text}");
    }
    true
}

#[test]
fn a_changed_text_is_an_error_or_another_assertion() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let good = credential(&["one", "two"]);
    let good_id = Assertion::parse(good.as_bytes()).unwrap().id();
    let end = good.find("Signature:").unwrap();
    let mut count = 0;
    for _ in 0..30_000 {
        let mut text = good.clone();
        for _ in 0..=random.below(3) {
            text = random.change(&text);
        }
        if !is_read(&text) {
            continue;
        }
        let Ok(read) = Assertion::credential(text.as_bytes()) else { continue };
        count += 1;
        let is_same = text.get(..end) == good.get(..end) && text[end..].starts_with("Signature:");
        assert_eq!(read.id() == good_id, is_same, "{text}");
        assert_eq!(read.verify().is_ok(), text == good, "{text}");
    }
    assert!(count > 1000, "only {count} of the changed texts are read at all");
}

#[test]
fn a_changed_revocation_is_an_error_or_not_signed() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    let id = Assertion::parse(credential(&[]).as_bytes()).unwrap().id();
    let of_key = Revocation::sign(share().volume, Principal::of(&key(2)), 7, &key(1));
    let of_credential = Revocation::sign(share().volume, id, 1_800_000_000, &key(1));
    let mut count = 0;
    for number in 0..30_000 {
        let good = if number % 2 == 0 { &of_credential } else { &of_key };
        let text = random.change(good);
        assert!(Assertion::parse(text.as_bytes()).is_err(), "{text}");
        if let Ok(read) = Revocation::parse(text.as_bytes()) {
            count += 1;
            assert_eq!(read.verify().is_ok(), text == *good, "{text}");
        }
    }
    assert!(count > 100, "only {count} of the changed revocations are read at all");
}

#[test]
fn a_changed_block_is_an_error_or_encodes_its_chain_again() {
    let mut random = Random(0xfeed_5eed_feed_5eed);
    let good = armor(&[credential(&["one"]), credential(&[])]).unwrap();
    let mut count = 0;
    for _ in 0..30_000 {
        let text = random.change(&good);
        let Ok(chain) = unarmor(&text) else { continue };
        count += 1;
        assert_eq!(unarmor(&armor(&chain).unwrap()), Ok(chain));
    }
    assert!(count > 100, "only {count} of the changed blocks are read at all");
}

#[test]
fn random_bytes_are_nothing() {
    let mut random = Random(0x1357_9bdf_0246_8ace);
    for _ in 0..20_000 {
        let length = random.below(200);
        let bytes: Vec<u8> = (0..length).map(|_| random.next().to_le_bytes()[3]).collect();
        assert!(Assertion::parse(&bytes).is_err());
        assert!(Assertion::credential(&bytes).is_err());
        assert!(Revocation::parse(&bytes).is_err());
        assert!(unarmor(&String::from_utf8_lossy(&bytes)).is_err());
        let pieces: String = (0..length / 4).map(|_| PIECES[random.below(PIECES.len())]).collect();
        assert!(Assertion::policy(pieces.as_bytes()).is_err(), "{pieces}");
        assert!(unarmor(&pieces).is_err());
        let value = format!("KeyNote-Version: 2\nAuthorizer: \"POLICY\"\nLicensees:{pieces}\n");
        assert!(Assertion::policy(value.as_bytes()).is_err(), "{pieces}");
    }
}

#[test]
fn a_share_survives_its_credential() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut shares = vec![0, 1, 0xf, 0x10, u64::MAX >> 1, u64::MAX];
    let mut shares: Vec<Grant> =
        shares.drain(..).map(|directory| Grant::to_read([0xff; 16], directory)).collect();
    shares.extend((0..2000).map(|_| random.share()));
    for share in shares {
        let conditions = share.conditions();
        let licensee = Principal::of(&key(2));
        let credential = Credential { comment: &[], licensee, conditions: &conditions };
        let text = credential.sign(&key(1)).unwrap();
        let read = Assertion::parse(text.as_bytes()).unwrap();
        assert_eq!(Grant::of(&read), Ok(share), "{text}");
        assert_eq!(read.conditions(), Some(&conditions));
        assert_eq!(read.verify(), Ok(()));
        assert!(is_read(&text));
    }
}

#[test]
fn conditions_survive_their_credential() {
    let mut random = Random(0x6c62_272e_07bb_0142);
    for _ in 0..2000 {
        let count = 1 + random.below(8);
        let conditions = Conditions::new((0..count).map(|_| random.test()).collect());
        let licensee = Principal::of(&key(2));
        let credential = Credential { comment: &[], licensee, conditions: &conditions };
        let text = credential.sign(&key(1)).unwrap();
        let read = Assertion::parse(text.as_bytes()).unwrap();
        assert_eq!(read.conditions(), Some(&conditions), "{text}");
        assert!(is_read(&text));
    }
}
