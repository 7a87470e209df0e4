//! Names of one directory that are made, replaced, read and removed in all mounts at once.
//!
//! Each file has its name, its writer and its version in its first line. Names of one writer have a
//! newest acknowledged state, which a reader must see at least. Common names are replaced by all
//! writers and never removed: each open must find a file there.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use pelago_random::Random;

use super::kinds;
use crate::kit::load::Worker;

const FOLDER: &str = "names";
/// Names of each writer.
const OWN: u64 = 4;
/// Names of all writers.
const COMMON: u64 = 8;
/// Most body bytes of most files, and of one in [`LARGE_ONE_IN`]: a file of content.
const SMALL_BYTES: u64 = 2000;
const LARGE_BYTES: u64 = 200_000;
const LARGE_ONE_IN: u64 = 16;

/// The directory, and the state of each name that has one writer.
pub(super) struct Names {
    writers: u64,
    own: Vec<Cell>,
}

/// States of a name, as [`state`] numbers: a reader may see the newest one that was acknowledged
/// before it looked, the newest one that was sent after it looked, and those between.
#[derive(Default)]
struct Cell {
    asked: AtomicU64,
    answered: AtomicU64,
}

/// Returns the number of a state: its version, and whether a file has the name.
fn state(version: u64, is_there: bool) -> u64 {
    version << 1 | u64::from(is_there)
}

/// A file that a reader found under a name.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    name: String,
    writer: u64,
    version: u64,
}

impl Names {
    /// Makes the directory and the common names.
    pub(super) fn prepare(own: &Path, writers: usize) -> Result<Self, String> {
        let folder = own.join(FOLDER);
        let make = || {
            fs::create_dir(&folder)?;
            (0..COMMON).try_for_each(|number| {
                let name = common(number);
                fs::write(folder.join(&name), content(&name, writers as u64, 0, 100))
            })
        };
        make().map_err(|why| format!("{}: {why}", folder.display()))?;
        let cells = (0..writers as u64 * OWN).map(|_| Cell::default()).collect();
        Ok(Self { writers: writers as u64, own: cells })
    }

    /// Works as one writer, and reads the names of all, until the time is over.
    pub(super) fn work(&self, writer: u64, worker: &mut Worker) -> Result<(), String> {
        let mut version = 0;
        while worker.goes_on() {
            version += 1;
            match worker.random.below(10) {
                0..=2 => self.change_own(writer, worker)?,
                3 => {
                    let name = common(worker.random.below(COMMON));
                    place(worker, writer, &name, version)?;
                }
                4..=7 => self.read_own(worker),
                _ => read_common(worker),
            }
            worker.rest();
        }
        Ok(())
    }

    /// Makes, replaces or removes a name that no other writer changes.
    fn change_own(&self, writer: u64, worker: &mut Worker) -> Result<(), String> {
        let number = worker.random.below(OWN);
        let cell = &self.own[(writer * OWN + number) as usize];
        let last = cell.answered.load(Ordering::SeqCst);
        let name = own(writer, number);
        let version = (last >> 1) + 1;
        let is_removal = last & 1 == 1 && worker.random.below(2) == 0;
        let next = state(version, !is_removal);
        cell.asked.store(next, Ordering::SeqCst);
        if is_removal {
            let path = worker.folder.join(FOLDER).join(&name);
            let removed = worker.timed(kinds::UNLINK, || fs::remove_file(path));
            removed.map_err(|why| format!("unlink {name}, version {version}: {why}"))?;
        } else {
            place(worker, writer, &name, version)?;
        }
        cell.answered.store(next, Ordering::SeqCst);
        Ok(())
    }

    /// Reads a name of any writer: it must have a state that was acknowledged, or sent since.
    fn read_own(&self, worker: &mut Worker) {
        let writer = worker.random.below(self.writers);
        let number = worker.random.below(OWN);
        let cell = &self.own[(writer * OWN + number) as usize];
        let name = own(writer, number);
        let before = cell.answered.load(Ordering::SeqCst);
        let found = read(worker, &name);
        let after = cell.asked.load(Ordering::SeqCst);
        if let Err(why) = found.and_then(|found| judge(&name, writer, found, before, after)) {
            worker.finding(&why);
        }
    }

    /// Reads all names after the end of all writers: each must have its last acknowledged state.
    pub(super) fn check_all(&self, point: &Path) -> Result<(), String> {
        let folder = point.join(FOLDER);
        for number in 0..COMMON {
            let name = common(number);
            let found = look(&folder.join(&name))?.ok_or_else(|| format!("{name} is gone"))?;
            parse(&name, &found)?;
        }
        for (at, cell) in self.own.iter().enumerate() {
            let writer = at as u64 / OWN;
            let number = at as u64 % OWN;
            let name = own(writer, number);
            let found = look(&folder.join(&name))?;
            let found = found.map(|bytes| parse(&name, &bytes)).transpose()?;
            // A change that failed is asked for and not answered.
            let before = &cell.answered;
            let after = &cell.asked;
            let before = before.load(Ordering::SeqCst);
            let after = after.load(Ordering::SeqCst);
            judge(&name, writer, found, before, after)
                .map_err(|why| format!("at the end, {}: {why}", point.display()))?;
        }
        Ok(())
    }
}

fn own(writer: u64, number: u64) -> String {
    format!("own-{writer}-{number}")
}

fn common(number: u64) -> String {
    format!("common-{number}")
}

/// Compares the file that was found with the states that it may have, from `before` to `after`.
fn judge(
    name: &str,
    writer: u64,
    found: Option<Found>,
    before: u64,
    after: u64,
) -> Result<(), String> {
    let oldest = before >> 1;
    let newest = after >> 1;
    let is_fine = match &found {
        Some(found) => {
            // A version that is known to be a removal has no file.
            let is_removal = |at: u64| at == state(found.version, false) && found.version > 0;
            found.writer == writer
                && (oldest..=newest).contains(&found.version)
                && found.version > 0
                && !is_removal(before)
                && !is_removal(after)
        }
        // The states between are not known.
        None => before & 1 == 0 || after & 1 == 0 || newest - oldest > 1,
    };
    match is_fine {
        true => Ok(()),
        false => Err(format!(
            "{name}: found {found:?}, and not version {oldest} ({}) to {newest} ({})",
            before & 1,
            after & 1
        )),
    }
}

fn read_common(worker: &mut Worker) {
    let name = common(worker.random.below(COMMON));
    match read(worker, &name) {
        Ok(Some(_)) => {}
        Ok(None) => worker.finding(&format!("{name} is gone, which is only ever replaced")),
        Err(why) => worker.finding(&why),
    }
}

/// Makes a file and gives it a name, which may have a file.
fn place(worker: &mut Worker, writer: u64, name: &str, version: u64) -> Result<(), String> {
    let folder = worker.folder.join(FOLDER);
    let new = folder.join(format!("new-{writer}"));
    let bytes = content(name, writer, version, length(&mut worker.random));
    let said = |step: &str, why: std::io::Error| format!("{step} of {name}, {version}: {why}");
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    let made = worker.timed(kinds::CREATE, || options.open(&new));
    let mut file: File = made.map_err(|why| said("create", why))?;
    let wrote = worker.timed(kinds::WRITE, || {
        let wrote = file.write_all(&bytes);
        drop(file);
        wrote
    });
    wrote.map_err(|why| said("write", why))?;
    let renamed = worker.timed(kinds::RENAME, || fs::rename(&new, folder.join(name)));
    renamed.map_err(|why| said("rename", why))
}

fn length(random: &mut Random) -> u64 {
    let most = if random.below(LARGE_ONE_IN) == 0 { LARGE_BYTES } else { SMALL_BYTES };
    random.below(most)
}

fn read(worker: &mut Worker, name: &str) -> Result<Option<Found>, String> {
    let path = worker.folder.join(FOLDER).join(name);
    let bytes = worker.timed(kinds::READ, || look(&path))?;
    bytes.map(|bytes| parse(name, &bytes)).transpose()
}

/// Returns the bytes of a file, or `None` if the name has none.
fn look(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    let said = |step: &str, why: std::io::Error| format!("{step} {}: {why}", path.display());
    match File::open(path) {
        Ok(mut file) => {
            file.read_to_end(&mut bytes).map_err(|why| said("read", why))?;
            Ok(Some(bytes))
        }
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
        Err(why) => Err(said("open", why)),
    }
}

/// Returns the bytes of a file: a line with its name, writer, version and length, and bytes that
/// follow from these.
fn content(name: &str, writer: u64, version: u64, length: u64) -> Vec<u8> {
    let mut bytes = format!("{name} {writer} {version} {length}\n").into_bytes();
    let mut random = Random::new(writer << 40 | version);
    while (bytes.len() as u64) < length {
        bytes.extend(random.bits().to_le_bytes());
    }
    bytes
}

/// Parses the first line of a file, which must be whole and of this name.
fn parse(name: &str, bytes: &[u8]) -> Result<Found, String> {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    let words: Vec<&str> = text.split(' ').collect();
    let told = match &words[..] {
        [name, numbers @ ..] => {
            let numbers: Vec<u64> = numbers.iter().filter_map(|word| word.parse().ok()).collect();
            <[u64; 3]>::try_from(numbers).ok().map(|numbers| (*name, numbers))
        }
        [] => None,
    };
    let shown: String = text.chars().take(80).collect();
    let (told, [writer, version, length]) =
        told.ok_or_else(|| format!("{name}: {} bytes, begins with {shown:?}", bytes.len()))?;
    if told != name {
        return Err(format!("{name} has the bytes of another file: {shown:?}"));
    }
    let whole = content(name, writer, version, length.min(LARGE_BYTES));
    if bytes == whole {
        return Ok(Found { name: name.to_owned(), writer, version });
    }
    let at = bytes.iter().zip(&whole).take_while(|(own, other)| own == other).count();
    let is = bytes.len();
    let wanted = whole.len();
    Err(format!("{name} is not whole: {shown:?}, {is} bytes of {wanted}, wrong from {at}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(version: u64) -> Option<Found> {
        Some(Found { name: "own-1-0".to_owned(), writer: 1, version })
    }

    #[test]
    fn a_mixture_and_the_file_of_another_name_are_found() {
        let one = content("own-1-0", 1, 5, 900);
        assert_eq!(Some(parse("own-1-0", &one).unwrap()), found(5));
        assert!(parse("own-1-1", &one).unwrap_err().contains("another file"));
        let other = content("own-1-0", 1, 6, 900);
        let mixed = [&one[..450], &other[450..]].concat();
        assert!(parse("own-1-0", &mixed).unwrap_err().contains("not whole"));
        for part in [&one[..899], &[][..], b"\n", b"own-1-0 1 5\n"] {
            assert!(parse("own-1-0", part).is_err());
        }
    }

    #[test]
    fn what_is_older_than_the_last_answer_is_wrong() {
        let judged = |found, before, after| judge("own-1-0", 1, found, before, after).is_ok();
        let there = |version| state(version, true);
        let gone = |version| state(version, false);
        assert!(judged(found(5), there(5), there(5)));
        assert!(judged(found(6), there(5), there(6)));
        assert!(!judged(found(4), there(5), there(6)));
        assert!(!judged(found(7), there(5), there(6)));
        assert!(!judged(found(6), there(5), gone(6)));
        assert!(judged(None, there(5), gone(6)) && judged(None, gone(0), there(1)));
        assert!(!judged(None, there(5), there(6)) && !judged(None, there(5), there(5)));
    }
}
