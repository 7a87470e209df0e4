//! The corpus: the files that are searched. Each follows from its number and the seed alone.

use pelago_random::Random;

use crate::vocabulary::Vocabulary;

/// Files of one folder, and folders of one folder.
pub(super) const FOLDER_FILES: u64 = 100;
/// One file of this number has a text.
const TEXT_EVERY: u64 = 10;
/// One file of this number has the tag `state`.
const STATE_EVERY: u64 = 100;
/// One file of this number is large.
const LARGE_EVERY: u64 = 1000;
/// Files with Ringer's tags.
const RINGER_FILES: u64 = 100;
/// Bytes of the largest of most files.
const SMALL_BYTES: u64 = 200;
/// Words of a text.
const TEXT_WORDS: usize = 50;
/// Words of which names are made, and texts.
const NAME_WORDS: usize = 1000;
const ALL_WORDS: usize = 20_000;
const EXTENSIONS: [&str; 8] = ["pdf", "jpg", "png", "doc", "tif", "csv", "log", "dat"];
/// The extensions of texts.
const TEXT_EXTENSIONS: [&str; 2] = ["txt", "md"];
/// 2020-01-01, and a day, in seconds.
pub(super) const OLD: i64 = 1_577_836_800;
const DAY: i64 = 86_400;

/// All files of a corpus.
#[derive(Debug)]
pub struct Corpus {
    pub(super) files: u64,
    pub(super) seed: u64,
    name_words: Vocabulary,
    text_words: Vocabulary,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) content: Content,
    /// Keys and values of its tags.
    pub(super) tags: Vec<(&'static str, String)>,
    /// The time of its change, in seconds since 1970; `None` for now.
    pub(super) changed: Option<i64>,
}

/// The content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Bytes that are no text; their number.
    Bytes(u64),
    /// Words of these ranks.
    Words(Vec<usize>),
}

impl Corpus {
    /// Returns the corpus of a seed.
    #[must_use]
    pub fn new(files: u64, seed: u64) -> Self {
        let name_words = Vocabulary::new(seed ^ 0x6e61, NAME_WORDS);
        Self { files, seed, name_words, text_words: Vocabulary::new(seed ^ 0x7478, ALL_WORDS) }
    }

    /// Returns the folder of a file, by names of folders inside each other.
    pub(super) fn folder(&self, number: u64) -> [String; 2] {
        let inner = number / FOLDER_FILES;
        let outer = inner / FOLDER_FILES;
        let name = |number: u64, salt: u64| {
            let mut random = Random::new(self.seed ^ salt ^ number.wrapping_mul(0x9e37_79b9));
            let word = self.name_words.word(self.name_words.any(&mut random));
            format!("{word}-{number}")
        };
        [name(outer, 1), name(inner, 2)]
    }

    /// Returns a file.
    pub(super) fn file(&self, number: u64) -> Planned {
        let mut random = Random::new(self.seed.wrapping_mul(0x1_0001).wrapping_add(number));
        let words = [(); 2].map(|()| self.name_words.any(&mut random));
        let words = words.map(|rank| self.name_words.word(rank));
        let is_text = number % TEXT_EVERY == 3;
        let is_large = number % LARGE_EVERY == 7;
        let extension = match is_text {
            true => TEXT_EXTENSIONS[random.index(2)],
            false => EXTENSIONS[random.index(EXTENSIONS.len())],
        };
        let content = match (is_text, is_large) {
            (true, _) => {
                let words = 0..TEXT_WORDS / 2 + random.index(TEXT_WORDS);
                Content::Words(words.map(|_| self.text_words.used(&mut random)).collect())
            }
            (false, true) => Content::Bytes(1024 + random.below(7 << 10)),
            (false, false) => Content::Bytes(random.below(SMALL_BYTES + 1)),
        };
        let is_old = is_large && number / LARGE_EVERY % 2 == 1;
        Planned {
            name: format!("{}-{}-{:04}.{extension}", words[0], words[1], number % 10_000),
            content,
            tags: self.tags(number),
            changed: is_old.then(|| OLD + DAY * random.below(300).cast_signed()),
        }
    }

    fn tags(&self, number: u64) -> Vec<(&'static str, String)> {
        let mut tags = Vec::new();
        if number == self.single() {
            tags.push(("project", "single".to_owned()));
        }
        if number % STATE_EVERY == 11 {
            tags.push(("state", "review".to_owned()));
        }
        if number < RINGER_FILES {
            tags.push(("distinct", format!("v{number}")));
            let alike = if number == RINGER_FILES / 2 { "other" } else { "same" };
            tags.push(("alike", alike.to_owned()));
        }
        tags
    }

    /// Returns the number of the one file with the tag `project`.
    pub(super) const fn single(&self) -> u64 {
        self.files / 2
    }

    /// Returns all files.
    pub(super) fn all(&self) -> impl Iterator<Item = Planned> {
        (0..self.files).map(|number| self.file(number))
    }

    /// Returns the word of a rank in texts.
    pub(super) fn text_word(&self, rank: usize) -> &str {
        self.text_words.word(rank)
    }

    /// Returns a word of names.
    pub(super) fn name_word(&self, rank: usize) -> &str {
        self.name_words.word(rank)
    }
}

impl Content {
    /// Returns the bytes. A zero among them says that they are no text.
    pub(super) fn bytes(&self, corpus: &Corpus, number: u64) -> Vec<u8> {
        match self {
            Self::Bytes(count) => {
                let length = usize::try_from(*count).unwrap_or(usize::MAX);
                let mut bytes = pelago_random::bytes_of(number, length);
                if let Some(first) = bytes.first_mut() {
                    *first = 0;
                }
                bytes
            }
            Self::Words(ranks) => {
                let mut text = Vec::new();
                for (at, rank) in ranks.iter().enumerate() {
                    text.extend_from_slice(corpus.text_word(*rank).as_bytes());
                    text.push(if at % 12 == 11 { b'\n' } else { b' ' });
                }
                text
            }
        }
    }

    /// Returns the number of bytes.
    pub(super) fn size(&self, corpus: &Corpus) -> u64 {
        match self {
            Self::Bytes(count) => *count,
            Self::Words(ranks) => {
                ranks.iter().map(|rank| corpus.text_word(*rank).len() as u64 + 1).sum()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_depends_on_its_number_and_the_seed_alone() {
        let [one, same, other] = [1, 1, 2].map(|seed| Corpus::new(1000, seed));
        assert!((0..100).all(|number| one.file(number) == same.file(number)));
        assert!((0..100).any(|number| one.file(number) != other.file(number)));
        assert_eq!(one.folder(0), one.folder(99));
        assert_ne!(one.folder(99), one.folder(100));
    }

    #[test]
    fn sizes_are_those_of_the_bytes_and_only_texts_have_no_zero() {
        let corpus = Corpus::new(1000, 1);
        for number in 0..100 {
            let content = corpus.file(number).content;
            let bytes = content.bytes(&corpus, number);
            assert_eq!(bytes.len() as u64, content.size(&corpus));
            let is_text = matches!(content, Content::Words(_));
            assert_eq!(!is_text && !bytes.is_empty(), bytes.contains(&0));
        }
    }

    #[test]
    fn the_tags_are_those_of_one_of_a_hundred_and_of_one_file_of_a_hundred() {
        let corpus = Corpus::new(1000, 1);
        let count = |key, value: &str| {
            let has = |file: &Planned| file.tags.contains(&(key, value.to_owned()));
            corpus.all().filter(has).count()
        };
        assert_eq!((count("project", "single"), count("state", "review")), (1, 10));
        assert_eq!((count("distinct", "v42"), count("alike", "same")), (1, 99));
        assert_eq!(count("alike", "other"), 1);
    }
}
