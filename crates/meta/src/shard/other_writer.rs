//! Changes of the rows by another writer of the table: the groups of a primary, at its mirror.

use std::sync::atomic::Ordering;

use pelago_wire::Touched;

use super::{Shard, xattr};

impl Shard {
    /// Forgets the cached rows that another writer has changed: those of what is touched, or all.
    /// Called after the change, and before the next request.
    pub fn rows_have_changed(&self, touched: Option<&[Touched]>) {
        let mut locked = self.lock();
        let state = &mut *locked.state;
        match touched {
            None => state.forget_rows(),
            Some(touched) => {
                for touched in touched {
                    match touched {
                        Touched::Node(ino) => {
                            state.rows.remove_node(*ino);
                            state.directories.remove(*ino);
                        }
                        Touched::Name { dir, name } => {
                            state.rows.remove_named(*dir, self.hasher.hash(name.as_bytes()));
                        }
                        Touched::Bytes(_) => {}
                    }
                }
                state.directory_moves += 1;
            }
        }
        drop(locked);
        // Outside of the lock, because it reads the table. It is never cleared.
        if !self.has_xattrs.load(Ordering::Acquire) && xattr::are_in(&*self.table) {
            self.has_xattrs.store(true, Ordering::Release);
        }
    }
}
