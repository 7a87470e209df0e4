//! Words that sound like some, for names and texts.

use pelago_random::Random;

const BEGINS: [&str; 20] = [
    "b", "br", "c", "d", "dr", "f", "g", "gr", "h", "k", "l", "m", "n", "p", "r", "s", "st", "t",
    "tr", "w",
];
const MIDDLES: [&str; 10] = ["a", "e", "i", "o", "u", "ea", "ai", "oo", "ou", "ie"];
const ENDS: [&str; 10] = ["", "", "", "n", "r", "l", "s", "t", "nd", "ck"];

/// Different words, and for each the share of texts that use it: the word of rank *n* is used 1/*n*
/// times as often as the first one (Zipf).
#[derive(Debug)]
pub(crate) struct Vocabulary {
    words: Vec<String>,
    /// The sum of the weights up to each word, in units of 2⁻³² of the first one's.
    sums: Vec<u64>,
}

impl Vocabulary {
    /// Returns this number of words.
    pub(crate) fn new(seed: u64, count: usize) -> Self {
        let mut random = Random::new(seed);
        let mut seen = std::collections::HashSet::new();
        let mut words = Vec::with_capacity(count);
        while words.len() < count {
            let syllables = 2 + random.index(2);
            let word: String = (0..syllables).map(|_| syllable(&mut random)).collect();
            if seen.insert(word.clone()) {
                words.push(word);
            }
        }
        let weights = (1..=count as u64).map(|rank| (1 << 32) / rank);
        let sums = weights.scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        });
        Self { words, sums: sums.collect() }
    }

    /// Returns the word of a rank, the most frequent one first.
    pub(crate) fn word(&self, rank: usize) -> &str {
        &self.words[rank % self.words.len()]
    }

    /// Returns one of the words, all equally often.
    pub(crate) fn any(&self, random: &mut Random) -> usize {
        random.index(self.words.len())
    }

    /// Returns the rank of a word, each as often as it is used.
    pub(crate) fn used(&self, random: &mut Random) -> usize {
        let at = random.below(self.sums.last().copied().unwrap_or(0));
        self.sums.partition_point(|sum| *sum <= at)
    }
}

fn syllable(random: &mut Random) -> String {
    [&BEGINS[..], &MIDDLES, &ENDS].map(|parts| parts[random.index(parts.len())]).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_word_is_used_half_as_often_as_the_first() {
        let vocabulary = Vocabulary::new(1, 100);
        let mut random = Random::new(2);
        let mut counts = [0; 100];
        (0..100_000).for_each(|_| counts[vocabulary.used(&mut random)] += 1);
        let ratio = f64::from(counts[1]) / f64::from(counts[0]);
        assert!((0.45..0.55).contains(&ratio), "{ratio}");
        assert!(counts.iter().all(|count| *count > 0));
    }
}
