//! Files that the kernel reads and writes through a registered descriptor.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use pelago_fuse::SessionOptions;
use pelago_fuse::init::InitOptions;

use crate::{init_options, mounted_with};

#[test]
fn the_kernel_reads_and_writes_a_registered_descriptor() {
    let init_options = InitOptions { passthrough: true, ..init_options() };
    let options = SessionOptions {
        threads: 2,
        clone_device: true,
        ring: crate::ring_is_wanted(),
        init_options,
    };
    let Some(mut mounted) = mounted_with(options) else { return };
    if !mounted.negotiated.passthrough {
        mounted.end().unwrap();
        return println!("skipped: not here: the kernel takes no descriptors");
    }
    let mut below = tempfile::tempfile().unwrap();
    below.write_all(b"below").unwrap();
    mounted.tree.put("file", b"above");
    *mounted.tree.below.lock() = Some(below.try_clone().unwrap());
    match OpenOptions::new().read(true).write(true).open(mounted.path("file")) {
        Ok(file) => {
            let mut bytes = [0; 5];
            file.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes, b"below");
            file.write_all_at(b"B", 0).unwrap();
            below.read_exact_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes, b"Below");
        }
        // The temporary folder is on a stacked file system.
        Err(error) => println!("skipped: not here: the descriptor is refused ({error})"),
    }
    assert_eq!(mounted.tree.seen.reads.load(Ordering::Relaxed), 0);
    *mounted.tree.below.lock() = None;
    fs::write(mounted.path("another"), b"1").unwrap();
    assert_eq!(fs::read(mounted.path("another")).unwrap(), b"1");
    mounted.end().unwrap();
}
