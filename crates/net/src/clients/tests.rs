use std::error::Error as _;

use pelago_wire::limits::KEY_NAME_BYTES;

use super::*;
use crate::key::PrivateKey;

fn key(number: u8) -> PublicKey {
    PrivateKey::from_seed([number; 32]).public()
}

fn name(text: &str) -> KeyName {
    text.parse().unwrap()
}

fn today() -> Date {
    "2026-02-03".parse().unwrap()
}

fn error(text: &str) -> (usize, LineError) {
    let error = Clients::parse(text).unwrap_err();
    (error.line, error.source)
}

#[test]
fn a_line_has_a_key_a_name_and_a_date() {
    let since = Some("2026-01-02".parse().unwrap());
    let cases = [
        (String::new(), None, None),
        (" laptop".to_owned(), Some(name("laptop")), None),
        (" 2026-01-02".to_owned(), None, since),
        ("\tlaptop  2026-01-02  # Ann's".to_owned(), Some(name("laptop")), since),
        ("# not a name".to_owned(), None, None),
    ];
    for (rest, name, since) in cases {
        let clients = Clients::parse(&format!("{}{rest}\n", key(1))).unwrap();
        let all: Vec<_> = clients.iter().cloned().collect();
        assert_eq!(all, [AllowedClient { key: key(1), name, since }], "{rest}");
    }
}

/// The name or date, and the line after a change of the name.
#[test]
fn a_line_of_openssh_lists_its_key() {
    const LINE: &str = include_str!("../../../keynote/src/key/openssh/vectors/plain.pub");
    let key: PublicKey = LINE.parse().unwrap();
    let bare = LINE.trim_end().strip_suffix(" ann@laptop").unwrap();
    let since = Some("2026-01-02".parse().unwrap());
    let cases = [
        ("", None, None, ""),
        (" ann@laptop", Some(name("ann@laptop")), None, ""),
        (" desk 2026-01-02 # Ann's", Some(name("desk")), since, " 2026-01-02 # Ann's"),
        (" Ann Smith, desk", None, None, " # Ann Smith, desk"),
        (" Ann  Smith  # away", None, None, " # Ann Smith # away"),
    ];
    for (rest, name, since, after) in cases {
        let text = format!("# head\n{bare}{rest}\n");
        let mut clients = Clients::parse(&text).unwrap();
        let all: Vec<_> = clients.iter().cloned().collect();
        assert_eq!(all, [AllowedClient { key, name, since }], "{rest}");
        assert_eq!(clients.allow(key, None, today()), Ok(Allowed::Unchanged));
        assert_eq!(clients.to_text(), text);
        let to = "x".parse().unwrap();
        assert_eq!(clients.allow(key, Some(to), today()), Ok(Allowed::Renamed));
        assert_eq!(clients.to_text(), format!("# head\n{key} x{after}\n"));
    }
    assert_eq!(error(&format!("{bare}\n{key}")), (2, LineError::SameKey { first: 1 }));
    let cut = KeyTextError::Line(line::KeyLineError::Cut);
    assert_eq!(error("ssh-ed25519 # Ann's"), (1, LineError::Key(cut)));
    let rsa = error(include_str!("../../../keynote/src/key/openssh/vectors/rsa.pub"));
    assert!(rsa.1.source().unwrap().to_string().contains("type ssh-rsa"), "{rsa:?}");
    assert_eq!(bare.parse(), Ok(ClientRef::Key(key)));
}

#[test]
fn lines_without_a_client_stay_as_they_were() {
    let text = format!("# head\n\n   # more\n  {}   a # why\n{}\n#", key(1), key(2));
    let mut clients = Clients::parse(&text).unwrap();
    assert_eq!(clients.to_text(), format!("{text}\n"));
    clients.remove(&ClientRef::Key(key(2))).unwrap();
    assert_eq!(clients.to_text(), format!("# head\n\n   # more\n  {}   a # why\n#\n", key(1)));
    assert_eq!(clients.allow(key(1), Some(name("b")), today()), Ok(Allowed::Renamed));
    assert_eq!(clients.to_text(), format!("# head\n\n   # more\n{} b # why\n#\n", key(1)));
}

#[test]
fn a_wrong_line_is_named() {
    let one = key(1);
    let two = key(2);
    let (line, source) = error(&format!("# head\n{one}\nlaptop\n"));
    assert!(matches!((line, source), (3, LineError::Key(KeyTextError::Beginning))));
    let cut = &two.to_string()[..60];
    assert!(matches!(error(cut), (1, LineError::Key(KeyTextError::Length { .. }))));
    assert!(matches!(error(&format!("{one} a/b")), (1, LineError::Name(_))));
    let word = LineError::Word { word: "c".to_owned() };
    assert_eq!(error(&format!("{one} a 2026-01-02 c")), (1, word.clone()));
    assert_eq!(error(&format!("{one} 2026-01-02 c")), (1, word));
    assert_eq!(error(&format!("{one}\n#\n{one}")), (3, LineError::SameKey { first: 1 }));
    assert_eq!(error(&format!("{one} a\n{two} a")), (2, LineError::SameName { first: 1 }));
}

#[test]
fn a_new_list_explains_itself() {
    let mut clients = Clients::default();
    assert_eq!(clients.allow(key(1), Some(name("laptop")), today()), Ok(Allowed::New));
    let text = clients.to_text();
    assert_eq!(text, format!("{HEAD}{} laptop 2026-02-03\n", key(1)));
    assert_eq!(Clients::parse(&text), Ok(clients));
}

#[test]
fn allowing_twice_changes_nothing() {
    let mut clients = Clients::default();
    clients.allow(key(1), Some(name("a")), today()).unwrap();
    let before = clients.clone();
    for again in [None, Some(name("a"))] {
        assert_eq!(clients.allow(key(1), again, today()), Ok(Allowed::Unchanged));
    }
    assert_eq!(clients, before);
    let taken = ChangeError::NameTaken { name: name("a"), key: key(1) };
    assert_eq!(clients.allow(key(2), Some(name("a")), today()), Err(taken));
    assert_eq!(clients, before);
}

#[test]
fn a_client_is_removed_by_key_or_name() {
    let mut clients = Clients::default();
    clients.allow(key(1), Some(name("a")), today()).unwrap();
    clients.allow(key(2), None, today()).unwrap();
    let b = ClientRef::Name(name("b"));
    assert_eq!(clients.remove(&b), Err(ChangeError::NotListed { client: b }));
    assert_eq!(clients.remove(&ClientRef::Name(name("a"))).unwrap().key, key(1));
    let two = ClientRef::Key(key(2));
    assert_eq!(clients.remove(&two).unwrap().key, key(2));
    assert_eq!(clients.remove(&two), Err(ChangeError::NotListed { client: two }));
    assert_eq!(clients.to_text(), HEAD);
}

#[test]
fn a_list_has_a_limit() {
    let padding = "#".repeat(CLIENTS_BYTES - 90);
    let mut clients = Clients::parse(&padding).unwrap();
    let before = clients.clone();
    assert_eq!(clients.allow(key(1), Some(name("a-name")), today()), Ok(Allowed::New));
    assert!(clients.to_text().len() <= CLIENTS_BYTES);
    let mut full = before.clone();
    let long = name(&"n".repeat(KEY_NAME_BYTES));
    assert_eq!(full.allow(key(1), Some(long), today()), Err(ChangeError::Full));
    assert_eq!(full, before);
}

#[test]
fn names_are_short_words() {
    let longest = "n".repeat(KEY_NAME_BYTES);
    for good in ["a", "ann@laptop.example.org", "x_1-2", &longest] {
        assert_eq!(good.parse::<KeyName>().unwrap().as_str(), good);
    }
    let long = "n".repeat(KEY_NAME_BYTES + 1);
    for bad in
        ["", "a b", "é", "a#b", "-a", "2026-01-02", "pelago1x", "ssh-ed25519", "\u{1b}[", &long]
    {
        assert!(bad.parse::<KeyName>().is_err(), "{bad}");
    }
}

#[test]
fn a_text_that_begins_as_a_key_is_one() {
    assert_eq!(key(1).to_string().parse(), Ok(ClientRef::Key(key(1))));
    assert_eq!("laptop".parse(), Ok(ClientRef::Name(name("laptop"))));
    let cut = key(1).to_string()[..60].parse::<ClientRef>();
    assert!(matches!(cut, Err(ClientRefError::Key(KeyTextError::Length { .. }))), "{cut:?}");
    assert!(matches!("a b".parse::<ClientRef>(), Err(ClientRefError::Name(_))));
}
