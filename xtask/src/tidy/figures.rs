//! README's table of figures is cut out of `docs/benchmarks.md`, so that the two cannot disagree.

use super::derived::Derived;

/// README's table.
pub(super) const TABLE: Derived =
    Derived { source: "docs/benchmarks.md", document: "README.md", name: "figures", table };

/// One row of README's table.
struct Figure {
    what: &'static str,
    cells: &'static [Cell],
    /// Behind each number.
    unit: &'static str,
    beside: &'static str,
}

/// Where a number stands: under this heading, in the first row that begins with these cells, in the
/// column of this name.
struct Cell {
    heading: &'static str,
    row: &'static str,
    column: &'static str,
}

const fn cell(heading: &'static str, row: &'static str, column: &'static str) -> Cell {
    Cell { heading, row, column }
}

const NAMES: &str = "Names, through the mount";
const SSHFS: &str = "Beside sshfs";
const TREES: &str = "Large folders, through the mount";
const BYTES: &str = "One large file, through the mount";
const LIBRARY: &str = "Without the kernel";

const FIGURES: &[Figure] = &[
    Figure {
        what: "create, through the mount",
        cells: &[cell(NAMES, "create", "ratio")],
        unit: "",
        beside: "a FUSE file system that does nothing",
    },
    Figure {
        what: "create, through the mount",
        cells: &[cell(SSHFS, "create", "ratio")],
        unit: " ×",
        beside: "sshfs on loopback",
    },
    Figure {
        what: "write 1 GiB and fsync; read it, cold; rewrite it and fsync",
        cells: &[
            cell(BYTES, "write and fsync", "ratio"),
            cell(BYTES, "read, cold", "ratio"),
            cell(BYTES, "rewrite and fsync", "ratio"),
        ],
        unit: "",
        beside: "ext4",
    },
    Figure {
        what: "`find -printf %s` of 100,000 files, cold; warm",
        cells: &[
            cell(TREES, "`find -printf %s`, cold", "of disk"),
            cell(TREES, "`find -printf %s`, warm", "of disk"),
        ],
        unit: "",
        beside: "ext4",
    },
    Figure {
        what: "read 20,000 small files, cold",
        cells: &[cell(TREES, "read 4 KiB files, cold", "of disk")],
        unit: "",
        beside: "ext4",
    },
    Figure {
        what: "create five million files, without the kernel",
        cells: &[cell(LIBRARY, "1 | 5,000,000", "creates/s")],
        unit: "/s",
        beside: "–",
    },
];

fn table(source: &str) -> Result<String, String> {
    let mut table = "| what | Pelago | compared with |\n|---|---:|---|\n".to_owned();
    for Figure { what, cells, unit, beside } in FIGURES {
        let numbers: Result<Vec<_>, _> = cells.iter().map(|cell| number(source, cell)).collect();
        let numbers: Vec<_> =
            numbers?.into_iter().map(|number| format!("{number}{unit}")).collect();
        table.push_str(&format!("| {what} | {} | {beside} |\n", numbers.join("; ")));
    }
    Ok(table)
}

/// A cell without the spread in brackets.
fn number<'a>(source: &'a str, cell: &Cell) -> Result<&'a str, String> {
    let Cell { heading, row, column } = cell;
    let missing = || format!("no row `{row}` with a column `{column}` under `{heading}`");
    let section = source.split("\n## ").find(|section| section.lines().next() == Some(*heading));
    let mut at = None;
    for line in section.unwrap_or_default().lines() {
        if !line.starts_with('|') {
            at = None;
        } else if at.is_none() {
            // The first row of a table names its columns; one without this column has no number.
            at = Some(cells(line).position(|name| name == *column));
        } else if line.starts_with(&format!("| {row} |")) {
            let found = at.flatten().and_then(|at| cells(line).nth(at));
            return found.and_then(|found| found.split(" (").next()).ok_or_else(missing);
        }
    }
    Err(missing())
}

fn cells(row: &str) -> impl Iterator<Item = &str> {
    row.trim_matches('|').split('|').map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: &str = "# B\n\n## One\n\ntext\n\n| step | /s | ratio |\n|---|---|---|\n\
                            | create | 5 | 0.73 (0.5 to 0.8) |\n\n| n | /s |\n|---|---|\n\
                            | 1 | 6 |\n\n## Two\n\n| a | b | /s |\n|---|---|---|\n| 1 | 2 | 7 |\n";

    #[test]
    fn a_number_is_found_by_heading_row_and_column() {
        let of = |heading, row, column| number(MEASURED, &Cell { heading, row, column });
        assert_eq!(of("One", "create", "ratio"), Ok("0.73"));
        assert_eq!(of("One", "create", "/s"), Ok("5"));
        assert_eq!(of("One", "1", "/s"), Ok("6"));
        assert_eq!(of("Two", "1 | 2", "/s"), Ok("7"));
        for lost in [of("Two", "create", "/s"), of("One", "create", "no"), of("No", "1", "/s")] {
            assert!(lost.is_err(), "{lost:?}");
        }
    }
}
