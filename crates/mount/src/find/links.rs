//! Entries of a query's folder: one symbolic link, with the file's name, for each file found.
//!
//! If several files have the same name, each of their links gets `~` and the number of its inode.
//! So the names depend on which files are found, and not on the order in which they are found.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use pelago_wire::{Hit, InodeId, Name, limits};

/// A link of the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) name: Box<[u8]>,
    /// The path of the file from the folder.
    pub(super) target: Box<[u8]>,
    /// The number of the file that was found.
    pub(super) ino: InodeId,
    /// The offset at which a listing continues after it: made of the name alone, unless another
    /// name has the same.
    pub(super) offset: u64,
}

/// All links of a folder, in the order of their offsets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Links(Vec<Link>);

/// The files that were found so far, up to the limits of a folder.
#[derive(Debug)]
pub(super) struct Found {
    /// The path from the folder to the directory that is searched, with a slash at its end.
    ups: Vec<u8>,
    hits: Vec<Hit>,
    bytes: usize,
}

/// The offset after `..`; names have higher ones.
pub(super) const AFTER_DOTS: u64 = 2;

impl Found {
    /// Returns an empty list for a folder that is `depth` folders below `.find`.
    pub(super) fn new(depth: u32) -> Self {
        // One more leads out of `.find`.
        Self { ups: b"../".repeat(depth as usize + 1), hits: Vec::new(), bytes: 0 }
    }

    /// Adds the files of a page, except those that are too deep for the target of a link. Returns
    /// whether a folder has room for more.
    pub(super) fn add(&mut self, hits: Vec<Hit>) -> bool {
        for hit in hits {
            let bytes = self.bytes + hit.path.len();
            if self.hits.len() >= limits::FIND_FOLDER_HITS || bytes > limits::FIND_FOLDER_BYTES {
                return false;
            }
            let is_near = self.ups.len() + hit.path.len() <= limits::TARGET_BYTES;
            if is_near && last_name(&hit.path).is_some() {
                self.bytes = bytes;
                self.hits.push(hit);
            }
        }
        true
    }

    /// Gives each file the name of its link.
    pub(super) fn links(self, hasher: &impl BuildHasher) -> Links {
        let link = |(name, hit): (Box<[u8]>, Hit)| {
            let offset = offset_of(&name, hasher);
            let target = [&*self.ups, &*hit.path].concat().into();
            Link { name, target, ino: hit.ino, offset }
        };
        let mut links: Vec<Link> = named(self.hits).map(link).collect();
        links.sort_unstable_by(|a, b| (a.offset, &a.name).cmp(&(b.offset, &b.name)));
        let mut last = AFTER_DOTS;
        for link in &mut links {
            link.offset = link.offset.max(last + 1);
            last = link.offset;
        }
        Links(links)
    }
}

impl Links {
    /// Returns the links after an offset.
    pub(super) fn behind(&self, offset: u64) -> &[Link] {
        &self.0[self.0.partition_point(|link| link.offset <= offset)..]
    }

    /// Returns the link of a name.
    pub(super) fn get(&self, name: &[u8], hasher: &impl BuildHasher) -> Option<&Link> {
        let first = offset_of(name, hasher);
        // Links with equal hashes have the offsets that follow.
        let from = self.0.partition_point(|link| link.offset < first);
        let near = self.0[from..].iter().zip(first..);
        near.take_while(|(link, offset)| link.offset == *offset)
            .map(|(link, _)| link)
            .find(|link| *link.name == *name)
    }
}

impl Link {
    /// Returns the number of the link that programs see: that of the file, as one of the mount.
    pub(super) fn shown_ino(&self) -> InodeId {
        InodeId::from_raw(self.ino.raw() | u64::from(InodeId::MOUNT_SITE) << 48)
    }
}

/// Returns the name at the end of a path, if it is a path.
fn last_name(path: &[u8]) -> Option<&[u8]> {
    path.split(|byte| *byte == b'/')
        .try_fold(&[][..], |_, name| Name::new(name).is_ok().then_some(name))
}

/// Gives each file a name: its own, and the number of its inode if another file has the same name.
/// If a file's own name is equal to such a numbered name, all names that look like numbered ones
/// get a number too. These two steps suffice, whatever names users choose.
fn named(mut hits: Vec<Hit>) -> impl Iterator<Item = (Box<[u8]>, Hit)> {
    hits.sort_unstable_by(|a, b| (a.ino, &a.path).cmp(&(b.ino, &b.path)));
    let plain = names_of(&hits, &vec![false; hits.len()]);
    let mut is_numbered = are_equal(&plain);
    let names = names_of(&hits, &is_numbered);
    if are_equal(&names).contains(&true) {
        let numbered = is_numbered.iter_mut().zip(&plain);
        numbered.for_each(|(is_numbered, name)| *is_numbered |= has_number(name));
    }
    let names = names_of(&hits, &is_numbered);
    // Of several paths of one file the first one is listed.
    let mut seen = HashSet::new();
    let all = names.into_iter().zip(hits).map(|(name, hit)| (Box::from(name), hit));
    all.filter(move |(name, _): &(Box<[u8]>, Hit)| seen.insert(name.clone()))
}

/// Returns for each name whether another one is equal.
fn are_equal(names: &[Vec<u8>]) -> Vec<bool> {
    let mut counts: HashMap<&[u8], u32> = HashMap::with_capacity(names.len());
    names.iter().for_each(|name| *counts.entry(name).or_default() += 1);
    names.iter().map(|name| counts[name.as_slice()] > 1).collect()
}

fn names_of(hits: &[Hit], is_numbered: &[bool]) -> Vec<Vec<u8>> {
    hits.iter().zip(is_numbered).map(|(hit, numbered)| name_of(hit, *numbered)).collect()
}

/// Returns whether a name looks like a numbered one.
fn has_number(name: &[u8]) -> bool {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    digits > 0 && name[..name.len() - digits].ends_with(b"~")
}

fn name_of(hit: &Hit, is_numbered: bool) -> Vec<u8> {
    let name = last_name(&hit.path).unwrap_or_default();
    if !is_numbered {
        return name.to_vec();
    }
    let number = format!("~{}", hit.ino);
    let room = limits::NAME_BYTES - number.len();
    [&name[..name.len().min(room)], number.as_bytes()].concat()
}

fn offset_of(name: &[u8], hasher: &impl BuildHasher) -> u64 {
    // Offsets of the kernel are signed: two bits are free, so that equal hashes can count up.
    (hasher.hash_one(name) >> 2).max(AFTER_DOTS + 1)
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasherDefault, Hasher, RandomState};

    use pelago_wire::FileKind;

    use super::*;

    fn hit(path: &str, ino: u64) -> Hit {
        Hit { ino: InodeId::from_raw(ino), kind: FileKind::Regular, path: path.into() }
    }

    fn names(hits: Vec<Hit>) -> Vec<String> {
        let mut names: Vec<String> =
            named(hits).map(|(name, _)| String::from_utf8(name.into()).unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn equal_names_are_numbered_in_any_order() {
        let mut hits = vec![hit("a/x", 0x1f), hit("b/x", 0x2f), hit("y", 3)];
        assert_eq!(names(hits.clone()), ["x~1f", "x~2f", "y"]);
        hits.reverse();
        assert_eq!(names(hits.clone()), ["x~1f", "x~2f", "y"]);
        // A file that is named as a numbered one is numbered too.
        hits.push(hit("x~1f", 9));
        assert_eq!(names(hits.clone()), ["x~1f", "x~1f~9", "x~2f", "y"]);
        hits.push(hit("c/x~1f~9", 0xa));
        assert_eq!(names(hits), ["x~1f", "x~1f~9", "x~1f~9~a", "x~2f", "y"]);
        assert_eq!(names(vec![hit("a/x", 7), hit("b/x", 7)]), ["x~7"], "one file");
        assert_eq!(names(vec![hit("x~1f", 7), hit("y~", 8)]), ["x~1f", "y~"]);
    }

    /// Each is named as the one before would be: they must not be numbered one after the other.
    #[test]
    fn a_chain_of_names_takes_no_time() {
        let mut hits = vec![hit("a/x", 0x1000), hit("b/x", 0x2000)];
        let mut name = "x".to_owned();
        for ino in 0x1000..0x4000 {
            name = format!("{name}~{ino:x}");
            name = format!("{}~{ino:x}", &name[..name.len().min(250)]);
            hits.push(hit(&name, ino + 1));
        }
        let count = hits.len();
        assert_eq!(names(hits).len(), count);
    }

    #[test]
    fn a_numbered_name_is_no_longer_than_a_name() {
        let long = "n".repeat(255);
        let both = vec![hit(&format!("a/{long}"), 0x1f), hit(&long, 0x2f)];
        assert_eq!(names(both), [format!("{}~1f", &long[3..]), format!("{}~2f", &long[3..])]);
    }

    #[test]
    fn a_link_is_found_by_its_name_and_behind_its_offset() {
        let hasher = RandomState::new();
        let mut found = Found::new(1);
        assert!(found.add((0..1000).map(|n| hit(&format!("d/{n}"), n + 10)).collect()));
        let links = found.links(&hasher);
        assert_eq!(links.behind(AFTER_DOTS).len(), 1000);
        for (index, link) in links.0.iter().enumerate() {
            assert_eq!(links.get(&link.name, &hasher), Some(link));
            assert_eq!(links.behind(link.offset).len(), 999 - index);
        }
        assert_eq!(links.get(b"none", &hasher), None);
    }

    /// Spreads nothing.
    #[derive(Default)]
    struct Same;

    impl Hasher for Same {
        fn write(&mut self, _bytes: &[u8]) {}

        fn finish(&self) -> u64 {
            u64::MAX
        }
    }

    #[test]
    fn names_of_one_offset_are_kept_apart() {
        let hasher = BuildHasherDefault::<Same>::default();
        let mut found = Found::new(1);
        assert!(found.add((0..100).map(|n| hit(&n.to_string(), n + 10)).collect()));
        let links = found.links(&hasher);
        let mut offset = AFTER_DOTS;
        for index in 0..100 {
            let link = links.behind(offset).first().unwrap();
            assert_eq!(links.get(&link.name, &hasher), Some(link), "{index}");
            offset = link.offset;
        }
        assert!(links.behind(offset).is_empty() && i64::try_from(offset).is_ok());
    }

    #[test]
    fn targets_lead_out_of_the_folders_and_no_further_than_a_target_may() {
        let hasher = RandomState::new();
        let deep = "d/".repeat(2041) + "file";
        let links = |depth| {
            let mut found = Found::new(depth);
            assert!(found.add(vec![hit("sub/dir/it", 5), hit(&deep, 6)]));
            found.links(&hasher)
        };
        let first = links(1);
        let third = links(3);
        let link = first.get(b"it", &hasher).unwrap();
        assert!(link.shown_ino().is_of_mount());
        assert_eq!(*link.target, *b"../../sub/dir/it");
        assert_eq!(*third.get(b"it", &hasher).unwrap().target, *b"../../../../sub/dir/it");
        assert_eq!(first.get(b"file", &hasher).unwrap().target.len(), limits::TARGET_BYTES - 3);
        assert_eq!(third.get(b"file", &hasher), None);
    }

    #[test]
    fn what_is_no_path_is_left_out_and_the_rest_is_bounded() {
        let mut found = Found::new(1);
        let wrong = ["", "/x", "a//b", "../x", "a/..", "a/", "a\0b"];
        assert!(found.add(wrong.iter().map(|path| hit(path, 1)).collect()));
        assert!(found.hits.is_empty());
        let many = limits::FIND_FOLDER_HITS as u64;
        assert!(found.add((0..many).map(|n| hit(&n.to_string(), n)).collect()));
        assert!(!found.add(vec![hit("one", 1)]));
        assert_eq!(found.hits.len(), limits::FIND_FOLDER_HITS);
        let mut found = Found::new(1);
        let long = "d/".repeat(2000) + "x";
        let mut count = 0;
        while found.add(vec![hit(&long, count)]) {
            count += 1;
        }
        assert!(found.bytes <= limits::FIND_FOLDER_BYTES && count > 100);
    }
}
