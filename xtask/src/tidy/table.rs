//! Reads the tables of Markdown documents.

/// One row below the head of a table.
pub(super) struct Row<'a> {
    columns: Vec<&'a str>,
    cells: Vec<&'a str>,
}

impl<'a> Row<'a> {
    /// Returns the cell in the column of this name.
    pub(super) fn get(&self, column: &str) -> Option<&'a str> {
        let at = self.columns.iter().position(|name| *name == column)?;
        self.cells.get(at).copied()
    }

    /// Returns whether the first cells are these.
    pub(super) fn begins_with(&self, cells: &[&str]) -> bool {
        self.cells.starts_with(cells)
    }
}

/// Returns the rows of all tables. The first row of a table names its columns.
pub(super) fn rows(text: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    let mut columns = Vec::new();
    for line in text.lines() {
        let Some(line) = line.strip_prefix('|') else {
            columns.clear();
            continue;
        };
        let line = line.strip_suffix('|').unwrap_or(line);
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if columns.is_empty() {
            columns = cells;
        } else if !line.starts_with("---") {
            rows.push(Row { columns: columns.clone(), cells });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_found_by_the_name_of_its_column() {
        let rows = rows("| a | b |\n|---|--:|\n| 1 | 2 |\n| 3 |\n\n| b |\n|---|\n| 4 |\n");
        let of = |column| rows.iter().map(|row| row.get(column)).collect::<Vec<_>>();
        assert_eq!(of("b"), [Some("2"), None, Some("4")]);
        assert_eq!(of("a"), [Some("1"), Some("3"), None]);
        assert!(rows[0].begins_with(&["1"]) && !rows[0].begins_with(&["2"]));
    }
}
