//! Parts of the reports that laboratories print and write.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// Returns the word for a goal that is met, or is not.
pub(crate) fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

/// Returns a duration in milliseconds.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Returns a text of an object; an empty one if it has none by this key.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

/// Writes a page of charts.
///
/// # Errors
/// If the file cannot be written.
pub(crate) fn write_page(path: &Path, page: &str) -> Result<(), String> {
    fs::write(path, page).map_err(|why| failed(path, &why))
}

/// Names a file in an error.
pub(crate) fn failed(path: &Path, why: &io::Error) -> String {
    format!("{}: {why}", path.display())
}
