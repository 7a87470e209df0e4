//! One file to which all mounts append, and which they read meanwhile.
//!
//! A record has its writer and a number that the writer counts. So the file must have each record
//! once, those of a writer in order, and a reader must see all records that were acknowledged
//! before it looked.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kinds;
use crate::kit::load::Worker;

const LOG: &str = "log";
const RECORD: usize = 64;
/// Bytes of one read.
const READ: usize = 128 << 10;
/// Appends through one descriptor.
const REOPEN: u64 = 128;
/// Each record with this number of records before it is read again later.
const SAMPLED: u64 = 251;

/// The file, with the last record that each writer has sent, and the last one that was
/// acknowledged.
pub(super) struct Appends {
    asked: Vec<AtomicU64>,
    answered: Vec<AtomicU64>,
}

impl Appends {
    /// Makes the file.
    pub(super) fn prepare(own: &Path, writers: usize) -> Result<Self, String> {
        let path = own.join(LOG);
        fs::write(&path, "").map_err(|why| format!("{}: {why}", path.display()))?;
        let zeros = || (0..writers).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { asked: zeros(), answered: zeros() })
    }

    /// Appends records as one writer until the time is over.
    pub(super) fn append(&self, writer: usize, worker: &mut Worker) -> Result<(), String> {
        let path = worker.folder.join(LOG);
        let mut file = None;
        while worker.goes_on() {
            let number = self.answered[writer].load(Ordering::SeqCst) + 1;
            let said = |why: std::io::Error| format!("append of record {writer} {number}: {why}");
            if number % REOPEN == 1 {
                file = None;
            }
            let open = match &mut file {
                Some(open) => open,
                None => file.insert(File::options().append(true).open(&path).map_err(said)?),
            };
            self.asked[writer].store(number, Ordering::SeqCst);
            let wrote = worker.timed(kinds::APPEND, || open.write(&record(writer, number)));
            let wrote = wrote.map_err(said)?;
            if wrote != RECORD {
                return Err(format!("record {writer} {number}: {wrote} bytes were written"));
            }
            self.answered[writer].store(number, Ordering::SeqCst);
            worker.rest();
        }
        Ok(())
    }

    /// Reads new records, and some of the old ones again, until the time is over.
    pub(super) fn read(&self, worker: &mut Worker) -> Result<(), String> {
        let path = worker.folder.join(LOG);
        let said = |why: std::io::Error| format!("{}: {why}", path.display());
        let mut file = File::open(&path).map_err(said)?;
        let mut tally = Tally::new(self.asked.len());
        let mut samples = Vec::new();
        while worker.goes_on() {
            let before = numbers(&self.answered);
            // One descriptor is kept for some time, and then another one opened.
            if worker.random.below(8) == 0 {
                file = File::open(&path).map_err(said)?;
            }
            let size = worker.timed(kinds::TAIL, || file.metadata()).map_err(said)?.len();
            let least = before.iter().sum::<u64>() * RECORD as u64;
            if size < least {
                worker.finding(&format!("{size} bytes, and {least} were answered"));
            }
            loop {
                let bytes = worker.timed(kinds::TAIL, || tally.next_bytes(&file)).map_err(said)?;
                let asked = numbers(&self.asked);
                let at = tally.offset;
                let count = tally.take(&bytes, &asked)?;
                let sampled = (at / RECORD as u64..).take(count).filter(|at| at % SAMPLED == 0);
                samples.extend(sampled.map(|number| {
                    let start = number * RECORD as u64;
                    let start_in_bytes = (start - at) as usize;
                    (start, bytes[start_in_bytes..start_in_bytes + RECORD].to_vec())
                }));
                if bytes.len() < READ {
                    break;
                }
            }
            tally.has_all(&before).unwrap_or_else(|why| worker.finding(&why));
            if !samples.is_empty() {
                let (start, record) = &samples[worker.random.below(samples.len() as u64) as usize];
                let mut again = vec![0; RECORD];
                let read = worker.timed(kinds::TAIL, || file.read_exact_at(&mut again, *start));
                if read.is_err() || again != *record {
                    let again = String::from_utf8_lossy(&again).into_owned();
                    worker.finding(&format!("a record at {start} has changed: {read:?} {again}"));
                }
            }
            worker.rest();
        }
        Ok(())
    }

    /// Reads the whole file after the end of all writers: each acknowledged record is there once.
    pub(super) fn check_all(&self, point: &Path) -> Result<(), String> {
        let path = point.join(LOG);
        let check = || {
            let bytes = fs::read(&path).map_err(|why| why.to_string())?;
            let mut tally = Tally::new(self.asked.len());
            tally.take(&bytes, &numbers(&self.asked))?;
            tally.has_all(&numbers(&self.answered))?;
            let rest = bytes.len() % RECORD;
            if rest == 0 { Ok(()) } else { Err(format!("{rest} bytes after the last record")) }
        };
        check().map_err(|why: String| format!("at the end, {}: {why}", path.display()))
    }
}

fn numbers(counts: &[AtomicU64]) -> Vec<u64> {
    counts.iter().map(|count| count.load(Ordering::SeqCst)).collect()
}

fn record(writer: usize, number: u64) -> Vec<u8> {
    format!("{:<63}\n", format!("writer {writer} record {number} of")).into_bytes()
}

/// The progress of a reader: bytes, and records of each writer.
struct Tally {
    offset: u64,
    seen: Vec<u64>,
}

impl Tally {
    fn new(writers: usize) -> Self {
        Self { offset: 0, seen: vec![0; writers] }
    }

    fn next_bytes(&self, file: &File) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; READ];
        let read = file.read_at(&mut bytes, self.offset)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Counts the whole records of these bytes, and returns their number: each is the next one of
    /// its writer.
    fn take(&mut self, bytes: &[u8], asked: &[u64]) -> Result<usize, String> {
        let mut count = 0;
        for found in bytes.chunks_exact(RECORD) {
            let text = String::from_utf8_lossy(found);
            let wrong = |what: &str| Err(format!("at {}: {what}: {text:?}", self.offset));
            let mut words = text.split_whitespace();
            let writer = words.nth(1).and_then(|word| word.parse::<usize>().ok());
            let number = words.nth(1).and_then(|word| word.parse::<u64>().ok());
            let (Some(writer), Some(number)) = (writer, number) else {
                return wrong("no record");
            };
            if writer >= self.seen.len() || found != record(writer, number) {
                return wrong("no record");
            }
            if number != self.seen[writer] + 1 {
                return wrong(&format!("after record {}", self.seen[writer]));
            }
            if number > asked[writer] {
                return wrong("was never written");
            }
            self.seen[writer] = number;
            self.offset += RECORD as u64;
            count += 1;
        }
        Ok(count)
    }

    fn has_all(&self, answered: &[u64]) -> Result<(), String> {
        for (writer, (seen, answered)) in self.seen.iter().zip(answered).enumerate() {
            if seen < answered {
                return Err(format!(
                    "records of writer {writer} to {seen}, and {answered} were answered before"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_lost_doubled_or_torn_is_found() {
        let log = |records: &[(usize, u64)]| {
            records.iter().flat_map(|(writer, number)| record(*writer, *number)).collect::<Vec<_>>()
        };
        let taken = |bytes: &[u8]| {
            let mut tally = Tally::new(2);
            tally.take(bytes, &[2, 1]).and_then(|_| tally.has_all(&[2, 1]))
        };
        assert_eq!(taken(&log(&[(0, 1), (1, 1), (0, 2)])), Ok(()));
        for wrong in [&[(0, 1), (0, 2)][..], &[(0, 1), (0, 1), (1, 1)], &[(0, 2), (0, 1), (1, 1)]] {
            assert!(taken(&log(wrong)).is_err(), "{wrong:?}");
        }
        assert!(taken(&log(&[(0, 1), (0, 2), (0, 3), (1, 1)])).is_err());
        let mut torn = log(&[(0, 1), (1, 1), (0, 2)]);
        torn[70] = 0;
        assert!(taken(&torn).is_err());
    }
}
