//! Reads of a spool, one record at a time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use pelago_wire::limits;
use pelago_wire::mirror::GroupPart;

use super::{
    GroupSum, HEAD_BYTES, RECORD_HEAD_BYTES, SpoolError, SpoolHead, SpooledGroup, checksum,
    group_of,
};

/// The records of a file.
#[derive(Debug)]
pub(super) struct Records<'a> {
    file: &'a File,
    head: SpoolHead,
    at: u64,
    end: u64,
}

/// The next record of a file, or its end.
enum Next {
    Body(Vec<u8>),
    End,
    /// A record that was cut or changed.
    Damaged,
}

impl<'a> Records<'a> {
    /// Reads the head; `None` if it is not valid.
    pub(super) fn open(file: &'a File) -> io::Result<Option<Self>> {
        let end = file.metadata()?.len();
        if end < HEAD_BYTES as u64 {
            return Ok(None);
        }
        let mut head = [0; HEAD_BYTES];
        file.read_exact_at(&mut head, 0)?;
        let head = SpoolHead::decode(&head);
        Ok(head.map(|head| Self { file, head, at: HEAD_BYTES as u64, end }))
    }

    /// Reads all records; `None` if they are no complete group.
    pub(super) fn group(mut self) -> io::Result<Option<SpooledGroup>> {
        let mut sum = GroupSum::default();
        let Next::Body(first) = self.next()? else { return Ok(None) };
        let Some(group) = group_of(self.head, &first) else { return Ok(None) };
        let mut last = first;
        loop {
            match self.next()? {
                Next::Body(body) => sum.add(&std::mem::replace(&mut last, body)),
                Next::Damaged => return Ok(None),
                Next::End => break,
            }
        }
        let end = GroupPart::End { sum: sum.value() };
        Ok((GroupPart::decode(&last) == Ok(end)).then_some(group))
    }

    fn next(&mut self) -> io::Result<Next> {
        let left = self.end - self.at;
        if left == 0 {
            return Ok(Next::End);
        }
        if left < RECORD_HEAD_BYTES as u64 {
            return Ok(Next::Damaged);
        }
        let mut head = [0; RECORD_HEAD_BYTES];
        self.file.read_exact_at(&mut head, self.at)?;
        let [l0, l1, l2, l3, s0, s1, s2, s3] = head;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let left = left - RECORD_HEAD_BYTES as u64;
        if length > limits::FRAME_BODY_BYTES || length as u64 > left {
            return Ok(Next::Damaged);
        }
        let mut body = vec![0; length];
        self.file.read_exact_at(&mut body, self.at + RECORD_HEAD_BYTES as u64)?;
        self.at += (RECORD_HEAD_BYTES + length) as u64;
        let is_whole = checksum(&body) == u32::from_le_bytes([s0, s1, s2, s3]);
        Ok(if is_whole { Next::Body(body) } else { Next::Damaged })
    }
}

/// The bodies of the parts of a group.
#[derive(Debug)]
pub struct Bodies<'a> {
    records: Records<'a>,
    path: PathBuf,
    has_ended: bool,
}

impl<'a> Bodies<'a> {
    pub(super) const fn new(records: Records<'a>, path: PathBuf) -> Self {
        Self { records, path, has_ended: false }
    }
}

impl Iterator for Bodies<'_> {
    type Item = Result<Vec<u8>, SpoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let failed = match self.records.next() {
            Ok(Next::Body(body)) => return Some(Ok(body)),
            Ok(Next::End) => None,
            Ok(Next::Damaged) => Some(io::Error::from(io::ErrorKind::InvalidData)),
            Err(error) => Some(error),
        };
        self.has_ended = true;
        let path = self.path.clone();
        failed.map(|source| Err(SpoolError::Io { doing: "reading", path, source }))
    }
}
