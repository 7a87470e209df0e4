//! The options `--find` and `--no-find`: the choice of a search index.

/// The choice of a search index.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Indexing {
    /// Build the search index at once, not with the first search that needs it
    #[arg(long)]
    find: bool,
    /// Have no search index: searches for anything but tags look at every file
    #[arg(long, conflicts_with = "find")]
    no_find: bool,
}

impl From<Indexing> for pelago_server::Indexing {
    fn from(Indexing { find, no_find }: Indexing) -> Self {
        match (find, no_find) {
            (true, _) => Self::Always,
            (false, true) => Self::Never,
            (false, false) => Self::Auto,
        }
    }
}
