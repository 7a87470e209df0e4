//! Access control lists in rows.

use pelago_wire::xattr::{ACL_ACCESS, ACL_DEFAULT};

use super::*;

const NO_ID: u32 = u32::MAX;

fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn full(mask: u16) -> Vec<u8> {
    list(&[(1, 6, NO_ID), (2, 7, 30), (4, 5, NO_ID), (16, mask, NO_ID), (32, 0, NO_ID)])
}

fn minimal() -> Vec<u8> {
    list(&[(1, 6, NO_ID), (4, 5, NO_ID), (32, 0, NO_ID)])
}

impl Rig {
    fn set(&self, node: Handle, name: &[u8], value: &[u8]) -> Result<(), Code> {
        let set = self.shard.set_xattr(node, &xattr(name, value, XattrFlags::Any), at(130));
        set.map_err(|error| error.code)
    }

    fn get(&self, node: Handle, name: &[u8]) -> Result<Vec<u8>, Code> {
        self.shard.get_xattr(node, name).map_err(|error| error.code)
    }

    fn mode(&self, node: Handle) -> u16 {
        self.shard.attr(node).unwrap().mode
    }
}

#[test]
fn a_list_and_the_mode_stay_in_step() {
    let rig = Rig::new();
    let file = rig.make(ROOT, "f", NewInode::file(NewMode::exactly(0o2777)), 110).handle;
    assert_eq!(rig.get(file, ACL_ACCESS), Err(Code::NoXattr));
    rig.set(file, ACL_ACCESS, &full(7)).unwrap();
    assert_eq!((rig.mode(file), rig.get(file, ACL_ACCESS)), (0o2670, Ok(full(7))));
    let set = SetAttr { mode: Some(0o650), ..SetAttr::default() };
    rig.shard.set_attr(file, &set, at(140)).unwrap();
    assert_eq!(rig.get(file, ACL_ACCESS), Ok(full(5)));
    let rig = rig.crashed(usize::MAX);
    assert_eq!((rig.mode(file), rig.get(file, ACL_ACCESS)), (0o650, Ok(full(5))));
    rig.set(file, b"user.a", b"").unwrap();
    rig.set(file, ACL_ACCESS, &minimal()).unwrap();
    assert_eq!(rig.get(file, ACL_ACCESS), Err(Code::NoXattr), "the mode says as much");
    assert_eq!(rig.get(file, b"user.a"), Ok(Vec::new()));
    rig.shard.remove_xattr(file, b"user.a", at(150)).unwrap();
    rig.shard.remove_xattr(file, ACL_ACCESS, at(150)).unwrap();
    assert_eq!(rig.mode(file), 0o650);
}

#[test]
fn a_list_that_is_refused_changes_nothing() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    let link = rig.make(ROOT, "l", NewInode::symlink(b"x".to_vec()), 110).handle;
    let before = rig.shard.attr(file).unwrap();
    assert_eq!(rig.set(file, ACL_ACCESS, b""), Err(Code::Invalid));
    assert_eq!(rig.set(file, ACL_ACCESS, &full(7)[..20]), Err(Code::Invalid));
    assert_eq!(rig.set(file, ACL_DEFAULT, &full(7)), Err(Code::AccessDenied));
    assert_eq!(rig.set(link, ACL_ACCESS, &full(7)), Err(Code::NotSupported));
    assert_eq!(rig.set(file, b"system.posix_acl_other", &full(7)), Err(Code::NotSupported));
    assert_eq!(rig.shard.attr(file).unwrap(), before);
    assert_eq!(rig.shard.list_xattr(&CALLER, file).unwrap(), b"");
}

#[test]
fn a_caller_outside_the_group_clears_setgid() {
    let rig = Rig::new();
    let file = rig.make(ROOT, "f", NewInode::file(NewMode::exactly(0o6775)), 110).handle;
    let value = minimal();
    let access = xattr(ACL_ACCESS, &value, XattrFlags::Any);
    rig.shard.set_xattr(file, &SetXattr { kill_setgid: true, ..access }, at(130)).unwrap();
    assert_eq!(rig.mode(file), 0o4650);
    let set = SetAttr { kill_privileges: true, ..SetAttr::default() };
    let file = rig.make(ROOT, "g", NewInode::file(NewMode::exactly(0o6745)), 110).handle;
    rig.shard.set_attr(file, &set, at(130)).unwrap();
    assert_eq!(rig.mode(file), 0o2745);
    rig.shard.set_attr(file, &SetAttr { kill_setgid: true, ..set }, at(130)).unwrap();
    assert_eq!(rig.mode(file), 0o745);
}

const MASKED: NewMode = NewMode { mode: 0o777, umask: 0o027 };

/// A directory with a default list, below the root.
fn with_default_list(rig: &Rig, list: &[u8]) -> Handle {
    let dir = rig.make(ROOT, "with a list", NewInode::directory(MASKED), 110).handle;
    rig.set(dir, ACL_DEFAULT, list).unwrap();
    dir
}

#[test]
fn without_a_default_list_the_umask_counts() {
    let rig = Rig::new();
    let dir = rig.make(ROOT, "d", NewInode::directory(MASKED), 110).handle;
    assert_eq!(rig.mode(dir), 0o750);
}

#[test]
fn a_directory_inherits_both_lists_instead_of_the_umask() {
    let rig = Rig::new();
    let dir = with_default_list(&rig, &full(7));
    let below = rig.make(dir, "d", NewInode::directory(MASKED), 120).handle;
    assert_eq!(rig.mode(below), 0o670);
    assert_eq!(rig.get(below, ACL_ACCESS), Ok(full(7)));
    assert_eq!(rig.get(below, ACL_DEFAULT), Ok(full(7)));
}

#[test]
fn a_file_inherits_an_access_list_only() {
    let rig = Rig::new();
    let dir = with_default_list(&rig, &full(7));
    let file = rig.make(dir, "f", NewInode::file(NewMode { mode: 0o646, umask: 0 }), 120).handle;
    assert_eq!((rig.mode(file), rig.get(file, ACL_ACCESS)), (0o640, Ok(full(4))));
    assert_eq!(rig.get(file, ACL_DEFAULT), Err(Code::NoXattr));
}

#[test]
fn a_symbolic_link_inherits_no_list() {
    let rig = Rig::new();
    let dir = with_default_list(&rig, &full(7));
    let link = rig.make(dir, "l", NewInode::symlink(b"x".to_vec()), 120).handle;
    assert_eq!((rig.mode(link), rig.get(link, ACL_ACCESS)), (0o777, Err(Code::NoXattr)));
}

#[test]
fn a_short_default_list_is_stored_and_inherited_as_a_mode() {
    let rig = Rig::new();
    let dir = with_default_list(&rig, &minimal());
    assert_eq!(rig.get(dir, ACL_DEFAULT), Ok(minimal()));
    let file = rig.make(dir, "g", NewInode::file(MASKED), 120).handle;
    assert_eq!((rig.mode(file), rig.get(file, ACL_ACCESS)), (0o650, Err(Code::NoXattr)));
    assert_eq!(rig.shard.list_xattr(&CALLER, file).unwrap(), b"");
}

#[test]
fn an_empty_default_list_removes_the_list() {
    let rig = Rig::new();
    let dir = with_default_list(&rig, &full(7));
    rig.set(dir, ACL_DEFAULT, &list(&[])).unwrap();
    assert_eq!(rig.get(dir, ACL_DEFAULT), Err(Code::NoXattr));
}

#[test]
fn lists_are_removed_with_their_nodes() {
    let rig = Rig::new();
    let dir = with_default_list(&rig, &full(7));
    rig.make(dir, "f", NewInode::file(MASKED), 120);
    rig.make(dir, "d", NewInode::directory(MASKED), 120);
    rig.shard.unlink(dir, &name("f"), at(130)).unwrap();
    rig.shard.remove_dir(dir, &name("d"), at(130)).unwrap();
    rig.shard.remove_dir(ROOT, &name("with a list"), at(130)).unwrap();
    let range = key::all(key::RowKind::Xattr);
    let left = rig.row_keys().range(range.from..range.to).count();
    assert_eq!(left, 0);
}
