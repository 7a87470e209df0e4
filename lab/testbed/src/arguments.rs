//! Arguments that several verbs share.

use std::fmt::Display;
use std::str::FromStr;

/// Refuses any argument.
pub fn none(arguments: &[String]) -> Result<(), String> {
    let unknown = arguments.first().map(|unknown| format!("takes no arguments, not `{unknown}`"));
    unknown.map_or(Ok(()), Err)
}

/// Returns the number of `[COUNT]`, or the default; `unit` says what is counted.
pub fn count<T>(arguments: &[String], default: T, unit: &str) -> Result<T, String>
where
    T: FromStr<Err: Display>,
{
    match arguments {
        [] => Ok(default),
        [count] => number(count, unit),
        _ => Err(format!("takes one number of {unit}")),
    }
}

/// Returns the number that a word is; `unit` says what is counted.
pub fn number<T>(word: &str, unit: &str) -> Result<T, String>
where
    T: FromStr<Err: Display>,
{
    word.parse().map_err(|why| format!("`{word}` {unit}: {why}"))
}
