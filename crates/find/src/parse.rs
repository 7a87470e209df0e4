//! The grammar: `or` of `and` of `not` of terms and brackets.

use pelago_wire::limits::{QUERY_BYTES, QUERY_NESTING, QUERY_TERMS};

use crate::error::{Found, QueryError};
use crate::expr::Expr;
use lexer::{Lexer, Token};

mod lexer;
mod measure;
mod term;

/// Parses a text.
pub(crate) fn parse(text: &[u8]) -> Result<Expr, QueryError> {
    let lexer = Lexer::new(text);
    if text.len() > QUERY_BYTES {
        return Err(QueryError::TooLong { at: lexer.position(QUERY_BYTES), bytes: text.len() });
    }
    let mut parser = Parser { lexer, at: 0, token: Token::End, terms: 0, nesting: 0 };
    parser.advance()?;
    let expr = parser.or()?;
    match parser.token {
        Token::End => Ok(expr),
        // Everything else begins a term, or a part of `and` or `or`.
        _ => Err(QueryError::Unopened { at: parser.lexer.position(parser.at) }),
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token.
    token: Token<'a>,
    /// The offset of the next token.
    at: usize,
    /// The number of terms that were read.
    terms: usize,
    /// The number of open brackets and `not`.
    nesting: usize,
}

impl<'a> Parser<'a> {
    /// Parses parts that `or` joins.
    fn or(&mut self) -> Result<Expr, QueryError> {
        let mut parts = Vec::new();
        loop {
            match self.and()? {
                Expr::Or(inner) => parts.extend(inner),
                part => parts.push(part),
            }
            if self.token != Token::Or {
                return Ok(joined(parts, Expr::Or));
            }
            self.advance()?;
        }
    }

    /// Parses parts that are joined by `and` or by nothing.
    fn and(&mut self) -> Result<Expr, QueryError> {
        let mut parts = Vec::new();
        loop {
            match self.not()? {
                Expr::And(inner) => parts.extend(inner),
                part => parts.push(part),
            }
            match self.token {
                Token::And => self.advance()?,
                Token::Open | Token::Not | Token::Term(_) => {}
                Token::Close | Token::Or | Token::End => return Ok(joined(parts, Expr::And)),
            }
        }
    }

    /// Parses a term or a bracket, either of them after any number of `not`.
    fn not(&mut self) -> Result<Expr, QueryError> {
        let at = self.at;
        let found = match std::mem::replace(&mut self.token, Token::End) {
            Token::Term(raw) => {
                self.count(at)?;
                // Before the next token is read, so that the first error in the text is returned.
                let term = term::term(&self.lexer, &raw)?;
                self.advance()?;
                return Ok(Expr::Term(term));
            }
            Token::Not => {
                self.enter(at)?;
                let part = self.not()?;
                self.nesting -= 1;
                return Ok(Expr::Not(Box::new(part)));
            }
            Token::Open => {
                self.enter(at)?;
                let expr = self.or()?;
                self.nesting -= 1;
                if self.token != Token::Close {
                    return Err(QueryError::Unclosed { at: self.lexer.position(at) });
                }
                self.advance()?;
                return Ok(expr);
            }
            Token::Close => Found::Bracket,
            Token::And => Found::Keyword("and"),
            Token::Or => Found::Keyword("or"),
            Token::End => Found::End,
        };
        Err(QueryError::NoTerm { at: self.lexer.position(at), found })
    }

    fn count(&mut self, at: usize) -> Result<(), QueryError> {
        self.terms += 1;
        if self.terms <= QUERY_TERMS {
            return Ok(());
        }
        Err(QueryError::TooManyTerms { at: self.lexer.position(at) })
    }

    /// Counts a bracket or `not`, so that the stack has a limit, and reads the next token.
    fn enter(&mut self, at: usize) -> Result<(), QueryError> {
        self.nesting += 1;
        if self.nesting <= QUERY_NESTING {
            return self.advance();
        }
        Err(QueryError::TooDeep { at: self.lexer.position(at) })
    }

    /// Reads the next token.
    fn advance(&mut self) -> Result<(), QueryError> {
        (self.at, self.token) = self.lexer.next()?;
        Ok(())
    }
}

/// Returns the only part, or all of them joined.
fn joined(mut parts: Vec<Expr>, join: fn(Vec<Expr>) -> Expr) -> Expr {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        last => {
            parts.extend(last);
            join(parts)
        }
    }
}

#[cfg(test)]
mod tests;
