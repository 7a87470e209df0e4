//! The figures, as text, JSON and charts.

use pelago_chart::{Bar, Chart, Group, page};
use serde_json::{Value, json};

use super::{DELAY, Plan, Point};

/// The modes of the paper, in its order.
const MODES: [&str; 5] = ["local", "remote", "local+fec", "network", "remote+fec"];

/// The figures of each mode at each point.
#[derive(Debug, Default)]
pub(super) struct Measured {
    all: Vec<(Point, &'static str, Value)>,
}

impl Measured {
    pub(super) fn add(&mut self, point: Point, mode: &'static str, figures: Value) {
        self.all.push((point, mode, figures));
    }

    /// Returns the modes that were measured.
    fn modes(&self) -> impl Iterator<Item = &'static str> {
        let is_measured = |mode: &&str| self.all.iter().any(|(_, name, _)| name == mode);
        MODES.into_iter().filter(is_measured)
    }

    /// Returns the figure of a mode at a point; `NaN` if it was not measured.
    fn get(&self, point: Point, mode: &str, key: &str) -> f64 {
        let found = self.all.iter().find(|(at, name, _)| *at == point && *name == mode);
        let value = found.map(|(_, _, figures)| &figures[key]);
        let number = value.and_then(|value| value.as_f64().or_else(|| value["median"].as_f64()));
        number.unwrap_or(f64::NAN)
    }

    /// Returns what was measured at a point.
    pub(super) fn lines_of(&self, point: Point) -> String {
        let mut lines = vec![point.name()];
        for mode in self.modes() {
            let of = |key: &str| self.get(point, mode, key);
            lines.push(format!(
                "  {mode:10} {:8.1}/s {:6.2} Mbit/s  p50 {:8.1} p90 {:8.1} p99 {:8.1} ms  \
                 mirrored after {:4.1} s  cpu {:4.0}+{:4.0} µs",
                of("per_s"),
                of("mbit_s"),
                of("p50_ms"),
                of("p90_ms"),
                of("p99_ms"),
                of("mirrored_after_s"),
                of("cpu_us_own"),
                of("cpu_us_daemon"),
            ));
        }
        lines.join("\n")
    }

    /// Returns the tables of the figures.
    pub(super) fn render_text(&self, plan: &Plan) -> String {
        let mut text = String::new();
        for (title, key, points) in self.tables(plan) {
            text += &format!("\n{title}\n");
            for point in points {
                text += &format!("  {:40}", point.name());
                for mode in self.modes() {
                    text += &format!("  {mode} {:.1}", self.get(point, mode, key));
                }
                text.push('\n');
            }
        }
        text
    }

    pub(super) fn to_json(&self) -> Value {
        let of = |(point, mode, figures): &(Point, &'static str, Value)| {
            let Point { loss, run, delay, testers } = point;
            json!({
                "loss_ppm": loss,
                "run": run,
                "delay_us": delay,
                "testers": testers,
                "mode": mode,
                "figures": figures,
            })
        };
        let all: Vec<Value> = self.all.iter().map(of).collect();
        json!({ "version": 1, "lab": "mirror figures", "points": all })
    }

    pub(super) fn render_svg(&self, plan: &Plan) -> String {
        let charts: Vec<Chart> = self
            .tables(plan)
            .into_iter()
            .map(|(title, key, points)| {
                let bar = |point: Point, mode: &str| Bar {
                    series: mode.to_owned(),
                    figure: self.get(point, mode, key),
                };
                let group = |point: Point| Group {
                    label: short(point),
                    bars: self.modes().map(|mode| bar(point, mode)).collect(),
                };
                let groups = points.into_iter().map(group).collect();
                Chart { title, note: String::new(), groups }
            })
            .collect();
        page("Mirrors over 20 Mbit/s, as SMFS was measured", &charts)
    }

    /// Returns the title of each figure, its key, and its points.
    fn tables(&self, plan: &Plan) -> Vec<(String, &'static str, Vec<Point>)> {
        let all = plan.points();
        let many = plan.testers;
        let of = |is_in: &dyn Fn(&Point) -> bool| all.iter().copied().filter(is_in).collect();
        let losses = |point: &Point| point.testers == many && point.delay == DELAY;
        let singles = |point: &Point| losses(point) && point.run == 1;
        let delays = |point: &Point| point.testers == many && point.loss == 0;
        let mut tables = Vec::new();
        if plan.has(8) {
            for (part, key) in [("median", "p50_ms"), ("99th percentile", "p99_ms")] {
                let title = format!("Figure 8: milliseconds of a message, {part}");
                tables.push((title, key, of(&singles)));
            }
        }
        if plan.has(9) {
            let title = "Figure 9: messages per second by the loss of the line".to_owned();
            tables.push((title, "per_s", of(&losses)));
        }
        if plan.has(10) {
            let title = "Figure 10: messages per second by the delay of the line".to_owned();
            tables.push((title, "per_s", of(&delays)));
        }
        if plan.has(11) {
            let title = "Figure 11: messages per second of one tester".to_owned();
            tables.push((title, "per_s", of(&|point: &Point| point.testers == 1)));
        }
        tables
    }
}

/// Returns the name of a point beside its bars.
fn short(point: Point) -> String {
    let Point { loss, run, delay, .. } = point;
    match (loss, run) {
        (0, _) => format!("0 %, {} ms", delay / 1_000),
        (loss, 1) => format!("{} %", f64::from(loss) / 1e4),
        (loss, run) => format!("{} %, runs of {run}", f64::from(loss) / 1e4),
    }
}
