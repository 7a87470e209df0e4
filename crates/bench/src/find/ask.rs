//! Asks through the hidden names of a mount, with the system calls that any program would use.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// The hidden file, and the hidden folder.
const CONTROL: &str = ".pelago-find";
const FOLDER: &str = ".find";
/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;
/// No file of a corpus is as large, so that a size below it and a number changes no answer.
const NO_SIZE: u64 = 1 << 40;

/// The part of an answer that was read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Files.
    pub(super) hits: u64,
    /// Names and files that were compared with the query.
    pub(super) examined: u64,
    /// True if it was read to its end.
    pub(super) is_whole: bool,
}

/// Sends a query and reads the answer to its end, or to `most` files.
pub(super) fn control(dir: &Path, query: &[u8], most: Option<u64>) -> io::Result<Counted> {
    let mut conversation = Conversation::begin(dir, query)?;
    while !conversation.counted.is_whole && most.is_none_or(|most| conversation.counted.hits < most)
    {
        conversation.read(most)?;
    }
    Ok(conversation.counted)
}

/// Asks a query and reads the answer once.
pub(super) fn first(dir: &Path, query: &[u8]) -> io::Result<Counted> {
    let mut conversation = Conversation::begin(dir, query)?;
    conversation.read(None)?;
    Ok(conversation.counted)
}

/// Lists the folder of a query; each repetition is a folder that was not listed before. Returns the
/// number of its files.
pub(super) fn folder(dir: &Path, query: &str, repetition: u64) -> io::Result<u64> {
    let nested = format!("size<{}", NO_SIZE + repetition);
    let names = fs::read_dir(dir.join(FOLDER).join(query).join(nested))?;
    let mut count = 0;
    for name in names {
        name?;
        count += 1;
    }
    Ok(count)
}

/// An answer that is being read.
struct Conversation {
    file: File,
    buffer: Vec<u8>,
    /// The begin of a record of which more follows.
    rest: Vec<u8>,
    counted: Counted,
}

impl Conversation {
    fn begin(dir: &Path, query: &[u8]) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(dir.join(CONTROL))?;
        file.write_all(query)?;
        let buffer = vec![0; READ_BYTES];
        let rest = Vec::new();
        Ok(Self { file, buffer, rest, counted: Counted::default() })
    }

    fn read(&mut self, most: Option<u64>) -> io::Result<()> {
        let count = self.file.read(&mut self.buffer)?;
        if count == 0 {
            return Err(io::Error::other("the answer ended too early"));
        }
        let mut bytes = &self.buffer[..count];
        while let Some(at) = bytes.iter().position(|byte| *byte == 0) {
            self.rest.extend_from_slice(&bytes[..at]);
            bytes = &bytes[at + 1..];
            if most.is_none_or(|most| self.counted.hits < most) {
                self.counted.add(&self.rest)?;
            }
            self.rest.clear();
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }
}

impl Counted {
    fn add(&mut self, record: &[u8]) -> io::Result<()> {
        let text = String::from_utf8_lossy(record);
        let (kind, said) = text.split_once(' ').unwrap_or((&text, ""));
        let number = |text: &str| text.parse().map_err(|_| io::Error::other(text.to_owned()));
        match kind {
            "hit" => self.hits += 1,
            "progress" => self.examined = number(said)?,
            "end" => {
                self.examined = number(said.rsplit(' ').next().unwrap_or_default())?;
                self.is_whole = true;
            }
            "error" => return Err(io::Error::other(said.to_owned())),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_counted_record_by_record() {
        let mut counted = Counted::default();
        for record in ["hit file 2a a b", "progress 7", "later than this"] {
            counted.add(record.as_bytes()).unwrap();
        }
        assert_eq!(counted, Counted { hits: 1, examined: 7, is_whole: false });
        counted.add(b"end 1700000000.000000005 9").unwrap();
        assert_eq!(counted, Counted { hits: 1, examined: 9, is_whole: true });
        assert_eq!(counted.add(b"error no such file").unwrap_err().to_string(), "no such file");
    }
}
