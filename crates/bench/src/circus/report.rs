//! The result of `bench circus`, as numbers, text and JSON.

use serde_json::{Value, json};

use crate::JSON_VERSION;
use crate::report::write_line;

/// The result of [`super::circus`].
#[derive(Debug, Clone, PartialEq)]
pub struct CircusReport {
    /// The seed of the arrivals.
    pub seed: u64,
    /// The tables.
    pub tables: Vec<CrowdTable>,
    /// The goals, and whether they are met.
    pub goals: Vec<Goal>,
}

/// Crowds that are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct CrowdTable {
    /// The title: the servers, and the settings.
    pub title: String,
    /// The result of the paper; empty if it has none.
    pub paper: &'static str,
    /// The rows.
    pub rows: Vec<CrowdRow>,
}

/// A crowd and a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct CrowdRow {
    /// The setting in which the row differs from others.
    pub setting: String,
    /// The policy.
    pub policy: &'static str,
    /// Clients, or at the same time if the load is steady.
    pub clients: usize,
    /// Bytes read from the disk, in files.
    pub passes: f64,
    /// Bytes that the fastest client present of each file would take, in files.
    pub ideal_passes: f64,
    /// Bytes read for each byte sent.
    pub misses: f64,
    /// The mean of the times of downloads over those of downloads alone.
    pub mean: f64,
    /// The median of these ratios.
    pub median: f64,
    /// The largest of these ratios.
    pub worst: f64,
    /// Megabytes (10⁶) sent in a second.
    pub sent_rate: f64,
    /// Megabytes (10⁶) read in a second.
    pub read_rate: f64,
}

/// A figure that should not be exceeded.
#[derive(Debug, Clone, PartialEq)]
pub struct Goal {
    /// The name of the figure.
    pub name: String,
    /// The figure.
    pub figure: f64,
    /// The most that it should be.
    pub limit: f64,
}

impl CircusReport {
    /// Returns tables for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = String::new();
        write_line(&mut text, format_args!("circus: virtual time, seed {}", self.seed));
        for table in &self.tables {
            table.render_text(&mut text);
        }
        write_line(&mut text, format_args!("\ngoals"));
        for goal in &self.goals {
            let Goal { name, figure, limit } = goal;
            let is_met = if goal.is_met() { "met" } else { "MISSED" };
            write_line(&mut text, format_args!("  {name:66}{figure:6.2} ≤{limit:5.2}  {is_met}"));
        }
        text
    }

    /// Returns the object of `--json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let tables: Vec<Value> = self.tables.iter().map(CrowdTable::to_json).collect();
        let goal = |goal: &Goal| {
            let Goal { name, figure, limit } = goal;
            json!({ "goal": name, "figure": figure, "limit": limit, "met": goal.is_met() })
        };
        let goals: Vec<Value> = self.goals.iter().map(goal).collect();
        json!({
            "version": JSON_VERSION,
            "bench": "circus",
            "time": "virtual",
            "seed": self.seed,
            "tables": tables,
            "goals": goals,
        })
    }
}

impl CrowdTable {
    fn render_text(&self, text: &mut String) {
        write_line(text, format_args!("\n{}", self.title));
        if !self.paper.is_empty() {
            write_line(text, format_args!("the paper: {}", self.paper));
        }
        let names = ["clients", "passes", "ideal", "ratio", "misses", "mean", "median", "worst"];
        let mut head = format!("  {:24}{:12}", "", "");
        names.iter().for_each(|name| head.push_str(&format!("{name:>8}")));
        write_line(text, format_args!("{head}{:>11}{:>11}", "sent MB/s", "read MB/s"));
        for row in &self.rows {
            let CrowdRow { setting, policy, clients, passes, ideal_passes, .. } = row;
            let CrowdRow { misses, mean, median, worst, sent_rate, read_rate, .. } = row;
            let ratio = row.ratio();
            write_line(
                text,
                format_args!(
                    "  {setting:24}{policy:12}{clients:8}{passes:8.2}{ideal_passes:8.2}{ratio:8.2}\
                     {misses:8.3}{mean:8.2}{median:8.2}{worst:8.2}{sent_rate:11.2}{read_rate:11.2}"
                ),
            );
        }
    }

    fn to_json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(CrowdRow::to_json).collect();
        json!({ "title": self.title, "paper": self.paper, "rows": rows })
    }
}

impl CrowdRow {
    /// Returns the bytes read over those that the fastest client present would take.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        if self.ideal_passes > 0.0 { self.passes / self.ideal_passes } else { 0.0 }
    }

    fn to_json(&self) -> Value {
        json!({
            "setting": self.setting,
            "policy": self.policy,
            "clients": self.clients,
            "passes": self.passes,
            "ideal_passes": self.ideal_passes,
            "misses": self.misses,
            "mean": self.mean,
            "median": self.median,
            "worst": self.worst,
            "sent_mb_s": self.sent_rate,
            "read_mb_s": self.read_rate,
        })
    }
}

impl Goal {
    /// Returns whether the figure does not exceed its limit.
    #[must_use]
    pub fn is_met(&self) -> bool {
        self.figure <= self.limit
    }
}
