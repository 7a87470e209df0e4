//! Regular expressions: the extended ones of POSIX 1003.2, carried out in time that grows with the
//! length of the text alone.
//!
//! The crate `regex` carries them out, so a pattern is translated first, byte by byte. What POSIX
//! leaves undefined, such as `a**` or `\d`, is an error and never a match: in the syntax of the
//! crate it means something else. A back-reference, which extended expressions do not have, too.
//! Whether a text matches is as in POSIX; of several ways to match, the first alternative decides
//! what a group contains, not the longest.
//!
//! The size of an expression is counted in positions, which decide how long a search can take: a
//! position is a character, a list or a group, as often as its repetitions allow.

use std::sync::OnceLock;

use regex::bytes::{Regex, RegexBuilder};

use super::StringExpr;

/// The limit for a regular expression in bytes.
const PATTERN_BYTES: usize = 1 << 10;
/// The limit for the positions of a regular expression.
const POSITIONS: usize = 2 << 10;
/// The limit for the memory of a compiled regular expression: more than [`POSITIONS`] take.
const COMPILED_BYTES: usize = 1 << 20;
/// The limit for the states of a compiled regular expression that are cached between searches.
const CACHED_BYTES: usize = 64 << 10;
/// The deepest nesting of groups and repetitions.
const NESTING: u32 = 32;
/// The largest count in an interval, `RE_DUP_MAX` of POSIX.
const COUNT_MAX: u32 = 255;

/// The right side of `~=`.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: StringExpr,
    /// The positions of a literal; 0 if it is none, or no regular expression.
    positions: usize,
    /// The compiled expression of a literal. It is compiled when it is searched for first: a text
    /// whose signature is not verified yet must not cause costly work.
    compiled: OnceLock<Option<Compiled>>,
}

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub(super) struct Compiled {
    regex: Regex,
    positions: usize,
}

/// The bytes of a string that are read or copied in one step.
pub(super) const BYTES_A_STEP: usize = 64;
/// The bytes of a text, times the positions, that are searched for a match in one step.
const SEARCHED_A_STEP: usize = 1 << 10;
/// The bytes of a text, times the positions, times the groups, that are searched for groups in one
/// step.
const GROUPED_A_STEP: usize = 1 << 4;

impl Compiled {
    /// Returns the number of groups.
    pub(super) fn groups(&self) -> usize {
        self.regex.captures_len().saturating_sub(1)
    }

    /// Returns the steps that it takes to find a match.
    pub(super) fn steps(&self, text: &[u8]) -> u32 {
        let searched = text.len().saturating_mul(self.positions) / SEARCHED_A_STEP;
        u32::try_from(searched + text.len() / BYTES_A_STEP).unwrap_or(u32::MAX)
    }

    /// Returns the steps that it takes to find the groups of a match.
    pub(super) fn group_steps(&self, text: &[u8]) -> u32 {
        let size = text.len().saturating_mul(self.positions).saturating_mul(self.groups());
        u32::try_from(size / GROUPED_A_STEP).unwrap_or(u32::MAX)
    }

    /// Returns whether a part of the text matches.
    pub(super) fn is_match(&self, text: &[u8]) -> bool {
        self.regex.is_match(text)
    }

    /// Returns the text of each group, but of at most `count`.
    pub(super) fn find_groups(&self, text: &[u8], count: usize) -> Vec<Vec<u8>> {
        let Some(captures) = self.regex.captures(text) else { return Vec::new() };
        let groups = captures.iter().skip(1).take(count);
        groups.map(|group| group.map_or_else(Vec::new, |group| group.as_bytes().to_vec())).collect()
    }
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
        let positions = match &text {
            StringExpr::Literal(pattern) => positions(pattern).unwrap_or_default(),
            StringExpr::Attribute(_) | StringExpr::Dereferenced(_) | StringExpr::Joined(_) => 0,
        };
        Self { text, positions, compiled: OnceLock::new() }
    }

    /// Returns the string.
    #[must_use]
    pub const fn text(&self) -> &StringExpr {
        &self.text
    }

    /// Returns the positions of a literal; 0 if it is none, or no regular expression.
    pub(super) const fn positions(&self) -> usize {
        self.positions
    }

    /// Returns whether it is a literal that is a regular expression.
    pub(super) fn is_valid_literal(&self) -> bool {
        match &self.text {
            StringExpr::Literal(pattern) => positions(pattern).is_some(),
            StringExpr::Attribute(_) | StringExpr::Dereferenced(_) | StringExpr::Joined(_) => false,
        }
    }

    /// Returns the compiled expression of a literal.
    pub(super) fn compiled(&self) -> Option<&Compiled> {
        let compile = || match &self.text {
            StringExpr::Literal(pattern) => compile(pattern),
            StringExpr::Attribute(_) | StringExpr::Dereferenced(_) | StringExpr::Joined(_) => None,
        };
        self.compiled.get_or_init(compile).as_ref()
    }
}

/// Returns a regular expression in compiled form; `None` if POSIX does not define it, or it is too
/// large.
pub(super) fn compile(pattern: &[u8]) -> Option<Compiled> {
    let Translated { text, positions } = translate(pattern)?;
    // Bytes, not characters; `.` and lists match line feeds too; `^` and `$` are the ends of the
    // text.
    let regex = RegexBuilder::new(&text)
        .unicode(false)
        .dot_matches_new_line(true)
        .size_limit(COMPILED_BYTES)
        .dfa_size_limit(CACHED_BYTES)
        .nest_limit(NESTING)
        .build()
        .ok()?;
    Some(Compiled { regex, positions })
}

/// Returns the positions of a regular expression; `None` if it is none, or too large.
pub(super) fn positions(pattern: &[u8]) -> Option<usize> {
    translate(pattern).map(|translated| translated.positions)
}

/// A regular expression in the syntax of the crate `regex`.
struct Translated {
    text: String,
    positions: usize,
}

fn translate(pattern: &[u8]) -> Option<Translated> {
    if pattern.len() > PATTERN_BYTES {
        return None;
    }
    let groups = vec![Size::default()];
    let translator = Translator { rest: pattern, to: String::new(), groups };
    translator.translate().filter(|translated| translated.positions <= POSITIONS)
}

/// Returns whether a byte stands for itself after a backslash. POSIX defines that for the special
/// characters only; other programs give a meaning to letters, digits and these four.
const fn is_escaped(byte: u8) -> bool {
    byte.is_ascii_punctuation() && !matches!(byte, b'<' | b'>' | b'\'' | b'`')
}

struct Translator<'a> {
    rest: &'a [u8],
    to: String,
    /// The sizes of the expression and of the groups in it that are open.
    groups: Vec<Size>,
}

/// The positions of what is read of a group.
#[derive(Clone, Copy, Default)]
struct Size {
    /// Those before the last element.
    before: usize,
    /// Those of the last element, which may be repeated.
    last: usize,
}

impl Size {
    const fn total(self) -> usize {
        self.before.saturating_add(self.last)
    }
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

    /// Counts an element of so many positions.
    fn add(&mut self, positions: usize) {
        if let Some(size) = self.groups.last_mut() {
            *size = Size { before: size.total(), last: positions };
        }
    }

    /// Counts the repetitions of the last element.
    fn repeat(&mut self, count: usize) {
        if let Some(size) = self.groups.last_mut() {
            size.last = size.last.saturating_mul(count.max(1));
        }
    }

    fn translate(mut self) -> Option<Translated> {
        let mut before = Before::Begin;
        while let Some(byte) = self.next() {
            before = match byte {
                b'(' => {
                    self.groups.push(Size::default());
                    self.to.push('(');
                    Before::Begin
                }
                b')' if self.groups.len() > 1 && before != Before::Begin => {
                    let positions = self.groups.pop()?.total();
                    self.add(positions.saturating_add(1));
                    self.to.push(')');
                    Before::Element
                }
                b'|' if before != Before::Begin => {
                    self.add(1);
                    self.to.push('|');
                    Before::Begin
                }
                b'^' | b'$' => {
                    self.add(1);
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
                    self.add(1);
                    self.to.push('.');
                    Before::Element
                }
                b'[' => {
                    self.add(1);
                    self.list()?;
                    Before::Element
                }
                b'\\' => {
                    let escaped = self.next().filter(|byte| is_escaped(*byte))?;
                    self.add(1);
                    self.byte(escaped);
                    Before::Element
                }
                byte => {
                    self.add(1);
                    self.byte(byte);
                    Before::Element
                }
            };
        }
        let [size] = self.groups.as_slice() else { return None };
        let positions = size.total();
        (before != Before::Begin).then_some(Translated { text: self.to, positions })
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
        self.repeat(usize::try_from(most.unwrap_or(least)).unwrap_or(usize::MAX));
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

    /// Translates the rest of a bracket expression, whose `[` is read already, as the bytes in it.
    fn list(&mut self) -> Option<()> {
        let is_negated = self.takes(b'^');
        let mut members = [false; 256];
        let mut is_first = true;
        loop {
            let byte = self.next()?;
            match byte {
                b']' if !is_first => break,
                b'[' if self.rest.starts_with(b":") => self.class(&mut members)?,
                // A `-` that neither begins nor ends the list, nor a range, is not defined.
                b'-' if !is_first && !self.rest.starts_with(b"]") => return None,
                byte => {
                    // A range of equivalence classes is not defined.
                    let is_class = byte == b'[' && self.rest.starts_with(b"=");
                    let from = self.element(byte)?;
                    let to = if is_class { from } else { self.range_end(from)? };
                    for member in members.iter_mut().take(usize::from(to) + 1).skip(from.into()) {
                        *member = true;
                    }
                }
            }
            is_first = false;
        }
        self.to.push_str(if is_negated { "[^" } else { "[" });
        let mut byte = 0;
        while byte < members.len() {
            let run = members.iter().skip(byte).take_while(|is_member| **is_member).count();
            if let (Ok(first), Some(last)) = (u8::try_from(byte), (byte + run).checked_sub(1))
                && run > 0
            {
                self.byte(first);
                self.to.push('-');
                self.byte(u8::try_from(last).ok()?);
            }
            byte += run.max(1);
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
            [b'-', b'[', b':' | b'=', ..] => None,
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
