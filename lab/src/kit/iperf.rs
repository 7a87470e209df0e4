//! The rate of TCP between two network namespaces, as iperf3 measures it.

use std::process::Child;
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// The attempts of the client: its server may not listen yet.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// A server of iperf3, killed on drop.
pub(crate) struct IperfServer(pub(crate) Child);

impl IperfServer {
    /// Returns the bits that arrive in a second; `client` runs the client of iperf3 to its end,
    /// and returns its JSON.
    ///
    /// # Errors
    /// The error of the client at its last attempt; JSON without a sum.
    pub(crate) fn measure(
        &self,
        mut client: impl FnMut() -> Result<String, String>,
    ) -> Result<f64, String> {
        let mut last = String::new();
        for _ in 0..TRIES {
            match client() {
                Ok(said) => {
                    let said: Value =
                        serde_json::from_str(&said).map_err(|why| format!("iperf3: {why}"))?;
                    let bits = said["end"]["sum_received"]["bits_per_second"].as_f64();
                    return bits.ok_or_else(|| "iperf3 has no sum".to_owned());
                }
                Err(why) => last = why,
            }
            thread::sleep(PAUSE);
        }
        Err(last)
    }
}

impl Drop for IperfServer {
    fn drop(&mut self) {
        // The server may have ended.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}
