//! The programs that are compared, and their commands for each question.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// The places of the files, and of the indexes of them.
pub(super) struct Places {
    pub(super) pelago: PathBuf,
    /// The mount.
    pub(super) mount: PathBuf,
    /// The folder on the disk.
    pub(super) copy: PathBuf,
    /// The database of `plocate`.
    pub(super) database: PathBuf,
    /// The folder with the configuration and the index of `recoll`.
    pub(super) recoll: PathBuf,
}

/// A program that answers a question.
pub(super) struct Program {
    /// Its name in tables.
    pub(super) name: &'static str,
    pub(super) command: Command,
    /// The beginning of a line of its output that names a file.
    pub(super) line: &'static str,
    /// The goal for its time, beside that of `pelago find`.
    pub(super) goal: Option<Goal>,
}

/// A ratio of times that is to be reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Goal {
    /// The program takes at least this multiple of the time of `pelago find`.
    Slower(f64),
    /// `pelago find` takes at most this multiple of the time of the program.
    Within(f64),
}

/// The least ratio of `find` on the mount, and the most to `plocate` and `recoll`.
const OVER_FIND: Goal = Goal::Slower(20.0);
const OF_PLOCATE: Goal = Goal::Within(3.0);
const OF_RECOLL: Goal = Goal::Within(2.0);

/// Returns the programs for a question of `pelago bench find`, `pelago find` first; none for one
/// that no other program answers.
pub(super) fn programs(places: &Places, question: &Value) -> Vec<Program> {
    let query = question["query"].as_str().unwrap_or_default();
    let [hits, all] = ["hits", "all"].map(|key| question[key].as_u64().unwrap_or_default());
    let others = match query.split_once(['=', '~', ':', ' ']) {
        Some(("project", _)) => tag(places, "project"),
        Some(("name", what)) => name(places, what),
        Some(("kind", _)) => size(places),
        Some(("text", word)) => vec![recoll(places, word, hits)],
        _ => return Vec::new(),
    };
    let mut own = Command::new(&places.pelago);
    own.args(["find", query]).arg(&places.mount);
    if hits < all {
        own.args(["--limit", &hits.to_string()]);
    }
    let own = Program { name: "pelago find", command: own, line: "/", goal: None };
    std::iter::once(own).chain(others).collect()
}

/// Returns the folders with the same files, with the names of `find` and `getfattr` there.
fn folders(
    places: &Places,
    names: [&'static str; 2],
) -> [(PathBuf, &'static str, Option<Goal>); 2] {
    let [mount, disk] = names;
    [(places.mount.clone(), mount, Some(OVER_FIND)), (places.copy.clone(), disk, None)]
}

fn tag(places: &Places, key: &str) -> Vec<Program> {
    let of = |(folder, name, goal): (PathBuf, _, _)| {
        let mut command = Command::new("getfattr");
        command.args(["-R", "-h", "--absolute-names", "-d", "-n", &format!("user.tag.{key}")]);
        command.arg(folder);
        Program { name, command, line: "# file:", goal }
    };
    folders(places, ["getfattr, mount", "getfattr, disk"]).map(of).into()
}

fn find(places: &Places, tests: &[&str]) -> Vec<Program> {
    let of = |(folder, name, goal): (PathBuf, _, _)| {
        let mut command = Command::new("find");
        command.arg(folder).args(tests);
        Program { name, command, line: "/", goal }
    };
    folders(places, ["find, mount", "find, disk"]).map(of).into()
}

/// `what` is a name or a pattern.
fn name(places: &Places, what: &str) -> Vec<Program> {
    let mut command = Command::new("plocate");
    // Without characters of a pattern a word would be found anywhere in a name.
    let is_pattern = what.contains('*');
    let sought = if is_pattern { what.to_owned() } else { format!("\\{what}") };
    command.arg("-d").arg(&places.database).args(["-b", &sought]);
    let plocate = Program { name: "plocate", command, line: "/", goal: Some(OF_PLOCATE) };
    find(places, &["-name", what]).into_iter().chain([plocate]).collect()
}

fn size(places: &Places) -> Vec<Program> {
    find(places, &["-type", "f", "-size", "+4096c", "!", "-newermt", "2021-01-01 00:00:00 UTC"])
}

fn recoll(places: &Places, word: &str, hits: u64) -> Program {
    let mut command = Command::new("recollq");
    command.arg("-c").arg(&places.recoll).args(["-b", "-n", &hits.to_string(), word]);
    Program { name: "recoll", command, line: "file://", goal: Some(OF_RECOLL) }
}

/// Returns the commands that make the databases of the others, with their names.
pub(super) fn makers(places: &Places) -> Vec<(&'static str, Command)> {
    let mut updatedb = Command::new("/usr/sbin/updatedb.plocate");
    updatedb.args(["-l", "0", "-U"]).arg(&places.copy).arg("-o").arg(&places.database);
    updatedb.args(["--prunepaths", "", "--prunefs", "", "--prune-bind-mounts", "no"]);
    let mut recollindex = Command::new("recollindex");
    recollindex.arg("-c").arg(&places.recoll);
    vec![("updatedb", updatedb), ("recollindex", recollindex)]
}

/// Returns the configuration of `recoll`: the texts of the folder, their words as they are.
pub(super) fn recoll_configuration(places: &Places) -> String {
    let lines = [
        format!("topdirs = {}", places.copy.display()),
        "onlyNames = *.txt *.md".to_owned(),
        "indexallfilenames = 0".to_owned(),
        "indexstemminglanguages =".to_owned(),
        "noaspell = 1".to_owned(),
        "skippedPaths =\n".to_owned(),
    ];
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_question_has_the_programs_that_can_answer_it() {
        let places = Places {
            pelago: "/p".into(),
            mount: "/m".into(),
            copy: "/c".into(),
            database: "/d".into(),
            recoll: "/r".into(),
        };
        let names = |query: &str| -> Vec<&str> {
            let asked = programs(&places, &json!({ "query": query, "hits": 3 }));
            asked.iter().map(|program| program.name).collect()
        };
        assert_eq!(names("project=single"), ["pelago find", "getfattr, mount", "getfattr, disk"]);
        let of_name = ["pelago find", "find, mount", "find, disk", "plocate"];
        assert_eq!((names("name~*a*.pdf"), names("name=a.pdf")), (of_name.into(), of_name.into()));
        assert_eq!(names("kind=file size>4K").len(), 3);
        assert_eq!(names("text:word"), ["pelago find", "recoll"]);
        assert_eq!(names("alike=same").len(), 0);
    }
}
