//! The table of `docs/limits.md`, which is derived from the constants of `wire::limits`.

use super::derived::Derived;

const SOURCE: &str = "crates/wire/src/limits.rs";

/// The table of all limits.
pub(super) const TABLE: Derived = Derived {
    source: SOURCE,
    document: "docs/limits.md",
    name: "limits",
    table: |tree| Ok(table_of(&limits_of(tree.text(SOURCE)?))),
};

/// One `pub const`.
#[derive(Debug, PartialEq, Eq)]
struct Limit {
    name: String,
    value: String,
    meaning: String,
}

fn table_of(limits: &[Limit]) -> String {
    let mut table = "| limit | value | meaning |\n|---|---|---|\n".to_owned();
    for Limit { name, value, meaning } in limits {
        let meaning = meaning.replace("[`", "`").replace("`]", "`").replace('|', "\\|");
        let value = value.replace('|', "\\|");
        table.push_str(&format!("| `{name}` | `{value}` | {meaning} |\n"));
    }
    table
}

/// Returns the constants of the source, each with its doc comment.
fn limits_of(source: &str) -> Vec<Limit> {
    let mut limits = Vec::new();
    let mut meaning: Vec<&str> = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(doc) = line.strip_prefix("///") {
            meaning.push(doc.trim());
            continue;
        }
        if let Some(rest) = line.strip_prefix("pub const ")
            && !rest.starts_with("fn ")
        {
            let mut whole = rest.to_owned();
            while !whole.ends_with(';') {
                let Some(next) = lines.next() else { break };
                whole = format!("{whole} {}", next.trim());
            }
            limits.extend(limit_of(&whole, &meaning.join(" ")));
        }
        if !line.starts_with("#[") {
            meaning.clear();
        }
    }
    limits
}

/// Reads `NAME: TYPE = VALUE;`.
fn limit_of(declaration: &str, meaning: &str) -> Option<Limit> {
    let (name, rest) = declaration.split_once(':')?;
    let (_, value) = rest.split_once(" = ")?;
    let value = value.trim_end_matches(';').trim().to_owned();
    Some(Limit { name: name.to_owned(), value, meaning: meaning.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: &str = "
/// Bytes of [`X`],
/// at most.
#[expect(dead)]
pub const A_1: u64 =
    64 << 20;
pub const MASK: u32 = 1 | 2;
pub const fn not() {}
";

    #[test]
    fn each_constant_has_a_row() {
        let table = table_of(&limits_of(LIMITS));
        assert!(table.contains("| `A_1` | `64 << 20` | Bytes of `X`, at most. |"), "{table}");
        assert!(table.contains("| `MASK` | `1 \\| 2` |"), "{table}");
        assert_eq!(table.lines().count(), 4, "{table}");
    }
}
