//! The columns that depend on arguments.

use std::collections::BTreeSet;

use super::*;
use crate::attr::{NewMode, SetTime};
use crate::id::InodeId;
use crate::name::Name;

const NODE: Handle = Handle::own(InodeId::ROOT);
const OPEN: OpenId = OpenId(7);

fn set_attr(open: Option<OpenId>, set: SetAttr) -> Effect {
    Request::SetAttr { node: NODE, open, set }.describe().effect
}

#[test]
fn each_operation_has_a_name_of_its_own() {
    let names: BTreeSet<_> = Operation::ALL.iter().map(|operation| operation.name()).collect();
    assert_eq!(names.len(), Operation::ALL.len());
}

/// The number of an open is the client's, so that it means the same in every run.
#[test]
fn a_create_is_replayed_and_an_open_is_not() {
    let name = Name::new(b"a").unwrap();
    let mode = NewMode::exactly(0o644);
    let flags = OpenFlags { write: true, ..OpenFlags::default() };
    let create = Request::Create { dir: NODE, name, mode, flags, open: OPEN }.describe();
    assert_eq!(create.effect, Effect::Change { replayed: true, grows: true });
    let open = Request::Open { node: NODE, flags, open: OPEN }.describe();
    assert_eq!(open.effect, Effect::Change { replayed: false, grows: false });
    let again = Request::Reopen { node: NODE, flags, open: OPEN };
    assert_eq!((again.describe().effect, again.is_mutation()), (Effect::None, false));
}

#[test]
fn attributes_of_bytes_are_not_replayed() {
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    assert_eq!(set_attr(None, mode), ROWS);
    assert_eq!(set_attr(Some(OPEN), mode), BYTES);
    assert_eq!(set_attr(None, SetAttr { size: Some(0), ..mode }), BYTES);
    assert_eq!(set_attr(None, SetAttr { mtime: Some(SetTime::Now), ..mode }), BYTES);
}

#[test]
fn an_open_changes_what_it_may_write() {
    let open = |flags| Request::Open { node: NODE, flags, open: OPEN }.describe();
    let read = OpenFlags { read: true, ..OpenFlags::default() };
    assert_eq!((open(read).effect, open(read).right), (Effect::None, Right::Read));
    let truncate = OpenFlags { truncate: true, ..read };
    assert_eq!((open(truncate).effect, open(truncate).right), (BYTES, Right::Write));
}

/// A whiteout is a new file, so it takes space; a plain rename only moves a name.
#[test]
fn a_rename_grows_by_a_whiteout_only() {
    assert_eq!(renaming(RenameFlags::Replace), ROWS);
    assert_eq!(renaming(RenameFlags::Whiteout { replace: true }), NEW_ROWS);
}

#[test]
fn subjects_are_what_the_request_names() {
    let copy =
        Request::CopyRange { from: OPEN, from_offset: 0, to: OpenId(8), to_offset: 0, length: 1 };
    let subjects = copy.describe().subjects;
    assert_eq!(subjects.each_open().collect::<Vec<_>>(), [OPEN, OpenId(8)]);
    assert_eq!(subjects.each_inode().count(), 0);
    assert_eq!(Request::StatFs.describe().subjects, Subjects::NONE);
}
