//! The files of the audit log: one for each day, in the folder `audit` of the volume.

use std::fs::File;
use std::io::{self, Write as _};
use std::mem;
use std::os::unix::fs::FileExt as _;

use pelago_store::folder::{Folder, FolderError};
use pelago_store::volume;
use pelago_wire::limits;
use rustix::fs::OFlags;

use super::super::moment::Moment;
use super::{Line, omitted_line};

/// The end of the name of a file.
pub(super) const SUFFIX: &str = ".jsonl";
/// Bytes of a day's file that are kept for the line which says that it is full.
const LAST_LINE_BYTES: u64 = 256;

/// The files of the log.
pub(super) struct Files {
    /// The folder of the volume.
    folder: Folder,
    /// The file of the last line.
    open: Option<DayFile>,
    /// Lines that were not written, since the last line that was.
    omitted: u64,
    /// True if the last write failed, which is in the server's log.
    is_failing: bool,
}

struct DayFile {
    name: String,
    folder: Folder,
    file: File,
    bytes: u64,
    /// True if it has the line which says that it is full.
    is_full: bool,
}

/// A failure of the folder of the log, or of a file in it.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Files {
    pub(super) fn new(folder: Folder) -> Self {
        Self { folder, open: None, omitted: 0, is_failing: false }
    }

    /// Counts lines that are not written.
    pub(super) fn omit(&mut self, lines: u64) {
        self.omitted += lines;
    }

    /// Writes lines in their order. Those that cannot be written are counted.
    pub(super) fn write(&mut self, lines: &[Line]) {
        for of_day in lines.chunk_by(|one, other| name_of(one) == name_of(other)) {
            match self.write_day(of_day) {
                Ok(()) => self.is_failing = false,
                Err(error) => {
                    self.open = None;
                    self.omitted += of_day.len() as u64;
                    if !mem::replace(&mut self.is_failing, true) {
                        tracing::warn!(%error, "the audit log cannot be written");
                    }
                }
            }
        }
    }

    /// Writes lines of one day.
    fn write_day(&mut self, lines: &[Line]) -> Result<(), FileError> {
        let Some(first) = lines.first() else { return Ok(()) };
        let name = name_of(first);
        let is_open = self.open.as_ref().is_some_and(|day| {
            // A person may have moved it away.
            day.name == name && day.folder.is_named(&name, &day.file).unwrap_or(false)
        });
        if !is_open {
            self.open = Some(DayFile::begin(&self.folder, name)?);
        }
        let Some(day) = &mut self.open else { return Ok(()) };
        let before = self.omitted;
        let mut text = String::new();
        if before > 0 && !day.is_full {
            day.add(&mut text, &omitted_line(first.seconds, None, before));
        }
        let counted = if day.is_full { 0 } else { before };
        let mut left_out = 0;
        for line in lines {
            if day.is_full || !day.has_room(&text, &line.text) {
                if !day.is_full {
                    day.add(&mut text, &omitted_line(line.seconds, None, 0));
                    day.is_full = true;
                }
                left_out += 1;
            } else {
                day.add(&mut text, &line.text);
            }
        }
        day.file.write_all(text.as_bytes())?;
        day.bytes += text.len() as u64;
        self.omitted = self.omitted - counted + left_out;
        Ok(())
    }
}

impl DayFile {
    /// Opens the file of a day, or creates it. Then the oldest files are removed, so that all
    /// together keep their limit.
    fn begin(volume: &Folder, name: String) -> Result<Self, FileError> {
        let folder = volume.create_folder(volume::AUDIT)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
        let mut file = folder.open_file(&name, flags)?;
        let mut bytes = file.metadata()?.len();
        let mut last = [b'\n'];
        if bytes > 0 {
            file.read_exact_at(&mut last, bytes - 1)?;
        }
        if last != *b"\n" {
            // A crash, or a full disk, has cut the last line.
            file.write_all(b"\n")?;
            bytes += 1;
        }
        trim(&folder, &name)?;
        let is_full = bytes + LAST_LINE_BYTES > limits::AUDIT_DAY_BYTES;
        Ok(Self { name, folder, file, bytes, is_full })
    }

    /// Returns whether a line fits after the text that is to be written.
    fn has_room(&self, text: &str, line: &str) -> bool {
        let bytes = self.bytes + (text.len() + line.len() + 1) as u64;
        bytes + LAST_LINE_BYTES <= limits::AUDIT_DAY_BYTES
    }

    fn add(&self, text: &mut String, line: &str) {
        text.push_str(line);
        text.push('\n');
    }
}

/// Removes the oldest files until there is room for that of the present day.
fn trim(folder: &Folder, present: &str) -> Result<(), FolderError> {
    let names = folder.entries()?.into_iter().filter_map(|name| name.into_string().ok());
    let mut days: Vec<String> = names.filter(|name| is_day(name) && name != present).collect();
    // From the newest on.
    days.sort_unstable_by(|one, other| other.cmp(one));
    let mut bytes = limits::AUDIT_DAY_BYTES;
    for day in days {
        bytes += folder.size_of(&day)?;
        if bytes > limits::AUDIT_BYTES {
            folder.remove(&day)?;
        }
    }
    Ok(())
}

fn name_of(line: &Line) -> String {
    format!("{}{SUFFIX}", Moment::at(line.seconds).day())
}

/// Returns whether a name is that of a day's file.
pub(super) fn is_day(name: &str) -> bool {
    name.strip_suffix(SUFFIX).is_some_and(|day| {
        let is_right = |(at, byte): (usize, u8)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        };
        day.len() == 10 && day.bytes().enumerate().all(is_right)
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;

    const DAY: u64 = 24 * 60 * 60;

    fn log() -> (TempDir, Files) {
        let dir = TempDir::new().unwrap();
        let files = Files::new(Folder::open(dir.path()).unwrap());
        (dir, files)
    }

    fn line(seconds: u64, text: &str) -> Line {
        Line { seconds, text: text.to_owned() }
    }

    /// Makes the file of a day that long.
    fn make(dir: &TempDir, day: &str, bytes: u64) {
        let folder = Folder::open(dir.path()).unwrap().create_folder(volume::AUDIT).unwrap();
        let file = folder.open_file(day, OFlags::WRONLY | OFlags::CREATE).unwrap();
        file.write_all_at(b"\n", bytes - 1).unwrap();
    }

    fn read(dir: &TempDir, day: &str) -> String {
        fs::read_to_string(dir.path().join("audit").join(day)).unwrap()
    }

    #[test]
    fn each_day_has_a_file() {
        let (dir, mut files) = log();
        files.write(&[line(0, "a"), line(DAY - 1, "b"), line(DAY, "c")]);
        files.write(&[line(DAY + 1, "d")]);
        assert_eq!(read(&dir, "1970-01-01.jsonl"), "a\nb\n");
        assert_eq!(read(&dir, "1970-01-02.jsonl"), "c\nd\n");
        let mode = fs::metadata(dir.path().join("audit")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "others learn nothing");
    }

    #[test]
    fn the_oldest_days_make_room_for_a_new_one() {
        let (dir, mut files) = log();
        let days = limits::AUDIT_BYTES / limits::AUDIT_DAY_BYTES;
        let name = |day: u64| name_of(&line(day * DAY, ""));
        for day in 0..days + 2 {
            make(&dir, &name(day), limits::AUDIT_DAY_BYTES);
        }
        fs::write(dir.path().join("audit/notes"), "a person's").unwrap();
        files.write(&[line(90 * DAY, "new")]);
        let left = Folder::open(&dir.path().join("audit")).unwrap().entries().unwrap();
        let mut left: Vec<String> =
            left.into_iter().map(|name| name.into_string().unwrap()).collect();
        left.sort();
        let mut kept: Vec<String> = (3..days + 2).map(name).collect();
        kept.extend([name(90), "notes".to_owned()]);
        assert_eq!(left, kept);
        // A clock that was wrong once does not remove the present day.
        let (dir, mut files) = log();
        for day in 0..days + 2 {
            make(&dir, &name(20_000 + day), limits::AUDIT_DAY_BYTES);
        }
        files.write(&[line(0, "present")]);
        assert_eq!(read(&dir, &name(0)), "present\n");
    }

    #[test]
    fn a_full_day_says_so_once_and_the_next_one_counts_what_was_left_out() {
        let (dir, mut files) = log();
        let day = "1970-01-01.jsonl";
        make(&dir, day, limits::AUDIT_DAY_BYTES - LAST_LINE_BYTES - 4);
        files.write(&[line(0, "abc"), line(0, "d"), line(0, "e")]);
        files.write(&[line(0, "f")]);
        let text = read(&dir, day);
        let end = text.trim_start_matches(['\0', '\n']);
        assert_eq!(end, "abc\n{\"time\":\"1970-01-01T00:00:00Z\",\"what\":\"omitted\"}\n");
        assert!(text.len() as u64 <= limits::AUDIT_DAY_BYTES);
        files.write(&[line(DAY, "next")]);
        let counted = "{\"omitted\":3,\"time\":\"1970-01-02T00:00:00Z\",\"what\":\"omitted\"}\n";
        assert_eq!(read(&dir, "1970-01-02.jsonl"), format!("{counted}next\n"));
    }

    #[test]
    fn what_cannot_be_written_is_counted_when_it_can_be_again() {
        let (dir, mut files) = log();
        fs::write(dir.path().join("audit"), "in the way").unwrap();
        files.write(&[line(0, "a"), line(0, "b")]);
        files.omit(4);
        fs::remove_file(dir.path().join("audit")).unwrap();
        files.write(&[line(0, "c")]);
        let counted = "{\"omitted\":6,\"time\":\"1970-01-01T00:00:00Z\",\"what\":\"omitted\"}\n";
        assert_eq!(read(&dir, "1970-01-01.jsonl"), format!("{counted}c\n"));
        // A person moves the file away.
        fs::rename(dir.path().join("audit/1970-01-01.jsonl"), dir.path().join("kept")).unwrap();
        files.write(&[line(0, "d")]);
        assert_eq!(read(&dir, "1970-01-01.jsonl"), "d\n");
    }
}
