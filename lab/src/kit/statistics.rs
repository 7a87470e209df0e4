//! Medians and quartiles of measured figures.

/// Returns the median; `None` without figures.
pub(crate) fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    quantile(&sorted(figures), 0.5)
}

/// Returns the lower quartile, the median and the upper quartile; `NaN` without figures.
pub(crate) fn quartiles(figures: impl IntoIterator<Item = f64>) -> [f64; 3] {
    let sorted = sorted(figures);
    [0.25, 0.5, 0.75].map(|part| quantile(&sorted, part).unwrap_or(f64::NAN))
}

/// Returns the value at this part of the figures, from 0 to 1; `NaN` without figures.
pub(crate) fn quantile_of(figures: &[f64], part: f64) -> f64 {
    quantile(&sorted(figures.iter().copied()), part).unwrap_or(f64::NAN)
}

fn sorted(figures: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut figures: Vec<f64> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures
}

/// Returns the value at this part of sorted figures, between two of them if it falls there.
fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let at = part * sorted.len().checked_sub(1)? as f64;
    let below = sorted[at.floor() as usize];
    let above = sorted[at.ceil() as usize];
    Some(below + (above - below) * at.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_two_is_between_them() {
        assert_eq!(median([3.0, 1.0]), Some(2.0));
        assert_eq!(median([3.0, 1.0, 9.0]), Some(3.0));
        assert_eq!(median([]), None);
    }

    #[test]
    fn quartiles_are_between_the_figures_that_they_divide() {
        assert_eq!(quartiles([4.0, 1.0, 3.0, 2.0]), [1.75, 2.5, 3.25]);
        assert_eq!(quartiles([7.0]), [7.0; 3]);
        assert!(quartiles([]).iter().all(|figure| figure.is_nan()));
    }
}
