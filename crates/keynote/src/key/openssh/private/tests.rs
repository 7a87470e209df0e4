use super::*;

/// Made by `ssh-keygen` of OpenSSH 9.2 for these tests, and used nowhere.
const PLAIN: &str = include_str!("../vectors/plain.key");
const PLAIN_PUBLIC: &str = include_str!("../vectors/plain.pub");
const NO_COMMENT: &str = include_str!("../vectors/no_comment.key");
const PASSPHRASE: &str = include_str!("../vectors/passphrase.key");
const RSA: &str = include_str!("../vectors/rsa.key");
const ECDSA: &str = include_str!("../vectors/ecdsa.key");

/// The parts of a file, to be changed one at a time.
struct Parts {
    magic: Vec<u8>,
    cipher: Vec<u8>,
    derivation: Vec<u8>,
    options: Vec<u8>,
    number: u32,
    public: Vec<u8>,
    check: [u32; 2],
    kind: Vec<u8>,
    again: Vec<u8>,
    both: Vec<u8>,
    comment: Vec<u8>,
    padding: Vec<u8>,
    after: Vec<u8>,
}

impl Parts {
    fn of(seed: u8, comment: &str) -> Self {
        let private = PrivateKey::from_seed([seed; KEY_BYTES]);
        let public = private.public().as_bytes().to_vec();
        let mut parts = Self {
            magic: MAGIC.to_vec(),
            cipher: NONE.to_vec(),
            derivation: NONE.to_vec(),
            options: Vec::new(),
            number: 1,
            public: [string_of(ED25519.as_bytes()), string_of(&public)].concat(),
            check: [7, 7],
            kind: ED25519.as_bytes().to_vec(),
            again: public.clone(),
            both: [private.seed().to_vec(), public].concat(),
            comment: comment.as_bytes().to_vec(),
            padding: Vec::new(),
            after: Vec::new(),
        };
        let missing = parts.section().len().next_multiple_of(BLOCK_BYTES) - parts.section().len();
        parts.padding = (1..).take(missing).collect();
        parts
    }

    fn section(&self) -> Vec<u8> {
        [
            number_of(self.check[0]),
            number_of(self.check[1]),
            string_of(&self.kind),
            string_of(&self.again),
            string_of(&self.both),
            string_of(&self.comment),
            self.padding.clone(),
        ]
        .concat()
    }

    fn bytes(&self) -> Vec<u8> {
        [
            self.magic.clone(),
            string_of(&self.cipher),
            string_of(&self.derivation),
            string_of(&self.options),
            number_of(self.number),
            string_of(&self.public),
            string_of(&self.section()),
            self.after.clone(),
        ]
        .concat()
    }
}

fn string_of(bytes: &[u8]) -> Vec<u8> {
    [&number_of(u32::try_from(bytes.len()).unwrap()), bytes].concat()
}

#[expect(clippy::big_endian_bytes, reason = "so are the numbers of OpenSSH")]
fn number_of(number: u32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn text_of(bytes: &[u8]) -> String {
    format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(bytes))
}

fn public_of(text: &str) -> Result<PublicKey, PrivateFileError> {
    parse(text).map(|key| key.public())
}

/// Returns the result for a file with one changed part.
fn changed(change: impl FnOnce(&mut Parts)) -> Result<PublicKey, PrivateFileError> {
    let mut parts = Parts::of(3, "ann@desk");
    change(&mut parts);
    public_of(&text_of(&parts.bytes()))
}

#[test]
fn a_file_of_ssh_keygen_is_a_key() {
    let key = public_of(PLAIN).unwrap();
    assert_eq!(PLAIN_PUBLIC.parse(), Ok(key));
    assert!(public_of(NO_COMMENT).is_ok_and(|other| other != key));
    let windows = format!("\n{}\n\n", PLAIN.replace('\n', "\r\n"));
    assert_eq!(public_of(&windows), Ok(key));
}

#[test]
fn a_file_with_a_passphrase_is_refused_and_names_its_public_key() {
    let error = public_of(PASSPHRASE).unwrap_err();
    let public = include_str!("../vectors/passphrase.pub").parse().unwrap();
    assert_eq!(error, PrivateFileError::Passphrase { public });
    let wanted = "it has a passphrase, which pelago does not ask for; it does not use ssh-agent";
    assert!(error.to_string().starts_with(wanted), "{error}");
    let public = PrivateKey::from_seed([3; KEY_BYTES]).public();
    let error = changed(|parts| parts.cipher = b"aes256-ctr".to_vec());
    assert_eq!(error, Err(PrivateFileError::Passphrase { public }));
}

#[test]
fn a_file_of_another_type_is_refused_by_its_name() {
    for (text, name) in [(RSA, "ssh-rsa"), (ECDSA, "ecdsa-sha2-nistp256")] {
        let error = public_of(text).unwrap_err();
        assert_eq!(error, PrivateFileError::OtherType { name: name.to_owned() });
        let said = format!(
            "its key is of the type {name}, and an Ed25519 key is needed: \
             `ssh-keygen -t ed25519` makes one"
        );
        assert_eq!(error.to_string(), said);
    }
    let inner = changed(|parts| parts.kind = b"ssh-ed25518".to_vec());
    assert_eq!(inner, Err(PrivateFileError::OtherType { name: "ssh-ed25518".to_owned() }));
    let long = changed(|parts| parts.kind = vec![b'\n'; 200]);
    assert_eq!(long, Err(PrivateFileError::OtherType { name: "\\n".repeat(TYPE_NAME_BYTES) }));
}

/// Comments of all lengths, and so paddings of all lengths.
#[test]
fn each_padding_is_taken() {
    for length in 0..2 * BLOCK_BYTES {
        let parts = Parts::of(4, &"c".repeat(length));
        let key = PrivateKey::from_seed([4; KEY_BYTES]).public();
        assert_eq!(public_of(&text_of(&parts.bytes())), Ok(key), "{length}");
    }
    let key = PrivateKey::from_seed([3; KEY_BYTES]).public();
    let more = |count: u8| {
        changed(|parts| {
            let next = parts.padding.len() as u8 + 1;
            parts.padding.extend(next..next + count);
        })
    };
    assert_eq!(more(8), Ok(key));
    assert_eq!(more(4), Err(PrivateFileError::Padding));
    assert_eq!(more(16), Err(PrivateFileError::Padding));
    let zeros = changed(|parts| parts.padding.fill(0));
    assert_eq!(zeros, Err(PrivateFileError::Padding));
}

#[test]
fn each_field_is_compared() {
    use PrivateFileError as Is;

    let key = PrivateKey::from_seed([3; KEY_BYTES]).public();
    assert_eq!(changed(|_| ()), Ok(key));
    let flip = |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(changed(|parts| parts.magic[13] = b'2'), Err(Is::Version));
    assert_eq!(changed(|parts| parts.derivation = b"bcrypt".to_vec()), Err(Is::Derivation));
    assert_eq!(changed(|parts| parts.options = vec![0]), Err(Is::Derivation));
    for number in [0, 2, u32::MAX] {
        assert_eq!(changed(|parts| parts.number = number), Err(Is::Number { number }));
    }
    assert_eq!(changed(|parts| parts.check = [7, 8]), Err(Is::CheckNumbers));
    assert_eq!(changed(|parts| flip(&mut parts.public)), Err(Is::OtherPublic));
    assert_eq!(changed(|parts| flip(&mut parts.again)), Err(Is::OtherPublic));
    assert_eq!(changed(|parts| flip(&mut parts.both)), Err(Is::OtherPublic));
    assert_eq!(changed(|parts| parts.both[0] ^= 1), Err(Is::OtherPublic));
    assert_eq!(changed(|parts| parts.public.push(0)), Err(Is::TooMany { count: 1 }));
    assert_eq!(changed(|parts| parts.both.push(0)), Err(Is::TooMany { count: 1 }));
    assert_eq!(changed(|parts| parts.after = vec![0; 3]), Err(Is::TooMany { count: 3 }));
    assert_eq!(changed(|parts| parts.again.truncate(31)), Err(Is::Length));
    assert_eq!(changed(|parts| parts.both.truncate(63)), Err(Is::Length));
}

#[test]
fn a_text_that_is_not_such_a_file_says_what_is_wrong() {
    let letters = PLAIN.strip_prefix(BEGIN).unwrap().trim_end().strip_suffix(END).unwrap();
    let cases = [
        (String::new(), PrivateFileError::Lines),
        (format!("{BEGIN}{letters}"), PrivateFileError::Lines),
        (format!("{BEGIN}{}{END}", letters.trim()), PrivateFileError::Lines),
        (format!("{PLAIN}{PLAIN}"), PrivateFileError::Base64),
        (format!("{PLAIN}more"), PrivateFileError::Lines),
        (PLAIN.replacen('W', "!", 1), PrivateFileError::Base64),
        (format!("{BEGIN} {END}\n"), PrivateFileError::Lines),
        (format!("{BEGIN}\n{END}\n"), PrivateFileError::Version),
        (format!("{PLAIN}{}", "\n".repeat(KEY_FILE_BYTES)), PrivateFileError::TooLong),
    ];
    for (text, error) in cases {
        assert_eq!(public_of(&text), Err(error), "{text}");
    }
}

#[test]
fn a_file_that_was_cut_is_refused() {
    let bytes = decode(PLAIN).unwrap();
    for length in 0..bytes.len() {
        assert!(parse(&text_of(&bytes[..length])).is_err(), "{length}");
    }
    for length in 0..PLAIN.trim_end().len() {
        assert!(parse(&PLAIN[..length]).is_err(), "{length}");
    }
}

/// No change of a byte gives another key: at most the comment or a line end has changed.
#[test]
fn a_changed_byte_never_gives_another_key() {
    let key = public_of(PLAIN);
    let bytes = decode(PLAIN).unwrap();
    let mut same = 0;
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let read = public_of(&text_of(&changed));
            assert!(read.is_err() || read == key, "byte {at}, bit {bit}");
            same += usize::from(read.is_ok());
        }
    }
    assert_eq!(same, 8 * "ann@laptop".len());
    for at in 0..PLAIN.len() {
        for byte in 0..0x80 {
            let mut changed = PLAIN.as_bytes().to_vec();
            changed[at] = byte;
            let read = public_of(str::from_utf8(&changed).unwrap());
            assert!(read.is_err() || read == key, "byte {at} as {byte}");
        }
    }
}

/// No error shows a part of the private half.
#[test]
fn no_error_shows_the_seed() {
    let error = changed(|parts| flip_all(&mut parts.again)).unwrap_err();
    assert!(!format!("{error:?} {error}").contains("3, 3"), "{error:?}");
}

fn flip_all(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
}
