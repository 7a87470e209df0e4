//! The chance that a block cannot be rebuilt, and the repair that makes it small enough.

use pelago_wire::limits;

/// The residual loss of a block that a caller waits for, at most: one block of a thousand million.
pub const RESIDUAL: f64 = 1e-9;

/// Returns the chance that more than `repair` of `packets` + `repair` datagrams are lost, each with
/// the chance `loss`, independently. As many as `repair` losses can always be rebuilt.
#[must_use]
pub fn residual(packets: usize, repair: usize, loss: f64) -> f64 {
    let loss = loss.clamp(0.0, 1.0);
    if loss >= 1.0 {
        return 1.0;
    }
    let sent = packets + repair;
    // The chances of 0, 1, 2, … lost ones (binomial), of which those above `repair` count.
    let mut chance = (1.0 - loss).powi(i32::try_from(sent).unwrap_or(i32::MAX));
    let mut sum = 0.0;
    for lost in 0..sent {
        chance *= (sent - lost) as f64 / (lost + 1) as f64 * loss / (1.0 - loss);
        if lost >= repair {
            sum += chance;
        }
    }
    sum
}

/// Returns the least number of repair packets with which the residual loss is at most
/// [`RESIDUAL`], or [`limits::BLOCK_REPAIR_PACKETS`] if no such number is enough.
#[must_use]
pub fn least_repair(packets: usize, loss: f64) -> usize {
    let enough = |repair: &usize| residual(packets, *repair, loss) <= RESIDUAL;
    (1..limits::BLOCK_REPAIR_PACKETS).find(enough).unwrap_or(limits::BLOCK_REPAIR_PACKETS)
}
