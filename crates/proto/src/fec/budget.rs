//! The share of a link that repair packets may have: a third over any second.
//!
//! It is a bucket of tokens (RFC 2697 has such ones): it holds those of a quarter of a second, and
//! three quarters flow in during a second. A window of a second that began with a full bucket has
//! no more than a third of the link, and one that is used up waits for milliseconds, not for the
//! rest of a second.

use std::time::Duration;

/// The share of a link, as a divisor.
const SHARE: u64 = 3;
/// The part of a second's tokens that the bucket holds, as a divisor.
const HELD: u64 = 4;
/// Bytes per second of a link that is slower, or of which nothing is known.
const SLOWEST: u64 = 30_000;

/// Tokens, in bytes.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes per second of the link.
    rate: u64,
    tokens: u64,
    filled: Duration,
}

impl Budget {
    /// Returns a full bucket of a link of which nothing is known.
    pub(super) const fn new() -> Self {
        Self { rate: SLOWEST, tokens: SLOWEST / SHARE / HELD, filled: Duration::ZERO }
    }

    /// Sets the rate of the link, in bytes per second. The bucket stays as full as it is.
    pub(super) fn set_rate(&mut self, now: Duration, rate: u64) {
        self.fill(now);
        let tokens = u128::from(self.tokens);
        let before = u128::from(self.most());
        self.rate = rate.max(SLOWEST);
        let tokens = tokens * u128::from(self.most()) / before.max(1);
        self.tokens = u64::try_from(tokens).unwrap_or(u64::MAX).min(self.most());
    }

    /// Returns whether there are tokens for so many bytes, or the bucket is full.
    pub(super) fn has(&mut self, now: Duration, bytes: usize) -> bool {
        self.fill(now);
        self.tokens >= self.needed(bytes)
    }

    /// Returns when there are tokens for so many bytes.
    pub(super) fn when(&mut self, now: Duration, bytes: usize) -> Duration {
        self.fill(now);
        let lacking = self.needed(bytes).saturating_sub(self.tokens);
        now + Duration::from_nanos(lacking.saturating_mul(1_000_000_000).div_ceil(self.inflow()))
    }

    /// Takes the tokens of so many bytes, or all.
    pub(super) const fn take(&mut self, bytes: usize) {
        self.tokens = self.tokens.saturating_sub(bytes as u64);
    }

    fn needed(&self, bytes: usize) -> u64 {
        self.most().min(bytes as u64)
    }

    /// Adds the tokens of the time since it was filled.
    fn fill(&mut self, now: Duration) {
        let nanos = now.saturating_sub(self.filled).as_nanos().min(1_000_000_000) as u64;
        let tokens = (u128::from(nanos) * u128::from(self.inflow()) / 1_000_000_000) as u64;
        // Less than a token stays for the next time.
        if tokens > 0 || self.tokens >= self.most() {
            self.filled = now;
            self.tokens = self.tokens.saturating_add(tokens).min(self.most());
        }
    }

    const fn most(&self) -> u64 {
        self.rate / SHARE / HELD
    }

    /// Returns the tokens of a second.
    const fn inflow(&self) -> u64 {
        self.rate / SHARE - self.most()
    }
}
