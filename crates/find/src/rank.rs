//! BM25 ranking of texts by the words of a query.

/// The weight of further occurrences of a word, as usual for BM25.
const K1: f64 = 1.2;
/// The weight of the length of a text, as usual for BM25.
const B: f64 = 0.75;

/// The average length of a text in words that a score without other texts assumes.
const USUAL_LENGTH: f64 = 256.0;

/// The counts of words in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextCounts<'a> {
    /// The number of occurrences of each word of the query, in the same order for all texts.
    pub frequencies: &'a [u32],
    /// The number of words of the text.
    pub length: u32,
}

/// Ranks texts by their BM25 scores. Returns the index of each in `texts` and its score, the
/// highest score first, and equal scores in the order of `texts`.
///
/// The rarity of a word and the average length of a text are computed from exactly these texts. So
/// the caller passes only texts that the user may read, and no other file can change the result.
#[must_use]
pub fn rank(texts: &[TextCounts<'_>]) -> Vec<(usize, f64)> {
    let weights = weights(texts);
    let lengths: f64 = texts.iter().map(|text| f64::from(text.length)).sum();
    let mut ranked: Vec<(usize, f64)> = texts
        .iter()
        .map(|text| {
            // If no text has a word, there is no average length, and all lengths are equal.
            let length = f64::from(text.length) * texts.len() as f64;
            let relative = if lengths > 0.0 { length / lengths } else { 1.0 };
            let scores = text.frequencies.iter().zip(&weights);
            scores.map(|(frequency, weight)| weight * score(*frequency, relative)).sum()
        })
        .enumerate()
        .collect();
    // The sort is stable.
    ranked.sort_by(|(_, one), (_, two)| two.total_cmp(one));
    ranked
}

/// Returns a score of one text that depends on no other text: as in [`rank`], if all words were
/// equally rare and texts had 256 words on average.
///
/// It selects from many texts the texts that are worth ranking.
#[must_use]
pub fn score_alone(text: TextCounts<'_>) -> f64 {
    let relative = f64::from(text.length) / USUAL_LENGTH;
    text.frequencies.iter().map(|frequency| score(*frequency, relative)).sum()
}

/// Returns the score of a text for one word that it has `frequency` times.
///
/// `relative` is the length of the text divided by the average length.
fn score(frequency: u32, relative: f64) -> f64 {
    let frequency = f64::from(frequency);
    frequency * (K1 + 1.0) / (frequency + K1 * (1.0 - B + B * relative))
}

/// Returns the weight of each word: a rare word has a high weight.
fn weights(texts: &[TextCounts<'_>]) -> Vec<f64> {
    let words = texts.iter().map(|text| text.frequencies.len()).max().unwrap_or(0);
    let weight = |word: usize| {
        let has =
            |text: &&TextCounts<'_>| text.frequencies.get(word).is_some_and(|count| *count > 0);
        let having = texts.iter().filter(has).count() as f64;
        (1.0 + (texts.len() as f64 - having + 0.5) / (having + 0.5)).ln()
    };
    (0..words).map(weight).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    type Text = ([u32; 3], u32);

    fn ranked(texts: &[Text]) -> Vec<(usize, f64)> {
        let counts = |(frequencies, length): &'_ Text| (*frequencies, *length);
        let texts: Vec<_> = texts.iter().map(counts).collect();
        let counts =
            texts.iter().map(|(frequencies, length)| TextCounts { frequencies, length: *length });
        rank(&counts.collect::<Vec<_>>())
    }

    fn places(texts: &[Text]) -> Vec<usize> {
        ranked(texts).into_iter().map(|(place, _)| place).collect()
    }

    /// Returns the score of each text, in the order of the texts.
    fn scores(texts: &[Text]) -> Vec<f64> {
        let mut ranked = ranked(texts);
        ranked.sort_by_key(|(place, _)| *place);
        ranked.into_iter().map(|(_, score)| score).collect()
    }

    #[test]
    fn scores_are_those_of_the_literature() {
        // Three texts of a mean length of 20, of which two have the word.
        let found = scores(&[([2, 0, 0], 10), ([1, 0, 0], 30), ([0, 0, 0], 20)]);
        let weight = (1.0 + 1.5 / 2.5_f64).ln();
        let expected = [
            weight * 2.0 * 2.2 / (2.0 + 1.2 * (0.25 + 0.75 * 0.5)),
            weight * 2.2 / (1.0 + 1.2 * (0.25 + 0.75 * 1.5)),
            0.0,
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
    }

    #[test]
    fn frequent_words_short_texts_and_rare_words_come_first() {
        assert_eq!(places(&[([1, 0, 0], 100), ([5, 0, 0], 100)]), [1, 0]);
        assert_eq!(places(&[([1, 0, 0], 100), ([1, 0, 0], 10)]), [1, 0]);
        assert_eq!(places(&[([1, 0, 0], 9), ([1, 0, 0], 9), ([0, 1, 0], 9)]), [2, 0, 1]);
    }

    #[test]
    fn a_long_text_with_many_of_the_words_is_worth_more_than_a_short_one_with_few() {
        let alone = |(frequencies, length): Text| {
            score_alone(TextCounts { frequencies: &frequencies, length })
        };
        assert!(alone(([200, 0, 0], 10_000)) > alone(([1, 0, 0], 10)));
        assert!(alone(([1, 0, 0], 10)) > alone(([1, 0, 0], 100)));
        assert!(alone(([1, 1, 0], 100)) > alone(([2, 0, 0], 100)));
        let expected = 2.2 / (1.0 + 1.2 * (0.25 + 0.75 * 0.5));
        assert!((alone(([1, 0, 0], 128)) - expected).abs() < 1e-12);
    }

    #[test]
    fn equal_texts_stay_in_their_order() {
        assert_eq!(places(&[([1, 1, 0], 7); 5]), [0, 1, 2, 3, 4]);
        assert_eq!(places(&[([0, 0, 0], 0); 3]), [0, 1, 2]);
        assert!(places(&[]).is_empty());
    }

    fn text() -> impl Strategy<Value = Text> {
        let count = || prop_oneof![Just(0), 1..20_u32, any::<u32>(), Just(u32::MAX)];
        ([count(), count(), count()], count())
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 1000,
            failure_persistence: None,
            rng_seed: RngSeed::Fixed(1),
            ..ProptestConfig::default()
        })]

        #[test]
        fn each_text_has_one_place_and_a_finite_score(texts in vec(text(), 0..30)) {
            let ranked = ranked(&texts);
            prop_assert!(ranked.iter().all(|(_, score)| score.is_finite() && *score >= 0.0));
            prop_assert!(ranked.is_sorted_by(|(_, one), (_, two)| one >= two));
            let mut places: Vec<usize> = ranked.into_iter().map(|(place, _)| place).collect();
            places.sort_unstable();
            prop_assert_eq!(places, (0..texts.len()).collect::<Vec<_>>());
        }

        #[test]
        fn a_word_more_never_lowers_a_score(
            texts in vec(text(), 1..10),
            place in any::<prop::sample::Index>(),
            word in 0..3_usize,
            more in 1..1000_u32,
        ) {
            let place = place.index(texts.len());
            let mut with = texts.clone();
            with[place].0[word] = with[place].0[word].saturating_add(more);
            let before = scores(&texts)[place];
            let after = scores(&with)[place];
            let rounding = before * 1e-12;
            prop_assert!(after + rounding >= before, "{} {}", before, after);
        }
    }
}
