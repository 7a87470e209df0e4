//! Queries as names of folders. A name has no slash, so `%2F` stands for one and `%25` for a
//! percent sign; any other percent sign is one.

use pelago_find::Query;

/// Returns the query that a name means, if it is one.
pub(super) fn parse(name: &[u8]) -> Option<Query> {
    Query::parse(&unescaped(name)).ok()
}

/// Returns the query for what both mean, unless that is beyond the limits of a query.
pub(super) fn both(outer: &[u8], inner: &Query) -> Option<Query> {
    Query::parse(&[b"(", outer, b") (", &inner.to_bytes(), b")"].concat()).ok()
}

fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, behind)) = rest.split_first() {
        let (byte, behind) = match rest.get(..3) {
            Some(b"%2F" | b"%2f") => (b'/', &rest[3..]),
            Some(b"%25") => (b'%', &rest[3..]),
            _ => (first, behind),
        };
        text.push(byte);
        rest = behind;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(name: &str) -> Option<String> {
        parse(name.as_bytes()).map(|query| query.to_string())
    }

    #[test]
    fn a_name_is_a_query_with_its_slashes_escaped() {
        assert_eq!(unescaped(b"a%2Fb%2fc%25d%252F%2"), b"a/b/c%d%2F%2");
        assert_eq!(canonical("path=a%2Fb").as_deref(), Some("path=a/b"));
        assert_eq!(canonical("size>1M and a=b").as_deref(), Some("size>1M a=b"));
        assert_eq!(canonical("share=5%25").as_deref(), Some("share=5%"));
        for name in ["", "plain", ".Trash", "size>many", "(a=b"] {
            assert_eq!(canonical(name), None, "{name}");
        }
    }

    #[test]
    fn a_folder_in_a_folder_means_both() {
        let outer = parse(b"a=b or c=d").unwrap().to_bytes();
        let query = both(&outer, &parse(b"e=f or not g=h").unwrap()).unwrap();
        assert_eq!(query.to_string(), "(a=b or c=d) (e=f or not g=h)");
        let long = ["x=y"; 40].join(" ");
        let long = parse(long.as_bytes()).unwrap();
        assert_eq!(both(&long.to_bytes(), &long), None, "more terms than a query has");
    }
}
