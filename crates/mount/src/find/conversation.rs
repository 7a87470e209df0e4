//! The conversation through one open control file: a question is written, and its answer is read.
//!
//! This file does no I/O: it says which page of the answer is needed. A read for which no records
//! are left needs the next page, so no more than one page is in memory.

use std::mem;

use pelago_fuse::Errno;
use pelago_wire::{Asker, Error, Search, SearchPage, SearchPlace, TagPage, Tags, limits};

use super::question::Question;
use super::records;

/// The state of one open.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// `None` before the first question.
    question: Option<Question>,
    /// Records of the answer, of which the first `given` bytes were read.
    records: Vec<u8>,
    given: usize,
    next: Next,
    /// The most files of the next page; 0 before the first.
    hits: u32,
    examined: u64,
}

/// The most files of the first page.
const FIRST_HITS: u32 = 128;

/// The continuation of the answer after `records`.
#[derive(Debug, Default, PartialEq, Eq)]
enum Next {
    /// None: no question was written.
    #[default]
    NoQuestion,
    /// The page after this place.
    Page(Option<SearchPlace>),
    /// A page that was requested and has not come yet.
    Asked,
    /// None: the answer is complete.
    End,
}

/// The next step of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// These bytes are its reply.
    Give(Vec<u8>),
    /// The reply needs this page; [`Conversation::page`] takes it, then the read is tried again.
    Ask(Search),
    /// The reply needs these tags; [`Conversation::tags`] takes them, then the read is tried again.
    AskTags(Tags),
}

impl Conversation {
    /// Begins with a question, and drops the answer to the question before.
    ///
    /// # Errors
    /// `E2BIG` if the question is too long, `EINVAL` if it is malformed; the next read says why.
    /// `EBUSY` if a read waits.
    pub(super) fn write(&mut self, text: &[u8]) -> Result<(), Errno> {
        if self.next == Next::Asked {
            return Err(Errno::BUSY);
        }
        *self = Self::default();
        match Question::parse(text) {
            Ok(question) => {
                self.question = Some(question);
                self.next = Next::Page(None);
                Ok(())
            }
            Err(wrong) => {
                self.fail(&wrong.says);
                Err(wrong.errno)
            }
        }
    }

    /// Returns the next step of a read of up to `size` bytes.
    ///
    /// # Errors
    /// `EINVAL` if no question was written, `EBUSY` if another read waits.
    pub(super) fn read(&mut self, size: usize, asker: &Asker) -> Result<Step, Errno> {
        let rest = &self.records[self.given..];
        if !rest.is_empty() {
            let part = rest[..rest.len().min(size)].to_vec();
            self.given += part.len();
            if self.given == self.records.len() {
                self.records = Vec::new();
                self.given = 0;
            }
            return Ok(Step::Give(part));
        }
        match (&self.question, mem::replace(&mut self.next, Next::Asked)) {
            (Some(Question::Files(query)), Next::Page(after)) => Ok(Step::Ask(Search {
                query: query.clone(),
                hits: self.next_hits(),
                after,
                asker: asker.clone(),
            })),
            (Some(Question::Tags { key, prefix }), Next::Page(_)) => Ok(Step::AskTags(Tags {
                key: key.clone(),
                prefix: prefix.clone(),
                asker: asker.clone(),
            })),
            (_, Next::Asked) => Err(Errno::BUSY),
            (_, Next::End) => {
                self.next = Next::End;
                Ok(Step::Give(Vec::new()))
            }
            (_, Next::NoQuestion | Next::Page(_)) => {
                self.next = Next::NoQuestion;
                Err(Errno::INVAL)
            }
        }
    }

    /// Returns the limit of files on the next page: few on the first, since a program may want no
    /// more, and more on each further one.
    fn next_hits(&mut self) -> u32 {
        let hits = self.hits.max(FIRST_HITS);
        self.hits = hits.saturating_mul(8).min(limits::PAGE_HITS);
        hits
    }

    /// Takes the page that a read has requested.
    pub(super) fn page(&mut self, page: Result<SearchPage, Error>) {
        let page = match page {
            Ok(page) => page,
            Err(error) => return self.fail(error.code.says()),
        };
        self.examined = self.examined.saturating_add(page.examined);
        page.hits.iter().for_each(|hit| records::hit(&mut self.records, hit));
        self.next = match page.after {
            Some(after) => {
                records::progress(&mut self.records, self.examined);
                Next::Page(Some(after))
            }
            None => {
                records::end(&mut self.records, page.as_of, self.examined);
                Next::End
            }
        };
    }

    /// Takes the keys or values that a read has requested.
    pub(super) fn tags(&mut self, page: Result<TagPage, Error>) {
        let TagPage { parts, as_of, more } = match page {
            Ok(page) => page,
            Err(error) => return self.fail(error.code.says()),
        };
        let is_key = matches!(self.question, Some(Question::Tags { key: None, .. }));
        let word = if is_key { "tag" } else { "value" };
        parts.iter().for_each(|part| records::part(&mut self.records, word, part));
        if more {
            records::more(&mut self.records);
        }
        records::end(&mut self.records, as_of, parts.len() as u64);
        self.next = Next::End;
    }

    fn fail(&mut self, message: &str) {
        records::error(&mut self.records, message);
        self.next = Next::End;
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::{Code, FileKind, Hit, InodeId, SearchAt, Time};

    use super::*;

    const NOW: Time = Time { seconds: 9, nanos: 1 };

    fn page(names: &[&str], after: Option<u32>) -> SearchPage {
        let hit = |name: &&str| Hit {
            ino: InodeId::from_raw(1),
            kind: FileKind::Directory,
            path: name.as_bytes().to_vec(),
        };
        let after = after.map(|rank| SearchPlace { now: NOW, at: SearchAt::Rank(rank) });
        SearchPage { hits: names.iter().map(hit).collect(), as_of: NOW, after, examined: 4 }
    }

    fn give(conversation: &mut Conversation, size: usize) -> Vec<u8> {
        match conversation.read(size, &Asker::default()).unwrap() {
            Step::Give(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    fn ask(conversation: &mut Conversation) -> Search {
        match conversation.read(100, &Asker::default()).unwrap() {
            Step::Ask(search) => search,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_is_read_page_by_page_in_pieces_of_any_size() {
        let mut open = Conversation::default();
        open.write(b" a=b  and c=d\n").unwrap();
        assert_eq!(ask(&mut open).query, b"a=b c=d");
        open.page(Ok(page(&["x", "y"], Some(3))));
        assert_eq!(give(&mut open, 9), b"hit dir 1");
        assert_eq!(give(&mut open, 100), b" x\0hit dir 1 y\0progress 4\0");
        let search = ask(&mut open);
        assert_eq!(search.after.unwrap().at, SearchAt::Rank(3));
        open.page(Ok(page(&[], Some(3))));
        assert_eq!(give(&mut open, 100), b"progress 8\0", "so that the reader can go on");
        ask(&mut open);
        open.page(Ok(page(&[], None)));
        assert_eq!(give(&mut open, 100), b"end 9.000000001 12\0");
        assert_eq!((give(&mut open, 100), give(&mut open, 100)), (Vec::new(), Vec::new()));
        open.write(b"e=f").unwrap();
        assert_eq!(ask(&mut open).after, None, "another query begins anew");
    }

    #[test]
    fn tags_come_on_one_page() {
        let mut open = Conversation::default();
        let asker = Asker { groups: vec![7], reads_all: false };
        let page = |parts: &[&[u8]], more| {
            Ok(TagPage {
                parts: parts.iter().map(|part| part.to_vec()).collect(),
                as_of: NOW,
                more,
            })
        };
        open.write(b"?tags pro").unwrap();
        let wanted = Tags { key: None, prefix: b"pro".to_vec(), asker: asker.clone() };
        assert_eq!(open.read(9, &asker), Ok(Step::AskTags(wanted)));
        assert_eq!(open.read(9, &asker), Err(Errno::BUSY));
        open.tags(page(&[b"project"], false));
        assert_eq!(give(&mut open, 100), b"tag project\0end 9.000000001 1\0");
        assert_eq!(give(&mut open, 100), b"");
        open.write(b"?values k ").unwrap();
        let wanted = Tags { key: Some(b"k".to_vec()), prefix: Vec::new(), asker: asker.clone() };
        assert_eq!(open.read(9, &asker), Ok(Step::AskTags(wanted)));
        open.tags(page(&[b"", b"a b", b"a\0b"], true));
        let text = b"value \0value a b\0more\0end 9.000000001 3\0";
        assert_eq!(give(&mut open, 100), text);
        open.write(b"?tags").unwrap();
        assert!(matches!(open.read(9, &asker), Ok(Step::AskTags(_))));
        open.tags(Err(Code::Busy.into()));
        assert_eq!(give(&mut open, 100), b"error busy, try again\0");
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut open = Conversation::default();
        let asker = Asker::default();
        assert_eq!(open.read(9, &asker), Err(Errno::INVAL));
        assert_eq!(open.read(9, &asker), Err(Errno::INVAL), "still");
        assert_eq!(open.write(b"size>many"), Err(Errno::INVAL));
        let said = give(&mut open, 1000);
        assert!(said.starts_with(b"error ") && said.ends_with(b"\0"), "{}", said.escape_ascii());
        assert_eq!(give(&mut open, 9), b"");
        assert_eq!(open.write(&vec![b' '; limits::QUERY_BYTES + 1]), Err(Errno::TOOBIG));
        open.write(b"a=b").unwrap();
        ask(&mut open);
        assert_eq!(open.write(b"a=c"), Err(Errno::BUSY), "a read waits");
        assert_eq!(open.read(9, &asker), Err(Errno::BUSY));
        open.page(Err(Code::AccessDenied.into()));
        assert_eq!(give(&mut open, 100), b"error access denied\0");
        assert_eq!(give(&mut open, 100), b"");
    }
}
