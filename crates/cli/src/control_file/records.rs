//! Parsing of the records in the control file, as `docs/query.md` specifies them.

use pelago_wire::Time;

/// A record of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The path of a hit, relative to the searched directory.
    Hit(Vec<u8>),
    /// A key or a value of tags.
    Part(Vec<u8>),
    /// The number of files that were examined so far.
    Progress(u64),
    /// The answer is complete, and has every change up to a time.
    End { as_of: Time, examined: u64 },
    /// The error that ends the answer.
    Error(String),
}

/// A buffer that divides the bytes that are read into records.
#[derive(Debug, Default)]
pub(crate) struct Records {
    bytes: Vec<u8>,
    taken: usize,
}

impl Records {
    /// Adds bytes that were read.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next whole record, if there is one. Records of a later version are skipped.
    pub(crate) fn take(&mut self) -> Option<Record> {
        loop {
            let rest = &self.bytes[self.taken..];
            let length = rest.iter().position(|byte| *byte == 0)?;
            let record = parse(&rest[..length]);
            self.taken += length + 1;
            if record.is_some() {
                return record;
            }
        }
    }
}

fn parse(record: &[u8]) -> Option<Record> {
    let (kind, rest) = split(record)?;
    let text = || str::from_utf8(rest).ok();
    Some(match kind {
        b"hit" => Record::Hit(split(split(rest)?.1)?.1.to_vec()),
        b"tag" | b"value" => Record::Part(rest.to_vec()),
        b"progress" => Record::Progress(text()?.parse().ok()?),
        b"end" => {
            let (as_of, examined) = text()?.split_once(' ')?;
            let (seconds, nanos) = as_of.split_once('.')?;
            let as_of = Time { seconds: seconds.parse().ok()?, nanos: nanos.parse().ok()? };
            Record::End { as_of, examined: examined.parse().ok()? }
        }
        b"error" => Record::Error(String::from_utf8_lossy(rest).into_owned()),
        _ => return None,
    })
}

/// Divides a text at its first blank.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b' ')?;
    Some((&text[..at], &text[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_out_of_pieces_of_any_size() {
        let text = b"hit file 2a a b/\n\xff\0progress 7\0later than this\0junk\0\
                     tag k\0more\0value a b\0end 1700000000.000000005 9\0error no such\0hit dir";
        for size in 1..text.len() {
            let mut records = Records::default();
            let mut taken = Vec::new();
            for piece in text.chunks(size) {
                records.add(piece);
                taken.extend(std::iter::from_fn(|| records.take()));
            }
            let as_of = Time { seconds: 1_700_000_000, nanos: 5 };
            let expected = [
                Record::Hit(b"a b/\n\xff".to_vec()),
                Record::Progress(7),
                Record::Part(b"k".to_vec()),
                Record::Part(b"a b".to_vec()),
                Record::End { as_of, examined: 9 },
                Record::Error("no such".to_owned()),
            ];
            assert_eq!(taken, expected, "{size}");
        }
    }
}
