//! The path arguments in a command line that is being typed, which completers need.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The words of the command line, the program included.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arguments<'a>(pub(super) &'a [OsString]);

impl<'a> Arguments<'a> {
    /// Returns the folder that `find` searches.
    pub(super) fn path_of_find(self) -> PathBuf {
        self.positional(1, &["--limit"]).map_or_else(|| PathBuf::from("."), PathBuf::from)
    }

    /// Returns the file of `tag`.
    pub(super) fn path_of_tag(self) -> PathBuf {
        self.positional(0, &["--remove"]).map_or_else(|| PathBuf::from("."), PathBuf::from)
    }

    /// Returns a positional argument of the verb by its number. The options in `with_value` take a
    /// value.
    fn positional(self, number: usize, with_value: &[&str]) -> Option<&'a OsString> {
        let mut words = self.0.iter().skip(2);
        let mut seen = 0;
        let mut is_escaped = false;
        while let Some(word) = words.next() {
            let is_option = !is_escaped && word.as_bytes().starts_with(b"-");
            if is_option && with_value.iter().any(|option| word == option) {
                words.next();
            } else if is_option {
                is_escaped = word == "--";
            } else if seen == number {
                return Some(word).filter(|word| !word.is_empty());
            } else {
                seen += 1;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_path_is_found_between_options() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        let find = |text: &str| Arguments(&words(text)).path_of_find();
        assert_eq!(find("pelago find --limit 3 a=b --json /x"), Path::new("/x"));
        assert_eq!(find("pelago find -- -a /x"), Path::new("/x"));
        assert_eq!(find("pelago find a=b"), Path::new("."));
        assert_eq!(find("pelago find a=b "), Path::new("."));
        let tag = |text: &str| Arguments(&words(text)).path_of_tag();
        assert_eq!(tag("pelago tag --remove key /x a=b"), Path::new("/x"));
        assert_eq!(tag("pelago tag --remove"), Path::new("."));
    }
}
