//! The target of a request: a path in the tree.

use pelago_wire::Name;
use percent_encoding::percent_decode_str;

/// The longest path in decoded bytes, as on Linux.
pub(crate) const PATH_BYTES: usize = 4096;

/// A path in the tree, from its root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) names: Vec<Name>,
    /// The path ends with a slash, and so can name only a directory.
    pub(crate) is_dir: bool,
}

/// The reason why a target is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BadTarget {
    /// It is not the path of a URL: no slash in front, or `..`, or a byte that no name has.
    NotAPath,
    /// It is longer than [`PATH_BYTES`], or one of its names is too long.
    TooLong,
}

impl Target {
    /// Parses the path of a URL. Names may have any bytes, percent-encoded. A segment `.` is
    /// skipped, and `..` is refused, because a client resolves it itself (RFC 3986, 5.2.4).
    pub(crate) fn parse(path: &str) -> Result<Self, BadTarget> {
        let rest = path.strip_prefix('/').ok_or(BadTarget::NotAPath)?;
        if path.len() > 3 * PATH_BYTES {
            return Err(BadTarget::TooLong);
        }
        let mut names = Vec::new();
        let mut is_dir = true;
        for segment in rest.split('/') {
            let bytes: Vec<u8> = percent_decode_str(segment).collect();
            is_dir = matches!(&bytes[..], b"" | b".");
            if is_dir {
                continue;
            }
            let name = Name::new(&bytes).map_err(|error| match error {
                pelago_wire::NameError::TooLong => BadTarget::TooLong,
                pelago_wire::NameError::NotAName => BadTarget::NotAPath,
            })?;
            names.push(name);
        }
        Ok(Self { names, is_dir })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> Result<(Vec<String>, bool), BadTarget> {
        let text = |name: &Name| String::from_utf8_lossy(name.as_bytes()).into_owned();
        Target::parse(path).map(|it| (it.names.iter().map(text).collect(), it.is_dir))
    }

    fn names(names: &[&str], is_dir: bool) -> Result<(Vec<String>, bool), BadTarget> {
        Ok((names.iter().map(|name| (*name).to_owned()).collect(), is_dir))
    }

    #[test]
    fn a_path_is_names_of_any_bytes() {
        assert_eq!(parsed("/"), names(&[], true));
        assert_eq!(parsed("/a/b%20c"), names(&["a", "b c"], false));
        assert_eq!(parsed("//a/./b//"), names(&["a", "b"], true));
        assert_eq!(parsed("/%E2%82%AC+%zz"), names(&["€+%zz"], false));
        let bytes = Target::parse("/%ff%01").unwrap();
        assert_eq!(bytes.names[0].as_bytes(), b"\xff\x01");
    }

    #[test]
    fn what_leaves_the_tree_or_is_no_name_is_refused() {
        for path in ["", "a", "*", "/..", "/a/../b", "/%2e%2e/x", "/a%2fb", "/a%00"] {
            assert_eq!(parsed(path), Err(BadTarget::NotAPath), "{path}");
        }
        assert_eq!(parsed(&format!("/{}", "x".repeat(256))), Err(BadTarget::TooLong));
        let deep = "/x".repeat(3 * PATH_BYTES);
        assert_eq!(parsed(&deep), Err(BadTarget::TooLong));
    }
}
