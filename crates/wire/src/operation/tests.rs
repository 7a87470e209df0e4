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
    assert_eq!(open(read).effect, Effect::Once);
    let truncate = OpenFlags { truncate: true, ..read };
    assert_eq!(open(truncate).effect, BYTES);
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

#[test]
fn an_open_touches_what_it_may_change() {
    let ino = NODE.ino;
    let read = OpenFlags::READ;
    let truncate = OpenFlags { truncate: true, ..read };
    let both = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    let cases = [
        (read, Touches::Nothing),
        (OpenFlags::WRITE, Touches::Node(ino)),
        (truncate, Touches::Contents(ino)),
        (both, Touches::Contents(ino)),
    ];
    for (flags, touches) in cases {
        let open = Request::Open { node: NODE, flags, open: OPEN };
        assert_eq!(open.touches(), touches, "{flags:?}");
        assert_eq!(open.opens().existing(), Some((NODE, flags)));
        // A file is not truncated again.
        let again = Request::Reopen { node: NODE, flags, open: OPEN };
        let touches = if flags.write { Touches::Node(ino) } else { Touches::Nothing };
        assert_eq!(again.touches(), touches, "again, {flags:?}");
        assert_eq!((again.opens().existing(), again.tells()), (None, Tells::Nothing));
        let name = Name::new(b"a").unwrap();
        let mode = NewMode::exactly(0o644);
        let create = Request::Create { dir: NODE, name, mode, flags, open: OPEN };
        let dir = create.touches().changed_dir();
        assert_eq!((dir, create.opens().made()), (Some(NODE), Some((OPEN, flags))));
        let unnamed = Request::CreateUnnamed { dir: NODE, mode, flags, open: OPEN };
        assert!(!unnamed.touches().concerns_others() && unnamed.tells() == Tells::Nothing);
    }
}

#[test]
fn columns_depend_on_arguments() {
    let set = |size| {
        let set = SetAttr { size, ..SetAttr::default() };
        Request::SetAttr { node: NODE, open: None, set }
    };
    assert_eq!(set(None).touches(), Touches::Node(NODE.ino));
    assert_eq!(set(Some(0)).touches(), Touches::Contents(NODE.ino));
    let owner = LockOwner(7);
    let flush = |owner| Request::Flush { open: OPEN, owner }.opens();
    assert_eq!(flush(None), OpenEffect::Nothing);
    assert_eq!(flush(Some(owner)), OpenEffect::EndsLocks { open: OPEN, owner });
    let at_start = |node| Request::GetAttr { node }.at_start();
    assert_eq!(at_start(NODE), AtStart::ForOwnMount);
    assert_eq!(at_start(Handle::own(InodeId::from_raw(7))), AtStart::InTurn);
}

#[test]
fn a_rename_changes_one_directory_or_two() {
    let name = |name| Name::new(name).unwrap();
    let rename = |to_dir| Request::Rename {
        from_dir: NODE,
        from: name(b"a"),
        to_dir,
        to: name(b"b"),
        flags: RenameFlags::Replace,
    };
    let removed = |request: &Request| request.touches().removed_names().map(|at| at.is_some());
    let here = rename(NODE);
    let away = rename(Handle::own(InodeId::from_raw(7)));
    assert_eq!(here.touches().changed_dir(), Some(NODE));
    assert_eq!((away.touches().changed_dir(), removed(&away)), (None, [true, true]));
}

#[test]
fn only_a_write_has_bulk() {
    let with_bulk = Operation::ALL.iter().filter(|operation| operation.has_bulk());
    assert!(with_bulk.eq(&[Operation::Write]));
}
