//! `small`: a server with a mount of its own, two mounts by other processes, and another office of
//! the volume, each process in a group with 64 MiB of memory. The group counts the memory of the
//! process, that of the kernel for it, and its page cache.
//!
//! Programs work in both far mounts and in the other office, in its own folder and in one of the
//! first office, at the same time: many small files, gigabytes, and thousands of open files. The
//! verb fails if the kernel killed a process for its memory, if a step fails, or if a mount reads
//! other bytes than another one has written.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use pelago_testbed::mounted;
use pelago_testbed::process::{self, Ending};
use pelago_testbed::{VerbResult, arguments, machine, verdict};
use serde_json::Value;

use crate::kit::group::Group;

/// Memory of each process.
const LIMIT_MIB: u64 = 64;
/// The value of `--memory`.
const MEMORY: &str = "48MiB";
const DEFAULT_FILES: u32 = 20_000;
/// Most time of one step: only a step that hangs takes so long.
const STEP_LIMIT: Duration = Duration::from_secs(1800);
/// The names of the processes.
const NAMES: [&str; 4] = ["server", "far", "second", "office"];
/// The folders of the volume and of the other office's.
const VOLUMES: [&str; 2] = ["berlin", "volume"];

/// Makes a quarter of the files in each folder, at the same time.
const MAKE: &str = r#"
make() { perl -e '
    my ($root, $files) = @ARGV;
    for my $file (0 .. $files - 1) {
        my $dir = "$root/" . int($file / 100);
        if ($file % 100 == 0) { mkdir($dir) or die("$dir: $!"); }
        open(my $new, ">", "$dir/some-longer-name-$file") or die("$file: $!");
        print $new "$file " x (37 * $file % 1500);
        close($new) or die("$file: $!");
    }' "$1" $((FILES / 4)); }
mkdir far/one second/two office/three files/four
make far/one & one=$!
make second/two & two=$!
make office/three & three=$!
make office/four & four=$!
wait $one; wait $two; wait $three; wait $four
"#;
/// Lists them with their attributes in each mount.
const LIST: &str = r#"
list() { (cd "$1"; find . -type f -printf '%P %s\n' | sort | cksum); }
list far > far.list & one=$!
list second > second.list & two=$!
list office > office.list & three=$!
wait $one; wait $two; wait $three
list files > files.list
for mount in second office files; do cmp far.list $mount.list; done
test "$(find files -type f | wc -l)" = "$FILES"
"#;
/// Reads all bytes in each mount.
const READ: &str = r#"
read_all() { (cd "$1"; find . -type f -print0 | sort -z | xargs -0 cat | cksum); }
read_all far > far.read & one=$!
read_all second > second.read & two=$!
read_all office > office.read & three=$!
wait $one; wait $two; wait $three
read_all files > files.read
for mount in second office files; do cmp far.read $mount.read; done
"#;
/// Writes a gigabyte over a far mount, and one in the other office, where its bytes stay, and reads
/// both in all.
const LARGE: &str = r#"
large() { perl -e 'print(pack("N", $_) x 262144) for 0 .. 1023'; }
write() { large | dd of="$1" bs=1M iflag=fullblock conv=fsync status=none; }
write far/large & one=$!
write office/there & two=$!
wait $one; wait $two
large | cksum > large.sum
for file in large there; do
    sum() { cksum < "$1/$file" > "$1.sum"; }
    sum far & one=$!
    sum second & two=$!
    sum office & three=$!
    wait $one; wait $two; wait $three
    sum files
    for mount in far second office files; do cmp "$mount.sum" large.sum; done
done
"#;
/// Keeps 2,000 files open in each mount, half of them with bytes in memory.
const OPEN: &str = r#"
hold() { perl -e '
    my ($root) = @ARGV;
    my @open;
    for my $number (0 .. 1999) {
        open(my $file, "+>", "$root/$number") or die("$number: $!");
        defined(syswrite($file, "x" x (2000 + $number % 2 * 4000))) or die("$number: $!");
        push(@open, $file);
    }
    for my $file (@open) { defined(syswrite($file, "y" x 500)) or die($!); }
    my $sum = 0;
    for my $file (@open) {
        seek($file, 0, 0);
        local $/;
        $sum += length(<$file>);
    }
    for my $file (@open) { close($file) or die($!); }
    $sum == 2000 * 4500 or die("$sum bytes");' "$1"; }
mkdir far/one/held second/two/held office/three/held files/four/held
hold far/one/held & one=$!
hold second/two/held & two=$!
hold office/three/held & three=$!
hold office/four/held & four=$!
wait $one; wait $two; wait $three; wait $four
"#;
const REMOVE: &str = r#"
rm -r far/one far/large & one=$!
rm -r second/two & two=$!
rm -r office/three office/four office/there & three=$!
wait $one; wait $two; wait $three
"#;
const STEPS: [(&str, &str); 6] = [
    ("make", MAKE),
    ("list", LIST),
    ("read", READ),
    ("large", LARGE),
    ("open", OPEN),
    ("remove", REMOVE),
];

/// Runs the steps, and prints the memory of the processes.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    let files = arguments::count(arguments, DEFAULT_FILES, "files")? / 400 * 400;
    if !machine::is_root() {
        return Err("needs root to limit the memory of processes".to_owned());
    }
    let logs = mounted::log_folder("small")?;
    let small = Small::start(&mounted::build()?, &logs)?;
    for (step, script) in STEPS {
        let ended = small.shell(step, script, files);
        let seconds = ended.as_ref().map_or(0.0, |ended| ended.duration.as_secs_f64());
        println!("{step:8} {seconds:6.1} s; resident at most {}", small.residents()?.join(", "));
        ended?;
    }
    let killed = small.groups.iter().map(Group::killed).sum::<Result<u64, String>>()?;
    println!("{killed} processes killed for their memory, of {LIMIT_MIB} MiB each");
    small.finish()?;
    verdict(killed == 0)
}

/// The processes, and the folder of their volume and mounts.
struct Small {
    pelago: PathBuf,
    logs: PathBuf,
    folder: PathBuf,
    groups: Vec<Group>,
}

impl Small {
    fn start(pelago: &Path, logs: &Path) -> Result<Self, String> {
        let folder = std::env::temp_dir().join(format!("pelago-small-{}", std::process::id()));
        for mount in ["files", "far", "second", "office"] {
            let point = folder.join(mount);
            std::fs::create_dir_all(&point).map_err(|why| format!("{}: {why}", point.display()))?;
        }
        let mut small =
            Self { pelago: pelago.to_owned(), logs: logs.to_owned(), folder, groups: Vec::new() };
        for name in NAMES {
            small.groups.push(Group::new(name, LIMIT_MIB << 20)?);
        }
        let up = ["up", "volume", "--mount", "files", "--listen", "127.0.0.1:0", "--json"];
        let up = small.daemon(0, &up)?;
        let up: Value = serde_json::from_str(&up.stdout).map_err(|why| format!("up: {why}"))?;
        let address = up["listening"].as_str().ok_or("up names no address")?;
        small.pelago("key-new", &["key", "new"])?;
        let key = small.pelago("key-show", &["key", "show"])?.stdout;
        small.pelago("key-allow", &["key", "allow", key.trim(), "-V", "volume"])?;
        small.daemon(1, &["mount", address, "far"])?;
        small.daemon(2, &["mount", "volume/pelago.sock", "second"])?;
        let ticket = small.pelago("invite", &["site", "invite", "berlin", "-V", "volume"])?.stdout;
        let join = ["join", ticket.trim(), "berlin", "--mount", "office"];
        small.daemon(3, &[&join[..], &["--listen", "127.0.0.1:0"]].concat())?;
        Ok(small)
    }

    /// Starts a daemon in one of the groups.
    fn daemon(&self, group: usize, arguments: &[&str]) -> Result<Ending, String> {
        let mut command = self.groups[group].command(&self.pelago);
        command.args(arguments).args(["--memory", MEMORY, "--detach"]);
        self.step(NAMES[group], &mut command)
    }

    fn pelago(&self, step: &str, arguments: &[&str]) -> Result<Ending, String> {
        self.step(step, Command::new(&self.pelago).args(arguments))
    }

    fn shell(&self, step: &str, script: &str, files: u32) -> Result<Ending, String> {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", script]).env("FILES", files.to_string());
        self.step(step, &mut bash)
    }

    /// Runs a command in the folder; an exit code other than 0 is an error.
    fn step(&self, step: &str, command: &mut Command) -> Result<Ending, String> {
        command.current_dir(&self.folder).env("PELAGO_KEY", self.folder.join("key"));
        command.env("LC_ALL", "C");
        let ending = process::run_limited(command, &self.logs.join(step), STEP_LIMIT)?;
        match ending.is_success() {
            true => Ok(ending),
            false => {
                let said = [ending.stdout.trim_end(), ending.stderr.trim_end()].join("\n");
                Err(format!("{step}: {}\n{said}", ending.describe()))
            }
        }
    }

    /// Returns the most memory that each process had resident.
    fn residents(&self) -> Result<Vec<String>, String> {
        let resident =
            |group: &Group| Ok(format!("{} {} MiB", group.name, group.most_resident()? >> 10));
        self.groups.iter().map(resident).collect()
    }

    /// Ends the mounts and the servers, and checks both halves of the volume.
    fn finish(self) -> Result<(), String> {
        for mount in ["far", "second"] {
            self.pelago("unmount", &["unmount", mount, "--timeout", "300"])?;
        }
        for volume in VOLUMES {
            self.pelago("unmount", &["unmount", "-V", volume, "--timeout", "300"])?;
        }
        VOLUMES.iter().try_for_each(|volume| self.pelago("check", &["check", volume]).map(drop))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        for group in &self.groups {
            group.end();
        }
        for mount in ["far", "second", "office", "files"] {
            // Not mounted any more, unless something went wrong.
            let _gone = process::output_of(
                "umount",
                &["-l", &self.folder.join(mount).display().to_string()],
            );
        }
        self.groups.clear();
        if let Err(why) = std::fs::remove_dir_all(&self.folder) {
            println!("left behind: {}: {why}", self.folder.display());
        }
    }
}
