//! The questions about a corpus, with the number of files that each means.

use std::collections::HashMap;

use super::corpus::{Content, Corpus, OLD, Planned};

/// Files that are read of a long answer.
const FIRST: u64 = 100;
/// Bytes above which a file is large, as a query writes them, and as a number.
const LARGE: (&str, u64) = ("4K", 4 << 10);
/// The ranks of words in texts: used seldom, sometimes, and often.
const RANKS: [(&str, usize); 3] = [("low", 12_000), ("middle", 800), ("high", 10)];
/// The word and the extension of the pattern.
const PATTERN: (usize, &str) = (17, ".pdf");

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// Its name in reports.
    pub name: String,
    /// The query.
    pub query: String,
    /// Files that are read.
    pub hits: u64,
    /// Files that it means.
    pub all: u64,
    pub(super) form: Form,
    /// The longest time that it should take, in milliseconds.
    pub goal_ms: Option<f64>,
}

/// The way of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Through the control file; to the end, or to `most` files.
    Control { most: Option<u64> },
    /// By the listing of a folder.
    Folder,
}

/// Returns the questions. It goes through the whole corpus to count.
pub(super) fn questions(corpus: &Corpus) -> Vec<Question> {
    let word = corpus.name_word(PATTERN.0);
    let extension = PATTERN.1;
    let single = corpus.file(corpus.single()).name;
    let mut counts = Counts::default();
    for file in corpus.all() {
        counts.names += u64::from(file.name == single);
        counts.pattern += u64::from(file.name.contains(word) && file.name.ends_with(extension));
        counts.old += u64::from(is_large_and_old(corpus, &file));
        counts.states += u64::from(file.tags.iter().any(|(key, _)| *key == "state"));
        for (name, rank) in RANKS {
            let has = matches!(&file.content, Content::Words(ranks) if ranks.contains(&rank));
            *counts.words.entry(name).or_default() += u64::from(has);
        }
    }
    let to_end = |name: &str, query: String, all: u64, goal_ms: Option<f64>| Question {
        name: name.to_owned(),
        query,
        hits: all,
        all,
        form: Form::Control { most: None },
        goal_ms,
    };
    let first = |question: Question| Question {
        hits: question.all.min(FIRST),
        form: Form::Control { most: Some(FIRST) },
        ..question
    };
    let state = || to_end("tag of 1 % of files, all", "state=review".into(), counts.states, None);
    let mut questions = vec![
        to_end("tag, 1 file of all", "project=single".into(), 1, Some(1.0)),
        to_end("tag, 1 of 100 distinct", "distinct=v42".into(), 1, None),
        to_end("tag, 99 alike of 100", "alike=same".into(), 99, None),
        to_end("tag, 1 different of 100", "alike=other".into(), 1, None),
        Question { name: "tag of 1 % of files, first 100".into(), ..first(state()) },
        state(),
        to_end("name", format!("name={single}"), counts.names, None),
        to_end("pattern", format!("name~*{word}*{extension}"), counts.pattern, Some(50.0)),
        to_end(
            "size, kind and time",
            format!("kind=file size>{} mtime<2021-01-01", LARGE.0),
            counts.old,
            None,
        ),
    ];
    for (name, rank) in RANKS {
        let query = format!("text:{}", corpus.text_word(rank));
        let all = counts.words[name];
        let name = format!("ranked text, {name} frequency, first 100");
        questions.push(first(to_end(&name, query, all, Some(30.0))));
    }
    let folder = to_end("folder in a folder of a query", "alike=same".into(), 99, None);
    questions.push(Question { form: Form::Folder, ..folder });
    questions
}

#[derive(Default)]
struct Counts {
    names: u64,
    pattern: u64,
    old: u64,
    states: u64,
    words: HashMap<&'static str, u64>,
}

fn is_large_and_old(corpus: &Corpus, file: &Planned) -> bool {
    file.changed.is_some_and(|changed| changed >= OLD) && file.content.size(corpus) > LARGE.1
}
