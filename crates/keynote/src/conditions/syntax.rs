//! The syntax of the field `Conditions`: programs of clauses, and the expressions of their tests
//! (RFC 2704, 4.6.5).

use crate::error::SyntaxError;
use crate::token::{Token, Tokens};

use super::{
    Arithmetic, Clause, Consequence, Operator, Pattern, Program, Relation, StringExpr, Test,
};

/// An expression whose type is not demanded yet. The types of the language do not overlap, so that
/// the operands decide which one it is.
enum Expression {
    Test(Test),
    String(StringExpr),
    Integer(Arithmetic<i32>),
    Float(Arithmetic<f32>),
}

/// Parses a program that ends with the field, or before `}`.
pub(super) fn program(from: &mut Tokens<'_>) -> Result<Program, SyntaxError> {
    let mut clauses = Vec::new();
    while from.peek().is_some_and(|token| *token != Token::Operator("}")) {
        clauses.push(clause(from)?);
        from.expect(";")?;
    }
    Ok(Program { clauses })
}

fn clause(from: &mut Tokens<'_>) -> Result<Clause, SyntaxError> {
    let test = any(from)?.into_test(from)?;
    if !from.takes("->") {
        return Ok(Clause { test, then: Consequence::MaxTrust });
    }
    if from.takes("{") {
        let program = from.nested(program)?;
        from.expect("}")?;
        return Ok(Clause { test, then: Consequence::Program(program) });
    }
    let value = sum(from)?.into_string(from)?;
    Ok(Clause { test, then: Consequence::Value(value) })
}

/// Parses tests that are joined by `||`.
fn any(from: &mut Tokens<'_>) -> Result<Expression, SyntaxError> {
    let first = all(from)?;
    if from.peek() != Some(&Token::Operator("||")) {
        return Ok(first);
    }
    let mut tests = vec![first.into_test(from)?];
    while from.takes("||") {
        tests.push(all(from)?.into_test(from)?);
    }
    Ok(Expression::Test(Test::Any(tests)))
}

/// Parses tests that are joined by `&&`.
fn all(from: &mut Tokens<'_>) -> Result<Expression, SyntaxError> {
    let first = negation(from)?;
    if from.peek() != Some(&Token::Operator("&&")) {
        return Ok(first);
    }
    let mut tests = vec![first.into_test(from)?];
    while from.takes("&&") {
        tests.push(negation(from)?.into_test(from)?);
    }
    Ok(Expression::Test(Test::All(tests)))
}

fn negation(from: &mut Tokens<'_>) -> Result<Expression, SyntaxError> {
    if from.takes("!") {
        let test = from.nested(negation)?.into_test(from)?;
        return Ok(Expression::Test(Test::Not(Box::new(test))));
    }
    relation(from)
}

fn relation(from: &mut Tokens<'_>) -> Result<Expression, SyntaxError> {
    let left = sum(from)?;
    if from.takes("~=") {
        let text = left.into_string(from)?;
        let pattern = Pattern::new(sum(from)?.into_string(from)?);
        from.add_positions(pattern.positions())?;
        return Ok(Expression::Test(Test::Matches(text, pattern)));
    }
    let Some(relation) = Relation::ALL.into_iter().find(|one| from.takes(one.text())) else {
        return Ok(left);
    };
    let right = sum(from)?;
    Ok(Expression::Test(match (left, right) {
        (Expression::String(left), Expression::String(right)) => {
            Test::Strings(left, relation, right)
        }
        (Expression::Integer(left), Expression::Integer(right)) => {
            Test::Integers(left, relation, right)
        }
        (Expression::Float(left), Expression::Float(right)) => match relation {
            // Most implementations of floating point do not guarantee equality (RFC 2704, 4.6.5).
            Relation::Equal | Relation::Unequal => return Err(SyntaxError::FloatEquality),
            Relation::Less | Relation::Greater | Relation::AtMost | Relation::AtLeast => {
                Test::Floats(left, relation, right)
            }
        },
        (_, _) => return Err(SyntaxError::Types(relation.text())),
    }))
}

/// Parses a string, or strings that are joined by `.`.
pub(crate) fn string(from: &mut Tokens<'_>) -> Result<StringExpr, SyntaxError> {
    sum(from)?.into_string(from)
}

/// Parses operands that are joined by `+`, `-` or `.`.
fn sum(from: &mut Tokens<'_>) -> Result<Expression, SyntaxError> {
    let mut first = product(from)?;
    if let Expression::String(text) = first {
        let mut parts = vec![text];
        while from.takes(".") {
            parts.push(product(from)?.into_string(from)?);
        }
        first = Expression::String(StringExpr::joined(parts));
    }
    chain(from, first, &[Operator::Add, Operator::Subtract], product)
}

fn product(from: &mut Tokens<'_>) -> Result<Expression, SyntaxError> {
    let first = power(from)?;
    chain(from, first, &[Operator::Multiply, Operator::Divide, Operator::Remainder], power)
}

fn power(from: &mut Tokens<'_>) -> Result<Expression, SyntaxError> {
    let first = unary(from)?;
    chain(from, first, &[Operator::Power], unary)
}

/// Parses the operands after the first one of operators of one precedence class, which are carried
/// out from the left.
fn chain(
    from: &mut Tokens<'_>,
    first: Expression,
    operators: &[Operator],
    operand: fn(&mut Tokens<'_>) -> Result<Expression, SyntaxError>,
) -> Result<Expression, SyntaxError> {
    let next = |from: &mut Tokens<'_>| operators.iter().find(|one| from.takes(one.text())).copied();
    match first {
        Expression::Integer(first) => {
            let mut rest = Vec::new();
            while let Some(operator) = next(from) {
                let Expression::Integer(operand) = operand(from)? else {
                    return Err(SyntaxError::Types(operator.text()));
                };
                rest.push((operator, operand));
            }
            Ok(Expression::Integer(Arithmetic::chain(first, rest)))
        }
        Expression::Float(first) => {
            let mut rest = Vec::new();
            while let Some(operator) = next(from) {
                let Expression::Float(operand) = operand(from)? else {
                    return Err(SyntaxError::Types(operator.text()));
                };
                if operator == Operator::Remainder {
                    return Err(SyntaxError::Types(operator.text()));
                }
                rest.push((operator, operand));
            }
            Ok(Expression::Float(Arithmetic::chain(first, rest)))
        }
        Expression::String(_) | Expression::Test(_) => match next(from) {
            Some(operator) => Err(SyntaxError::Types(operator.text())),
            None => Ok(first),
        },
    }
}

fn unary(from: &mut Tokens<'_>) -> Result<Expression, SyntaxError> {
    if from.takes("-") {
        return match from.nested(unary)? {
            Expression::Integer(of) => Ok(Expression::Integer(Arithmetic::Negated(Box::new(of)))),
            Expression::Float(of) => Ok(Expression::Float(Arithmetic::Negated(Box::new(of)))),
            Expression::String(_) | Expression::Test(_) => Err(SyntaxError::Types("-")),
        };
    }
    if from.takes("@") {
        let text = from.nested(unary)?.into_string(from)?;
        return Ok(Expression::Integer(Arithmetic::Of(text)));
    }
    if from.takes("&") {
        let text = from.nested(unary)?.into_string(from)?;
        return Ok(Expression::Float(Arithmetic::Of(text)));
    }
    if from.takes("$") {
        let name = from.nested(unary)?.into_string(from)?;
        return Ok(Expression::String(StringExpr::Dereferenced(Box::new(name))));
    }
    operand(from)
}

fn operand(from: &mut Tokens<'_>) -> Result<Expression, SyntaxError> {
    const EXPECTED: &str = "a test or a value";
    let is_denied = from.is_after_not();
    if from.takes("(") {
        // After `!` they are not counted, because they are printed even if the text has none.
        let inner = if is_denied { any(from)? } else { from.nested(any)? };
        from.expect(")")?;
        return Ok(inner);
    }
    let unexpected = from.unexpected(EXPECTED);
    match from.next() {
        Some(Token::Text(text)) => Ok(Expression::String(StringExpr::Literal(text))),
        Some(Token::Name(name)) => Ok(Expression::String(StringExpr::Attribute(name.to_owned()))),
        Some(Token::Integer(digits)) => match digits.parse() {
            Ok(number) => Ok(Expression::Integer(Arithmetic::Literal(number))),
            Err(_) => Err(SyntaxError::Number(digits.to_owned())),
        },
        Some(Token::Float(digits)) => match digits.parse() {
            Ok(number) if f32::is_finite(number) => {
                Ok(Expression::Float(Arithmetic::Literal(number)))
            }
            Ok(_) | Err(_) => Err(SyntaxError::Number(digits.to_owned())),
        },
        Some(Token::Threshold(_) | Token::Operator(_)) | None => Err(unexpected),
    }
}

impl Expression {
    /// Returns the expression as a test. The names `true` and `false` are tests if a test is in
    /// their place, in any case of their letters; elsewhere they are attributes.
    fn into_test(self, from: &Tokens<'_>) -> Result<Test, SyntaxError> {
        match self {
            Self::Test(test) => Ok(test),
            Self::String(StringExpr::Attribute(name)) if name.eq_ignore_ascii_case("true") => {
                Ok(Test::Constant(true))
            }
            Self::String(StringExpr::Attribute(name)) if name.eq_ignore_ascii_case("false") => {
                Ok(Test::Constant(false))
            }
            Self::String(_) | Self::Integer(_) | Self::Float(_) => {
                Err(from.unexpected("a comparison"))
            }
        }
    }

    fn into_string(self, from: &Tokens<'_>) -> Result<StringExpr, SyntaxError> {
        match self {
            Self::String(text) => Ok(text),
            Self::Test(_) | Self::Integer(_) | Self::Float(_) => {
                Err(from.unexpected("a string before this"))
            }
        }
    }
}
