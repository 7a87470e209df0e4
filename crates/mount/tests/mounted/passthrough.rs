//! Passthrough: no bytes pass through requests, and everything else about the files is as without
//! it.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use pelago_mount::NoPassthrough;
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use super::mapping::Mapping;
use super::{Mounted, mounted_with_passthrough};
use crate::memory::HandsOut;

const DEADLINE: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;

/// Mounts with passthrough, or prints why not and returns `None`.
fn passing() -> Option<Mounted> {
    let mounted = mounted_with_passthrough()?;
    mounted.memory.hand_out(HandsOut::Files);
    File::create(mounted.path("probe")).unwrap();
    match mounted.mount.passthrough() {
        Ok(()) => Some(mounted),
        Err(why) => {
            println!("skipped: not here: {why}");
            None
        }
    }
}

fn transfers(mounted: &Mounted) -> u64 {
    mounted.memory.transfers.load(Ordering::Relaxed)
}

/// Waits for the last RELEASE, for which the kernel does not wait.
fn all_released(mounted: &Mounted) {
    let start = Instant::now();
    while mounted.memory.opens() > 0 {
        assert!(start.elapsed() < DEADLINE, "a file stays open");
        thread::yield_now();
    }
}

fn both() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

fn ctime(file: &File) -> (i64, i64) {
    let meta = file.metadata().unwrap();
    (meta.ctime(), meta.ctime_nsec())
}

#[test]
fn size_and_times_are_right_at_every_step() {
    let Some(mounted) = passing() else { return };
    let path = mounted.path("file");
    let mut file = both().create_new(true).open(&path).unwrap();
    let mut before = ctime(&file);
    let mut step = |file: &File, size: u64| {
        let named = fs::metadata(&path).unwrap();
        let opened = file.metadata().unwrap();
        assert_eq!((named.len(), opened.len()), (size, size));
        assert_eq!(named.modified().unwrap(), opened.modified().unwrap());
        // Equal if two steps fall into one tick of the clock of the file system below.
        assert!(ctime(file) >= before);
        before = ctime(file);
    };
    step(&file, 0);
    file.write_all(b"0123456789").unwrap();
    step(&file, 10);
    file.write_at(b"x", 99).unwrap();
    step(&file, 100);
    file.set_len(50).unwrap();
    step(&file, 50);
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 50);
    let mut other = OpenOptions::new().append(true).open(&path).unwrap();
    other.write_all(b"end").unwrap();
    step(&file, 53);
    other.write_all(b"end").unwrap();
    step(&other, 56);
    file.set_len(200).unwrap();
    step(&file, 200);
    file.write_at(&[7; 100_000], 200).unwrap();
    step(&file, 100_200);
    assert!(file.metadata().unwrap().blocks() >= 100_000 / 512);
    let past = SystemTime::UNIX_EPOCH + Duration::new(1000, 5);
    file.set_modified(past).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), past);
    file.write_at(b"y", 0).unwrap();
    assert!(fs::metadata(&path).unwrap().modified().unwrap() > past);
    drop((file, other));
    File::options().write(true).truncate(true).open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    assert_eq!(transfers(&mounted), 0);
    all_released(&mounted);
}

#[test]
fn reads_return_the_written_bytes() {
    let Some(mounted) = passing() else { return };
    let path = mounted.path("file");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|index| (index % 251) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    assert!(fs::read(&path).unwrap() == bytes);
    let one = both().open(&path).unwrap();
    let two = File::open(&path).unwrap();
    one.write_at(b"new", 1_000_000).unwrap();
    let mut read = [0; 5];
    two.read_exact_at(&mut read, 999_999).unwrap();
    assert_eq!(read[1..4], *b"new");
    assert_eq!(two.read_at(&mut read, 3_000_000).unwrap(), 0);
    assert_eq!(mounted.memory.opens_by_descriptor(), 2);
    assert!(two.write_at(b"no", 0).is_err());
    // A descriptor that starts to append.
    let mut appends = both().open(&path).unwrap();
    fcntl_setfl(&appends, OFlags::APPEND).unwrap();
    appends.write_all(b"end").unwrap();
    one.read_exact_at(&mut read[..3], 3_000_000).unwrap();
    assert_eq!(read[..3], *b"end");
    one.sync_all().unwrap();
    drop((one, two, appends));
    assert_eq!(transfers(&mounted), 0);
    all_released(&mounted);
}

#[test]
fn direct_reads_and_writes_bypass_the_page_cache() {
    let Some(mounted) = passing() else { return };
    let path = mounted.path("file");
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let opened = both().create(true).truncate(false).custom_flags(direct).open(&path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            println!("skipped: not here: the disk has no O_DIRECT");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let mut memory = vec![b'a'; 3 * BLOCK];
    let start = memory.as_ptr().align_offset(BLOCK);
    file.write_all_at(&memory[start..start + 2 * BLOCK], 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![b'a'; 2 * BLOCK]);
    both().open(&path).unwrap().write_all_at(b"through pages", 5).unwrap();
    file.read_exact_at(&mut memory[start..start + BLOCK], 0).unwrap();
    assert_eq!(memory[start + 5..start + 18], *b"through pages");
    assert_eq!(file.metadata().unwrap().len(), 2 * BLOCK as u64);
    assert_eq!(transfers(&mounted), 0);
}

/// An unlinked file stays usable, and a new file of its name is another file.
#[test]
fn an_unlinked_file_stays_usable() {
    let Some(mounted) = passing() else { return };
    let other = mounted.path("other");
    let path = mounted.path("file");
    for replaces in [false, true] {
        let file = both().create_new(true).open(&path).unwrap();
        file.write_at(b"before", 0).unwrap();
        if replaces {
            fs::write(&other, b"another").unwrap();
            fs::rename(&other, &path).unwrap();
        } else {
            fs::remove_file(&path).unwrap();
        }
        file.write_at(b" and after", 6).unwrap();
        assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().nlink()), (16, 0));
        // The file can be opened again through its descriptor.
        let again = File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
        file.set_len(3).unwrap();
        let mut bytes = [0; 10];
        assert_eq!(again.read_at(&mut bytes, 0).unwrap(), 3);
        assert_eq!(bytes[..3], *b"bef");
        if replaces {
            assert_eq!(fs::read(&path).unwrap(), b"another");
        }
        drop((file, again));
        all_released(&mounted);
    }
    assert_eq!(transfers(&mounted), 0);
}

/// While an open of a file lasts, the next has the same data path, whatever the server would hand
/// out by then; cached pages are never older than bytes that were written past them.
#[test]
fn all_opens_of_a_file_have_one_data_path() {
    let Some(mounted) = passing() else { return };
    mounted.memory.hand_out(HandsOut::Nothing);
    let path = mounted.path("file");
    let cached = both().create_new(true).open(&path).unwrap();
    cached.write_at(b"by requests", 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"by requests");
    mounted.memory.hand_out(HandsOut::Files);
    assert_eq!(fs::read(&path).unwrap(), b"by requests");
    assert_eq!(mounted.memory.opens_by_descriptor(), 0);
    drop(cached);
    all_released(&mounted);
    let before = transfers(&mounted);
    let passing = both().open(&path).unwrap();
    passing.write_at(b"by the kernel", 0).unwrap();
    mounted.memory.hand_out(HandsOut::Nothing);
    let also = File::open(&path).unwrap();
    let mut bytes = [0; 13];
    also.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(bytes, *b"by the kernel");
    assert_eq!((mounted.memory.opens_by_descriptor(), transfers(&mounted)), (2, before));
    drop((passing, also));
    all_released(&mounted);
    assert_eq!(fs::read(&path).unwrap(), b"by the kernel");
    assert!(transfers(&mounted) > before);
}

/// The kernel does not see a store to mapped memory, and has cached times from before.
#[test]
fn a_store_to_a_mapping_changes_the_file() {
    let Some(mounted) = passing() else { return };
    if let Some(reason) = Mapping::cannot() {
        println!("skipped: {reason}");
        return;
    }
    let path = mounted.path("file");
    fs::write(&path, vec![b'.'; 100_000]).unwrap();
    all_released(&mounted);
    let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    both().open(&path).unwrap().set_modified(past).unwrap();
    all_released(&mounted);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), past);
    let mut mapping = Mapping::of(&path, 100_000);
    mapping.put(50_000, "store");
    assert_ne!(fs::metadata(&path).unwrap().modified().unwrap(), past);
    let file = both().open(&path).unwrap();
    file.write_at(b"write", 60_000).unwrap();
    assert_eq!(mapping.get(60_000, 5), "write");
    mapping.close();
    drop(file);
    all_released(&mounted);
    // The mapping outlives RELEASE.
    mapping.put(70_000, "later");
    let read = fs::read(&path).unwrap();
    let words = [(50_000, b"store"), (60_000, b"write"), (70_000, b"later")];
    for (at, word) in words {
        assert_eq!(read[at..at + 5], *word);
    }
    assert_eq!(transfers(&mounted), 0);
}

/// The kernel refuses the descriptor of a device once; programs do not notice.
#[test]
fn a_file_whose_descriptor_is_refused_is_read_through_the_daemon() {
    let Some(mounted) = passing() else { return };
    mounted.memory.hand_out(HandsOut::Devices);
    let file = both().create_new(true).open(mounted.path("file")).unwrap();
    file.write_at(b"by requests", 0).unwrap();
    assert!(matches!(mounted.mount.passthrough(), Err(NoPassthrough::Refused(_))));
    assert_eq!(fs::read(mounted.path("file")).unwrap(), b"by requests");
    assert_eq!(mounted.memory.opens_by_descriptor(), 0);
    drop(file);
    mounted.memory.hand_out(HandsOut::Files);
    fs::write(mounted.path("next"), b"too").unwrap();
    assert_eq!(fs::read(mounted.path("next")).unwrap(), b"too");
    assert!(transfers(&mounted) >= 4);
    all_released(&mounted);
}

/// Many threads use many files: each file has its own bytes.
#[test]
fn many_concurrent_files_do_not_mix() {
    let Some(mounted) = passing() else { return };
    let work = |thread: usize| {
        for round in 0..50 {
            let path: &Path = &mounted.path(&format!("f{}", (thread + round) % 6));
            let file = both().create(true).truncate(false).open(path).unwrap();
            file.write_at(path.as_os_str().as_encoded_bytes(), 0).unwrap();
            assert_eq!(fs::read(path).unwrap(), path.as_os_str().as_encoded_bytes());
        }
    };
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || work(thread));
        }
    });
    all_released(&mounted);
    assert_eq!(transfers(&mounted), 0);
}
