//! The user that runs a suite, the data path of its volumes, and whether they are far mounts.

use crate::VerbResult;
use crate::account::{self, Account};

/// Data paths, as `pelago up --passthrough MODE` has them.
const PATHS: &[&str] = &["auto", "always", "never"];

/// The way by which a mount reaches the server of its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The mount is the server's own, in the same process.
    Own,
    /// By the Unix socket in the volume's folder.
    Unix,
    /// By TCP with TLS.
    Tls,
    /// By TCP with TLS, as a guest: a folder of the volume, which is shared with a key of its own
    /// to be changed. The server has a mount of its own, in which nothing else works.
    Guest,
}

/// The options `--user`, `--passthrough` and `--far`.
#[derive(Clone, Debug)]
pub struct RunAs {
    /// The user that serves and uses the volume; `None` for the user that runs xtask.
    pub account: Option<Account>,
    /// One of `PATHS`; `None` leaves the choice to the suite.
    pub path: Option<&'static str>,
    /// The mounts that a suite uses, not empty; the server's own one, if it is used, comes first.
    pub ways: &'static [Way],
}

/// Runs a verb with these options and the other arguments; with `--user`, in a mount namespace that
/// is made for that user.
pub fn enter(
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
    /// Takes `--user NAME`, `--passthrough PATH` and `--far unix|tls` out of the arguments; returns
    /// the others too.
    fn take(arguments: &[String]) -> Result<(Self, Vec<String>), String> {
        let mut run_as = Self::default();
        let mut rest = Vec::new();
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
                "--far" => {
                    let named = words.next().map_or("", String::as_str);
                    run_as.ways = match named {
                        "unix" => &[Way::Unix],
                        "tls" => &[Way::Tls],
                        _ => return Err("--far needs unix or tls".to_owned()),
                    };
                }
                option if option.starts_with('-') => return Err(format!("no option `{option}`")),
                _ => rest.push(word.clone()),
            }
        }
        if run_as.account.is_some() && run_as.path == Some("always") {
            return Err("passthrough needs root, and the user of --user is not root".to_owned());
        }
        if run_as.path.is_some() && run_as.is_far() {
            return Err("a far mount has one data path: --far takes no --passthrough".to_owned());
        }
        Ok((run_as, rest))
    }

    /// Returns the data paths to run: the one of `--passthrough`, or these, of which `always` needs
    /// root. A far mount has none but that through its process.
    pub fn paths(&self, default: &[&'static str]) -> Vec<&'static str> {
        if self.is_far() {
            return vec!["never"];
        }
        let all = self.path.map_or_else(|| default.to_vec(), |path| vec![path]);
        let may = |path: &&str| self.path.is_some() || *path != "always" || self.is_root();
        all.into_iter().filter(may).collect()
    }

    /// Returns the same user with this data path.
    pub fn on(&self, path: &'static str) -> Self {
        Self { path: Some(path), ..self.clone() }
    }

    /// Returns the same user with these mounts.
    pub fn by(&self, ways: &'static [Way]) -> Self {
        Self { ways, ..self.clone() }
    }

    /// Returns whether the suite runs in the mount of another process than the server.
    pub fn is_far(&self) -> bool {
        self.ways.first() != Some(&Way::Own)
    }

    /// Returns how the suite reaches its files, in words.
    pub fn describe(&self, path: &str) -> String {
        match self.ways.first() {
            Some(Way::Unix) => "far over the Unix socket".to_owned(),
            Some(Way::Tls) => "far over TLS".to_owned(),
            Some(Way::Guest) => "of a guest".to_owned(),
            _ => format!("passthrough {path}"),
        }
    }

    /// Returns whether root runs the suite. Only root has passthrough.
    pub fn is_root(&self) -> bool {
        self.account.is_none() && crate::machine::is_root()
    }
}

impl Default for RunAs {
    fn default() -> Self {
        Self { account: None, path: None, ways: &[Way::Own] }
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

    #[test]
    fn a_far_mount_has_one_data_path() {
        let (run_as, rest) = take("--far tls 1000").unwrap();
        assert_eq!((run_as.ways, rest), ([Way::Tls].as_slice(), vec!["1000".to_owned()]));
        assert!(run_as.is_far() && !RunAs::default().is_far());
        assert_eq!(run_as.paths(&["auto", "always"]), ["never"]);
        assert_eq!(run_as.describe("never"), "far over TLS");
        assert!(take("--far").is_err() && take("--far udp").is_err());
        assert!(take("--far unix --passthrough never").is_err());
    }
}
