//! Ranges of files over a server that cannot reserve, seek and copy: the kernel falls back if it
//! can, else programs get an error.

use std::fs;
use std::fs::File;

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};
use rustix::io::Errno;

use super::mounted;
use crate::memory::spread;

#[test]
fn the_kernel_stands_in_for_a_server_without_ranges() {
    let Some(mounted) = mounted(spread) else { return };
    let from = mounted.path("from");
    let to = mounted.path("to");
    let bytes: Vec<u8> = (0..100_000_u32).map(|index| (index % 251) as u8).collect();
    fs::write(&from, &bytes).unwrap();
    let source = File::open(&from).unwrap();
    let target = File::create(&to).unwrap();
    let mut read = 0;
    let mut wrote = 0;
    while read < bytes.len() as u64 {
        let left = bytes.len() - usize::try_from(read).unwrap();
        let copied =
            copy_file_range(&source, Some(&mut read), &target, Some(&mut wrote), left).unwrap();
        assert!(copied > 0, "{left} bytes are missing");
    }
    assert_eq!(fs::read(&to).unwrap(), bytes);
    // Once before the kernel knows, and once after.
    for _ in 0..2 {
        assert_eq!(seek(&source, SeekFrom::Data(7)), Ok(7));
        assert_eq!(seek(&source, SeekFrom::Hole(7)), Ok(100_000));
        assert_eq!(seek(&source, SeekFrom::Data(100_000)), Err(Errno::NXIO));
        let reserved = fallocate(&target, FallocateFlags::empty(), 0, 200_000);
        assert_eq!(reserved, Err(Errno::OPNOTSUPP));
    }
    assert_eq!(fs::metadata(&to).unwrap().len(), 100_000);
}
