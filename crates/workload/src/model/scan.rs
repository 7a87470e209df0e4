//! A directory listing that continues while the directory changes.

use std::collections::BTreeSet;

use pelago_wire::Name;

use crate::model::tree::NodeId;

/// The names that a listing must and may return. A name that exists from start to end is returned
/// exactly once; a name that was created or removed meanwhile may be; others never are.
#[derive(Debug, Clone)]
pub(crate) struct Scan {
    pub(crate) dir: NodeId,
    must: BTreeSet<Name>,
    may: BTreeSet<Name>,
    seen: BTreeSet<Name>,
    at_end: bool,
}

impl Scan {
    pub(crate) fn new(dir: NodeId, names: impl Iterator<Item = Name>) -> Self {
        let must: BTreeSet<Name> = names.collect();
        Self { dir, must, may: BTreeSet::new(), seen: BTreeSet::new(), at_end: false }
    }

    /// Marks a name as created, removed or replaced.
    pub(crate) fn touch(&mut self, dir: NodeId, name: &Name) {
        if dir == self.dir {
            self.must.remove(name);
            self.may.insert(name.clone());
        }
    }

    /// Checks the next names of the listing.
    ///
    /// # Errors
    /// A description of the wrong name.
    pub(crate) fn observe(&mut self, names: &[Name], end: bool) -> Result<(), String> {
        for name in names {
            let known = self.must.contains(name);
            if !known && !self.may.contains(name) {
                return Err(format!("the listing invented {name:?}"));
            }
            if !self.seen.insert(name.clone()) && known {
                return Err(format!("the listing shows {name:?} twice"));
            }
        }
        self.at_end |= end;
        match self.must.difference(&self.seen).next() {
            Some(name) if end => Err(format!("the listing ended without {name:?}")),
            _ => Ok(()),
        }
    }

    pub(crate) const fn is_at_end(&self) -> bool {
        self.at_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tree::Tree;

    fn names(list: &[&str]) -> Vec<Name> {
        list.iter().map(|name| Name::new(name.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn a_name_that_stays_is_listed_exactly_once() {
        let all = names(&["a", "b", "c"]);
        let new = || Scan::new(Tree::ROOT, all.clone().into_iter());
        assert!(new().observe(&all, true).is_ok());
        assert!(new().observe(&all[..2], false).is_ok());
        assert!(new().observe(&all[..2], true).is_err());
        assert!(new().observe(&names(&["a", "a"]), false).is_err());
        assert!(new().observe(&names(&["d"]), false).is_err());
    }

    #[test]
    fn what_changes_may_come_or_not() {
        let all = names(&["a", "b", "c"]);
        let mut scan = Scan::new(Tree::ROOT, all.clone().into_iter());
        scan.touch(Tree::ROOT, &all[1]);
        scan.touch(Tree::ROOT, &names(&["d"])[0]);
        assert!(scan.clone().observe(&names(&["a", "c"]), true).is_ok());
        assert!(scan.observe(&names(&["a", "c", "d", "b", "d"]), true).is_ok());
    }
}
