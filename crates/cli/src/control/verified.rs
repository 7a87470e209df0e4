//! The reply about a comparison of the mirror.

use pelago_server::Verified;
use pelago_wire::InodeId;
use serde_json::{Value, json};

use crate::output;
use crate::status_report::FromJson;

/// The most bytes of the names in a reply; JSON may take six for each of them.
const NAME_BYTES: usize = 128 << 10;

/// The state or result of a comparison of the mirror with the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VerifiedReport {
    /// Number of rows that were compared.
    pub(crate) rows: u64,
    /// Number of content files that were compared.
    pub(crate) files: u64,
    /// Bytes of these files.
    pub(crate) bytes: u64,
    /// Paths in the volume of what the mirror has otherwise; not all, if there are many.
    pub(crate) differing: Vec<String>,
    /// Number of all that the mirror has otherwise.
    pub(crate) differences: u64,
    /// What differs is sent again.
    pub(crate) repairs: bool,
    /// Paths of files that changed each time that they were compared.
    pub(crate) changing: Vec<String>,
    /// True if it is complete.
    pub(crate) has_finished: bool,
    /// The inode number of the file or folder that was compared, with all below it; `None` means
    /// all of the volume.
    pub(crate) below: Option<u64>,
}

impl VerifiedReport {
    /// Returns the object of `verify --json`.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "version": crate::json::VERSION,
            "verified": self.has_finished,
            "rows": self.rows,
            "files": self.files,
            "bytes": self.bytes,
            "differing": self.differing,
            "differences": self.differences,
            "repairs": self.repairs,
            "below": self.below,
            "changing": self.changing,
        })
    }

    /// Returns the lines of `verify`. `is_applied`: what differs was sent again.
    pub(crate) fn to_text(&self, is_applied: bool) -> String {
        let mut lines = String::new();
        for path in &self.differing {
            lines.push_str(&format!("differs   {path}\n"));
        }
        let named = self.differing.len() as u64;
        if self.differences > named {
            lines.push_str(&format!("and       {} more\n", self.differences - named));
        }
        for path in &self.changing {
            lines.push_str(&format!("not yet   {path} changes all the time\n"));
        }
        let bytes = output::bytes(self.bytes);
        let compared = match self.below {
            None => format!("{} rows and {} files of {bytes}", self.rows, self.files),
            Some(_) => format!("{} files of {bytes} there, and all rows", self.files),
        };
        let next = match (self.differences, is_applied) {
            (0, _) => format!("equal     {compared}\n"),
            (_, true) => format!(
                "compared  {compared}\nnext      what differs is sent again: `pelago verify` says \
                 when it is there\n"
            ),
            (_, false) => format!(
                "compared  {compared}\nnext      `pelago verify --apply` sends what differs again\n"
            ),
        };
        lines + &next
    }
}

impl From<Verified> for VerifiedReport {
    fn from(verified: Verified) -> Self {
        let Verified { rows, files, bytes, differences, repairs, .. } = verified;
        let Verified { below, differing, changing, finished, .. } = verified;
        let mut left = NAME_BYTES;
        let mut some = |names: Vec<String>| -> Vec<String> {
            let fits = |name: &String| {
                let fits = name.len() <= left;
                left = left.saturating_sub(name.len());
                fits
            };
            names.into_iter().take_while(fits).collect()
        };
        let differing = some(differing);
        let changing = some(changing);
        let has_finished = finished.is_some();
        let below = below.map(InodeId::raw);
        Self { rows, files, bytes, differing, differences, repairs, changing, has_finished, below }
    }
}

impl FromJson for VerifiedReport {
    fn from_json(value: &Value) -> Option<Self> {
        let names = |value: &Value| -> Option<Vec<String>> {
            value.as_array()?.iter().map(String::from_json).collect()
        };
        Some(Self {
            rows: u64::from_json(&value["rows"])?,
            files: u64::from_json(&value["files"])?,
            bytes: u64::from_json(&value["bytes"])?,
            differing: names(&value["differing"])?,
            differences: u64::from_json(&value["differences"])?,
            // A process of an older version has neither.
            repairs: value["repairs"] == true,
            below: value["below"].as_u64(),
            changing: names(&value["changing"])?,
            has_finished: bool::from_json(&value["verified"])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> VerifiedReport {
        VerifiedReport {
            rows: 9,
            files: 2,
            bytes: 4096,
            differing: vec!["/a".to_owned()],
            differences: 3,
            repairs: true,
            changing: vec!["/b".to_owned()],
            has_finished: true,
            below: Some(9),
        }
    }

    #[test]
    fn a_report_survives_the_socket() {
        assert_eq!(VerifiedReport::from_json(&report().to_json()), Some(report()));
        assert_eq!(VerifiedReport::from_json(&json!({ "verified": true })), None);
    }

    #[test]
    fn a_report_names_what_differs_and_what_to_do() {
        assert_eq!(
            report().to_text(false),
            "differs   /a\nand       2 more\nnot yet   /b changes all the time\ncompared  2 files \
             of 4.0 KiB there, and all rows\nnext      `pelago verify --apply` sends what differs \
             again\n"
        );
        let equal = VerifiedReport {
            differing: Vec::new(),
            differences: 0,
            changing: Vec::new(),
            below: None,
            ..report()
        };
        assert_eq!(equal.to_text(true), "equal     9 rows and 2 files of 4.0 KiB\n");
    }

    #[test]
    fn names_that_are_too_long_together_are_left_out() {
        let long = "n".repeat(NAME_BYTES / 2);
        let verified = Verified { differing: vec![long; 3], differences: 3, ..Verified::default() };
        let report = VerifiedReport::from(verified);
        assert_eq!((report.differing.len(), report.differences), (2, 3));
    }
}
