//! Extended attributes.

use super::*;
use crate::shard::xattr::are_in;

impl Rig {
    fn try_set(
        &self,
        node: Handle,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Code> {
        let set = self.shard.set_xattr(node, &xattr(name, value, flags), at(120));
        set.map_err(|error| error.code)
    }
}

const ANY_USER: Context = CALLER;
const SUPERUSER: Context = Context::direct(0, 20);

#[test]
fn the_flags_say_whether_an_attribute_must_exist() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    let set = |value: &[u8], flags| rig.try_set(file, b"user.a", value, flags);
    assert_eq!(set(b"1", XattrFlags::Replace), Err(Code::NoXattr));
    assert_eq!(set(b"1", XattrFlags::Create), Ok(()));
    assert_eq!(set(b"2", XattrFlags::Create), Err(Code::Exists));
    assert_eq!(rig.shard.get_xattr(file, b"user.a").unwrap(), b"1");
}

#[test]
fn values_and_prefixes_have_limits() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    let set = |name: &[u8], value: &[u8]| rig.try_set(file, name, value, XattrFlags::Any);
    assert_eq!(set(b"user.ab", &[0; 65_537]), Err(Code::TooBig));
    assert_eq!(set(b"other.a", b""), Err(Code::NotSupported));
}

#[test]
fn trusted_names_are_listed_for_root_only() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    for name in [&b"user.b"[..], b"trusted.a", b"user.a"] {
        rig.try_set(file, name, b"", XattrFlags::Any).unwrap();
    }
    let names = |caller: &Context| rig.shard.list_xattr(caller, file).unwrap();
    assert_eq!(names(&ANY_USER), b"user.a\0user.b\0");
    assert_eq!(names(&SUPERUSER), b"trusted.a\0user.a\0user.b\0");
}

#[test]
fn a_removed_attribute_is_gone() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    for name in [&b"user.a"[..], b"user.b"] {
        rig.try_set(file, name, b"1", XattrFlags::Any).unwrap();
        rig.shard.remove_xattr(file, name, at(130)).unwrap();
        assert_eq!(rig.shard.get_xattr(file, name).unwrap_err().code, Code::NoXattr);
    }
    assert_eq!(rig.shard.list_xattr(&SUPERUSER, file).unwrap(), b"");
}

/// In a volume without extended attributes no row is read for them.
#[test]
fn the_first_extended_attribute_is_found() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    assert!(!are_in(&*rig.shard.table));
    assert_eq!(rig.shard.get_xattr(file, b"user.a").unwrap_err().code, Code::NoXattr);
    rig.try_set(file, b"user.a", b"1", XattrFlags::Any).unwrap();
    let again = rig.cold();
    for rig in [rig, again] {
        assert_eq!(rig.shard.get_xattr(file, b"user.a").unwrap(), b"1");
    }
}

/// After `NoSpace` the server would believe that its disk is full, and refuse all data.
#[test]
fn too_many_extended_attributes_do_not_look_like_a_full_disk() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    let refused = (0..1000).find_map(|number| {
        let name = format!("user.{number:0>250}");
        let set = rig.try_set(file, name.as_bytes(), b"", XattrFlags::Any);
        set.err().map(|code| (number, code))
    });
    assert_eq!(refused, Some((256, Code::TooBig)));
}
