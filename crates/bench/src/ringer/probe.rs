//! The cost of a part of a job: its time, or the requests that are sent for it.

use std::thread;
use std::time::{Duration, Instant};

use super::RequestCounter;

/// Most pauses: something else may send requests all the time.
const PAUSES: u32 = 20;

/// Measures the parts of a job.
pub(super) struct Probe<'a> {
    /// `None` to measure times.
    counter: Option<&'a RequestCounter>,
    /// The pause without a request after which all requests of a part count as sent.
    quiet: Duration,
    micros: Vec<f64>,
    counts: Vec<Option<u64>>,
}

impl<'a> Probe<'a> {
    /// Returns a probe for times.
    pub(super) const fn clock() -> Self {
        Self { counter: None, quiet: Duration::ZERO, micros: Vec::new(), counts: Vec::new() }
    }

    /// Returns a probe for requests.
    pub(super) const fn counter(counter: &'a RequestCounter, quiet: Duration) -> Self {
        Self { counter: Some(counter), quiet, micros: Vec::new(), counts: Vec::new() }
    }

    /// Does a part of the job.
    pub(super) fn part<T>(&mut self, work: impl FnOnce() -> T) -> T {
        match self.counter {
            None => {
                let began = Instant::now();
                let done = work();
                self.micros.push(began.elapsed().as_secs_f64() * 1e6);
                done
            }
            Some(counter) => {
                let before = at_rest(counter, self.quiet);
                let done = work();
                // Without an office there is nothing to wait for.
                let after = before.and_then(|_| at_rest(counter, self.quiet));
                self.counts.push(after.zip(before).map(|(after, before)| after - before));
                done
            }
        }
    }

    /// Returns the microseconds of each part.
    pub(super) fn micros(&self) -> impl Iterator<Item = f64> {
        self.micros.iter().copied()
    }

    /// Returns the requests of each part; `None` if they are not known.
    pub(super) fn counts(&self) -> impl Iterator<Item = Option<u64>> {
        self.counts.iter().copied()
    }
}

/// Returns the number of requests once no more are sent.
fn at_rest(counter: &RequestCounter, quiet: Duration) -> Option<u64> {
    let mut seen = counter()?;
    for _ in 0..PAUSES {
        thread::sleep(quiet);
        let now = counter()?;
        if now == seen {
            break;
        }
        seen = now;
    }
    Some(seen)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_clock_has_a_time_for_each_part() {
        let mut clock = Probe::clock();
        let slept = clock.part(|| {
            thread::sleep(Duration::from_millis(2));
            7
        });
        clock.part(|| ());
        let micros: Vec<f64> = clock.micros().collect();
        assert_eq!((slept, micros.len(), clock.counts().count()), (7, 2, 0));
        assert!(micros[0] >= 2000.0, "{micros:?}");
    }

    #[test]
    fn a_counter_has_the_requests_of_each_part_and_not_those_between() {
        let sent = Rc::new(Cell::new(5));
        let counted = Rc::clone(&sent);
        let counter: RequestCounter = Box::new(move || Some(counted.get()));
        let send = |count: u64| sent.set(sent.get() + count);
        let mut probe = Probe::counter(&counter, Duration::ZERO);
        probe.part(|| send(3));
        send(10);
        probe.part(|| send(0));
        assert_eq!(probe.counts().collect::<Vec<_>>(), [Some(3), Some(0)]);
        assert_eq!(probe.micros().count(), 0);
    }

    #[test]
    fn without_offices_nothing_is_counted() {
        let counter: RequestCounter = Box::new(|| None);
        let mut probe = Probe::counter(&counter, Duration::ZERO);
        probe.part(|| ());
        assert_eq!(probe.counts().collect::<Vec<_>>(), [None]);
    }
}
