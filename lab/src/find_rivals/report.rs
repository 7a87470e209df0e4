//! The figures of all programs as a table, as JSON and as charts.

use pelago_chart::{Bar, Chart, Group};
use serde_json::{Value, json};

use super::programs::Goal;
use super::run::{Answers, Measured, Task};
use crate::kit::report::{met, text};
use crate::kit::statistics::{median, quartiles};

/// Prints the table of a question. A missed goal fails nothing, because a busy machine can miss it.
pub(super) fn print(task: &Task) {
    let name = text(&task.question, "question");
    let all = &task.question["all"];
    println!("{name}: `{}`, {all} files", text(&task.question, "query"));
    let number = |key: &str| task.question[key].as_f64().unwrap_or(f64::NAN);
    println!(
        "  {:16} {:>8} {:>12.2} ({:.2} to {:.2}) ms",
        "control file",
        number("hits"),
        number("median_ms"),
        number("lower_ms"),
        number("upper_ms")
    );
    for answers in &task.answers {
        println!("  {}", line(task, answers));
    }
}

/// Returns whether the programs that look at each file agree with `pelago find`.
pub(super) fn agrees(task: &Task) -> bool {
    let files = task.answers[0].files;
    let looks_at_all = |it: &&Answers| it.name != "recoll" && !it.rounds.is_empty();
    task.answers.iter().filter(looks_at_all).all(|it| it.files == files)
}

fn line(task: &Task, answers: &Answers) -> String {
    let Answers { name, files, .. } = answers;
    if answers.rounds.is_empty() {
        return format!("{name:16} not here");
    }
    let [lower, median, upper] = quartiles(answers.rounds.concat());
    let mut line = format!("{name:16} {files:>8} {median:>12.2} ({lower:.2} to {upper:.2}) ms");
    if let Some([low, ratio, high]) = ratio(task, answers) {
        line.push_str(&format!("  {ratio:.2} ({low:.2} to {high:.2}) of pelago find"));
        if let Some((goal, is_met)) = goal(answers, ratio) {
            line.push_str(&format!("; goal {goal}: {}", met(is_met)));
        }
    }
    line
}

/// Returns the goal in words, and whether it is met.
fn goal(answers: &Answers, ratio: f64) -> Option<(String, bool)> {
    Some(match answers.goal? {
        Goal::Slower(times) => (format!("at least {times}"), ratio >= times),
        Goal::Within(times) => (format!("at least {:.2}", times.recip()), ratio * times >= 1.0),
    })
}

/// Returns the quartiles of the time of a program over that of `pelago find` in the same round.
fn ratio(task: &Task, answers: &Answers) -> Option<[f64; 3]> {
    let own = task.answers.first().filter(|own| own.name != answers.name)?;
    let rounds = answers.rounds.iter().zip(&own.rounds);
    let median = |times: &[f64]| median(times.iter().copied()).unwrap_or(f64::NAN);
    Some(quartiles(rounds.map(|(other, own)| median(other) / median(own))))
}

/// Returns the object of a question.
pub(super) fn to_json(task: &Task) -> Value {
    let program = |answers: &Answers| {
        let [lower, median, upper] = quartiles(answers.rounds.concat());
        let goal = ratio(task, answers).and_then(|[_, ratio, _]| goal(answers, ratio));
        json!({
            "program": answers.name,
            "files": answers.files,
            "is_here": !answers.rounds.is_empty(),
            "median_ms": median,
            "lower_ms": lower,
            "upper_ms": upper,
            "of_pelago_find": ratio(task, answers),
            "goal_met": goal.map(|(_, is_met)| is_met),
        })
    };
    let programs: Vec<Value> = task.answers.iter().map(program).collect();
    json!({ "question": task.question, "programs": programs })
}

/// Returns a page with a chart for each question.
pub(super) fn page(measured: &Measured) -> String {
    let chart = |task: &Task| {
        let group = |(name, median): (&str, f64)| Group {
            label: name.to_owned(),
            bars: vec![Bar { series: name.to_owned(), figure: median }],
        };
        let here = task.answers.iter().filter(|answers| !answers.rounds.is_empty());
        let medians = here.map(|answers| (answers.name, quartiles(answers.rounds.concat())[1]));
        let control = task.question["median_ms"].as_f64().unwrap_or(f64::NAN);
        let control = std::iter::once(("control file", control));
        Chart {
            title: format!("{}: milliseconds, median", text(&task.question, "question")),
            note: text(&task.question, "query").to_owned(),
            groups: control.chain(medians).map(group).collect(),
        }
    };
    let charts: Vec<Chart> = measured.tasks.iter().map(chart).collect();
    let files = &measured.own["files"];
    pelago_chart::page(&format!("Searches among {files} files, warm, by program"), &charts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(own: f64, other: Answers) -> Task {
        let own = Answers { name: "pelago find", goal: None, ..answers(own, None) };
        Task { question: json!({ "question": "name", "hits": 3 }), answers: vec![own, other] }
    }

    fn answers(millis: f64, goal: Option<Goal>) -> Answers {
        Answers { name: "plocate", files: 3, rounds: vec![vec![millis; 3]], goal }
    }

    #[test]
    fn goals_are_those_of_the_ratio() {
        let cases = [
            (Goal::Slower(20.0), 20.0, true),
            (Goal::Slower(20.0), 19.0, false),
            (Goal::Within(3.0), 0.34, true),
            (Goal::Within(3.0), 0.33, false),
        ];
        for (goal, millis, is_met) in cases {
            let object = to_json(&task(1.0, answers(millis, Some(goal))));
            assert_eq!(object["programs"][1]["goal_met"], is_met, "{goal:?} {millis}");
        }
    }

    #[test]
    fn a_program_that_is_not_here_has_no_figure() {
        let task = task(1.0, Answers { rounds: Vec::new(), ..answers(1.0, None) });
        assert_eq!(line(&task, &task.answers[1]).trim(), "plocate          not here");
        assert_eq!(to_json(&task)["programs"][1]["is_here"], false);
    }
}
