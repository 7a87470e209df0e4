//! Reads any bytes as the spool of a mirror. It has either a whole group, whose records can all be
//! read, or no group.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use pelago_store::folder::Folder;
use pelago_store::spool::Spool;
use pelago_wire::mirror::GroupPart;

fuzz_target!(|bytes: &[u8]| {
    let dir = std::env::temp_dir().join(format!("pelago-fuzz-{}", std::process::id()));
    fs::create_dir_all(&dir).expect("a folder for the spool");
    fs::write(dir.join("spool"), bytes).expect("the spool");
    let folder = Folder::open(&dir).expect("the folder");
    let mut spool = Spool::open(&folder, "spool").expect("a spool of any bytes");
    if spool.group().expect("a file that can be read").is_some() {
        for body in spool.bodies().expect("a group") {
            let body = body.expect("a whole record");
            let _part = GroupPart::decode(&body);
        }
    }
});
