//! Records that are read from the control file, each with a NUL at its end, as `docs/query.md`
//! specifies them.

use pelago_find::word_of;
use pelago_wire::{Hit, Time};

/// Adds a file that was found, unless its path has a NUL or is empty.
pub(super) fn hit(to: &mut Vec<u8>, hit: &Hit) {
    if hit.path.is_empty() || hit.path.contains(&0) {
        return;
    }
    to.extend_from_slice(format!("hit {} {} ", word_of(hit.kind), hit.ino).as_bytes());
    to.extend_from_slice(&hit.path);
    to.push(0);
}

/// Adds a key or a value of tags, as `word` says, unless it has a NUL.
pub(super) fn part(to: &mut Vec<u8>, word: &str, part: &[u8]) {
    if part.contains(&0) {
        return;
    }
    to.extend_from_slice(word.as_bytes());
    to.push(b' ');
    to.extend_from_slice(part);
    to.push(0);
}

/// Adds the record that there may be more keys or values.
pub(super) fn more(to: &mut Vec<u8>) {
    to.extend_from_slice(b"more\0");
}

/// Adds the number of files that were examined so far.
pub(super) fn progress(to: &mut Vec<u8>, examined: u64) {
    to.extend_from_slice(format!("progress {examined}\0").as_bytes());
}

/// Adds the end of an answer, which includes every change up to `as_of`.
pub(super) fn end(to: &mut Vec<u8>, as_of: Time, examined: u64) {
    let Time { seconds, nanos } = as_of;
    to.extend_from_slice(format!("end {seconds}.{nanos:09} {examined}\0").as_bytes());
}

/// Adds the error that ends the answer.
pub(super) fn error(to: &mut Vec<u8>, message: &str) {
    to.extend_from_slice(format!("error {}\0", message.replace('\0', " ")).as_bytes());
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileKind, InodeId};

    use super::*;

    #[test]
    fn each_record_has_its_bytes() {
        let mut bytes = Vec::new();
        let found = |path: &[u8]| Hit {
            ino: InodeId::from_raw(0x2a),
            kind: FileKind::Regular,
            path: path.to_vec(),
        };
        hit(&mut bytes, &found(b"a b/\n\xff"));
        hit(&mut bytes, &found(b""));
        hit(&mut bytes, &found(b"a\0b"));
        progress(&mut bytes, 7);
        error(&mut bytes, "no\0such");
        end(&mut bytes, Time { seconds: 1_700_000_000, nanos: 5 }, 9);
        let expected = b"hit file 2a a b/\n\xff\0progress 7\0error no such\0\
                         end 1700000000.000000005 9\0";
        assert_eq!(bytes, expected);
    }
}
