//! A program of many generated C files with its `Makefile`, whose output is known.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use pelago_random::Random;

use crate::BenchError;
use crate::vocabulary::Vocabulary;

/// The program that `make` builds.
pub(super) const PROGRAM: &str = "program";
/// Files of one folder.
const FOLDER_FILES: u32 = 25;
/// Headers, of which each file includes some.
const HEADERS: u32 = 20;
const INCLUDED: u32 = 3;
/// Functions of one file, and statements of one function.
const FUNCTIONS: usize = 8;
const STATEMENTS: usize = 12;
/// Different words of the comments.
const WORDS: usize = 1000;
/// Words of one comment.
const COMMENT_WORDS: usize = 9;

const MAKEFILE: &str = "\
CFLAGS = -O1 -Iinclude
program: $(OBJECTS) main.o
\t$(CC) -o $@ $(OBJECTS) main.o
$(OBJECTS) main.o: $(HEADERS)
clean:
\trm -f program main.o $(OBJECTS)
";

/// The sources, which depend on their number and the seed alone.
#[derive(Debug)]
pub(super) struct CTree {
    files: Vec<CFile>,
    /// The constant of each header.
    headers: Vec<u32>,
    words: Vocabulary,
    seed: u64,
}

/// One file, with one function for the others.
#[derive(Debug)]
struct CFile {
    number: u32,
    headers: Vec<u32>,
    functions: Vec<Vec<Statement>>,
}

/// A statement that changes the variable `x`, 32 bits without a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statement {
    Add(u32),
    Multiply(u32),
    Xor(u32),
    /// Xors it with itself, shifted to the right.
    Fold(u32),
    /// Adds the constant of a header.
    AddHeader(u32),
}

impl CTree {
    /// Returns the tree of a seed with this number of C files, `main.c` not counted.
    pub(super) fn new(files: u32, seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x63);
        let headers = (0..HEADERS).map(|_| random.bits() as u32).collect();
        let files = (0..files).map(|number| CFile::new(number, &mut random)).collect();
        Self { files, headers, words: Vocabulary::new(seed ^ 0x636f, WORDS), seed }
    }

    /// Makes the files in an empty directory.
    ///
    /// # Errors
    /// [`BenchError::Fill`] with the first call that fails.
    pub(super) fn fill(&self, dir: &Path) -> Result<(), BenchError> {
        let mut random = Random::new(self.seed ^ 0x74);
        self.write(dir, "Makefile", &self.makefile())?;
        self.write(dir, "main.c", &self.main())?;
        self.write(dir, "include/files.h", &self.prototypes())?;
        for (number, value) in self.headers.iter().enumerate() {
            let comment = self.comment(&mut random);
            let text = format!("{comment}#define HEAD{number:02} {value}u\n");
            self.write(dir, &format!("include/head{number:02}.h"), &text)?;
        }
        for file in &self.files {
            let mut comment = || self.comment(&mut random);
            self.write(dir, &format!("{}.c", file.path()), &file.text(&mut comment))?;
        }
        Ok(())
    }

    /// Returns the output of the program.
    pub(super) fn output(&self) -> String {
        let start = self.files.len() as u32;
        let result = self.files.iter().fold(start, |x, file| file.evaluate(x, &self.headers));
        format!("{result}\n")
    }

    fn write(&self, dir: &Path, name: &str, text: &str) -> Result<(), BenchError> {
        let path = dir.join(name);
        let folder = path.parent().unwrap_or(dir);
        let made = fs::create_dir_all(folder).and_then(|()| fs::write(&path, text));
        made.map_err(|source| BenchError::Fill { path, source })
    }

    fn makefile(&self) -> String {
        let objects = self.files.iter().map(|file| format!("{}.o", file.path()));
        let objects: Vec<String> = objects.collect();
        let headers = (0..HEADERS).map(|number| format!("include/head{number:02}.h"));
        let headers: Vec<String> = headers.chain(["include/files.h".to_owned()]).collect();
        format!("OBJECTS = {}\nHEADERS = {}\n{MAKEFILE}", objects.join(" "), headers.join(" "))
    }

    fn main(&self) -> String {
        let mut text = "#include <stdio.h>\n#include \"files.h\"\n\nint main(void)\n{\n".to_owned();
        add(&mut text, format_args!("    unsigned x = {}u;\n", self.files.len()));
        for file in &self.files {
            add(&mut text, format_args!("    x = file{:03}(x);\n", file.number));
        }
        text + "    printf(\"%u\\n\", x);\n    return 0;\n}\n"
    }

    fn prototypes(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            add(&mut text, format_args!("unsigned file{:03}(unsigned x);\n", file.number));
        }
        text
    }

    fn comment(&self, random: &mut Random) -> String {
        let words = (0..COMMENT_WORDS).map(|_| self.words.word(self.words.used(random)));
        format!("/* {} */\n", words.collect::<Vec<_>>().join(" "))
    }
}

impl CFile {
    fn new(number: u32, random: &mut Random) -> Self {
        let headers: Vec<u32> =
            (0..INCLUDED).map(|_| random.below(u64::from(HEADERS)) as u32).collect();
        let function = |random: &mut Random| -> Vec<Statement> {
            (0..STATEMENTS).map(|_| Statement::any(random, &headers)).collect()
        };
        let functions = (0..FUNCTIONS).map(|_| function(random)).collect();
        Self { number, headers, functions }
    }

    /// Returns its path without the ending.
    fn path(&self) -> String {
        format!("part{:02}/file{:03}", self.number / FOLDER_FILES, self.number)
    }

    fn text(&self, comment: &mut impl FnMut() -> String) -> String {
        let mut text = comment() + "#include \"files.h\"\n";
        for header in &self.headers {
            add(&mut text, format_args!("#include \"head{header:02}.h\"\n"));
        }
        for (number, statements) in self.functions.iter().enumerate() {
            let head = format!("static unsigned step{number}(unsigned x)\n{{\n");
            add(&mut text, format_args!("\n{}{head}", comment()));
            for statement in statements {
                add(&mut text, format_args!("    {};\n", statement.text()));
            }
            text.push_str("    return x;\n}\n");
        }
        add(&mut text, format_args!("\nunsigned file{:03}(unsigned x)\n{{\n", self.number));
        for number in 0..self.functions.len() {
            add(&mut text, format_args!("    x = step{number}(x);\n"));
        }
        text + "    return x;\n}\n"
    }

    /// Returns the result of its function.
    fn evaluate(&self, x: u32, headers: &[u32]) -> u32 {
        self.functions.iter().flatten().fold(x, |x, statement| statement.evaluate(x, headers))
    }
}

impl Statement {
    fn any(random: &mut Random, headers: &[u32]) -> Self {
        let value = random.bits() as u32;
        match random.below(5) {
            0 => Self::Add(value),
            // An odd factor loses no bit.
            1 => Self::Multiply(value | 1),
            2 => Self::Xor(value),
            3 => Self::Fold(1 + value % 31),
            _ => Self::AddHeader(random.pick(headers).copied().unwrap_or(0)),
        }
    }

    fn text(self) -> String {
        match self {
            Self::Add(value) => format!("x += {value}u"),
            Self::Multiply(value) => format!("x *= {value}u"),
            Self::Xor(value) => format!("x ^= {value}u"),
            Self::Fold(bits) => format!("x ^= x >> {bits}"),
            Self::AddHeader(header) => format!("x += HEAD{header:02}"),
        }
    }

    fn evaluate(self, x: u32, headers: &[u32]) -> u32 {
        match self {
            Self::Add(value) => x.wrapping_add(value),
            Self::Multiply(value) => x.wrapping_mul(value),
            Self::Xor(value) => x ^ value,
            Self::Fold(bits) => x ^ (x >> bits),
            Self::AddHeader(header) => {
                x.wrapping_add(headers.get(header as usize).copied().unwrap_or(0))
            }
        }
    }
}

fn add(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Programs;

    /// All files of a folder, with their texts.
    fn texts(dir: &Path) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut folders = vec![dir.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(dir).unwrap().display().to_string();
                    found.push((name, fs::read_to_string(path).unwrap()));
                }
            }
        }
        found.sort();
        found
    }

    fn made(files: u32, seed: u64) -> (tempfile::TempDir, CTree) {
        let dir = tempfile::tempdir().unwrap();
        let tree = CTree::new(files, seed);
        tree.fill(dir.path()).unwrap();
        (dir, tree)
    }

    #[test]
    fn a_seed_gives_the_same_sources() {
        let [one, same, other] = [1, 1, 2].map(|seed| made(30, seed));
        assert_eq!(texts(one.0.path()), texts(same.0.path()));
        assert_ne!(texts(one.0.path()), texts(other.0.path()));
        assert_eq!(one.1.output(), same.1.output());
        assert_ne!(one.1.output(), other.1.output());
    }

    #[test]
    fn each_file_is_in_the_makefile_and_in_a_folder_of_at_most_25() {
        let (dir, _) = made(60, 1);
        let texts = texts(dir.path());
        let text = |name: &str| &texts.iter().find(|file| file.0 == name).unwrap().1;
        let makefile = text("Makefile");
        let sources: Vec<&str> = texts
            .iter()
            .filter_map(|file| file.0.strip_suffix(".c").filter(|name| name.contains('/')))
            .collect();
        assert_eq!(
            (sources.len(), sources[25], sources[59]),
            (60, "part01/file025", "part02/file059")
        );
        assert!(sources.iter().all(|source| makefile.contains(&format!("{source}.o"))));
        assert_eq!(text("main.c").matches("(x);").count(), 60);
        let bytes = text("part00/file000.c").len();
        assert!((2000..6000).contains(&bytes), "{bytes}");
    }

    /// The compiler computes what we compute.
    #[test]
    fn the_program_prints_what_is_expected() {
        let (dir, tree) = made(5, 3);
        let work = tempfile::tempdir().unwrap();
        let programs = match Programs::new(work.path().join("home"), &["make", "cc"]) {
            Ok(programs) => programs,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        };
        programs.run("make", &[], dir.path()).unwrap();
        let ran = std::process::Command::new(dir.path().join(PROGRAM)).output().unwrap();
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), tree.output());
        let objects = || texts(dir.path()).iter().filter(|file| file.0.ends_with(".o")).count();
        fs::remove_file(dir.path().join(PROGRAM)).unwrap();
        programs.run("make", &["clean".as_ref()], dir.path()).unwrap();
        assert_eq!(objects(), 0);
    }

    #[test]
    fn a_statement_computes_with_32_bits() {
        let headers = [7];
        for (statement, expected) in [
            (Statement::Add(2), 1),
            (Statement::Multiply(3), u32::MAX - 2),
            (Statement::Xor(0xff), 0xffff_ff00),
            (Statement::Fold(31), 0xffff_fffe),
            (Statement::AddHeader(0), 6),
            (Statement::AddHeader(9), u32::MAX),
        ] {
            assert_eq!(statement.evaluate(u32::MAX, &headers), expected, "{}", statement.text());
        }
    }
}
