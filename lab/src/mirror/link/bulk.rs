//! As many bytes as the line takes, and messages of which each one counts.

use serde_json::{Value, json};

use super::lines::{Got, Line, Sender};
use super::{Bench, Plan, RATE, line_words, percent};
use crate::kit::report::met;
use crate::kit::statistics::{median, quantile_of, quartiles};

/// The senders that alternate.
const WAYS: [&str; 4] = ["auto", "off", "cubic", "bbr"];
/// Seconds before bytes count: the window opens.
const WARM_UP: u32 = 3;
/// The least shares: of the line with repair, of bbr without; and how many times cubic.
const LINK_SHARE: f64 = 0.93;
const BBR_SHARE: f64 = 0.9;
const CUBICS: f64 = 10.0;
/// Messages a second, 4.8 Mbit/s, and the senders of them.
const MESSAGES: &str = "150";
const MESSENGERS: [&str; 4] = ["plain", "auto", "cubic", "bbr"];
/// Milliseconds by which 99 of 100 messages may be later than the line itself is.
const LATE_MS: f64 = 5.0;
/// The part of messages that counts.
const PART: f64 = 0.99;

/// Measures bulk at each loss.
pub(super) fn of_bulk(bench: &Bench<'_>, plan: &Plan) -> Result<(Value, bool), String> {
    let link = RATE as f64 * 8.0 / 1e6;
    println!(
        "bulk over {link} Mbit/s, 50 ms each way, {} rounds of {} s",
        plan.rounds, plan.seconds
    );
    let mut rows = Vec::new();
    let mut is_good = true;
    for &loss in &plan.losses {
        let mut rounds = Vec::new();
        for round in 0..plan.rounds {
            rounds.push(in_turn(bench, WAYS, loss, round, "bulk", WARM_UP + plan.seconds)?);
        }
        let rates: Vec<[f64; 4]> = rounds
            .iter()
            .map(|round| round.each_ref().map(|got| got.mbit(WARM_UP, WARM_UP + plan.seconds)))
            .collect();
        let share = rounds.iter().map(|[auto, ..]| 1.0 / (1.0 + auto.repair.unwrap_or(0.0)));
        let share = median(share).unwrap_or(f64::NAN);
        println!("loss {}", percent(loss));
        let of = |at: usize| quartiles(rates.iter().map(|round| round[at]));
        for (at, way) in WAYS.iter().enumerate() {
            let [lower, middle, upper] = of(at);
            let known = rounds.last().map_or_else(String::new, |round| known(&round[at].status));
            println!("  {way:6} {middle:6.1} Mbit/s ({lower:.1} to {upper:.1}){known}");
        }
        let ratio = |one: usize, other: usize| {
            median(rates.iter().map(|round| round[one] / round[other])).unwrap_or(f64::NAN)
        };
        let used = of(0)[1] / (link * share);
        let checks = [
            ("with repair, of link x r/(r+c)", used, LINK_SHARE),
            ("with repair, of cubic", ratio(0, 2), CUBICS),
            ("without, of bbr", ratio(1, 3), BBR_SHARE),
        ];
        for (what, figure, least) in checks {
            println!("  {what:32} {figure:6.2} (at least {least})  {}", met(figure >= least));
            is_good &= figure >= least;
        }
        rows.push(json!({
            "loss_ppm": loss,
            "mbit_s": WAYS.iter().enumerate().map(|(at, way)| json!([way, of(at)]))
                .collect::<Vec<_>>(),
            "share": share,
            // Of the last round, from the first byte on.
            "mbit_of_each_second": WAYS.iter().enumerate().map(|(at, way)| {
                json!([way, rounds.last().map(|round| round[at].series())])
            }).collect::<Vec<_>>(),
            "of_link": used,
            "of_cubic": checks[1].1,
            "of_bbr": checks[2].1,
        }));
    }
    Ok((Value::Array(rows), is_good))
}

/// Measures messages without any loss, and at each loss.
pub(super) fn of_messages(bench: &Bench<'_>, plan: &Plan) -> Result<(Value, bool), String> {
    println!("{MESSAGES} messages of 4,000 bytes a second, milliseconds until they have arrived");
    let mut rows = Vec::new();
    let mut is_good = true;
    for loss in [0].into_iter().chain(plan.losses.iter().copied()) {
        let mut rounds = Vec::new();
        for round in 0..plan.rounds {
            rounds.push(in_turn(bench, MESSENGERS, loss, round, MESSAGES, plan.seconds)?);
        }
        println!("loss {}", percent(loss));
        let mut figures = Vec::new();
        for (at, way) in MESSENGERS.iter().enumerate() {
            let of = |part: f64| median(rounds.iter().map(|round| round[at].within(part)));
            let [p50, p90, p99, p999] =
                [0.5, 0.9, PART, 0.999].map(|part| of(part).unwrap_or(f64::NAN));
            let known = rounds.last().map_or_else(String::new, |round| known(&round[at].status));
            println!("  {way:6} p50 {p50:7.1} p90 {p90:7.1} p99 {p99:7.1} p99.9 {p999:7.1}{known}");
            figures.push(json!([way, [p50, p90, p99, p999]]));
        }
        // A message in plain datagrams that the line has lost has no time.
        let late = rounds
            .iter()
            .map(|[plain, auto, ..]| auto.within(PART) - quantile_of(&plain.millis, PART));
        let late = median(late);
        let late = late.unwrap_or(f64::NAN);
        println!(
            "  99 of 100 later than the line by {late:.1} ms (at most {LATE_MS})  {}",
            met(late <= LATE_MS)
        );
        is_good &= late <= LATE_MS;
        rows.push(json!({ "loss_ppm": loss, "ms": figures, "late_ms": late }));
    }
    Ok((Value::Array(rows), is_good))
}

/// Has each sender work over a line of its own, which loses by the same seed. The first one changes
/// from round to round.
fn in_turn<const WAYS: usize>(
    bench: &Bench<'_>,
    ways: [&str; WAYS],
    loss: u32,
    round: u32,
    work: &str,
    seconds: u32,
) -> Result<[Got; WAYS], String> {
    let mut all: [Option<Got>; WAYS] = [const { None }; WAYS];
    for turn in 0..WAYS {
        let at = (turn + round as usize) % WAYS;
        let mut line = Line::start(bench.slowlink, bench.logs, &line_words(loss), 1 + round)?;
        let sender = Sender { how: ways[at], volume: plain_or_one(ways[at]), work, seconds };
        all[at] = line.measure(&[sender])?.pop();
    }
    Ok(all.map(|got| got.expect("each of them had its turn")))
}

/// Returns the number by which the receiver counts a sender.
fn plain_or_one(how: &str) -> u8 {
    u8::from(how != "plain")
}

/// Returns what a sender of datagrams knew at its end; nothing of another one.
fn known(status: &Value) -> String {
    let number = |of: &str| status[of].as_f64().unwrap_or(0.0);
    match status.is_null() {
        true => String::new(),
        false => format!(
            "  rate {:.1} Mbit/s, loss {:.2} %, trip {:.1} ms, {}+{} packets, {} again",
            number("rate") * 8.0 / 1e6,
            number("loss") * 1e2,
            number("trip_ms"),
            number("data"),
            number("repair"),
            number("again"),
        ),
    }
}
