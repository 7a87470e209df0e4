//! The files and directories that a session of a guest has made, for each of which it may ask for a
//! credential.

use std::collections::VecDeque;

use pelago_wire::id_map::IdMap;
use pelago_wire::{Code, Error, InodeId, Name, limits};

/// The place of a node when a credential for it was issued first. It is part of the text, so that a
/// later request gets the same one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IssuedPlace {
    /// The directory above; `None` if the guest must not learn of it.
    pub(super) dir: Option<InodeId>,
    pub(super) name: Option<Name>,
}

/// The credentials that were issued for a node.
#[derive(Default)]
struct Issued {
    place: Option<IssuedPlace>,
    /// Their ids: one for each chain to which one is bound.
    ids: Vec<[u8; 32]>,
}

/// The nodes that a session has made: the last [`limits::MADE_NODES`].
#[derive(Default)]
pub(super) struct MadeNodes {
    nodes: IdMap<InodeId, Issued>,
    /// The same nodes in the order in which they were made.
    order: VecDeque<InodeId>,
    /// The number of credentials that were issued, also for nodes that are forgotten.
    issued: usize,
}

impl MadeNodes {
    /// Records a node that was made.
    pub(super) fn add(&mut self, ino: InodeId) {
        if self.nodes.insert(ino, Issued::default()).is_none() {
            self.order.push_back(ino);
        }
        while self.order.len() > limits::MADE_NODES {
            let oldest = self.order.pop_front();
            oldest.into_iter().for_each(|oldest| {
                self.nodes.remove(&oldest);
            });
        }
    }

    /// Returns the place that is written into the credential for a node, which is `now` if none was
    /// issued before.
    ///
    /// # Errors
    /// `AccessDenied` if the session has not made the node, or has made too many since.
    pub(super) fn place(&self, ino: InodeId, now: IssuedPlace) -> Result<IssuedPlace, Error> {
        let issued = self.nodes.get(&ino).ok_or(Code::AccessDenied)?;
        Ok(issued.place.clone().unwrap_or(now))
    }

    /// Returns the ids of the credentials that were issued for a node.
    pub(super) fn ids(&self, ino: InodeId) -> &[[u8; 32]] {
        self.nodes.get(&ino).map_or(&[], |issued| issued.ids.as_slice())
    }

    /// Returns whether the session has made a node.
    pub(super) fn has(&self, ino: InodeId) -> bool {
        self.nodes.contains_key(&ino)
    }

    /// Records that a credential with this id was issued. Returns whether it is a new one.
    ///
    /// # Errors
    /// `AccessDenied` as [`MadeNodes::place`]; `NoSpace` if the session was issued too many.
    pub(super) fn issue(
        &mut self,
        ino: InodeId,
        place: IssuedPlace,
        id: [u8; 32],
    ) -> Result<bool, Error> {
        let issued = self.nodes.get_mut(&ino).ok_or(Code::AccessDenied)?;
        if issued.ids.contains(&id) {
            return Ok(false);
        }
        if self.issued >= limits::ISSUED_CREDENTIALS {
            return Err(Code::NoSpace.into());
        }
        issued.place = Some(place);
        issued.ids.push(id);
        self.issued += 1;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(number: usize) -> InodeId {
        InodeId::from_raw(number as u64 + 2)
    }

    fn place() -> IssuedPlace {
        IssuedPlace { dir: Some(InodeId::ROOT), name: None }
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
        let id = |number: usize| [u8::try_from(number % 251).unwrap(); 32];
        let all_new =
            (0..many).all(|number| made.issue(ino(number), place(), id(number)) == Ok(true));
        assert!(all_new);
        let elsewhere = IssuedPlace { dir: Some(ino(7)), name: None };
        assert_eq!(made.place(ino(0), elsewhere), Ok(place()), "as the first time");
        assert_eq!(made.ids(ino(0)), [id(0)]);
        assert_eq!(made.issue(ino(0), place(), id(0)), Ok(false), "the same one again");
        assert_eq!(made.issue(ino(0), place(), id(1)), Err(Code::NoSpace.into()), "another one");
        assert_eq!(made.issue(ino(many), place(), id(many)), Err(Code::NoSpace.into()));
    }
}
