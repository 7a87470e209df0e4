//! The cost of one operation under the lock of all names: its rows are bounded, in any tree.

use pelago_store::key::RowKind;
use pelago_wire::limits;

use super::*;
use crate::shard::lock_cost::LockCost;
use crate::shard::lookup::RECOUNT_NAMES;
use crate::shard::tags::TAGS_AT_ONCE;

impl Rig {
    /// Returns the highest cost of one hold of the lock while this runs.
    fn max_cost(&self, run: impl FnOnce()) -> LockCost {
        // From the table alone.
        self.shard.forget_rows();
        LockCost::take_max();
        run();
        LockCost::take_max()
    }

    fn put_value(&self, node: Handle, name: &str, value: &[u8]) {
        let xattr = xattr(name.as_bytes(), value, XattrFlags::Any);
        self.shard.set_xattr(node, &xattr, at(120)).unwrap();
    }

    fn list(&self, node: Handle) -> Vec<u8> {
        self.shard.list_xattr(&CALLER, node).unwrap()
    }
}

/// Values of a file may be gigabytes: an operation on another one reads none of them.
#[test]
fn extended_attributes_are_set_and_listed_without_reading_values() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 1).handle;
    let value = vec![7; limits::XATTR_VALUE_BYTES];
    (0..300).for_each(|number| rig.put_value(file, &format!("user.{number:05}"), &value));
    let cost = rig.max_cost(|| {
        rig.put_value(file, "user.new", b"");
        rig.put_value(file, "user.00007", b"other");
        let listed = rig.list(file);
        assert_eq!(listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).count(), 301);
        rig.shard.remove_xattr(file, b"user.00008", at(130)).unwrap();
        rig.shard.remove_xattr(file, b"user.new", at(131)).unwrap();
    });
    assert!(cost.rows_read <= 8 && cost.bytes_read < limits::XATTR_VALUE_BYTES, "{cost:?}");
    assert_eq!(rig.shard.get_xattr(file, b"user.00007").unwrap(), b"other");
    assert_eq!(rig.shard.get_xattr(file, b"user.00009").unwrap(), value);
    assert_eq!(rig.shard.get_xattr(file, b"user.00008").unwrap_err().code, Code::NoXattr);
    assert_eq!(rig.list(file).split(|byte| *byte == 0).count() - 1, 299);
}

/// The extended attributes of a file or directory with as many as there may be are deleted in
/// pieces, and none is left.
#[test]
fn many_extended_attributes_are_deleted_in_pieces() {
    for directory in [false, true] {
        let rig = Rig::new();
        let before = rig.row_keys();
        let node = match directory {
            true => rig.dir(ROOT, "n", 1).handle,
            false => rig.file(ROOT, "n", 1).handle,
        };
        let mut count = 0;
        loop {
            let name = format!("user.{count:x}");
            let xattr = xattr(name.as_bytes(), b"v", XattrFlags::Any);
            match rig.shard.set_xattr(node, &xattr, at(120)) {
                Ok(()) => count += 1,
                Err(error) => break assert_eq!(error.code, Code::TooBig),
            }
        }
        assert!(count > limits::LOCK_ROWS);
        let cost = rig.max_cost(|| {
            let removed = match directory {
                true => rig.shard.remove_dir(ROOT, &name("n"), at(130)),
                false => rig.shard.unlink(ROOT, &name("n"), at(130)),
            };
            assert!(removed.unwrap().orphaned, "a worker does the rest");
            assert_eq!(rig.shard.attr(node).unwrap_err().code, Code::Stale);
            rig.shard.remove_unnamed(node.ino).unwrap().unwrap();
            rig.shard.delete_orphan_rows(&[node.ino]).unwrap();
        });
        assert!(cost.rows_read + cost.rows_written <= limits::LOCK_ROWS, "{cost:?}");
        let after = rig.row_keys();
        let left: Vec<_> = after.iter().filter(|key| !before.contains(*key)).collect();
        // The count of the root, and the high-water mark of ids.
        assert!(left.len() <= 2, "{left:?}");
    }
}

/// The key of the row of a tag has its value, so the old one is read; of no other attribute.
#[test]
fn only_a_tag_costs_a_read_of_its_value() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 1).handle;
    for name in ["user.a", "user.tag.a"] {
        rig.put_value(file, name, b"1");
    }
    let rows = |run: &dyn Fn()| {
        let cost = rig.max_cost(run);
        (cost.rows_read, cost.rows_written)
    };
    assert_eq!(rows(&|| rig.put_value(file, "user.a", b"2")), (2, 2), "node, names");
    assert_eq!(rows(&|| rig.put_value(file, "user.tag.a", b"2")), (3, 4), "the value too");
    let remove = |name| rig.shard.remove_xattr(file, name, at(130)).unwrap();
    assert_eq!(rows(&|| remove(b"user.a")), (2, 3));
    assert_eq!(rows(&|| remove(b"user.tag.a")), (3, 4));
}

/// Their values may be long, so those of few are read at once.
#[test]
fn many_tags_are_deleted_and_completed_in_pieces() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 1).handle;
    let tags = 3 * TAGS_AT_ONCE;
    (0..tags).for_each(|number| rig.put_value(file, &format!("user.tag.{number}"), b"1"));
    let most = TAGS_AT_ONCE + 8;
    let cost = rig.max_cost(|| assert!(rig.shard.put_tag_rows(&[file]).unwrap().is_empty()));
    assert!(cost.rows_read <= most && cost.rows_written <= TAGS_AT_ONCE, "{cost:?}");
    let dir = rig.dir(ROOT, "d", 1).handle;
    let files: Vec<_> = (0..tags).map(|at| rig.file(dir, &format!("f{at}"), 2).handle).collect();
    files.iter().for_each(|file| rig.put_value(*file, "user.tag.a", b"1"));
    let cost = rig.max_cost(|| assert!(rig.shard.put_tag_rows(&files).unwrap().is_empty()));
    assert!(cost.rows_read <= 5 * TAGS_AT_ONCE, "{cost:?}");
    let (keys, _) = rig.shard.stray_tags(&[]).unwrap();
    assert!(keys.is_empty());
    let all: Vec<_> = rig.row_keys().into_iter().collect();
    let cost = rig.max_cost(|| {
        let removed = rig.shard.unlink(ROOT, &name("f"), at(130)).unwrap();
        assert!(removed.orphaned, "a worker does the rest");
        rig.shard.remove_unnamed(file.ino).unwrap().unwrap();
    });
    assert!(cost.rows_read <= most, "{cost:?}");
    let tags: Vec<_> = all.into_iter().filter(|key| key::all(RowKind::Tag).contains(key)).collect();
    let cost = rig.max_cost(|| rig.shard.delete_stray_tags(&tags).unwrap());
    assert!(cost.rows_read <= TAGS_AT_ONCE && cost.rows_written <= TAGS_AT_ONCE, "{cost:?}");
}

/// Each operation on names and attributes, in a deep tree and a full directory.
#[test]
fn no_operation_holds_the_lock_for_many_rows() {
    let rig = Rig::new();
    let mut deep = ROOT;
    for _ in 0..4 * limits::CLIMB_STEPS {
        deep = rig.dir(deep, "d", 1).handle;
    }
    let full = rig.dir(ROOT, "full", 1).handle;
    let file = rig.file(ROOT, "f", 1).handle;
    for number in 0..3000 {
        rig.shard.link(file, full, &name(&format!("link{number}")), at(2)).unwrap();
        rig.dir(full, &format!("dir{number}"), 2);
    }
    let moves = |from_dir, from: &str, to_dir, to: &str, flags| {
        let from = name(from);
        let to = name(to);
        let names = Move { from_dir, from: &from, to_dir, to: &to };
        rig.shard.rename(&CALLER, names, flags, at(9)).unwrap();
    };
    let plain = RenameFlags::Replace;
    let cost = rig.max_cost(|| {
        rig.lookup(full, "link7").unwrap();
        rig.shard.parent(deep).unwrap();
        rig.file(deep, "new", 3);
        rig.dir(deep, "made", 3);
        rig.dir(deep, "other", 3);
        rig.file(rig.lookup(deep, "made").unwrap().handle, "in", 3);
        moves(deep, "made", deep, "renamed", plain);
        moves(deep, "renamed", full, "renamed", plain);
        moves(full, "renamed", deep, "other", RenameFlags::Exchange);
        moves(deep, "new", full, "link9", plain);
        rig.shard.unlink(full, &name("link8"), at(5)).unwrap();
        rig.shard.remove_dir(full, &name("dir8"), at(5)).unwrap();
        assert_eq!(
            rig.shard.remove_dir(ROOT, &name("full"), at(5)).unwrap_err().code,
            Code::NotEmpty
        );
        let set = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        rig.shard.set_attr(full, &set, at(6)).unwrap();
        rig.shard.write_counts().unwrap();
    });
    let most = limits::CLIMB_STEPS + RECOUNT_NAMES + 32;
    assert!(cost.rows_read <= most, "{cost:?}");
    let list = || {
        let mut after = Cookie::START;
        loop {
            let page =
                Page { dir: full, after, behind: None, entries: usize::MAX, attributes: true };
            let (entries, end) = rig.shard.list(page).unwrap();
            match entries.last() {
                Some(last) if !end => after = last.cookie,
                _ => break,
            }
        }
    };
    let cost = rig.max_cost(list);
    assert!(cost.rows_read + cost.rows_written <= limits::LOCK_ROWS, "{cost:?}");
}
