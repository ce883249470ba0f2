//! Medians and spreads.

/// What one round measured of one variant, for each call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Wall time, ns.
    pub wall_ns: f64,
    /// CPU time of the calling thread, ns.
    pub cpu_ns: f64,
}

/// Values of one quantity, one from each round.
#[derive(Clone, Debug, Default)]
pub struct Sample(Vec<f64>);

impl Sample {
    /// Adds a value.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The value that the share `share` of all values does not exceed; NaN when there is none.
    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
        let at = share * last as f64;
        let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
        below + (above - below) * at.fract()
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// Median and quartiles as text: `812 (804–830)`.
    pub fn shown(&self) -> String {
        let [low, median, high] = [0.25, 0.5, 0.75].map(|share| number(self.quantile(share)));
        format!("{median} ({low}–{high})")
    }
}

impl FromIterator<f64> for Sample {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

/// The costs of one variant, round by round.
#[derive(Clone, Debug, Default)]
pub struct Series(Vec<Cost>);

impl Series {
    /// No rounds yet.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a round.
    pub fn push(&mut self, cost: Cost) {
        self.0.push(cost);
    }

    /// Wall times.
    pub fn wall(&self) -> Sample {
        self.0.iter().map(|cost| cost.wall_ns).collect()
    }

    /// CPU times.
    pub fn cpu(&self) -> Sample {
        self.0.iter().map(|cost| cost.cpu_ns).collect()
    }

    /// What this variant costs more than `base`, each round against the same round.
    pub fn above(&self, base: &Self) -> Self {
        let pairs = self.0.iter().zip(&base.0);
        let difference = |(own, base): (&Cost, &Cost)| Cost {
            wall_ns: own.wall_ns - base.wall_ns,
            cpu_ns: own.cpu_ns - base.cpu_ns,
        };
        Self(pairs.map(difference).collect())
    }
}

/// A number with as many digits as it deserves.
pub fn number(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        medium if medium >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A ratio; `?` when there is nothing to divide by.
pub fn ratio(value: f64, base: f64) -> String {
    if base > 0.0 { format!("{:.3}", value / base) } else { "?".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles_lie_between_the_values() {
        let sample: Sample = [5.0, 1.0, 3.0, 2.0, 4.0].into_iter().collect();
        assert_eq!(sample.median(), 3.0);
        assert_eq!(sample.shown(), "3.00 (2.00–4.00)");
        let even: Sample = [1.0, 2.0].into_iter().collect();
        assert_eq!(even.median(), 1.5);
        assert!(Sample::default().median().is_nan());
    }

    #[test]
    fn rounds_are_compared_with_their_own_base() {
        let series = |costs: &[f64]| {
            let mut series = Series::default();
            costs.iter().for_each(|&ns| series.push(Cost { wall_ns: ns, cpu_ns: ns / 2.0 }));
            series
        };
        let above = series(&[110.0, 220.0, 130.0]).above(&series(&[10.0, 100.0, 20.0]));
        assert_eq!((above.wall().median(), above.cpu().median()), (110.0, 55.0));
    }

    #[test]
    fn a_ratio_needs_a_base() {
        assert_eq!(ratio(5.0, 4.0), "1.250");
        assert_eq!(ratio(5.0, -1.0), "?");
    }
}
