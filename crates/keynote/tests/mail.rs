//! Tests of the block for mail: changes that mail makes and that do no harm, and damage.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pelago_keynote::{
    ArmorError, Assertion, CHAIN_BYTES, CHAIN_LINKS, CREDENTIAL_BYTES, Grant, armor, unarmor,
};

use signed::{credential, key, share};

#[path = "common/signed.rs"]
mod signed;

const BEGIN: &str = "-----BEGIN PELAGO CREDENTIAL-----";
const END: &str = "-----END PELAGO CREDENTIAL-----";

fn chain() -> Vec<String> {
    vec![credential(&["one"]), credential(&["two", "lines"]), credential(&[])]
}

/// Returns a block of any bytes.
fn block(bytes: &[u8]) -> String {
    format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(bytes))
}

#[test]
fn a_chain_survives_its_block() {
    for count in 1..=CHAIN_LINKS {
        let chain: Vec<String> = chain().into_iter().cycle().take(count).collect();
        let text = armor(&chain).unwrap();
        assert_eq!(unarmor(&text), Ok(chain));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.first(), Some(&BEGIN));
        assert_eq!(lines.last(), Some(&END));
        assert!(lines.iter().all(|line| line.len() <= 64));
        assert!(text.ends_with('\n'));
    }
    let read = Assertion::parse(unarmor(&armor(&chain()).unwrap()).unwrap()[0].as_bytes());
    let read = read.unwrap();
    assert_eq!(read.verify(), Ok(()));
    assert_eq!(Grant::of(&read), Ok(share()));
    assert_eq!(read.licensees().only_key(), Some(pelago_keynote::Principal::of(&key(2))));
}

#[test]
fn what_mail_does_to_a_block_does_no_harm() {
    let block = armor(&chain()).unwrap();
    let each = |form: &dyn Fn(&str) -> String| block.lines().map(form).collect::<String>();
    let letters: String = block.lines().filter(|line| !line.starts_with('-')).collect();
    let cases = [
        block.replace('\n', "\r\n"),
        each(&|line| format!("> {line}\n")),
        each(&|line| format!(">{line}\n")),
        each(&|line| format!("> > >> {line} \r\n")),
        each(&|line| format!("    {line}\n")),
        each(&|line| format!("\t{line}\t\n")),
        each(&|line| format!("{line}\n\n")),
        format!("{BEGIN}\n{letters}\n{END}"),
        letters.chars().fold(format!("{BEGIN}\n"), |text, letter| format!("{text}{letter}\n"))
            + END,
        block.trim_end().to_owned(),
        format!("Dear Bob,\n\nhere it is:\n{block}\n-- \nAl\u{ef}ce\n"),
        format!("{END}\n{block}{END}\n"),
        format!("{block}{}", "x\n".repeat(1000)),
    ];
    for text in cases {
        assert_eq!(unarmor(&text), Ok(chain()), "{text}");
    }
}

#[test]
fn a_text_without_a_block_or_with_two_is_told() {
    let good = armor(&chain()).unwrap();
    let cases = [
        (String::new(), ArmorError::NoBlock),
        (credential(&[]), ArmorError::NoBlock),
        (good.replacen(BEGIN, "", 1), ArmorError::NoBlock),
        (good.replacen(BEGIN, &BEGIN.to_lowercase(), 1), ArmorError::NoBlock),
        (good.replacen(BEGIN, &BEGIN[1..], 1), ArmorError::NoBlock),
        (good.replacen(BEGIN, &format!("{BEGIN} x"), 1), ArmorError::NoBlock),
        (good.replacen("CREDENTIAL", "CERTIFICATE", 1), ArmorError::NoBlock),
        (good.replacen(END, "", 1), ArmorError::Cut),
        (format!("{BEGIN}\n"), ArmorError::Cut),
        (format!("{good}{good}"), ArmorError::Several),
        (format!("{good}\n> {BEGIN}\n"), ArmorError::Several),
        (good.replacen(BEGIN, &format!("{BEGIN}\n{BEGIN}"), 1), ArmorError::Damaged),
    ];
    for (text, error) in cases {
        assert_eq!(unarmor(&text), Err(error), "{text}");
    }
    let lines: Vec<&str> = good.lines().collect();
    for count in 1..lines.len() {
        assert_eq!(unarmor(&lines[..count].join("\n")), Err(ArmorError::Cut), "{count} lines");
    }
}

#[test]
fn each_error_says_what_to_do() {
    let cases = [
        (ArmorError::TooLong, "the text is longer than 1048576 bytes"),
        (ArmorError::NoBlock, "there is no line `-----BEGIN PELAGO CREDENTIAL-----`"),
        (
            ArmorError::Cut,
            "the line `-----END PELAGO CREDENTIAL-----` is missing: the credential is cut",
        ),
        (ArmorError::Several, "there is more than one credential block: give each by itself"),
        (ArmorError::Damaged, "the credential block is damaged: copy it again, all of it"),
        (ArmorError::Limit, "a chain has 1 to 16 credentials, 32768 bytes together"),
    ];
    for (error, says) in cases {
        assert_eq!(error.to_string(), says);
    }
}

#[test]
fn a_block_that_does_not_encode_texts_is_damaged() {
    let text = credential(&[]);
    let length = u16::try_from(text.len()).unwrap();
    let framed = |length: u16| [&length.to_le_bytes()[..], text.as_bytes()].concat();
    assert_eq!(unarmor(&block(&framed(length))), Ok(vec![text.clone()]));
    let cases = [
        framed(length + 1),
        framed(length - 1),
        framed(u16::MAX),
        [framed(length), vec![0]].concat(),
        [framed(length), vec![1, 0]].concat(),
        vec![7],
        vec![1, 0],
        vec![2, 0, 0xff, 0xfe],
    ];
    for bytes in cases {
        assert_eq!(unarmor(&block(&bytes)), Err(ArmorError::Damaged), "{bytes:?}");
    }
}

#[test]
fn letters_that_are_no_base64_are_damage() {
    let good = armor(&chain()).unwrap();
    let first = good.lines().nth(1).unwrap();
    for to in ["!", "-", "_", "=", "", " ", "\u{e4}", "\0"] {
        let text = good.replacen(first, &format!("{}{to}{}", &first[..8], &first[9..]), 1);
        assert_eq!(unarmor(&text), Err(ArmorError::Damaged), "{to:?}");
    }
    let bad = [
        good.replacen(&format!("{first}\n"), "", 1),
        good.replacen(first, &format!("{first}\n{first}"), 1),
        good.replacen(END, &format!("AAAA\n{END}"), 1),
        good.replacen(END, &format!("====\n{END}"), 1),
    ];
    for text in bad {
        assert!(matches!(unarmor(&text), Err(ArmorError::Damaged | ArmorError::Limit)), "{text}");
    }
    // Bits that encode nothing are zero: a chain has one block.
    let bits = format!("{BEGIN}\nAQB4\n{END}\n");
    assert_eq!(unarmor(&bits), Ok(vec!["x".to_owned()]));
    let bits = format!("{BEGIN}\nAgB4eA==\n{END}\n");
    assert_eq!(unarmor(&bits), Ok(vec!["xx".to_owned()]));
    assert_eq!(unarmor(&bits.replacen("eA==", "eB==", 1)), Err(ArmorError::Damaged));
    assert_eq!(unarmor(&bits.replacen("eA==", "eA", 1)), Err(ArmorError::Damaged));
}

#[test]
fn no_letter_of_a_block_can_be_changed() {
    let good = armor(&[credential(&["one"])]).unwrap();
    let begin = BEGIN.len() + 1;
    for at in begin..good.len() - END.len() - 1 {
        for letter in ["A", "b", "/", "="] {
            let mut text = good.clone();
            text.replace_range(at..=at, letter);
            if text == good || &good[at..=at] == "\n" {
                continue;
            }
            let is_good = unarmor(&text).is_ok_and(|chain| {
                let read = |text: &String| Assertion::parse(text.as_bytes());
                chain.iter().all(|text| read(text).is_ok_and(|read| read.verify().is_ok()))
            });
            assert!(!is_good, "letter {at} as {letter}");
        }
    }
}

#[test]
fn a_chain_has_1_to_16_credentials_of_8_kib() {
    let x = "x".to_owned();
    assert!(armor(&vec![x.clone(); CHAIN_LINKS]).is_ok());
    let bad = [
        Vec::new(),
        vec![x.clone(); CHAIN_LINKS + 1],
        vec![String::new()],
        vec![x.clone(), String::new()],
        vec!["x".repeat(CREDENTIAL_BYTES + 1)],
        vec!["x".repeat(1 << 16)],
        vec!["x".repeat(CREDENTIAL_BYTES); 4],
    ];
    for chain in bad {
        assert_eq!(armor(&chain), Err(ArmorError::Limit), "{} texts", chain.len());
    }
    assert!(armor(&["x".repeat(CREDENTIAL_BYTES)]).is_ok());
    let blocks = [
        Vec::new(),
        vec![0, 0],
        [1, 0, b'x'].repeat(CHAIN_LINKS + 1),
        [1, 0, b'x'].repeat(1000),
        [&8193_u16.to_le_bytes()[..], &vec![b'x'; 8193]].concat(),
        [&8000_u16.to_le_bytes()[..], &vec![b'x'; 8000]].concat().repeat(5),
    ];
    for bytes in blocks {
        assert_eq!(unarmor(&block(&bytes)), Err(ArmorError::Limit), "{} bytes", bytes.len());
    }
    let most = block(&[1, 0, b'x'].repeat(CHAIN_LINKS));
    assert_eq!(unarmor(&most), Ok(vec![x; CHAIN_LINKS]));
}

#[test]
fn a_chain_has_at_most_32_kib_with_its_lengths() {
    let mut chain = vec!["x".repeat(CREDENTIAL_BYTES); 3];
    let rest = CHAIN_BYTES - 2 - 3 * (CREDENTIAL_BYTES + 2) - 2;
    chain.push("x".repeat(rest));
    assert_eq!(unarmor(&armor(&chain).unwrap()), Ok(chain.clone()));
    chain[3].push('x');
    assert_eq!(armor(&chain), Err(ArmorError::Limit));
}

#[test]
fn a_text_of_more_than_1_mib_is_not_looked_at() {
    let good = armor(&chain()).unwrap();
    let fits = format!("{good}{}", "x".repeat((1 << 20) - good.len()));
    assert_eq!(unarmor(&fits), Ok(chain()));
    assert_eq!(unarmor(&format!("{fits}x")), Err(ArmorError::TooLong));
}
