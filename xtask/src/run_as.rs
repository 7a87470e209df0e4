//! The user that runs a suite, and the data path of its volumes.

use crate::VerbResult;
use crate::account::{self, Account};

/// Data paths, as `pelago up --passthrough MODE` has them.
const PATHS: &[&str] = &["auto", "always", "never"];

/// What `--user` and `--passthrough` say.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunAs {
    /// The user that serves and uses the volume; `None` for the user that runs xtask.
    pub(crate) account: Option<Account>,
    /// One of [`PATHS`]; `None` leaves the choice to the suite.
    pub(crate) path: Option<&'static str>,
}

/// Runs a verb with these two options and the other arguments; with `--user`, in a mount namespace
/// that is made for that user.
pub(crate) fn enter(
    verb: &str,
    arguments: &[String],
    run: impl FnOnce(&RunAs, &[String]) -> VerbResult,
) -> VerbResult {
    let (run_as, rest) = RunAs::take(arguments)?;
    if run_as.account.is_some()
        && let Some(code) = account::enter_namespace(verb, arguments)?
    {
        return Ok(code);
    }
    run(&run_as, &rest)
}

impl RunAs {
    /// Takes `--user NAME` and `--passthrough PATH` out of the arguments; returns the others too.
    fn take(arguments: &[String]) -> Result<(Self, Vec<String>), String> {
        let (mut run_as, mut rest) = (Self::default(), Vec::new());
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--user" => {
                    let name = words.next().ok_or("--user needs a name")?;
                    run_as.account = Some(Account::find(name)?);
                }
                "--passthrough" => {
                    let named = words.next().map_or("", String::as_str);
                    let path = PATHS.iter().find(|path| **path == named);
                    run_as.path = Some(path.ok_or("--passthrough needs auto, always or never")?);
                }
                option if option.starts_with('-') => return Err(format!("no option `{option}`")),
                _ => rest.push(word.clone()),
            }
        }
        if run_as.account.is_some() && run_as.path == Some("always") {
            return Err("passthrough needs root, and the user of --user is not root".to_owned());
        }
        Ok((run_as, rest))
    }

    /// Returns the data paths to run: the one of `--passthrough`, or these, of which `always` needs
    /// root.
    pub(crate) fn paths(&self, default: &[&'static str]) -> Vec<&'static str> {
        let all = self.path.map_or_else(|| default.to_vec(), |path| vec![path]);
        let may = |path: &&str| self.path.is_some() || *path != "always" || self.is_root();
        all.into_iter().filter(may).collect()
    }

    /// Returns the same user with this data path.
    pub(crate) fn on(&self, path: &'static str) -> Self {
        Self { account: self.account.clone(), path: Some(path) }
    }

    /// Returns whether root runs the suite. Only root has passthrough.
    pub(crate) fn is_root(&self) -> bool {
        self.account.is_none() && crate::machine::is_root()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(line: &str) -> Result<(RunAs, Vec<String>), String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        RunAs::take(&words)
    }

    #[test]
    fn options_are_taken_and_the_rest_is_left() {
        let (run_as, rest) = take("git --passthrough always tar").unwrap();
        assert_eq!(run_as.path, Some("always"));
        assert_eq!(rest, ["git", "tar"]);
        assert!(take("--passthrough sometimes").is_err());
        assert!(take("--user").is_err());
        assert!(take("--slow").is_err());
    }

    #[test]
    fn a_named_data_path_replaces_those_of_the_suite() {
        let (run_as, _) = take("--passthrough never").unwrap();
        assert_eq!(run_as.paths(&["auto", "always"]), ["never"]);
        assert_eq!(RunAs::default().paths(&["auto"]), ["auto"]);
    }
}
