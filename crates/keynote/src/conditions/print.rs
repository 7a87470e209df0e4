//! The text of conditions, from which a reader gets the same conditions again.
//!
//! It has parentheses where they decide, and around the operand of `!`. So it is nested no deeper
//! than the text that was parsed, and is not refused for its depth.

use std::fmt::{self, Display, Formatter, Write as _};

use super::{Arithmetic, Clause, Conditions, Consequence, Pattern, Program, StringExpr, Test};

impl Display for Conditions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.program.fmt(f)
    }
}

impl Display for Program {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (at, clause) in self.clauses.iter().enumerate() {
            // A line that begins with a tab continues the field.
            let begin = if at > 0 { "\n\t" } else { "" };
            write!(f, "{begin}{clause};")?;
        }
        Ok(())
    }
}

impl Display for Clause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.test {
            // A line for each test.
            Test::All(tests) => joined(f, tests, " &&\n\t")?,
            test => test.fmt(f)?,
        }
        match &self.then {
            Consequence::MaxTrust => Ok(()),
            Consequence::Value(value) => write!(f, " -> {value}"),
            Consequence::Program(program) => write!(f, " -> {{{program}}}"),
        }
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(value) => value.fmt(f),
            Self::All(tests) => joined(f, tests, " && "),
            Self::Any(tests) => joined(f, tests, OR),
            Self::Not(test) => write!(f, "!{}", InParentheses(test)),
            Self::Strings(left, relation, right) => {
                write!(f, "{left} {} {right}", relation.text())
            }
            Self::Integers(left, relation, right) => {
                write!(f, "{left} {} {right}", relation.text())
            }
            Self::Floats(left, relation, right) => write!(f, "{left} {} {right}", relation.text()),
            Self::Matches(text, pattern) => write!(f, "{text} ~= {pattern}"),
        }
    }
}

/// Writes tests that are joined by `&&` or `||`, of which `&&` binds tighter.
fn joined(f: &mut Formatter<'_>, tests: &[Test], by: &str) -> fmt::Result {
    for (at, test) in tests.iter().enumerate() {
        let separator = if at > 0 { by } else { "" };
        match test {
            Test::All(_) if by == OR => write!(f, "{separator}{test}")?,
            Test::All(_) | Test::Any(_) => write!(f, "{separator}({test})")?,
            _ => write!(f, "{separator}{test}")?,
        }
    }
    Ok(())
}

const OR: &str = " || ";

struct InParentheses<'a>(&'a Test);

impl Display for InParentheses<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            test @ (Test::Constant(_) | Test::Not(_)) => test.fmt(f),
            test => write!(f, "({test})"),
        }
    }
}

impl Display for Pattern {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.text().fmt(f)
    }
}

impl Display for StringExpr {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(text) => f.write_str(&quoted(text)),
            Self::Attribute(name) => f.write_str(name),
            Self::Dereferenced(name) => write!(f, "${}", AsOperand(name)),
            Self::Joined(parts) => {
                for (at, part) in parts.iter().enumerate() {
                    let by = if at > 0 { " . " } else { "" };
                    write!(f, "{by}{}", AsOperand(part))?;
                }
                Ok(())
            }
        }
    }
}

/// A string as the operand of an operator.
struct AsOperand<'a>(&'a StringExpr);

impl Display for AsOperand<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            text @ StringExpr::Joined(_) => write!(f, "({text})"),
            text => text.fmt(f),
        }
    }
}

/// A number with the sign of its conversion from a string.
trait Number: Copy {
    const CONVERSION: char;

    fn print(self, f: &mut Formatter<'_>) -> fmt::Result;
}

impl Number for i32 {
    const CONVERSION: char = '@';

    fn print(self, f: &mut Formatter<'_>) -> fmt::Result {
        self.fmt(f)
    }
}

impl Number for f32 {
    const CONVERSION: char = '&';

    fn print(self, f: &mut Formatter<'_>) -> fmt::Result {
        // A float always has a point.
        let text = self.to_string();
        f.write_str(&text)?;
        if text.contains('.') { Ok(()) } else { f.write_str(".0") }
    }
}

impl<N: Number> Display for Arithmetic<N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Literal(number) => number.print(f),
            Self::Of(text) => {
                f.write_char(N::CONVERSION)?;
                AsOperand(text).fmt(f)
            }
            Self::Negated(of) => {
                f.write_char('-')?;
                AsFactor(of, UNARY).fmt(f)
            }
            Self::Chain(first, rest) => {
                let class = self.precedence();
                AsFactor(first, class).fmt(f)?;
                for (operator, operand) in rest {
                    write!(f, " {} {}", operator.text(), AsFactor(operand, class))?;
                }
                Ok(())
            }
        }
    }
}

/// The precedence of an operator of one operand.
const UNARY: u8 = 3;

/// A number as the operand of an operator of this precedence.
struct AsFactor<'a, N>(&'a Arithmetic<N>, u8);

impl<N: Number> Display for AsFactor<'_, N> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self(number, class) = self;
        match number.precedence() > *class {
            true => number.fmt(f),
            false => write!(f, "({number})"),
        }
    }
}

impl<N> Arithmetic<N> {
    /// Returns the precedence of the operators of a chain; the highest for anything else.
    fn precedence(&self) -> u8 {
        match self {
            Self::Chain(_, rest) => rest.first().map_or(0, |(operator, _)| operator.precedence()),
            Self::Literal(_) | Self::Of(_) | Self::Negated(_) => u8::MAX,
        }
    }
}

/// Returns a string with its quotes and escapes, in printable ASCII and tabs.
pub(crate) fn quoted(text: &[u8]) -> String {
    let mut quoted = "\"".to_owned();
    for byte in text {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(*byte));
            }
            b' '..=b'~' | b'\t' => quoted.push(char::from(*byte)),
            byte => {
                let _infallible = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted.push('"');
    quoted
}
