//! The numbers of a line over which groups travel in datagrams.

use pelago_net::mirror::DatagramStatus;
use serde_json::{Value, json};

use super::FromJson;

/// What is known of a line, and what was sent over it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DatagramLine {
    /// Bytes per second that it delivers; 0 if it was never full.
    bytes_per_second: u64,
    /// The upper bound of what it loses, in millionths.
    loss_ppm: u64,
    /// The mean round trip in milliseconds; `None` before the first report.
    trip_ms: Option<u64>,
    /// Data packets, each counted once.
    data: u64,
    /// Repair packets.
    repair: u64,
    /// Data packets that were sent again.
    again: u64,
}

impl DatagramLine {
    pub(super) fn to_json(self) -> Value {
        let Self { bytes_per_second, loss_ppm, trip_ms, data, repair, again } = self;
        json!({
            "bytes_per_second": bytes_per_second,
            "loss_ppm": loss_ppm,
            "trip_ms": trip_ms,
            "data": data,
            "repair": repair,
            "again": again,
        })
    }

    #[cfg(test)]
    pub(super) fn sample() -> Self {
        Self {
            bytes_per_second: 11_750_000,
            loss_ppm: 4_000,
            trip_ms: Some(50),
            data: 6_400,
            repair: 800,
            again: 2,
        }
    }
}

impl From<&DatagramStatus> for DatagramLine {
    fn from(status: &DatagramStatus) -> Self {
        let DatagramStatus { rate, loss, trip, data, repair, again, .. } = *status;
        Self {
            bytes_per_second: rate,
            // At most all of them.
            loss_ppm: (loss * 1e6) as u64,
            trip_ms: trip.map(|trip| u64::try_from(trip.as_millis()).unwrap_or(u64::MAX)),
            data,
            repair,
            again,
        }
    }
}

impl FromJson for DatagramLine {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            bytes_per_second: u64::from_json(&value["bytes_per_second"])?,
            loss_ppm: u64::from_json(&value["loss_ppm"])?,
            trip_ms: value["trip_ms"].as_u64(),
            data: u64::from_json(&value["data"])?,
            repair: u64::from_json(&value["repair"])?,
            again: u64::from_json(&value["again"])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_numbers_survive_the_socket() {
        let line = DatagramLine::sample();
        assert_eq!(DatagramLine::from_json(&line.to_json()), Some(line));
        assert_eq!(DatagramLine::from_json(&Value::Null), None);
    }

    #[test]
    fn the_numbers_are_those_of_the_line() {
        let status = DatagramStatus {
            rate: 11_750_000,
            loss: 0.004,
            trip: Some(Duration::from_micros(50_900)),
            residual: 1e-10,
            data: 6_400,
            repair: 800,
            again: 2,
            refused: 1,
        };
        assert_eq!(DatagramLine::from(&status), DatagramLine::sample());
    }
}
