//! The part of a document that `tidy --write` writes: between `<!-- NAME:begin -->` and
//! `<!-- NAME:end -->`, each on a line of its own.

/// What stands between the two marks.
pub(super) fn between<'a>(document: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = document.split_once(&begin(name))?;
    rest.split_once(&end(name)).map(|(inner, _)| inner)
}

/// The document with `inner` between the two marks.
pub(super) fn replaced(document: &str, name: &str, inner: &str) -> Option<String> {
    let (before, rest) = document.split_once(&begin(name))?;
    let (_, after) = rest.split_once(&end(name))?;
    Some(format!("{before}{}{inner}{}{after}", begin(name), end(name)))
}

/// What to say of a document without the two marks.
pub(super) fn missing(name: &str) -> String {
    format!("has no lines `{}` and `{}`", begin(name).trim_end(), end(name))
}

fn begin(name: &str) -> String {
    format!("<!-- {name}:begin -->\n")
}

fn end(name: &str) -> String {
    format!("<!-- {name}:end -->")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_between_the_marks_is_replaced() {
        let document = "a\n<!-- x:begin -->\nold\n<!-- x:end -->\nb\n";
        assert_eq!(between(document, "x"), Some("old\n"));
        let new = replaced(document, "x", "new\n").unwrap();
        assert_eq!(new, "a\n<!-- x:begin -->\nnew\n<!-- x:end -->\nb\n");
        assert_eq!(between(document, "y"), None);
        assert_eq!(replaced("<!-- x:begin -->\n", "x", ""), None);
    }
}
