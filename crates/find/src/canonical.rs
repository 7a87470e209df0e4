//! The canonical text of a query.

use crate::expr::{Expr, FileOwner, Term, When};
use crate::syntax::{AGE_UNITS, RESERVED, SIZE_UNITS, is_boundary, is_control, word_of};

/// Returns the text of an expression.
pub(crate) fn text(expr: &Expr) -> Vec<u8> {
    let mut out = Vec::new();
    write_expr(&mut out, expr);
    out
}

fn write_expr(out: &mut Vec<u8>, expr: &Expr) {
    match expr {
        Expr::And(parts) => write_joined(out, parts, b" ", |part| matches!(part, Expr::Or(_))),
        Expr::Or(parts) => write_joined(out, parts, b" or ", |_| false),
        Expr::Not(part) => {
            out.extend(b"not ");
            write_part(out, part, matches!(**part, Expr::And(_) | Expr::Or(_)));
        }
        Expr::Term(term) => write_term(out, term),
    }
}

fn write_joined(out: &mut Vec<u8>, parts: &[Expr], between: &[u8], is_in: fn(&Expr) -> bool) {
    for (index, part) in parts.iter().enumerate() {
        if index > 0 {
            out.extend(between);
        }
        write_part(out, part, is_in(part));
    }
}

/// Writes an expression, in brackets if `has_brackets`.
fn write_part(out: &mut Vec<u8>, part: &Expr, has_brackets: bool) {
    if has_brackets {
        out.push(b'(');
    }
    write_expr(out, part);
    if has_brackets {
        out.push(b')');
    }
}

fn write_term(out: &mut Vec<u8>, term: &Term) {
    match term {
        Term::Tag { key, value } => {
            if RESERVED.contains(&key.as_str()) {
                out.extend(b"tag:");
            }
            out.extend(key.as_str().as_bytes());
            out.push(b'=');
            write_value(out, value, false);
        }
        Term::HasTag(key) => {
            out.extend(b"tag:");
            out.extend(key.as_str().as_bytes());
        }
        Term::Name(name) => {
            out.extend(b"name=");
            write_value(out, name.as_bytes(), false);
        }
        Term::NameLike(glob) => {
            out.extend(b"name~");
            write_value(out, glob.as_bytes(), false);
        }
        Term::Size { comparison, bytes } => {
            out.extend(b"size");
            out.extend(comparison.sign().as_bytes());
            write_number(out, *bytes, &SIZE_UNITS);
        }
        Term::Mtime { comparison, when } => {
            out.extend(b"mtime");
            out.extend(comparison.sign().as_bytes());
            match when {
                When::Ago(0) => out.extend(b"0s"),
                When::Ago(seconds) => write_number(out, *seconds, &AGE_UNITS),
                When::Day(day) => out.extend(day.to_string().into_bytes()),
            }
        }
        Term::Kind(kind) => {
            out.extend(b"kind=");
            out.extend(word_of(*kind).as_bytes());
        }
        Term::Owner(owner) => {
            out.extend(b"owner=");
            match owner {
                FileOwner::Uid(uid) => out.extend(uid.to_string().into_bytes()),
                FileOwner::Name(name) => write_value(out, name.as_bytes(), false),
            }
        }
        Term::Text(words) => {
            out.extend(b"text:");
            write_value(out, words.join(" ").as_bytes(), false);
        }
    }
}

/// Writes a number in the largest unit that divides it, if there is one.
fn write_number(out: &mut Vec<u8>, number: u64, units: &[(u8, u64)]) {
    let divides = |(_, unit): &&(u8, u64)| number != 0 && number.is_multiple_of(*unit);
    match units.iter().find(divides) {
        Some((letter, unit)) => {
            out.extend((number / unit).to_string().into_bytes());
            out.push(*letter);
        }
        None => out.extend(number.to_string().into_bytes()),
    }
}

/// Writes a value, in quotes if it needs them or `is_quoted`.
pub(crate) fn write_value(out: &mut Vec<u8>, value: &[u8], is_quoted: bool) {
    let is_plain = |byte: &u8| !is_boundary(*byte) && !is_control(*byte) && *byte != b'"';
    if !is_quoted && !value.is_empty() && value.iter().all(is_plain) {
        out.extend(value);
        return;
    }
    out.push(b'"');
    for byte in value {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'"');
}
