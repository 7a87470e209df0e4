use super::*;
use crate::key::PrivateKey;

fn key(number: u8) -> PublicKey {
    PrivateKey::from_seed([number; 32]).public()
}

/// The line of the key of seed 1.
const LINE: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIqI4910CfGV/VLbLTy6XXLKZwm/HZQSG/N0iAG0D29c";

fn named(number: u8, name: &str, user: Option<&str>) -> NamedKey {
    let user = user.map(|user| user.parse().unwrap());
    NamedKey { key: key(number), name: name.parse().unwrap(), user }
}

fn said(text: &str) -> String {
    let error = NamedKeys::parse(text).unwrap_err();
    format!("{}: {}", error.line, error.source)
}

#[test]
fn a_line_has_a_key_a_name_and_perhaps_a_user() {
    let text = format!(
        "# Ours\n\n{LINE} ann@laptop\n  {}\tbob  user=bob # since May\n{} carol user=1003\n",
        key(2),
        key(3)
    );
    let list = NamedKeys::parse(&text).unwrap();
    let wanted = [
        named(1, "ann@laptop", None),
        named(2, "bob", Some("bob")),
        named(3, "carol", Some("1003")),
    ];
    assert_eq!(list.iter().cloned().collect::<Vec<_>>(), wanted);
    assert_eq!(list.lines().map(|(line, _)| line).collect::<Vec<_>>(), [3, 4, 5]);
    assert_eq!(list.to_text(), text, "all lines are kept as they were");
    assert_eq!(list.find(&"bob".parse().unwrap()), Some(&wanted[1]));
}

#[test]
fn a_wrong_line_is_named_with_its_fault() {
    let one = key(1);
    let two = key(2);
    assert_eq!(said("\nbob\n"), "2: its first word is not a key");
    let none = "1: the key has no name: a line is KEY NAME [user=USER] [# COMMENT]";
    assert_eq!(said(&format!("{one}")), none);
    assert_eq!(said(&format!("{one} # bob")), none);
    assert!(said(&format!("{one} b\u{7}ob")).starts_with("1: \"b\\u{7}ob\" is not a name: "));
    assert!(said(&format!("{one} 2026-02-03")).starts_with("1: \"2026-02-03\" is not a name: "));
    assert!(said(&format!("{one} {two}")).contains("is not a name: "));
    let word = "is one word too many: a line is KEY NAME [user=USER] [# COMMENT]";
    assert_eq!(said(&format!("{one} bob 2026-02-03")), format!("1: \"2026-02-03\" {word}"));
    assert_eq!(said(&format!("{one} bob user=bob x")), format!("1: \"x\" {word}"));
    assert_eq!(said(&format!("{one} bob USER=bob")), format!("1: \"USER=bob\" {word}"));
    for user in ["", "a:b", "bób", "4294967295", "99999999999", &"u".repeat(USER_BYTES + 1)] {
        let said = said(&format!("{one} bob user={user}"));
        assert!(said.starts_with("1: a user is a name in ASCII, "), "{user}: {said}");
    }
    assert_eq!(said(&format!("{one} a\n{LINE} b\n")), "2: line 1 has the same key");
    assert_eq!(said(&format!("{one} a\n#\n{two} a\n")), "3: line 1 has the same name");
}

#[test]
fn a_name_is_given_changed_and_taken() {
    let mut list = NamedKeys::default();
    assert_eq!(list.set(named(1, "ann", None)), Ok(Named::New));
    assert_eq!(list.set(named(1, "ann", None)), Ok(Named::Unchanged));
    assert_eq!(list.set(named(1, "ann", Some("ann"))), Ok(Named::Changed));
    let taken = NamedChangeError::NameTaken { name: "ann".parse().unwrap(), key: key(1) };
    assert_eq!(list.set(named(2, "ann", None)), Err(taken));
    assert_eq!(list.set(named(2, "bob", None)), Ok(Named::New));
    assert_eq!(list.to_text(), format!("{HEAD}{} ann user=ann\n{} bob\n", key(1), key(2)));
    let none = "carol".parse().unwrap();
    assert_eq!(list.remove(&none), Err(NamedChangeError::NotListed { name: none }));
    assert_eq!(list.remove(&"ann".parse().unwrap()), Ok(named(1, "ann", Some("ann"))));
    assert_eq!(NamedKeys::parse(&list.to_text()), Ok(list));
}

#[test]
fn a_changed_line_keeps_its_comment_and_a_full_list_its_lines() {
    let text = format!("{LINE} ann # her desk\n{}", "#".repeat(KEYS_BYTES - 180));
    let mut list = NamedKeys::parse(&text).unwrap();
    list.set(named(1, "ann", Some("7"))).unwrap();
    assert!(list.to_text().starts_with(&format!("{} ann user=7 # her desk\n", key(1))));
    let before = list.clone();
    let long = "n".repeat(crate::key::NAME_BYTES);
    assert_eq!(list.set(named(2, &long, Some("8"))), Err(NamedChangeError::Full));
    assert_eq!(list, before);
}
