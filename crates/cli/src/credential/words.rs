//! The words that a person reads about a share.

use pelago_keynote::{Grant, Right, SharedObject};

use crate::moment::Moment;

/// Returns the rights, the end and the addresses of a share.
pub(crate) fn granted(share: &Grant) -> String {
    let has = |right| share.rights.has(right);
    let mut text = format!("to be {}", to_be(&has));
    if let Some(end) = &share.until {
        text.push_str(&format!(", until {}", until(end)));
    }
    if let Some(range) = share.from {
        text.push_str(&format!(", from {range}"));
    }
    if let SharedObject::Name { .. } = share.object {
        text.push_str(", by its name");
    }
    if has(Right::Grant) {
        text.push_str("; may be shared on");
    }
    text
}

/// Returns the words of all rights but the one to share on.
fn to_be(has: &impl Fn(Right) -> bool) -> String {
    let words: Vec<&str> = [
        (Right::Read, "read"),
        (Right::Write, "written"),
        (Right::Create, "added to"),
        (Right::Delete, "removed from"),
        (Right::Audit, "audited"),
    ]
    .into_iter()
    .filter_map(|(right, word)| has(right).then_some(word))
    .collect();
    let text = words.join(", ");
    // Both come together nearly always, so that is the case which is not spoken of.
    match (has(Right::Read), has(Right::Execute), text.is_empty()) {
        (true, false, _) => format!("{text}, but not run"),
        (false, true, false) => format!("{text}, run"),
        (false, true, true) => "run".to_owned(),
        (_, _, true) => "known".to_owned(),
        (true, true, _) | (false, false, _) => text,
    }
}

/// Returns the end of a share, which is given as 14 digits.
pub(crate) fn until(digits: &str) -> String {
    Moment::of_digits(digits).map_or_else(|| digits.to_owned(), |moment| moment.to_string())
}

#[cfg(test)]
mod tests {
    use pelago_keynote::SharedName;

    use super::*;

    #[test]
    fn a_person_reads_rights_end_and_addresses() {
        let share = |rights: &str, until: Option<&str>, from: Option<&str>| Grant {
            volume: [5; 16],
            object: SharedObject::Folder(0x2a),
            rights: rights.parse().unwrap(),
            until: until.map(str::to_owned),
            from: from.map(|from| from.parse().unwrap()),
        };
        let end = Some("20261231180000");
        for (share, text) in [
            (share("rx", None, None), "to be read"),
            (share("r", None, None), "to be read, but not run"),
            (share("x", None, None), "to be run"),
            (share("rxa", None, None), "to be read, audited"),
            (share("rwxcd", None, None), "to be read, written, added to, removed from"),
            (share("g", None, None), "to be known; may be shared on"),
            (share("rx", end, None), "to be read, until 2026-12-31 18:00 UTC"),
            (share("rx", Some("20261331180000"), None), "to be read, until 20261331180000"),
            (
                share("rxg", end, Some("192.0.2.0/24")),
                "to be read, until 2026-12-31 18:00 UTC, from 192.0.2.0/24; may be shared on",
            ),
        ] {
            assert_eq!(granted(&share), text);
        }
        let name = SharedName::new(b"report").unwrap();
        let object = SharedObject::Name { directory: 0x2a, name };
        let by_name = Grant { object, ..share("rxg", end, None) };
        let text = "to be read, until 2026-12-31 18:00 UTC, by its name; may be shared on";
        assert_eq!(granted(&by_name), text);
    }
}
