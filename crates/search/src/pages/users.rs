//! The numbers of users by their names.

use std::cell::RefCell;
use std::collections::BTreeMap;

use nix::unistd::User;

/// The numbers of users by their names, each looked up once.
#[derive(Debug, Default)]
pub(super) struct Users(RefCell<BTreeMap<String, Option<u32>>>);

impl Users {
    /// Returns the number of a user; `None` if there is no such user, or if the system cannot tell.
    pub(super) fn uid_of(&self, name: &str) -> Option<u32> {
        let mut known = self.0.borrow_mut();
        if let Some(uid) = known.get(name) {
            return *uid;
        }
        let uid = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
        known.insert(name.to_owned(), uid);
        uid
    }
}
