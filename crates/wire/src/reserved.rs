//! Numbers that later versions use, with their names.
//!
//! They are given here so that no two changes take the same one, and so that a number which this
//! version does not speak is refused by its name. Nothing else is known of them. A number moves to
//! the table of its messages once those are built.

/// A number, or a range of numbers without names yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// The first number.
    pub first: u16,
    /// The last number; as `first` if there is one.
    pub last: u16,
    /// The name; of a range what its numbers are for.
    pub name: &'static str,
}

const fn one(number: u16, name: &'static str) -> Reserved {
    Reserved { first: number, last: number, name }
}

const fn range(first: u16, last: u16, name: &'static str) -> Reserved {
    Reserved { first, last, name }
}

/// Kinds of frames.
pub const FRAMES: &[Reserved] =
    &[one(22, "Digests"), one(24, "Query"), one(25, "Answer"), one(26, "Summary")];

/// Requests.
pub const REQUESTS: &[Reserved] = &[
    range(43, 47, "credentials"),
    range(67, 71, "mirrors"),
    range(73, 79, "shared stores"),
    one(80, "CreateMany"),
    range(81, 95, "split directories"),
    one(96, "Blocks"),
    range(97, 103, "blocks between sites"),
    one(104, "Trash"),
    one(105, "Restore"),
    range(106, 111, "operation"),
];

/// Replies.
pub const REPLIES: &[Reserved] = &[
    range(18, 19, "credentials"),
    range(22, 23, "credentials"),
    one(31, "sites"),
    range(32, 39, "mirrors"),
    range(41, 47, "shared stores"),
    range(48, 55, "split directories"),
    range(56, 63, "blocks between sites"),
    range(64, 71, "operation"),
];

/// Errors.
pub const ERRORS: &[Reserved] = &[one(38, "Moved")];

/// Codes of refusals.
pub const REFUSALS: &[Reserved] = &[];

/// Codes of closings.
pub const CLOSINGS: &[Reserved] = &[];

/// Kinds of things that a recall names.
pub const RECALLS: &[Reserved] = &[one(4, "all of one home")];

/// Roles of a client.
pub const ROLES: &[Reserved] = &[one(8, "server of the same store")];

/// Bits of the features of a connection.
pub const FEATURES: &[Reserved] = &[
    one(0, "sites"),
    one(1, "mirror"),
    one(3, "batches"),
    one(4, "find between sites"),
    one(5, "sources"),
];

/// Returns the name of a number in such a list.
#[must_use]
pub fn name(list: &[Reserved], number: u16) -> Option<&'static str> {
    let found = list.iter().find(|reserved| (reserved.first..=reserved.last).contains(&number))?;
    Some(found.name)
}

/// Returns the end of a sentence about a number that this version does not speak: the name in
/// parentheses, and what to do.
#[must_use]
pub fn says(list: &[Reserved], number: u16) -> String {
    match name(list, number) {
        Some(name) => format!(" ({name}), for which both ends need a newer version of pelago"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::codec::{self, DecodeError, decode_call, encode_call};
    use crate::error::Code;
    use crate::frame::{FrameKind, Header};
    use crate::handshake::{ClosingCode, RefusalCode};
    use crate::request::Request;

    /// Asserts that a list rises and has none of the numbers that are built.
    fn assert_free(list: &[Reserved], built: impl Iterator<Item = (u16, String)>) {
        let mut before = 0;
        for (at, reserved) in list.iter().enumerate() {
            assert!(at == 0 || reserved.first > before, "{reserved:?} is not after {before}");
            assert!(reserved.last >= reserved.first, "{reserved:?}");
            before = reserved.last;
        }
        for (number, what) in built {
            assert_eq!(name(list, number), None, "{what}: {number} is taken by a later version");
        }
    }

    #[test]
    fn no_number_is_given_twice() {
        let rows = |rows: &[codec::LayoutRow]| -> Vec<_> {
            rows.iter().map(|row| (row.number, row.name.to_owned())).collect()
        };
        let said = |number: u16, what: &dyn Debug| (number, format!("{what:?}"));
        assert_free(REQUESTS, rows(codec::REQUESTS).into_iter());
        assert_free(REPLIES, rows(codec::REPLIES).into_iter());
        assert_free(FRAMES, FrameKind::ALL.iter().map(|kind| said(kind.number(), kind)));
        assert_free(ERRORS, Code::ALL.iter().map(|code| said(code.number(), code)));
        assert_free(REFUSALS, RefusalCode::ALL.iter().map(|code| said(code.number(), code)));
        assert_free(CLOSINGS, ClosingCode::ALL.iter().map(|code| said(code.number(), code)));
    }

    #[test]
    fn a_reserved_number_is_refused_by_its_name() {
        let mut header = Header::new(FrameKind::Ping, 0, 0).encode();
        header[8] = 22;
        let says = Header::decode(&header).unwrap_err().to_string();
        assert!(says.contains("22 (Digests)"), "{says}");
        let request = |number: u16| {
            let mut body = Vec::new();
            encode_call(0, 0, 0, &Request::StatFs, &mut body).unwrap();
            let end = body.len();
            body[end - 2..].copy_from_slice(&number.to_le_bytes());
            decode_call(&body).unwrap_err()
        };
        assert_eq!(request(80), newer("the request's number", 80, "CreateMany"));
        assert_eq!(request(67), newer("the request's number", 67, "mirrors"));
        let unknown = DecodeError::Unknown { what: "the request's number", number: 112 };
        assert_eq!(request(112), unknown);
    }

    const fn newer(what: &'static str, number: u16, name: &'static str) -> DecodeError {
        DecodeError::Newer { what, number, name }
    }

    #[test]
    fn a_number_is_found_by_its_range() {
        assert_eq!(name(REQUESTS, 80), Some("CreateMany"));
        assert_eq!(name(REQUESTS, 47), Some("credentials"));
        assert_eq!(name(REQUESTS, 37), None);
        assert_eq!(name(REQUESTS, 112), None);
        assert_eq!(says(FRAMES, 27), "");
    }
}
