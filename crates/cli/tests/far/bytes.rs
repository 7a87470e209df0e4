//! Bytes of files: each way to write in one mount, and each way to read in the others.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use pelago_random::bytes_of;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, OFlags, copy_file_range, fallocate, linkat, statvfs,
};
use rustix::io::Errno;

use crate::far::{errno, on_world};
use crate::harness::mapping::Mapping;
use crate::harness::program::{run, until, wait};
use crate::harness::programs::Program;

/// Sizes below and above the inline limit.
const SIZES: [usize; 3] = [10, 5000, 3 << 20];

#[test]
fn each_appends_in_turn_and_all_read() {
    on_world(|world| {
        let roots = world.roots();
        for start in SIZES {
            let name = format!("turns{start}");
            let mut expected = bytes_of(1, start);
            fs::write(roots[0].join(&name), &expected).unwrap();
            for round in 0..30 {
                let writer = &roots[round % roots.len()];
                let line = format!("round {round}\n").repeat(1 + round * 20);
                let mut file = OpenOptions::new().append(true).open(writer.join(&name)).unwrap();
                file.write_all(line.as_bytes()).unwrap();
                expected.extend_from_slice(line.as_bytes());
                // Once with the writer's file still open, once after its close.
                let file = if round % 2 == 0 { Some(file) } else { None };
                for root in &roots {
                    let path = root.join(&name);
                    assert_eq!(fs::metadata(&path).unwrap().len(), expected.len() as u64);
                    assert!(fs::read(&path).unwrap() == expected, "{}", path.display());
                }
                drop(file);
            }
        }
    });
}

/// A file that is open all the time on every mount.
#[test]
fn an_open_file_shows_the_writes_of_others() {
    on_world(|world| {
        let roots = world.roots();
        for size in SIZES {
            let name = format!("open{size}");
            let mut expected = bytes_of(2, size);
            fs::write(roots[0].join(&name), &expected).unwrap();
            let open = |root: &PathBuf| {
                OpenOptions::new().read(true).write(true).open(root.join(&name)).unwrap()
            };
            let files: Vec<File> = roots.iter().map(open).collect();
            for round in 0..24 {
                let file = &files[round % files.len()];
                match round % 4 {
                    3 => {
                        let size = expected.len() - expected.len() / 10;
                        expected.truncate(size);
                        file.set_len(size as u64).unwrap();
                    }
                    turn => {
                        let at = expected.len() * turn / 2;
                        let new = bytes_of(round as u64, 700);
                        expected.resize(expected.len().max(at + new.len()), 0);
                        expected[at..at + new.len()].copy_from_slice(&new);
                        file.write_all_at(&new, at as u64).unwrap();
                    }
                }
                for (file, root) in files.iter().zip(&roots) {
                    let at = root.display();
                    assert_eq!(file.metadata().unwrap().len(), expected.len() as u64, "{at}");
                    let mut found = Vec::new();
                    let mut from = file;
                    from.seek(SeekFrom::Start(0)).unwrap();
                    from.read_to_end(&mut found).unwrap();
                    assert!(found == expected, "round {round}, size {size}, {at}");
                }
            }
        }
    });
}

/// Each read begins behind what was the end, and nothing has asked for the new size before it. The
/// file is made in the server's mount: an inode that is new to its kernel is invalidated several
/// times more, and a read that meets this may end at the old size.
#[test]
fn bytes_behind_the_old_end_are_read_at_once() {
    const ROUNDS: u64 = 700;
    const LENGTH: usize = 700;
    on_world(|world| {
        world.each_side(|side, others, name| {
            File::create_new(world.volume.files().join(name)).unwrap();
            let writer = File::options().write(true).open(side.join(name)).unwrap();
            let readers: Vec<File> =
                others.iter().map(|root| File::open(root.join(name)).unwrap()).collect();
            for round in 0..ROUNDS {
                let bytes = bytes_of(round, LENGTH);
                let at = round * LENGTH as u64;
                writer.write_all_at(&bytes, at).unwrap();
                for (reader, root) in readers.iter().zip(others) {
                    let mut found = vec![0; LENGTH];
                    let read = reader.read_exact_at(&mut found, at);
                    read.unwrap_or_else(|error| panic!("{round}, {}: {error}", root.display()));
                    assert!(found == bytes, "{round}, {}", root.display());
                }
            }
        });
    });
}

/// A file is read that another mount has open and makes longer without a pause: what that was
/// answered is there, whatever it writes meanwhile.
#[test]
fn a_file_that_another_mount_makes_longer_is_read_to_its_end() {
    const READS: u64 = 300;
    const LENGTH: usize = 700;
    on_world(|world| {
        world.each_side(|side, others, name| {
            let writer = File::create_new(side.join(name)).unwrap();
            let written = AtomicU64::new(0);
            let stop = AtomicBool::new(false);
            let write = || {
                while !stop.load(Ordering::Acquire) {
                    let round = written.load(Ordering::Acquire);
                    let bytes = bytes_of(round, LENGTH);
                    writer.write_all_at(&bytes, round * LENGTH as u64).unwrap();
                    written.store(round + 1, Ordering::Release);
                }
            };
            let read = |root: &PathBuf| {
                let reader = File::open(root.join(name)).unwrap();
                for _ in 0..READS {
                    let before = written.load(Ordering::Acquire);
                    until("more is written", || written.load(Ordering::Acquire) > before);
                    let round = written.load(Ordering::Acquire) - 1;
                    let mut found = vec![0; LENGTH];
                    let read = reader.read_exact_at(&mut found, round * LENGTH as u64);
                    read.unwrap_or_else(|error| panic!("{round}, {}: {error}", root.display()));
                    assert!(found == bytes_of(round, LENGTH), "{round}, {}", root.display());
                }
            };
            thread::scope(|scope| {
                let writing = scope.spawn(write);
                let readers: Vec<_> =
                    others.iter().map(|root| scope.spawn(|| read(root))).collect();
                let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
                stop.store(true, Ordering::Release);
                writing.join().unwrap();
                ended.into_iter().for_each(|reader| reader.unwrap());
            });
        });
    });
}

/// A shared mapping has the bytes that another mount wrote before the mapping was made; pages of an
/// earlier mapping are not kept.
#[test]
fn a_mapping_shows_what_was_written_before_it_was_made() {
    if let Some(reason) = Mapping::cannot() {
        println!("skipped: {reason}");
        return;
    }
    on_world(|world| {
        world.each_side(|side, others, name| {
            fs::write(side.join(name), bytes_of(3, 100_000)).unwrap();
            for round in 0..5 {
                let at = 9_000 * round;
                let word = format!("round-{round}");
                let file = File::options().write(true).open(side.join(name)).unwrap();
                file.write_all_at(word.as_bytes(), at as u64).unwrap();
                for root in others {
                    let mut mapping = Mapping::of(&root.join(name), 100_000);
                    assert_eq!(mapping.get(at, word.len()), word, "{}", root.display());
                }
            }
            // A store through a mapping of another mount arrives with `msync`.
            let mut mapping = Mapping::of(&others[0].join(name), 100_000);
            mapping.put(50_000, "stored");
            mapping.sync();
            let mut found = [0; 6];
            File::open(side.join(name)).unwrap().read_exact_at(&mut found, 50_000).unwrap();
            assert_eq!(&found, b"stored");
        });
    });
}

/// Processes append to one file, each on a mount of its own: each line is there once, and whole.
fn append_on(roots: &[PathBuf]) {
    const LINES: usize = 400;
    let script = "open(my $file, '>>', $ARGV[0]) or die; \
        for my $line (1 .. $ARGV[2]) { \
            my $text = \"$ARGV[1] $line \" . ('x' x ($line % 300)) . \"\\n\"; \
            syswrite($file, $text) == length($text) or die \"write: $!\"; \
        }";
    let start = |(side, root): (usize, &PathBuf)| {
        let mut perl = Command::new("perl");
        perl.args(["-e", script]).arg(root.join("log"));
        perl.args([side.to_string(), LINES.to_string()]).stdin(Stdio::null());
        perl.spawn().unwrap()
    };
    let children: Vec<_> = roots.iter().enumerate().map(start).collect();
    for mut child in children {
        assert_eq!(wait(&mut child), Some(0));
    }
    let expected = fs::read_to_string(roots[0].join("log")).unwrap();
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    for line in expected.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words.len(), 3, "{line:?} in a file of {} bytes", expected.len());
        let number: usize = words[1].parse().unwrap();
        let last = next.entry(words[0]).or_insert(0);
        assert_eq!(number, *last + 1, "each writer's lines are in its order: {line}");
        assert_eq!(words[2], "x".repeat(number % 300));
        *last = number;
    }
    assert!(next.len() == roots.len() && next.values().all(|last| *last == LINES), "{next:?}");
    for root in roots {
        assert!(fs::read_to_string(root.join("log")).unwrap() == expected);
    }
}

#[test]
fn no_append_of_three_machines_is_lost() {
    on_world(|world| {
        world.mount_tls("third");
        append_on(&world.roots()[1..]);
    });
}

/// As above, with the server's own mount as one of the three.
#[test]
fn no_append_of_three_mounts_is_lost_or_torn() {
    on_world(|world| append_on(&world.roots()));
}

#[test]
fn an_open_file_without_a_name_stays_readable() {
    on_world(|world| {
        world.each_side(|side, others, turn| {
            for size in SIZES {
                let name = &format!("{turn}-{size}");
                let bytes = bytes_of(4, size);
                fs::write(side.join(name), &bytes).unwrap();
                let files: Vec<File> =
                    others.iter().map(|root| File::open(root.join(name)).unwrap()).collect();
                if size == SIZES[0] {
                    fs::remove_file(side.join(name)).unwrap();
                } else {
                    fs::write(side.join("new"), "new").unwrap();
                    fs::rename(side.join("new"), side.join(name)).unwrap();
                }
                for mut file in files {
                    let mut found = Vec::new();
                    file.read_to_end(&mut found).unwrap();
                    assert!(found == bytes);
                    assert_eq!(file.metadata().unwrap().nlink(), 0);
                }
            }
        });
    });
}

#[test]
fn a_file_that_was_made_without_a_name_can_get_one() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(OFlags::TMPFILE.bits() as i32);
            let mut file = options.open(side).unwrap();
            file.write_all(b"unnamed").unwrap();
            assert_eq!(file.metadata().unwrap().nlink(), 0);
            let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            linkat(CWD, own, CWD, side.join(name), AtFlags::SYMLINK_FOLLOW).unwrap();
            for root in others {
                assert_eq!(fs::read(root.join(name)).unwrap(), b"unnamed");
            }
        });
    });
}

#[test]
fn links_lead_to_the_same_file() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            fs::write(side.join(name), "one").unwrap();
            let hard = format!("{name}.hard");
            let soft = format!("{name}.soft");
            fs::hard_link(side.join(name), side.join(&hard)).unwrap();
            symlink(&hard, side.join(&soft)).unwrap();
            for root in others {
                let ino = fs::metadata(side.join(name)).unwrap().ino();
                assert_eq!(fs::metadata(root.join(&hard)).unwrap().ino(), ino);
                assert_eq!(fs::read_link(root.join(&soft)).unwrap(), Path::new(&hard));
                fs::write(root.join(&soft), "two").unwrap();
                assert_eq!(fs::read(side.join(name)).unwrap(), b"two");
                fs::write(side.join(name), "one").unwrap();
                assert_eq!(fs::read(root.join(&soft)).unwrap(), b"one");
            }
        });
    });
}

#[test]
fn holes_and_reserved_ranges_are_the_same_everywhere() {
    const MIB: u64 = 1 << 20;
    on_world(|world| {
        world.each_side(|side, others, name| {
            let file = File::create(side.join(name)).unwrap();
            file.write_all_at(&bytes_of(5, MIB as usize), 0).unwrap();
            file.write_all_at(b"end", 8 * MIB).unwrap();
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, punch, MIB / 2, MIB / 4).unwrap();
            fallocate(&file, FallocateFlags::empty(), 8 * MIB, MIB).unwrap();
            let find = |file: &File, from| {
                let hole = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(from)).unwrap();
                let data = rustix::fs::seek(file, rustix::fs::SeekFrom::Data(hole)).unwrap();
                (hole, data)
            };
            for root in others {
                let file = File::open(root.join(name)).unwrap();
                assert_eq!(file.metadata().unwrap().len(), 9 * MIB);
                let first = (find(&file, 0), find(&file, MIB * 3 / 4));
                assert_eq!(first, ((MIB / 2, MIB * 3 / 4), (MIB, 8 * MIB)));
                let mut hole = vec![1; MIB as usize / 4];
                file.read_exact_at(&mut hole, MIB / 2).unwrap();
                assert!(hole.iter().all(|byte| *byte == 0));
            }
        });
    });
}

#[test]
fn a_range_is_copied_by_the_server() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            let bytes = bytes_of(6, 2 << 20);
            fs::write(side.join("source"), &bytes).unwrap();
            let from = File::open(side.join("source")).unwrap();
            let to = File::create(side.join(name)).unwrap();
            let mut at = 4096;
            let mut copied = 0;
            while copied < 1 << 20 {
                let left = (1 << 20) - copied;
                let step = copy_file_range(&from, Some(&mut at), &to, None, left).unwrap();
                assert!(step > 0);
                copied += step;
            }
            for root in others {
                assert!(fs::read(root.join(name)).unwrap() == bytes[4096..4096 + (1 << 20)]);
            }
        });
    });
}

#[test]
fn all_mounts_show_the_same_space() {
    on_world(|world| {
        let all: Vec<_> = world.roots().iter().map(|root| statvfs(root).unwrap()).collect();
        for found in &all {
            assert_eq!((found.f_blocks, found.f_bsize), (all[0].f_blocks, all[0].f_bsize));
            assert!(found.f_bavail > 0);
        }
    });
}

#[test]
fn direct_writes_and_reads_agree() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            let direct = OFlags::DIRECT.bits() as i32;
            let status = Command::new("dd")
                .args(["if=/dev/urandom", "bs=64k", "count=32", "oflag=direct", "status=none"])
                .arg(format!("of={}", side.join(name).display()))
                .status();
            assert!(status.unwrap().success());
            let expected = fs::read(side.join(name)).unwrap();
            assert_eq!(expected.len(), 32 << 16);
            for root in others {
                assert!(fs::read(root.join(name)).unwrap() == expected);
                let mut command = Command::new("dd");
                command.args(["bs=64k", "iflag=direct", "status=none"]);
                command.arg(format!("if={}", root.join(name).display()));
                let read = command.output().unwrap();
                assert!(read.status.success() && read.stdout == expected, "{}", root.display());
                let opened =
                    OpenOptions::new().read(true).custom_flags(direct).open(root.join(name));
                drop(opened.unwrap());
            }
        });
    });
}

/// A program that one mount installs is executed by the others, each time in its newest version.
#[test]
fn a_program_is_executed_as_it_was_written() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            let path = side.join(name);
            for version in 0..5 {
                fs::write(&path, format!("#!/bin/sh\necho version {version}\n")).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
                for root in others {
                    let ran = run(&mut Command::new(root.join(name))).expect_success();
                    assert_eq!(ran.out, format!("version {version}\n"));
                }
            }
            let binary = format!("{name}-binary");
            fs::copy("/bin/echo", side.join(&binary)).unwrap();
            for root in others {
                let ran = run(Command::new(root.join(&binary)).arg("it runs")).expect_success();
                assert_eq!(ran.out, "it runs\n");
            }
        });
    });
}

/// A program that runs cannot be written through its own mount. Through another mount it can be
/// replaced, and goes on with what it was started from.
#[test]
fn a_running_program_can_be_replaced_by_another_mount() {
    on_world(|world| {
        world.each_side(|side, others, name| {
            fs::copy("/bin/cat", side.join(name)).unwrap();
            for root in others {
                let mut cat = Program::start(&mut Command::new(root.join(name)));
                assert_eq!(cat.ask("before"), "before");
                let busy = File::options().write(true).open(root.join(name));
                assert_eq!(errno(busy), Errno::TXTBSY);
                fs::copy("/bin/cat", side.join("new")).unwrap();
                fs::rename(side.join("new"), side.join(name)).unwrap();
                assert_eq!(cat.ask("after"), "after");
            }
        });
    });
}
