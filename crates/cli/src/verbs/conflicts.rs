//! `pelago conflicts`: versions of files of other offices that were written here, and that others
//! have passed over while the line was cut.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use pelago_wire::Handle;
use serde_json::{Value, json};

use self::bytes::{KeptBytes, write_over};
use self::paths::{handle_of, path_of};
use super::access::session_of;
use crate::control::{AskError, ConflictLine, ConflictsReport, ControlReply, Request, ask};
use crate::failure::{Exit, Failure, Outcome};
use crate::moment::Moment;
use crate::server_session::ServerSession;
use crate::up_volume::PATIENCE;
use crate::{json, locate, output};

mod bytes;
mod kept;
mod paths;

const AFTER: &str = "\
A program of this office has written a file of another office, the line was cut, and others have \
written the file meanwhile. The file has their bytes; those that were written here are kept, on \
this machine only, until you decide. Each line has the bytes, the time at which they were written, \
the office that has the file, and its path, or its inode number if the path is not known.

--keep mine writes them over the file, as a program that opens it does, and removes what is kept \
once that is safe. If it is cut off, repeat it. --keep theirs removes what is kept, for ever. \
--save FILE copies it, and decides nothing. Of several versions of a file each takes the newest.

With -V DIR, the folder of a server of mirrors: what only a primary had that was replaced by force \
and became a mirror there. Each line has the bytes that are kept, the time of the file, and its \
path: missing (the new primary has no such file), changed (it has other bytes), attributes, named \
(it has the file by the name in brackets) or removed (the file is back). Copy what you need from \
the folder that is printed; remove that once you are done.";

/// List, save and decide what two offices have written at once.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// A file in the mount, or the inode number that is printed for it
    path: Option<PathBuf>,
    /// Decide which bytes the file has
    #[arg(long, value_enum, value_name = "WHOSE", requires = "path")]
    keep: Option<Whose>,
    /// Copy what is kept to a new file
    #[arg(long, value_name = "FILE", requires = "path", conflicts_with = "keep")]
    save: Option<PathBuf>,
    /// The folder of the volume, which is up on this machine
    #[arg(short = 'V', long, value_name = "DIR")]
    volume: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The choice between the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Whose {
    /// Those that were written here
    Mine,
    /// Those that the file has
    Theirs,
}

impl Whose {
    const fn word(self) -> &'static str {
        match self {
            Self::Mine => "mine",
            Self::Theirs => "theirs",
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum ConflictError {
    #[error("the volume is not up")]
    NotUp,
    #[error("the volume's process does not say what is kept: {0}")]
    NotListed(String),
    #[error("nothing is kept of {0}")]
    None(String),
    #[error("{} is in a mount of another machine's volume", .0.display())]
    OtherServer(PathBuf),
    #[error("{} cannot be written", path.display())]
    NotSaved {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("a server of mirrors keeps folders, and no versions of a file")]
    OfMirrors,
    #[error("what is kept was not removed: {0}")]
    NotDropped(String),
}

/// The volume, and the file of PATH.
struct Subject {
    /// The folder of the volume.
    dir: PathBuf,
    file: Option<Named>,
}

/// The file that was named.
struct Named {
    inode: u64,
    /// Its place, if it was named by a path.
    handle: Option<Handle>,
}

/// Lists what is kept, or does what was chosen with the newest version of a file.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    if let Some(dir) = args.volume.as_deref().filter(|dir| locate::is_mirrors(dir)) {
        return kept::run(args, dir);
    }
    let subject = Subject::of(args)?;
    let report = kept_in(&subject.dir, subject.file.as_ref().map(|file| file.inode))?;
    let newest = || {
        report.conflicts.first().ok_or_else(|| {
            let named = args.path.as_deref().unwrap_or(&subject.dir).display().to_string();
            Failure::new(Exit::NotFound, ConflictError::None(named)).hint("see `pelago conflicts`")
        })
    };
    let (kept, done, mut object) = match (&args.save, args.keep) {
        (None, None) => {
            list(args, &subject, &report)?;
            return Ok(ExitCode::SUCCESS);
        }
        (Some(to), _) => {
            let kept = newest()?;
            (kept, save(&subject, kept, to)?, json!({ "saved": to.to_string_lossy() }))
        }
        (None, Some(whose)) => {
            let kept = newest()?;
            (kept, decide(&subject, kept, whose)?, json!({ "kept": whose.word() }))
        }
    };
    if args.json {
        object["version"] = json::VERSION.into();
        object["inode"] = kept.inode.into();
        object["bytes"] = kept.bytes.into();
        output::print_json(&object)?;
    } else {
        output::print(&format!("{done}\n{}", others(&report, args.keep.is_some())))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Subject {
    fn of(args: &Args) -> Outcome<Self> {
        let Some(path) = &args.path else {
            let dir = locate::find(args.volume.as_deref(), None)?.dir;
            return Ok(Self { dir, file: None });
        };
        if let Some(inode) = number(path) {
            let dir = locate::find(args.volume.as_deref(), None)?.dir;
            return Ok(Self { dir, file: Some(Named { inode, handle: None }) });
        }
        let found = session_of(path)?;
        let Some(dir) = found.volume else {
            return Err(Failure::new(Exit::Usage, ConflictError::OtherServer(path.clone()))
                .hint("run it in the mount of this office's volume"));
        };
        let file = Named { inode: found.node.ino.raw(), handle: Some(found.node) };
        Ok(Self { dir, file: Some(file) })
    }

    /// Returns the handle of the file of a version.
    fn handle(&self, session: &ServerSession, kept: &ConflictLine) -> Outcome<Handle> {
        match self.file.as_ref().and_then(|file| file.handle) {
            Some(handle) => Ok(handle),
            None => handle_of(session, kept),
        }
    }
}

/// Returns the inode number that was given in place of a path.
fn number(path: &Path) -> Option<u64> {
    let number = path.to_str()?.parse().ok()?;
    fs::symlink_metadata(path).is_err().then_some(number)
}

/// Returns what is kept in the volume in `dir`.
fn kept_in(dir: &Path, inode: Option<u64>) -> Outcome<ConflictsReport> {
    let not_listed = |why| Failure::new(Exit::Unreachable, ConflictError::NotListed(why));
    match ask(dir, Request::Conflicts { inode }, PATIENCE) {
        Ok((ControlReply::Conflicts(report), _)) => Ok(report),
        Ok(_) => Err(not_listed("it gives another answer".to_owned())),
        Err(AskError::NotUp) => {
            Err(Failure::new(Exit::NotFound, ConflictError::NotUp)
                .hint("start it with `pelago up`"))
        }
        Err(error) => Err(not_listed(error.to_string())),
    }
}

fn list(args: &Args, subject: &Subject, report: &ConflictsReport) -> Outcome<()> {
    let mounted = locate::mounts_of(&subject.dir).pop().map(|mount| mount.point);
    let paths = match report.conflicts.is_empty() {
        true => Vec::new(),
        false => paths(subject, report),
    };
    let shown = |path: Option<PathBuf>| match (path, &mounted) {
        (Some(path), Some(point)) => Some(point.join(path)),
        (path, _) => path,
    };
    let paths: Vec<Option<PathBuf>> = paths.into_iter().map(shown).collect();
    match args.json {
        true => output::print_json(&object_of(report, &paths)),
        false => output::print(&text_of(report, &paths)),
    }
}

/// Returns the path of each file below the root of the volume. What its home does not tell, because
/// it cannot be reached or the file is gone, is `None`.
fn paths(subject: &Subject, report: &ConflictsReport) -> Vec<Option<PathBuf>> {
    let session = ServerSession::of_volume(&subject.dir).ok();
    let path = |kept: &ConflictLine| path_of(session.as_ref()?, kept.recorded());
    report.conflicts.iter().map(path).collect()
}

/// A kept version, with the path of its file if that is known.
struct Located<'a> {
    kept: &'a ConflictLine,
    path: Option<&'a PathBuf>,
}

fn located<'a>(
    report: &'a ConflictsReport,
    paths: &'a [Option<PathBuf>],
) -> impl Iterator<Item = Located<'a>> {
    let pairs = report.conflicts.iter().zip(paths);
    pairs.map(|(kept, path)| Located { kept, path: path.as_ref() })
}

fn object_of(report: &ConflictsReport, paths: &[Option<PathBuf>]) -> Value {
    let conflict = |located: Located<'_>| {
        let kept = located.kept;
        json!({
            "path": located.path.map(|path| path.to_string_lossy()),
            "inode": kept.inode,
            "office": kept.office,
            "written": kept.seconds,
            "bytes": kept.bytes,
        })
    };
    let conflicts: Vec<Value> = located(report, paths).map(conflict).collect();
    json!({ "version": json::VERSION, "conflicts": conflicts, "left_out": report.left_out })
}

fn text_of(report: &ConflictsReport, paths: &[Option<PathBuf>]) -> String {
    if report.conflicts.is_empty() {
        return "no conflict\n".to_owned();
    }
    let line = |located: Located<'_>| {
        let kept = located.kept;
        let bytes = output::bytes(kept.bytes);
        let written = match Moment::of(kept.seconds) {
            Some(moment) => moment.to_string(),
            None => format!("{} s", kept.seconds),
        };
        let file = match located.path {
            Some(path) => output::name(&path.to_string_lossy()).into_owned(),
            None => kept.inode.to_string(),
        };
        format!("{bytes:>8}  {written}  {}  {file}\n", output::name(&kept.office))
    };
    let mut text: String = located(report, paths).map(line).collect();
    if report.left_out > 0 {
        text.push_str(&format!("{} older ones are not listed\n", report.left_out));
    }
    text
}

/// Returns a line about the other versions of a file whose newest one was taken.
fn others(report: &ConflictsReport, is_decided: bool) -> String {
    let others = report.conflicts.len() as u64 + report.left_out - 1;
    match (others, is_decided) {
        (0, _) => String::new(),
        (others, true) => format!("left      {others} older, of the same file\n"),
        (others, false) => format!("not saved {others} older, of the same file\n"),
    }
}

/// Copies the bytes to a new file. Returns what was done.
fn save(subject: &Subject, kept: &ConflictLine, to: &Path) -> Outcome<String> {
    let not_saved = |source| {
        let error = ConflictError::NotSaved { path: to.to_owned(), source };
        Failure::new(Exit::Failed, error).hint("name a file that does not exist")
    };
    let session = ServerSession::of_volume(&subject.dir)?;
    let mut bytes = KeptBytes::open(&session, kept)?;
    // The file has rights that the copy has not.
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(to).map_err(not_saved)?;
    let mut copy = || {
        while let Some(part) = bytes.next_part()? {
            file.write_all(&part).map_err(not_saved)?;
        }
        file.sync_all().map_err(not_saved)
    };
    let copied = copy();
    if copied.is_err() {
        let _removed = fs::remove_file(to);
    }
    copied?;
    let bytes = output::bytes(kept.bytes);
    Ok(format!("saved     {bytes}; they are kept until you decide"))
}

/// Gives the file the chosen bytes, and removes what is kept. Returns what was done.
fn decide(subject: &Subject, kept: &ConflictLine, whose: Whose) -> Outcome<String> {
    if whose == Whose::Mine {
        let session = ServerSession::of_volume(&subject.dir)?;
        let file = subject.handle(&session, kept)?;
        write_over(&session, kept, file)?;
    }
    let not_dropped = |why: String| {
        Failure::new(Exit::Failed, ConflictError::NotDropped(why)).hint("see `pelago conflicts`")
    };
    match ask(&subject.dir, Request::DropKept { node: kept.node }, PATIENCE) {
        Ok((ControlReply::KeptDropped, _)) => {}
        Ok(_) => return Err(not_dropped("its process gives another answer".to_owned())),
        Err(AskError::Refused { says }) => return Err(not_dropped(says)),
        Err(error) => return Err(not_dropped(error.to_string())),
    }
    let bytes = output::bytes(kept.bytes);
    Ok(match whose {
        Whose::Mine => format!("kept      mine: the file has the {bytes} that were written here"),
        Whose::Theirs => format!("kept      theirs: the {bytes} that were written here are gone"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_path_or_the_number() {
        let named = ConflictLine::sample();
        let unknown = ConflictLine { bytes: 7, ..ConflictLine::sample() };
        let report = ConflictsReport { conflicts: vec![named, unknown], left_out: 0 };
        let paths = [Some(PathBuf::from("/v/files/a\u{7}b")), None];
        let text = " 4.9 KiB  2027-01-01 00:00 UTC  first  /v/files/a\\u{7}b\n     \
                    7 B  2027-01-01 00:00 UTC  first  9\n";
        assert_eq!(text_of(&report, &paths), text);
        let object = object_of(&report, &paths);
        assert_eq!(object["conflicts"][1]["path"], Value::Null);
        assert_eq!(object["conflicts"][0]["inode"], 9);
        assert_eq!(object["conflicts"][0]["written"], 1_798_761_600);
    }

    #[test]
    fn what_is_not_listed_is_counted() {
        let paths = [None];
        let text = text_of(&ConflictsReport::sample(), &paths);
        assert!(text.ends_with("\n1 older ones are not listed\n"), "{text}");
        let none = ConflictsReport { conflicts: Vec::new(), left_out: 0 };
        assert_eq!(text_of(&none, &[]), "no conflict\n");
        assert_eq!(
            others(&ConflictsReport::sample(), true),
            "left      1 older, of the same file\n"
        );
        let one = ConflictsReport { left_out: 0, ..ConflictsReport::sample() };
        assert_eq!(others(&one, true), "");
    }

    #[test]
    fn a_number_is_no_path_unless_a_file_has_that_name() {
        assert_eq!(number(Path::new("281474976710663")), Some(1 << 48 | 7));
        assert_eq!(number(Path::new("notes")), None);
        assert_eq!(number(Path::new("/")), None);
    }
}
