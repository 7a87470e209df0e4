//! The steps of a turn, with what DisCFS's paper says of each.

/// A step that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Write,
    Rewrite,
    Read,
    SearchCold,
    SearchWarm,
    Build,
}

/// All steps, in their order.
pub(super) const STEPS: [Step; 6] =
    [Step::Write, Step::Rewrite, Step::Read, Step::SearchCold, Step::SearchWarm, Step::Build];

/// The figures of the paper for a step (S. Miltchev and others, "Secure and Flexible Global File
/// Sharing", USENIX 2003, FREENIX track, figures 5 to 7). Rates are in Mbit/s, most likely: its
/// network had 100.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Paper {
    /// The rate of NFS, version 3.
    pub nfs_v3: Option<f64>,
    /// The figures of the other systems.
    pub others: &'static str,
}

impl Step {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Write => "block write",
            Self::Rewrite => "rewrite",
            Self::Read => "block read",
            Self::SearchCold => "tree search, cold",
            Self::SearchWarm => "tree search, warm",
            Self::Build => "build",
        }
    }

    /// Returns whether the step is a phase of bonnie++, with a rate.
    pub(super) const fn is_bandwidth(self) -> bool {
        matches!(self, Self::Write | Self::Rewrite | Self::Read)
    }

    pub(super) const fn paper(self) -> Paper {
        match self {
            Self::Write => Paper {
                nfs_v3: Some(19.77),
                others: "DisCFS as NFSv2; bars of FFS, NFSv2 and DisCFS lost",
            },
            Self::Rewrite => Paper {
                nfs_v3: Some(18.17),
                others: "DisCFS below NFSv2, closer than in reads; other bars lost",
            },
            Self::Read => Paper {
                nfs_v3: Some(88.39),
                others: "DisCFS less than half of NFSv2; other bars lost",
            },
            Self::SearchCold | Self::SearchWarm => Paper {
                nfs_v3: None,
                others: "DisCFS's cost \"relatively low\", its worst case; times lost",
            },
            Self::Build => {
                Paper { nfs_v3: None, others: "DisCFS's cost \"relatively low\"; times lost" }
            }
        }
    }
}
