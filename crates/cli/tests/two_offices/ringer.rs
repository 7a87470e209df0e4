//! `pelago bench ringer` in an office: the requests that it counts at the connection to the other
//! one.

use std::fs;

use crate::two_offices::office::Offices;

/// Calls of each kind, and two sizes.
const COUNTS: &str = "--calls 2 --runs 1 --sizes 2,256KiB --json";

#[test]
fn what_is_own_or_was_read_asks_nobody() {
    let Some(offices) = Offices::new() else { return };
    offices.berlin.types("mkdir ~/berlin/files/own");
    offices.first.types("mkdir ~/pelago/files/docs");
    let own = offices.tree_there().join("own");
    let docs = offices.tree_there().join("docs");
    let at_home = offices.tree().join("docs");
    let [own_path, docs_path, home_path] = [&own, &docs, &at_home].map(|path| path.display());
    let line = format!(
        "pelago bench ringer {own_path} {docs_path} --other {own_path} --other {home_path} {COUNTS}"
    );
    let report = offices.berlin.types(&line).json();
    assert_eq!((&report["version"], &report["bench"]), (&1.into(), &"ringer".into()));
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 12 + 2 * 3, "{report}");
    for row in rows {
        let step = row["step"].as_str().unwrap();
        let [in_own, in_docs] = [0, 1].map(|at| row["figures"][at]["requests"].as_f64().unwrap());
        assert_eq!(in_own, 0.0, "{row}");
        match step {
            "get rnode, again" => assert_eq!(in_docs, 0.0, "{row}"),
            _ if step.starts_with("second read") => assert_eq!(in_docs, 0.0, "{row}"),
            _ if step.starts_with("write ") => assert!(in_docs >= 2.0, "{row}"),
            _ if step.starts_with("first read") => assert!(in_docs >= 1.0, "{row}"),
            "put rnode: create and close" | "put rnode: set the mode" | "get rnode, first" => {
                assert!(in_docs >= 1.0, "{row}");
            }
            _ => {}
        }
        assert!(row["figures"][1]["median"].as_f64().unwrap() > 0.0, "{row}");
        assert!(row["speeds"][0]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    for dir in [&own, &at_home] {
        assert_eq!(fs::read_dir(dir).unwrap().count(), 0, "{} has files", dir.display());
    }
    offices.finish();
}
