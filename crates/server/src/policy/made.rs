//! The files and directories that a session of a guest has made, for each of which it may ask for a
//! credential.

use std::collections::{HashMap, VecDeque};

use pelago_wire::{Code, Error, InodeId, Name, limits};

/// The place of a node when a credential for it was issued first. It is part of the text, so that a
/// later request gets the same one, and a revocation of that is one of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IssuedPlace {
    pub(super) dir: InodeId,
    pub(super) name: Option<Name>,
}

/// The nodes that a session has made: the last [`limits::MADE_NODES`].
#[derive(Default)]
pub(super) struct MadeNodes {
    places: HashMap<InodeId, Option<IssuedPlace>>,
    /// The same nodes in the order in which they were made.
    order: VecDeque<InodeId>,
    /// The number of nodes for which a credential was issued, also of those that are forgotten.
    issued: usize,
}

impl MadeNodes {
    /// Records a node that was made.
    pub(super) fn add(&mut self, ino: InodeId) {
        if self.places.insert(ino, None).is_none() {
            self.order.push_back(ino);
        }
        while self.order.len() > limits::MADE_NODES {
            let oldest = self.order.pop_front();
            oldest.into_iter().for_each(|oldest| {
                self.places.remove(&oldest);
            });
        }
    }

    /// Returns the place that is written into the credential for a node, which is `now` if none was
    /// issued before.
    ///
    /// # Errors
    /// `AccessDenied` if the session has not made the node, or has made too many since; `NoSpace`
    /// if it was issued too many credentials.
    pub(super) fn place(&self, ino: InodeId, now: IssuedPlace) -> Result<IssuedPlace, Error> {
        match self.places.get(&ino) {
            None => Err(Code::AccessDenied.into()),
            Some(Some(place)) => Ok(place.clone()),
            Some(None) if self.issued >= limits::ISSUED_CREDENTIALS => Err(Code::NoSpace.into()),
            Some(None) => Ok(now),
        }
    }

    /// Returns whether the session has made a node.
    pub(super) fn has(&self, ino: InodeId) -> bool {
        self.places.contains_key(&ino)
    }

    /// Records that a credential was issued. Returns whether it is the first one for the node.
    pub(super) fn issue(&mut self, ino: InodeId, place: IssuedPlace) -> bool {
        match self.places.get_mut(&ino) {
            Some(issued @ None) => {
                *issued = Some(place);
                self.issued += 1;
                true
            }
            Some(Some(_)) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(number: usize) -> InodeId {
        InodeId::from_raw(number as u64 + 2)
    }

    fn place() -> IssuedPlace {
        IssuedPlace { dir: InodeId::ROOT, name: None }
    }

    #[test]
    fn a_session_remembers_the_last_nodes_that_it_has_made() {
        let mut made = MadeNodes::default();
        let many = limits::MADE_NODES;
        (0..many).for_each(|number| made.add(ino(number)));
        made.add(ino(0));
        assert!(made.has(ino(0)), "it is there once");
        made.add(ino(many));
        assert!(!made.has(ino(0)) && made.has(ino(1)) && made.has(ino(many)));
        assert_eq!(made.place(ino(0), place()), Err(Code::AccessDenied.into()));
    }

    #[test]
    fn a_session_is_issued_a_limited_number_of_credentials() {
        let mut made = MadeNodes::default();
        let many = limits::ISSUED_CREDENTIALS;
        (0..=many).for_each(|number| made.add(ino(number)));
        let all_first = (0..many).all(|number| made.issue(ino(number), place()));
        assert!(all_first);
        let elsewhere = IssuedPlace { dir: ino(7), name: None };
        assert_eq!(made.place(ino(0), elsewhere.clone()), Ok(place()), "as the first time");
        assert!(!made.issue(ino(0), place()));
        assert_eq!(made.place(ino(many), elsewhere), Err(Code::NoSpace.into()));
    }
}
