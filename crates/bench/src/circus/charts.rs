//! The result of `bench circus` as a page of charts.

use pelago_chart::{Bar, Chart, Group, page};

use super::report::{CircusReport, CrowdRow, CrowdTable};

impl CircusReport {
    /// Returns a page of SVG with two charts for each table: the bytes read from the disk, and the
    /// times of downloads.
    #[must_use]
    pub fn render_svg(&self) -> String {
        let title = format!("Crowds of downloads in virtual time, seed {}", self.seed);
        let charts: Vec<Chart> = self.tables.iter().flat_map(charts).collect();
        page(&title, &charts)
    }
}

fn charts(table: &CrowdTable) -> [Chart; 2] {
    let of = |what: &str, paper: &str, figure: fn(&CrowdRow) -> f64| {
        let mut groups: Vec<Group> = Vec::new();
        for row in &table.rows {
            let bar = Bar { series: row.policy.to_owned(), figure: figure(row) };
            match groups.last_mut() {
                Some(group) if group.label == row.setting => group.bars.push(bar),
                _ => groups.push(Group { label: row.setting.clone(), bars: vec![bar] }),
            }
        }
        let note = if paper.is_empty() { String::new() } else { format!("The paper: {paper}") };
        Chart { title: format!("{what}. {}", table.title), note, groups }
    };
    [
        of("MB/s read from the disk", table.paper, |row| row.read_rate),
        of("Mean download over alone", "", |row| row.mean),
    ]
}
