//! A listing that goes on while its directory changes.

use std::collections::BTreeSet;

use pelago_wire::Name;

use crate::model::tree::NodeId;

/// What a listing under way must and may show: a name that was there from start to end comes
/// exactly once; a name that came or went meanwhile may come or not; others never come.
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

    /// A name came, went or leads elsewhere.
    pub(crate) fn touch(&mut self, dir: NodeId, name: &Name) {
        if dir == self.dir {
            self.must.remove(name);
            self.may.insert(name.clone());
        }
    }

    /// The listing went on with these names.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn see(&mut self, names: &[Name], end: bool) -> Result<(), String> {
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
    fn what_stays_comes_exactly_once() {
        let all = names(&["a", "b", "c"]);
        let new = || Scan::new(Tree::ROOT, all.clone().into_iter());
        assert!(new().see(&all, true).is_ok());
        assert!(new().see(&all[..2], false).is_ok());
        assert!(new().see(&all[..2], true).is_err());
        assert!(new().see(&names(&["a", "a"]), false).is_err());
        assert!(new().see(&names(&["d"]), false).is_err());
    }

    #[test]
    fn what_changes_may_come_or_not() {
        let all = names(&["a", "b", "c"]);
        let mut scan = Scan::new(Tree::ROOT, all.clone().into_iter());
        scan.touch(Tree::ROOT, &all[1]);
        scan.touch(Tree::ROOT, &names(&["d"])[0]);
        assert!(scan.clone().see(&names(&["a", "c"]), true).is_ok());
        assert!(scan.see(&names(&["a", "c", "d", "b", "d"]), true).is_ok());
    }
}
