//! Measurements: a number per round, and that of the reference in the same rounds.

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    Bytes,
    Count,
    /// The quotient of two other measurements.
    Ratio,
}

/// The rounds of one engine under one workload.
#[derive(Clone, Debug)]
pub struct Measurement {
    pub workload: String,
    pub engine: &'static str,
    pub unit: Unit,
    /// Never empty.
    pub rounds: Vec<f64>,
    /// The numbers of the reference engine in the same rounds.
    pub reference: Option<Vec<f64>>,
}

impl Measurement {
    pub fn median(&self) -> f64 {
        median(&self.rounds)
    }

    pub fn minimum(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The ratios to the reference, round by round. A disturbance of a round affects both numbers.
    pub fn ratios(&self) -> Option<Vec<f64>> {
        self.reference.as_ref().map(|reference| ratios(&self.rounds, reference))
    }
}

/// The numbers of all engines under one workload.
pub struct Rounds {
    workload: String,
    unit: Unit,
    engines: Vec<(&'static str, Vec<f64>)>,
}

impl Rounds {
    pub fn new(workload: impl Into<String>, unit: Unit) -> Rounds {
        Rounds { workload: workload.into(), unit, engines: Vec::new() }
    }

    /// Appends the next round of an engine.
    pub fn push(&mut self, engine: &'static str, number: f64) {
        match self.engines.iter_mut().find(|(name, _)| *name == engine) {
            Some((_, rounds)) => rounds.push(number),
            None => self.engines.push((engine, vec![number])),
        }
    }

    /// The largest number of any engine in any round.
    pub fn maximum(&self) -> f64 {
        self.engines.iter().flat_map(|(_, rounds)| rounds).copied().fold(0.0, f64::max)
    }

    /// The measurements, each with that of the reference.
    pub fn measurements(self, reference: &str) -> Vec<Measurement> {
        let reference = self.engines.iter().find(|(name, _)| *name == reference).map(|(_, rounds)| rounds.clone());
        let measurement = |(engine, rounds)| Measurement {
            workload: self.workload.clone(),
            engine,
            unit: self.unit,
            rounds,
            reference: reference.clone(),
        };
        self.engines.into_iter().map(measurement).collect()
    }
}

/// The median; of an even number of values, the mean of the two in the middle.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 0 => (sorted[middle - 1] + sorted[middle]) / 2.0,
        _ => sorted[middle],
    }
}

/// The quotients, round by round.
pub fn ratios(numbers: &[f64], to: &[f64]) -> Vec<f64> {
    numbers.iter().zip(to).map(|(number, to)| number / to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    /// The median of ratios, not the ratio of medians: a slow round slows both engines.
    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut rounds = Rounds::new("hit", Unit::Nanoseconds);
        for (a, b) in [(1.0, 10.0), (20.0, 100.0), (3.0, 10.0)] {
            rounds.push("a", a);
            rounds.push("b", b);
        }
        let measurements = rounds.measurements("b");
        assert_eq!(measurements[0].ratios().unwrap(), [0.1, 0.2, 0.3]);
        assert_eq!(measurements[1].ratios().unwrap(), [1.0, 1.0, 1.0]);
        assert_eq!((measurements[0].median(), measurements[0].minimum()), (3.0, 1.0));
    }

    #[test]
    fn without_the_reference_there_are_no_ratios() {
        let mut rounds = Rounds::new("hit", Unit::Nanoseconds);
        rounds.push("a", 1.0);
        assert!(rounds.measurements("b")[0].ratios().is_none());
    }
}
