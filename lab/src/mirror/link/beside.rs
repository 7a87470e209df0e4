//! Datagrams and a stream of cubic on the same line.

use serde_json::{Value, json};

use super::lines::{Line, Sender};
use super::{Bench, Plan, RATE, line_words};
use crate::kit::report::met;
use crate::kit::statistics::{median, quartiles};

/// Seconds until both have found their shares, and seconds that count at least.
const WARM_UP: u32 = 10;
const LEAST_SECONDS: u32 = 20;
/// The least share of the line that each of both gets.
const SHARE: f64 = 1.0 / 3.0;

/// Has both send as much as they can, at the same time, over a line without a loss of its own.
pub(super) fn measure(bench: &Bench<'_>, plan: &Plan) -> Result<(Value, bool), String> {
    let seconds = plan.seconds.max(LEAST_SECONDS);
    let link = RATE as f64 * 8.0 / 1e6;
    println!(
        "beside one stream of cubic over {link} Mbit/s, {} rounds of {seconds} s",
        plan.rounds
    );
    let mut rounds = Vec::new();
    for round in 0..plan.rounds {
        let mut line = Line::start(bench.slowlink, bench.logs, &line_words(0), 1 + round)?;
        let sender = |how, volume| Sender { how, volume, work: "bulk", seconds: WARM_UP + seconds };
        let both = line.measure(&[sender("cubic", 1), sender("auto", 2)])?;
        let rates: Vec<f64> =
            both.iter().map(|got| got.mbit(WARM_UP, WARM_UP + seconds) / link).collect();
        let [dropped, came] = line.overflowed()?;
        rounds.push([rates[0], rates[1], dropped / came.max(1.0)]);
    }
    let of = |at: usize| quartiles(rounds.iter().map(|round| round[at]));
    let least = median(rounds.iter().map(|[cubic, ours, _]| cubic.min(*ours))).unwrap_or(f64::NAN);
    for (what, [lower, middle, upper]) in [("cubic", of(0)), ("datagrams", of(1))] {
        println!("  {what:10} {middle:.2} of the line ({lower:.2} to {upper:.2})");
    }
    println!("  the queue has dropped {:.2} % of all packets", of(2)[1] * 1e2);
    println!("  the lesser one has {least:.2} (at least {SHARE:.2})  {}", met(least >= SHARE));
    Ok((json!({ "cubic": of(0), "datagrams": of(1), "dropped": of(2) }), least >= SHARE))
}
