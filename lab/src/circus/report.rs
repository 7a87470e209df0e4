//! The tables of `circus`, with the results of the paper and of earlier measurements beside them.

use pelago_chart::{Bar, Chart, Group};
use serde_json::{Value, json};

use super::load::{Load, LoadKind};
use super::{FULL, Scale};
use crate::kit::report::{met, text};
use crate::kit::statistics::median;

/// A figure of a row.
struct Column {
    title: &'static str,
    /// The name of the figure in the object.
    key: &'static str,
    /// The place of the figure in the object of a round.
    from: &'static str,
    digits: usize,
}

const fn column(
    title: &'static str,
    key: &'static str,
    from: &'static str,
    digits: usize,
) -> Column {
    Column { title, key, from, digits }
}

const COLUMNS: [Column; 11] = [
    column("net MB/s", "mb_per_s", "/crowd/mb_per_s", 1),
    column("finished", "finished", "/crowd/finished", 0),
    column("mean s", "mean_s", "/crowd/download_seconds/mean", 1),
    column("median s", "median_s", "/crowd/download_seconds/median", 1),
    column("p95 s", "p95_s", "/crowd/download_seconds/p95", 1),
    column("× alone", "slowdown_mean", "/crowd/slowdown/mean", 2),
    column("worst", "slowdown_worst", "/crowd/slowdown/most", 2),
    column("read MB", "read_mb", "/read_mb", 0),
    column("passes", "passes", "/passes", 2),
    column("of fastest", "passes_of_fastest", "/passes_of_fastest", 2),
    column("CPU s/GB", "cpu_s_per_gb", "/cpu_s_per_gb", 2),
];

/// Earlier results with the full sizes, under other conditions of the machine.
const EARLIER: [(&str, &str); 3] = [
    ("20", "nginx 44.0 MB/s, 20 finished, 185.7 / 186.5 / 194.3 s, 6.8 passes"),
    ("50", "nginx 106.7 MB/s, 50 finished, 196.6 / 198.3 / 203.3 s, 7.7 passes"),
    ("100", "nginx 286.4 MB/s, 100 finished, 147.9 / 147.6 / 164.0 s, 4.9 passes"),
];
/// The result of the paper for the same kind of load.
const PAPER: &str = "disk reads stay at about one client's rate when all have one rate; the gain \
                     shrinks with mixed rates";

/// A figure that is to be reached.
struct Goal {
    what: &'static str,
    contender: &'static str,
    key: &'static str,
    /// The largest good figure: a number, or a multiple of the figure of nginx.
    most: f64,
    is_over_nginx: bool,
}

const fn goal(what: &'static str, key: &'static str, most: f64) -> Goal {
    Goal { what, contender: "blocks", key, most, is_over_nginx: false }
}

const fn over_nginx(
    what: &'static str,
    contender: &'static str,
    key: &'static str,
    most: f64,
) -> Goal {
    Goal { what, contender, key, most, is_over_nginx: true }
}

const PASSES: &str = "bytes read over those of the fastest";
const PLAIN: [Goal; 2] = [
    over_nginx("bytes read over nginx's", "plain", "read_mb", 1.0),
    over_nginx("longest download over nginx's", "plain", "slowdown_worst", 1.0),
];

/// Returns the goals of a load.
fn goals(kind: LoadKind) -> Vec<Goal> {
    let goals = match kind {
        LoadKind::Equal => vec![
            goal(PASSES, "passes_of_fastest", 1.3),
            goal("mean download over alone", "slowdown_mean", 1.15),
        ],
        LoadKind::Mixed => vec![
            goal(PASSES, "passes_of_fastest", 1.5),
            goal("longest download over alone", "slowdown_worst", 1.3),
        ],
        LoadKind::Files => vec![goal(PASSES, "passes_of_fastest", 1.5)],
        LoadKind::Cached => {
            let cpu = |contender| {
                over_nginx("processor time over nginx's", contender, "cpu_s_per_gb", 1.5)
            };
            return vec![cpu("plain"), cpu("blocks")];
        }
    };
    goals.into_iter().chain(PLAIN).collect()
}

/// Returns one object like those of the rounds, with the medians of its figures.
pub(super) fn medians(rounds: &[Value]) -> Value {
    let median =
        |place: &str| median(rounds.iter().filter_map(|round| round.pointer(place)?.as_f64()));
    COLUMNS.iter().map(|it| (it.key.to_owned(), json!(median(it.from)))).collect()
}

/// Prints the table of a load; returns whether every client of ours has got its bytes.
pub(super) fn print(load: &Load, rows: &[Value], scale: &Scale) -> bool {
    let name = &load.name;
    println!(
        "circus, {name}: {} of {} MiB, {} MiB of memory, window {} s, medians",
        if load.files() == 1 { "a file".to_owned() } else { format!("{} files", load.files()) },
        load.file_bytes(scale) >> 20,
        load.memory_bytes(scale) >> 20,
        load.window(scale)
    );
    let head: String = COLUMNS.iter().map(|it| format!("{:>11}", it.title)).collect();
    println!("  {:8}{head}", "");
    for row in rows {
        let cell = |column: &Column| match row["median"][column.key].as_f64() {
            Some(number) => format!("{number:>11.digits$}", digits = column.digits),
            None => format!("{:>11}", "–"),
        };
        let cells: String = COLUMNS.iter().map(cell).collect();
        println!("  {:8}{cells}", text(row, "contender"));
    }
    if let Some((_, earlier)) = EARLIER.iter().find(|it| it.0 == name && *scale == FULL) {
        println!("  earlier: {earlier}");
    }
    println!("  the paper: {PAPER}");
    print_goals(load.kind, rows);
    rows.iter()
        .all(|row| row["rounds"].as_array().is_some_and(|rounds| rounds.iter().all(is_whole)))
}

/// Prints the goals; a busy machine can miss one, so it fails nothing.
fn print_goals(kind: LoadKind, rows: &[Value]) {
    let figure = |contender: &str, key: &str| {
        let row = rows.iter().find(|row| row["contender"] == contender)?;
        row["median"][key].as_f64()
    };
    for Goal { what, contender, key, most, is_over_nginx } in goals(kind) {
        let over = if is_over_nginx { figure("nginx", key) } else { Some(1.0) };
        let (Some(seen), Some(over)) = (figure(contender, key), over) else { continue };
        let word = met(seen <= most * over);
        let seen = seen / over;
        println!("  goal: {contender:7}{what:40}{seen:6.2} ≤ {most:4.2}  {word}");
    }
}

/// Returns a page of charts, one for each figure, with a group of bars for each load.
pub(super) fn page(tables: &[Value], scale: &Scale) -> String {
    let chart = |title: &str, key: &str| {
        let group = |table: &Value| {
            let bar = |row: &Value| Bar {
                series: text(row, "contender").to_owned(),
                figure: row["median"][key].as_f64().unwrap_or(f64::NAN),
            };
            let bars = table["rows"].as_array().into_iter().flatten().map(bar).collect();
            Group { label: text(table, "load").to_owned(), bars }
        };
        let groups = tables.iter().map(group).collect();
        Chart { title: title.to_owned(), note: String::new(), groups }
    };
    let mib = scale.file_bytes >> 20;
    let title = format!("Downloads of {mib} MiB from a disk of 20 MB/s, by the name of the load");
    let charts = [
        chart("Bytes read over those that the fastest client takes", "passes_of_fastest"),
        chart("Mean download over alone", "slowdown_mean"),
        chart("MB/s sent", "mb_per_s"),
        chart("Seconds of processor time per GB", "cpu_s_per_gb"),
    ];
    pelago_chart::page(&title, &charts)
}

/// Returns whether no process was killed, and no client got wrong bytes or an error. Clients of a
/// server that is too slow are late, which is a result.
fn is_whole(round: &Value) -> bool {
    let failures = round["crowd"]["failures"].as_array().into_iter().flatten();
    let wrong = failures.filter(|failure| *failure != "the crowd has ended before").count();
    wrong == 0 && round["killed"] == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_those_of_each_figure() {
        let round = |passes: f64| json!({ "passes": passes, "crowd": { "finished": 20 } });
        let median = medians(&[round(3.0), round(1.0), round(2.0)]);
        assert_eq!((&median["passes"], &median["finished"]), (&json!(2.0), &json!(20.0)));
        assert_eq!(median["read_mb"], Value::Null);
    }

    #[test]
    fn each_load_and_server_has_a_bar() {
        let row = |name: &str| json!({ "contender": name, "median": { "slowdown_mean": 1.25 } });
        let table = json!({ "load": "20", "rows": [row("nginx"), row("blocks")] });
        let page = page(&[table], &FULL);
        assert_eq!((page.matches("\n1.25\n").count(), page.matches("\nNaN\n").count()), (2, 6));
    }

    #[test]
    fn a_late_client_is_a_result_and_wrong_bytes_are_not() {
        let round = |failures: &[&str]| json!({ "killed": 0, "crowd": { "failures": failures } });
        assert!(is_whole(&round(&[])) && is_whole(&round(&["the crowd has ended before"])));
        assert!(!is_whole(&round(&["block 3 came twice"])));
    }
}
