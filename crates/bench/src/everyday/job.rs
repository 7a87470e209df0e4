//! The five jobs, as one types them.

use std::ffi::OsStr;

use super::sources::Sources;

/// The names of the folders of the unpacked tree and of its copy.
pub(super) const TREE: &str = "tree";
pub(super) const COPY: &str = "copy";

/// An everyday job of a programmer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Job {
    Unpack,
    Copy,
    Search,
    Commit,
    Remove,
}

/// All jobs, in their order: `tar` makes the tree that all others need, and `rm` removes the tree and
/// its copy.
pub(super) const JOBS: [Job; 5] = [Job::Unpack, Job::Copy, Job::Search, Job::Commit, Job::Remove];

/// A program with its arguments.
pub(super) type Command<'a> = (&'static str, Vec<&'a OsStr>);

impl Job {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Unpack => "tar x",
            Self::Copy => "cp -r",
            Self::Search => "grep -r",
            Self::Commit => "git init, add, commit",
            Self::Remove => "rm -rf",
        }
    }

    /// Returns the commands of the job, which run in [`Job::folder`].
    pub(super) fn commands(self, sources: &Sources) -> Vec<Command<'_>> {
        let tarball = sources.tarball.as_os_str();
        match self {
            Self::Unpack => {
                vec![("tar", [words("-xf"), vec![tarball], words("-C tree")].concat())]
            }
            Self::Copy => vec![("cp", words("-r tree copy"))],
            Self::Search => {
                let word = OsStr::new(&sources.word);
                vec![("grep", [words("-r -e"), vec![word], words("tree")].concat())]
            }
            Self::Commit => vec![
                ("git", words("init --quiet --template=")),
                ("git", words("add -A")),
                ("git", words("commit --quiet -m everything")),
            ],
            Self::Remove => vec![("rm", words("-rf tree copy"))],
        }
    }

    /// Returns commands that succeed and print nothing if the job was done right. The other jobs are
    /// checked by their results.
    pub(super) fn checks(self, sources: &Sources) -> Vec<Command<'_>> {
        let tree = sources.tree.as_os_str();
        let same = |other: &'static str| {
            let options = words("-r --no-dereference --exclude=.git");
            ("diff", [&options, &[tree, OsStr::new(other)][..]].concat())
        };
        match self {
            // The unpacked tree is compared only now: to read it before it is copied would make the
            // copy faster.
            Self::Copy => vec![same(TREE), same(COPY)],
            Self::Commit => vec![
                ("git", words("status --porcelain")),
                ("git", words("fsck --full --no-dangling --no-progress")),
            ],
            Self::Unpack | Self::Search | Self::Remove => Vec::new(),
        }
    }

    /// Returns the folder in which its programs run, below that of the contender.
    pub(super) const fn folder(self) -> &'static str {
        if matches!(self, Self::Commit) { TREE } else { "" }
    }
}

fn words(text: &'static str) -> Vec<&'static OsStr> {
    text.split_ascii_whitespace().map(OsStr::new).collect()
}
