//! Regular expressions: the extended ones of POSIX 1003.2, carried out in time that grows with the
//! length of the text alone.
//!
//! The crate `regex` carries them out, so a pattern is translated first, byte by byte. What POSIX
//! leaves undefined, such as `a**` or `\d`, is an error and never a match: in the syntax of the
//! crate it means something else. A back-reference, which extended expressions do not have, too.
//! Whether a text matches is as in POSIX; of several ways to match, the first alternative decides
//! what a group contains, not the longest.

use regex::bytes::{Regex, RegexBuilder};

use super::StringExpr;

/// The limit for a regular expression in bytes.
const PATTERN_BYTES: usize = 1 << 10;
/// The limit for the memory of a compiled regular expression.
const COMPILED_BYTES: usize = 1 << 18;
/// The deepest nesting of groups and repetitions.
const NESTING: u32 = 32;
/// The largest count in an interval, `RE_DUP_MAX` of POSIX.
const COUNT_MAX: u32 = 255;

/// The right side of `~=`.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: StringExpr,
    /// The compiled expression, if the text is a literal and a regular expression.
    compiled: Option<Regex>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Pattern {
    /// Returns the regular expression in a string.
    #[must_use]
    pub fn new(text: StringExpr) -> Self {
        let compiled = match &text {
            StringExpr::Literal(pattern) => compile(pattern),
            StringExpr::Attribute(_) | StringExpr::Dereferenced(_) | StringExpr::Joined(_) => None,
        };
        Self { text, compiled }
    }

    /// Returns the string.
    #[must_use]
    pub const fn text(&self) -> &StringExpr {
        &self.text
    }

    /// Returns the compiled expression of a literal.
    pub(super) const fn compiled(&self) -> Option<&Regex> {
        self.compiled.as_ref()
    }
}

/// Returns a regular expression in compiled form; `None` if POSIX does not define it, or it is too
/// large.
pub(super) fn compile(pattern: &[u8]) -> Option<Regex> {
    if pattern.len() > PATTERN_BYTES {
        return None;
    }
    let translated = Translator { rest: pattern, to: String::new(), groups: 0 }.translate()?;
    // Bytes, not characters; `.` and lists match line feeds too; `^` and `$` are the ends of the
    // text.
    RegexBuilder::new(&translated)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(COMPILED_BYTES)
        .dfa_size_limit(COMPILED_BYTES)
        .nest_limit(NESTING)
        .build()
        .ok()
}

struct Translator<'a> {
    rest: &'a [u8],
    to: String,
    /// The groups that are open.
    groups: usize,
}

/// The element before the present position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// None: the expression, a group or an alternative begins here.
    Begin,
    /// An anchor, which cannot be repeated.
    Anchor,
    /// A character, a list or a group.
    Element,
    /// A repeated element.
    Repeated,
}

impl Translator<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn takes(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        if is_next {
            let _taken = self.next();
        }
        is_next
    }

    /// Writes the byte itself.
    fn byte(&mut self, byte: u8) {
        use std::fmt::Write as _;
        let _infallible = write!(self.to, "\\x{byte:02x}");
    }

    fn translate(mut self) -> Option<String> {
        let mut before = Before::Begin;
        while let Some(byte) = self.next() {
            before = match byte {
                b'(' => {
                    self.groups += 1;
                    self.to.push('(');
                    Before::Begin
                }
                b')' if self.groups > 0 && before != Before::Begin => {
                    self.groups -= 1;
                    self.to.push(')');
                    Before::Element
                }
                b'|' if before != Before::Begin => {
                    self.to.push('|');
                    Before::Begin
                }
                b'^' | b'$' => {
                    self.to.push(char::from(byte));
                    Before::Anchor
                }
                b'*' | b'+' | b'?' if before == Before::Element => {
                    self.to.push(char::from(byte));
                    Before::Repeated
                }
                b'{' if before == Before::Element => {
                    self.interval()?;
                    Before::Repeated
                }
                b')' | b'|' | b'*' | b'+' | b'?' | b'{' => return None,
                b'.' => {
                    self.to.push('.');
                    Before::Element
                }
                b'[' => {
                    self.list()?;
                    Before::Element
                }
                b'\\' => {
                    let escaped = self.next().filter(u8::is_ascii_punctuation)?;
                    self.byte(escaped);
                    Before::Element
                }
                byte => {
                    self.byte(byte);
                    Before::Element
                }
            };
        }
        (self.groups == 0 && before != Before::Begin).then_some(self.to)
    }

    /// Translates the rest of `{m}`, `{m,}` or `{m,n}`.
    fn interval(&mut self) -> Option<()> {
        let least = self.count()?;
        let is_range = self.takes(b',');
        let most = if is_range { self.count() } else { Some(least) };
        if !self.takes(b'}') || most.is_some_and(|most| most < least) {
            return None;
        }
        match most {
            Some(most) => self.to.push_str(&format!("{{{least},{most}}}")),
            None => self.to.push_str(&format!("{{{least},}}")),
        }
        Some(())
    }

    fn count(&mut self) -> Option<u32> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at_checked(digits)?;
        let count =
            str::from_utf8(digits).ok()?.parse().ok().filter(|count| *count <= COUNT_MAX)?;
        self.rest = rest;
        Some(count)
    }

    /// Translates the rest of a bracket expression, whose `[` is read already, as the ranges of
    /// bytes in it.
    fn list(&mut self) -> Option<()> {
        let is_negated = self.takes(b'^');
        let mut members = [false; 256];
        let mut is_first = true;
        loop {
            let byte = self.next()?;
            match byte {
                b']' if !is_first => break,
                b'[' if self.rest.starts_with(b":") => self.class(&mut members)?,
                byte => {
                    let from = self.element(byte)?;
                    let to = self.range_end(from)?;
                    for member in members.iter_mut().take(usize::from(to) + 1).skip(from.into()) {
                        *member = true;
                    }
                }
            }
            is_first = false;
        }
        self.to.push_str(if is_negated { "[^" } else { "[" });
        for (byte, _) in (0..=u8::MAX).zip(members).filter(|(_, is_member)| *is_member) {
            self.byte(byte);
        }
        self.to.push(']');
        Some(())
    }

    /// Returns the element of a list that begins with this byte: itself, or the one in `[.x.]` or
    /// `[=x=]`.
    fn element(&mut self, byte: u8) -> Option<u8> {
        let sign = match self.rest.first() {
            Some(sign @ (b'.' | b'=')) if byte == b'[' => *sign,
            _ => return Some(byte),
        };
        let [_, element, end, b']', rest @ ..] = self.rest else { return None };
        let element = (*end == sign).then_some(*element)?;
        self.rest = rest;
        Some(element)
    }

    /// Returns the last element of the range that begins with `from`; `from` if it is no range.
    fn range_end(&mut self, from: u8) -> Option<u8> {
        match self.rest {
            // A `-` at the end of the list is an element.
            [b'-', b']', ..] => Some(from),
            [b'-', b'[', b':', ..] => None,
            [b'-', ..] => {
                let _minus = self.next();
                let byte = self.next()?;
                self.element(byte).filter(|to| *to >= from)
            }
            _ => Some(from),
        }
    }

    /// Translates a character class of the POSIX locale, whose `[` is read already.
    fn class(&mut self, members: &mut [bool; 256]) -> Option<()> {
        let name = self.rest.strip_prefix(b":")?;
        let end = name.windows(2).position(|two| two == b":]")?;
        let is_member: fn(u8) -> bool = match name.get(..end)? {
            b"alpha" => |byte| byte.is_ascii_alphabetic(),
            b"digit" => |byte| byte.is_ascii_digit(),
            b"alnum" => |byte| byte.is_ascii_alphanumeric(),
            b"upper" => |byte| byte.is_ascii_uppercase(),
            b"lower" => |byte| byte.is_ascii_lowercase(),
            b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
            b"blank" => |byte| matches!(byte, b' ' | b'\t'),
            b"punct" => |byte| byte.is_ascii_punctuation(),
            b"print" => |byte| matches!(byte, b' '..=b'~'),
            b"graph" => |byte| byte.is_ascii_graphic(),
            b"cntrl" => |byte| byte.is_ascii_control(),
            b"xdigit" => |byte| byte.is_ascii_hexdigit(),
            _ => return None,
        };
        for (byte, member) in (0..=u8::MAX).zip(members) {
            *member |= is_member(byte);
        }
        self.rest = name.get(end + 2..)?;
        Some(())
    }
}
