//! All that an index of names has.

use pelago_find::Query;
use pelago_index::{Candidates, Error, Names};
use pelago_wire::{Handle, Time};

/// A query that every file matches, and that an index can answer.
const ALL: &[u8] = b"kind=file or kind=dir or kind=link or kind=fifo or kind=socket or kind=char \
                     or kind=block";

/// Returns the handles of all names of the last commit, in order.
///
/// # Errors
/// As [`Names::candidates`].
pub(crate) fn every_name(names: &Names) -> Result<Vec<Handle>, Error> {
    let query = Query::parse(ALL).unwrap();
    match names.candidates(query.expr(), Time::default(), &|_| None)? {
        Candidates::These(handles) => Ok(handles),
        Candidates::Any => panic!("the index knows kinds"),
    }
}
