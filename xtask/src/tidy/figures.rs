//! README's table of figures, which is derived from `docs/benchmarks.md`.

use super::derived::Derived;
use super::table;

const SOURCE: &str = "docs/benchmarks.md";

/// README's table.
pub(super) const TABLE: Derived = Derived {
    source: SOURCE,
    document: "README.md",
    name: "figures",
    table: |tree| table(tree.text(SOURCE)?),
};

/// One row of README's table.
struct Figure {
    what: &'static str,
    cells: &'static [Cell],
    /// Follows each number.
    unit: &'static str,
    beside: &'static str,
}

/// The place of a number: under this heading, in the first row that begins with these cells, in the
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
const RING: &str = "Requests over io_uring";
const EVERYDAY: &str = "Everyday jobs";
const SSHFS: &str = "Beside sshfs";
const TREES: &str = "Large folders, through the mount";
const BYTES: &str = "One large file, through the mount";
const LIBRARY: &str = "Without the kernel";

const fn figure(
    what: &'static str,
    cells: &'static [Cell],
    unit: &'static str,
    beside: &'static str,
) -> Figure {
    Figure { what, cells, unit, beside }
}

const FIGURES: &[Figure] = &[
    figure(
        "create, over io_uring; by `/dev/fuse`",
        &[cell(RING, "create", "ring over null"), cell(NAMES, "create", "ratio")],
        "",
        "a FUSE file system that does nothing",
    ),
    figure("create, over io_uring", &[cell(SSHFS, "create", "ratio")], " ×", "sshfs on loopback"),
    figure(
        "write 1 GiB and fsync; read it, cold; rewrite it and fsync",
        &[
            cell(BYTES, "write and fsync", "ratio"),
            cell(BYTES, "read, cold", "ratio"),
            cell(BYTES, "rewrite and fsync", "ratio"),
        ],
        "",
        "ext4",
    ),
    figure(
        "`find -printf %s` of 100,000 files, cold; warm",
        &[
            cell(TREES, "`find -printf %s`, cold", "of disk"),
            cell(TREES, "`find -printf %s`, warm", "of disk"),
        ],
        "",
        "ext4",
    ),
    figure(
        "read 20,000 small files, cold",
        &[cell(TREES, "read 4 KiB files, cold", "of disk")],
        "",
        "ext4",
    ),
    figure(
        "`tar x`; `cp -r`; `grep -r`, cold; git add and commit; `rm -rf`",
        &[
            cell(EVERYDAY, "`tar x`", "ext4 over ring"),
            cell(EVERYDAY, "`cp -r`", "ext4 over ring"),
            cell(EVERYDAY, "`grep -r`, cold", "ext4 over ring"),
            cell(EVERYDAY, "git init, add, commit", "ext4 over ring"),
            cell(EVERYDAY, "`rm -rf`", "ext4 over ring"),
        ],
        "",
        "ext4 without a journal",
    ),
    figure(
        "create five million files, without the kernel",
        &[cell(LIBRARY, "1 | 5,000,000", "creates/s")],
        "/s",
        "–",
    ),
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

/// Returns the number in a cell, without the spread in brackets.
fn number<'a>(source: &'a str, cell: &Cell) -> Result<&'a str, String> {
    let Cell { heading, row, column } = cell;
    let missing = || format!("no row `{row}` with a column `{column}` under `{heading}`");
    let section = source.split("\n## ").find(|section| section.lines().next() == Some(*heading));
    let first: Vec<&str> = row.split('|').map(str::trim).collect();
    let found = table::rows(section.unwrap_or_default());
    let found = found.iter().find(|found| found.begins_with(&first));
    let number = found.and_then(|found| found.get(column)?.split(" (").next());
    number.filter(|number| !number.is_empty()).ok_or_else(missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEASURED: &str = "# B\n\n## One\n\ntext\n\n| step | /s | ratio |\n|---|---|---|\n\
                            | create | 5 | 0.73 (0.5 to 0.8) |\n\n| n | /s |\n|---|---|\n\
                            | 1 | 6 |\n\
                            | 2 | |\n\n## Two\n\n| a | b | /s |\n|---|---|---|\n| 1 | 2 | 7 |\n";

    #[test]
    fn a_number_is_found_by_heading_row_and_column() {
        let of = |heading, row, column| number(MEASURED, &Cell { heading, row, column });
        assert_eq!(of("One", "create", "ratio"), Ok("0.73"));
        assert_eq!(of("One", "create", "/s"), Ok("5"));
        assert_eq!(of("One", "1", "/s"), Ok("6"));
        assert_eq!(of("Two", "1 | 2", "/s"), Ok("7"));
        let lost = [
            of("Two", "create", "/s"),
            of("One", "create", "no"),
            of("One", "2", "/s"),
            of("No", "1", "/s"),
        ];
        assert!(lost.iter().all(Result::is_err), "{lost:?}");
    }
}
