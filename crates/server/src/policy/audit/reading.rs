//! Pages of the log, with the lines of a scope.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use pelago_store::folder::Folder;
use pelago_store::volume;
use pelago_wire::{AuditPage, AuditPlace, Code, Error, InodeId, limits};
use rustix::fs::OFlags;
use serde_json::{Map, Value};

use super::Audit;
use super::files::{FileError, SUFFIX, is_day};

/// The directories of the node that a line is about.
pub(super) const DIRECTORIES: &str = "directories";
/// The fields of a line that tell nothing of what happens elsewhere. A count of lines that were
/// left out does, and so does the credential by which the session began: another one of it may have
/// given the right.
const LOCAL_FIELDS: [&str; 9] =
    ["time", "what", "key", "session", "operation", "rights", "node", "why", "issued"];

/// One line that fits on a page is read whole.
const _: () = assert!(limits::AUDIT_PAGE_BYTES < limits::AUDIT_READ_BYTES);
/// A page has one line at least.
const _: () = assert!(limits::AUDIT_LINE_DIRS <= limits::AUDIT_PAGE_DIRS);

/// A part of the log.
pub(crate) struct AuditScope<'a> {
    /// Returns whether all lines are in it now.
    pub(crate) has_all: &'a dyn Fn() -> Result<bool, Error>,
    /// Returns whether the lines about nodes in a directory are in it now.
    pub(crate) has: &'a dyn Fn(InodeId) -> Result<bool, Error>,
}

/// Bytes of one day's file.
struct Window {
    /// The place of the first one.
    from: AuditPlace,
    bytes: Vec<u8>,
    /// True if there may be more in the file.
    is_cut: bool,
    /// The next day that has a file.
    next_day: Option<u32>,
}

/// The directories that were decided about for one page.
struct Decided<'a> {
    scope: &'a AuditScope<'a>,
    has_all: bool,
    dirs: HashMap<u64, bool>,
}

impl Audit {
    /// Returns the lines from a place on that are in a scope: as many as fit on a page, of a part
    /// of the log. Lines that wait are not among them. Blocks on the disk.
    ///
    /// # Errors
    /// `Io`, which is in the server's log; `Busy` of the scope.
    pub(in crate::policy) fn read(
        &self,
        after: AuditPlace,
        scope: &AuditScope<'_>,
    ) -> Result<AuditPage, Error> {
        // Read before any decision: a directory that moves out meanwhile is decided about as it is
        // after that.
        let window = self.window(after).map_err(|error| {
            if self.unread.lock().insert(None) {
                tracing::warn!(%error, "the audit log cannot be read");
            }
            Code::Io
        })?;
        self.unread.lock().remove(&None);
        match window {
            Some(window) => window.page(scope),
            None => Ok(AuditPage { lines: Vec::new(), next: None }),
        }
    }

    /// Returns the bytes from a place on; `None` behind the last file.
    fn window(&self, after: AuditPlace) -> Result<Option<Window>, FileError> {
        let folder = match self.folder.open_folder(volume::AUDIT) {
            Err(error) if error.is_not_found() => return Ok(None),
            folder => folder?,
        };
        let names = folder.entries()?.into_iter().filter_map(|name| name.into_string().ok());
        let day_of = |name: String| Some((number_of(&name)?, name));
        let mut days: Vec<(u32, String)> = names.filter_map(day_of).collect();
        days.retain(|(day, _)| *day >= after.day);
        days.sort_unstable();
        let mut days = days.into_iter().peekable();
        while let Some((day, name)) = days.next() {
            let offset = if day == after.day { after.offset } else { 0 };
            let from = AuditPlace { day, offset };
            let next_day = days.peek().map(|(day, _)| *day);
            match Window::of_file(&folder, &name, from, next_day) {
                Ok(window) => {
                    self.unread.lock().remove(&Some(day));
                    return Ok(Some(window));
                }
                // It was the oldest one, and made room for a new day.
                Err(FileError::Folder(error)) if error.is_not_found() => {}
                // It hides no other day, and is in the server's log once.
                Err(error) => {
                    if self.unread.lock().insert(Some(day)) {
                        tracing::warn!(%error, "a day of the audit log cannot be read");
                    }
                }
            }
        }
        Ok(None)
    }
}

impl Window {
    /// Reads a part of the file of a day.
    fn of_file(
        folder: &Folder,
        name: &str,
        from: AuditPlace,
        next_day: Option<u32>,
    ) -> Result<Self, FileError> {
        let file = folder.open_file(name, OFlags::RDONLY)?;
        Ok(Self::read(&file, from, next_day)?)
    }

    /// Reads from a place on. If that is within a line, the rest of it is left out.
    fn read(file: &File, from: AuditPlace, next_day: Option<u32>) -> io::Result<Self> {
        let mut bytes = vec![0; limits::AUDIT_READ_BYTES];
        // With the end of the line before.
        let start = from.offset.saturating_sub(1);
        let mut read = 0;
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], start.saturating_add(read as u64)) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // An offset that no file has.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => return Err(error),
            }
        }
        let is_cut = read == bytes.len();
        bytes.truncate(read);
        let begin = match from.offset {
            0 => 0,
            _ => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1),
        };
        bytes.drain(..begin);
        let offset = start.saturating_add(begin as u64);
        Ok(Self { from: AuditPlace { offset, ..from }, bytes, is_cut, next_day })
    }

    /// Returns the lines that are in a scope.
    fn page(self, scope: &AuditScope<'_>) -> Result<AuditPage, Error> {
        let Self { from, bytes, is_cut, next_day } = self;
        let has_all = (scope.has_all)()?;
        let mut decided = Decided { scope, has_all, dirs: HashMap::new() };
        let mut lines = Vec::new();
        let mut offset = from.offset;
        let at = |offset| Some(AuditPlace { offset, ..from });
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !line.ends_with(b"\n") {
                break;
            }
            let Some(shown) = decided.shown(line)? else {
                return Ok(AuditPage { lines, next: at(offset) });
            };
            if shown.len() <= limits::AUDIT_PAGE_BYTES {
                if lines.len() + shown.len() > limits::AUDIT_PAGE_BYTES {
                    return Ok(AuditPage { lines, next: at(offset) });
                }
                lines.extend_from_slice(&shown);
            }
            offset += line.len() as u64;
        }
        let next = match is_cut {
            // A line that is longer than all that is read is left out.
            true if offset == from.offset => at(offset.saturating_add(bytes.len() as u64)),
            true => at(offset),
            // The end of the file. A later line of this day comes with a later request.
            false => next_day.map(|day| AuditPlace { day, offset: 0 }),
        };
        Ok(AuditPage { lines, next })
    }
}

impl Decided<'_> {
    /// Returns a line as it is shown, with its end, and nothing if it is not; `None` if too many
    /// directories were decided about before.
    fn shown(&mut self, line: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        if self.has_all {
            return Ok(Some(line.to_vec()));
        }
        let hidden = Ok(Some(Vec::new()));
        // A line that was cut by a crash is none.
        let Ok(Value::Object(mut line)) = serde_json::from_slice(line) else { return hidden };
        let Some(Value::Array(dirs)) = line.get(DIRECTORIES) else { return hidden };
        let mut in_scope: Vec<Value> = Vec::new();
        for dir in dirs.iter().take(limits::AUDIT_LINE_DIRS).filter_map(Value::as_u64) {
            match self.has(dir)? {
                Some(true) => in_scope.push(dir.into()),
                Some(false) => {}
                None => return Ok(None),
            }
        }
        if in_scope.is_empty() {
            return hidden;
        }
        let mut shown = Map::new();
        for field in LOCAL_FIELDS {
            if let Some(value) = line.remove(field) {
                shown.insert(field.to_owned(), value);
            }
        }
        shown.insert(DIRECTORIES.to_owned(), in_scope.into());
        Ok(Some(format!("{}\n", Value::Object(shown)).into_bytes()))
    }

    /// Returns whether a directory is in the scope; `None` if too many were decided about before.
    fn has(&mut self, dir: u64) -> Result<Option<bool>, Error> {
        if let Some(known) = self.dirs.get(&dir) {
            return Ok(Some(*known));
        }
        if self.dirs.len() >= limits::AUDIT_PAGE_DIRS {
            return Ok(None);
        }
        let has = match (self.scope.has)(InodeId::from_raw(dir)) {
            Err(error) if error.code == Code::Busy => return Err(error),
            // One that is damaged hides its own lines only.
            has => has.unwrap_or(false),
        };
        self.dirs.insert(dir, has);
        Ok(Some(has))
    }
}

/// Returns the number of the day whose file has this name.
fn number_of(name: &str) -> Option<u32> {
    let day = name.strip_suffix(SUFFIX).filter(|_| is_day(name))?;
    day.replace('-', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_damaged_hides_its_own_lines_only() {
        let line = |dir| format!("{{\"node\":{dir},\"directories\":[{dir}]}}\n");
        let page = |code: Code| {
            let has = |dir: InodeId| if dir.raw() == 2 { Err(code.into()) } else { Ok(true) };
            let bytes = [1, 2, 3].map(line).concat().into_bytes();
            let from = AuditPlace::START;
            let window = Window { from, bytes, is_cut: false, next_day: None };
            window.page(&AuditScope { has_all: &|| Ok(false), has: &has })
        };
        let told = String::from_utf8(page(Code::Io).unwrap().lines).unwrap();
        let nodes = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        assert_eq!(nodes.map(|line| line["node"].clone()).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(page(Code::Busy).unwrap_err().code, Code::Busy);
    }
}
