//! What an asker may not see: an answer has the same bytes, whether or not it is there.
//!
//! Two volumes have the same files that all may read, under the same inode numbers. One has others
//! too, planted to move counts, pages and ranks. Which rows are read, and so how long an answer
//! takes, may differ.

use pelago_wire::{Handle, SearchPage, SearchPlace, Time};

use super::search::{ANN_ALONE, Indexer, make_dir, move_to, page, set_mode, tag, write_again};
use crate::testing::{ROOT, Rig};

/// Queries, some of which find only what is hidden.
const QUERIES: [&str; 16] = [
    "text:reef",
    "text:coral text:reef",
    "text:reef text:abyss",
    "text:abyss",
    "text:reef not name~hidden*",
    "text:reef or name~hidden*",
    "name~hidden*",
    "name~*e*",
    "name=hidden7",
    "kind=file",
    "not name=x",
    "size<100",
    "project=reef",
    "project=reef tag:secret",
    "tag:secret",
    "owner=10 mtime<1h",
];

/// Texts of the files that all may read; equal ones have equal ranks.
const SHOWN: [&str; 9] = [
    "coral reef",
    "coral reef",
    "coral reef",
    "coral reef",
    "reef and sand",
    "sand and sand and sand and reef",
    "reef reef reef tide",
    "tide",
    "tide and coral",
];

/// A volume, and the files that change.
struct Volume {
    rig: Rig,
    files: Vec<(Handle, &'static str)>,
}

impl Volume {
    fn new(hides: bool) -> Self {
        let rig = Rig::new();
        rig.shard.set_tags_complete();
        let open = make_dir(&rig, ROOT, "open", 0o755);
        let mut files = Vec::new();
        for (number, text) in SHOWN.into_iter().enumerate() {
            let file = rig.file(&format!("shown{number}"), text.as_bytes()).handle;
            tag(&rig, file, "project", b"reef");
            files.push((file, text));
        }
        move_to(&rig, "shown8", open, "shown8");
        let mut volume = Self { rig, files };
        if hides {
            volume.hide(open);
        }
        volume
    }

    /// Plants files that are most about the words, make them frequent, and are found first; by
    /// their own modes, and by that of their folder.
    fn hide(&mut self, open: Handle) {
        let Self { rig, files } = self;
        let vault = make_dir(rig, ROOT, "hidden", 0o711);
        for number in 0..24 {
            let text = ["reef abyss", "reef reef", "coral reef", "abyss"][number % 4];
            let name = format!("hidden{number}");
            let file = rig.file(&name, text.as_bytes()).handle;
            tag(rig, file, "project", b"reef");
            tag(rig, file, "secret", name.as_bytes());
            files.push((file, text));
            if number % 3 == 0 {
                move_to(rig, &name, vault, &name);
            } else {
                set_mode(rig, file, 0o600);
            }
            if number % 3 == 1 {
                move_to(rig, &name, open, &name);
            }
        }
    }

    /// Writes all files again, so that the index does not know them until it is told.
    fn change_all(&self) {
        write_again(&self.rig, self.files.iter().copied());
    }

    /// Returns all pages of the answers to all queries, without their times.
    fn answers(&self, hits: u32) -> Vec<(&'static str, Vec<SearchPage>)> {
        let pages = |query| {
            let mut pages = Vec::new();
            let mut after = None;
            loop {
                let found = page(&self.rig, ANN_ALONE, ROOT, query, hits, after).unwrap();
                after = found.after.clone();
                let timeless = |place| SearchPlace { now: Time::default(), ..place };
                let as_of = Time::default();
                let at = found.after.map(timeless);
                pages.push(SearchPage { as_of, after: at, ..found });
                if after.is_none() {
                    return pages;
                }
            }
        };
        QUERIES.into_iter().map(|query| (query, pages(query))).collect()
    }
}

fn expect_equal_answers(hiding: &Volume, plain: &Volume, when: &str) {
    for hits in [1, 3, 100] {
        for ((query, with), (_, without)) in hiding.answers(hits).iter().zip(plain.answers(hits)) {
            assert_eq!(*with, without, "{when}: {query}, {hits} hits a page");
        }
    }
}

#[test]
fn what_is_hidden_changes_no_byte_of_an_answer() {
    let hiding = Volume::new(true);
    let plain = Volume::new(false);
    expect_equal_answers(&hiding, &plain, "by the walk");
    let mut indexers = [Indexer::new(&hiding.rig), Indexer::new(&plain.rig)];
    expect_equal_answers(&hiding, &plain, "by the index");
    [&hiding, &plain].into_iter().for_each(Volume::change_all);
    expect_equal_answers(&hiding, &plain, "beside the index");
    indexers.iter_mut().for_each(Indexer::catch_up);
    expect_equal_answers(&hiding, &plain, "by the index again");
    // What is found at all is asked elsewhere; here, that something is.
    let found = plain.answers(100);
    assert!(found.iter().filter(|(_, pages)| !pages[0].hits.is_empty()).count() > 8, "{found:?}");
}
