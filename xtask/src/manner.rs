//! How a suite is run: by whom, and on which way bytes take to a file.

use std::process::ExitCode;

use crate::account::{self, Account};

/// The way of bytes: `pelago up --passthrough WAY`.
const WAYS: &[&str] = &["auto", "always", "never"];

/// What a command line says about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manner {
    /// Who serves and uses the volume; whoever runs us if nobody is named.
    pub(crate) account: Option<Account>,
    /// One of [`WAYS`]; the suite's own choice if there is none.
    pub(crate) way: Option<&'static str>,
}

impl Manner {
    /// Takes `--user NAME` and `--passthrough WAY` out of the arguments; answers with the rest.
    pub(crate) fn take(arguments: &[String]) -> Result<(Self, Vec<String>), String> {
        let (mut manner, mut rest) = (Self::default(), Vec::new());
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--user" => {
                    let name = words.next().ok_or("--user needs a name")?;
                    manner.account = Some(Account::find(name)?);
                }
                "--passthrough" => {
                    let asked = words.next().map_or("", String::as_str);
                    let way = WAYS.iter().find(|way| **way == asked);
                    manner.way = Some(way.ok_or("--passthrough needs auto, always or never")?);
                }
                option if option.starts_with('-') => return Err(format!("no option `{option}`")),
                _ => rest.push(word.clone()),
            }
        }
        if manner.account.is_some() && manner.way == Some("always") {
            return Err("passthrough needs root, and --user is not".to_owned());
        }
        Ok((manner, rest))
    }

    /// As [`account::enter_namespace`], where there is a user to enter it for.
    pub(crate) fn enter(
        &self,
        verb: &str,
        arguments: &[String],
    ) -> Result<Option<ExitCode>, String> {
        if self.account.is_none() {
            return Ok(None);
        }
        account::enter_namespace(verb, arguments)
    }

    /// The same by the same user, on that way.
    pub(crate) fn on(&self, way: &'static str) -> Self {
        Self { account: self.account.clone(), way: Some(way) }
    }

    /// Whether the way may be passthrough: only root has it.
    pub(crate) fn may_pass(&self) -> bool {
        self.account.is_none() && crate::machine::is_root()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_taken_and_the_rest_is_left() {
        let take = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            Manner::take(&words)
        };
        let (manner, rest) = take("git --passthrough always tar").unwrap();
        assert_eq!(manner.way, Some("always"));
        assert_eq!(rest, ["git", "tar"]);
        assert!(take("--passthrough sometimes").is_err());
        assert!(take("--user").is_err());
        assert!(take("--slow").is_err());
    }
}
