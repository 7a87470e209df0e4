//! Listings.

use super::*;

#[test]
fn a_listing_is_stable_while_names_come_and_go() {
    let rig = Rig::new();
    let mut all: Vec<_> = (0..200).map(|n| format!("n{n}")).collect();
    for text in &all {
        rig.file(ROOT, text, 110);
    }
    let mut after = Cookie::START;
    let mut seen = Vec::new();
    for round in 0.. {
        let page = Page { dir: ROOT, after, behind: None, entries: 7, attributes: round % 2 == 0 };
        let (entries, end) = rig.shard.list(page).unwrap();
        after = entries.last().map_or(after, |entry| entry.cookie);
        seen.extend(entries.iter().map(|entry| entry.name.to_string()));
        rig.file(ROOT, &format!("new{round}"), 120);
        if let Some(last) = seen.last() {
            let _gone = rig.shard.unlink(ROOT, &name(last), at(130));
        }
        if end {
            break;
        }
    }
    let mut old: Vec<_> = seen.into_iter().filter(|text| !text.starts_with("new")).collect();
    old.sort();
    all.sort();
    assert_eq!(old, all);
}
