//! Unusual input and behaviour of programs.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use rustix::io::Errno;

use crate::harness::programs::Program;
use crate::mounted::beside::on_both;
use crate::mounted::{errno, on_volume};

/// `PATH_MAX` includes the NUL; deeper paths are reached step by step.
#[test]
fn paths_are_as_long_as_the_kernel_takes_them() {
    on_both(|root| {
        let mut deep = root.to_owned();
        while deep.as_os_str().len() < 4095 - 256 {
            deep.push("d".repeat(250));
            fs::create_dir(&deep).unwrap();
        }
        let left = 4095 - deep.as_os_str().len() - 1;
        let last = deep.join("f".repeat(left.min(255)));
        fs::write(&last, "deep").unwrap();
        assert_eq!(fs::read(&last).unwrap(), b"deep");
        let filled = |length: usize| {
            let mut path = root.as_os_str().to_owned();
            while path.len() < length {
                path.push("/");
            }
            PathBuf::from(path)
        };
        assert!(fs::metadata(filled(4095)).unwrap().is_dir());
        assert_eq!(errno(fs::metadata(filled(4096))), Errno::NAMETOOLONG);
        // Deeper than one path can reach.
        let below = crate::mounted::beside::Door::to(&deep);
        let mut path = below.path();
        path.push("e".repeat(255));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("g".repeat(255)), "deeper").unwrap();
        assert_eq!(fs::read(path.join("g".repeat(255))).unwrap(), b"deeper");
        fs::remove_dir_all(root.join("d".repeat(250))).unwrap();
    });
}

/// The kernel follows 40 symbolic links in one path, whether they form a chain, a loop or 10⁹
/// steps.
#[test]
fn walks_through_links_end() {
    on_both(|root| {
        let at = |name: &str| root.join(name);
        fs::write(at("link0"), "end").unwrap();
        for number in 1..=1000 {
            symlink(format!("link{}", number - 1), at(&format!("link{number}"))).unwrap();
        }
        assert_eq!(fs::read(at("link40")).unwrap(), b"end");
        for far in ["link41", "link1000"] {
            assert_eq!(errno(fs::read(at(far))), Errno::LOOP);
        }
        symlink("ring", at("ring")).unwrap();
        assert_eq!(errno(fs::read(at("ring"))), Errno::LOOP);
        assert_eq!(errno(File::create(at("ring"))), Errno::LOOP);
        assert_eq!(errno(fs::metadata(at("ring/x"))), Errno::LOOP);
        fs::remove_file(at("ring")).unwrap();
        symlink(".", at("a")).unwrap();
        for (from, to) in [("a", "b"), ("b", "c"), ("c", "d")] {
            symlink(format!("{from}/").repeat(1000), at(to)).unwrap();
        }
        assert_eq!(errno(fs::metadata(at("d"))), Errno::LOOP);
        assert!(fs::metadata(at(&"a/".repeat(40))).unwrap().is_dir());
    });
}

/// Names that other programs misinterpret.
#[test]
fn names_mean_nothing() {
    on_both(|root| {
        let names =
            ["...", " ", "-rf", "~", "$HOME", "a\nb", "\\", "%s%n", "CON", "nul.txt", ".git"];
        for name in names {
            fs::write(root.join(name), name).unwrap();
        }
        for name in names {
            assert_eq!(fs::read_to_string(root.join(name)).unwrap(), name);
            fs::remove_file(root.join(name)).unwrap();
        }
        assert_eq!(fs::read_dir(root).unwrap().count(), 0);
    });
}

/// Opens files, writes, and waits.
const NEVER_CLOSES: &str = r#"
$| = 1;
my @open;
for my $number (0 .. 99) {
    open(my $file, "+>", "$ARGV[0]/f$number") or die "open: $!";
    my $size = $number % 2 ? 10 : 100_000;
    syswrite($file, chr(65 + $number % 26) x $size) == $size or die "write: $!";
    unlink("$ARGV[0]/f$number") or die if $number % 10 == 9;
    push @open, $file;
}
print "all are open\n";
<STDIN>;
"#;

/// The writes of a killed program are kept, and none of its files stays open.
#[test]
fn a_program_that_never_closes_holds_nothing_up() {
    on_volume(|volume| {
        let mut program = Program::perl(NEVER_CLOSES, volume.files());
        assert_eq!(program.hear(), "all are open");
        program.kill();
        volume.run("unmount", &[]).expect_success();
        volume.up(&[]).expect_success();
        let mut found = 0;
        for number in 0..100_usize {
            let path = volume.files().join(format!("f{number}"));
            if number % 10 == 9 {
                assert_eq!(errno(fs::metadata(&path)), Errno::NOENT);
                continue;
            }
            let size = if number % 2 == 1 { 10 } else { 100_000 };
            let letter = b'A' + u8::try_from(number % 26).unwrap();
            assert!(fs::read(&path).unwrap() == vec![letter; size], "{number}");
            found += 1;
        }
        assert_eq!(fs::read_dir(volume.files()).unwrap().count(), found);
    });
}
