//! The completers for bash, fish and zsh: the script of each shell, and its requests.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap_complete::engine;
use clap_complete::env::{self as builtin, EnvCompleter};

use super::WORDS;
use super::shell_words::Line;

/// The completer for bash. The engine's own completer takes words as bash divides them, at each
/// `=`, and does not quote its results.
pub(super) struct Bash;

/// The engine's own completer for a shell, which first gets its words without quotes.
pub(super) struct Unquoting {
    shell: &'static dyn EnvCompleter,
    /// The shell passes all words with their quotes, not only the last one.
    quotes_all: bool,
}

/// The completer for fish.
pub(super) const FISH: Unquoting = Unquoting { shell: &builtin::Fish, quotes_all: false };

/// The completer for zsh.
pub(super) const ZSH: Unquoting = Unquoting { shell: &builtin::Zsh, quotes_all: true };

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        var: &str,
        _name: &str,
        bin: &str,
        completer: &str,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let completer = format!("'{}'", completer.replace('\'', r"'\''"));
        write!(
            out,
            r#"_pelago_complete() {{
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <({var}=bash {completer} -- \
        "${{COMP_LINE:0:COMP_POINT}}" "${{COMP_LINE:COMP_POINT}}" 2>/dev/null)
}}
complete -o nospace -o nosort -F _pelago_complete {bin} 2>/dev/null ||
    complete -o nospace -F _pelago_complete {bin}
"#
        )
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        args: Vec<OsString>,
        dir: Option<&Path>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let [before, behind] = args.as_slice() else { return Ok(()) };
        let home = std::env::var_os("HOME");
        let home = home.as_ref().map(|home| home.as_bytes());
        let line = Line::parse(before.as_bytes(), home);
        // The rest of the word at the cursor is not a word of its own.
        let all = Line::parse(&[before.as_bytes(), behind.as_bytes()].concat(), home).words;
        let behind = all.get(line.words.len()..).unwrap_or_default();
        let index = line.words.len() - 1;
        let words = [&line.words, behind].concat();
        let found = complete(command, words, index, dir)?;
        let mut texts = Vec::new();
        for candidate in &found {
            texts.extend(line.replacement(candidate.get_value().as_bytes()));
        }
        // bash inserts a single candidate. A blank after it ends the word, unless the word is to be
        // continued.
        if let [text] = texts.as_mut_slice()
            && !line.is_in_quote()
            && !text.ends_with(b"=")
            && !text.ends_with(b"/")
        {
            text.push(b' ');
        }
        texts.iter().try_for_each(|text| out.write_all(&[text, &b"\n"[..]].concat()))
    }
}

impl EnvCompleter for Unquoting {
    fn name(&self) -> &'static str {
        self.shell.name()
    }

    fn is(&self, name: &str) -> bool {
        self.shell.is(name)
    }

    fn write_registration(
        &self,
        var: &str,
        name: &str,
        bin: &str,
        completer: &str,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        self.shell.write_registration(var, name, bin, completer, out)
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        mut args: Vec<OsString>,
        dir: Option<&Path>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let first = if self.quotes_all { 0 } else { args.len().saturating_sub(1) };
        args.iter_mut().skip(first).for_each(|word| *word = unquoted(word));
        let _only_once = WORDS.set(args.clone());
        self.shell.write_complete(command, args, dir, out)
    }
}

/// Runs the engine, after it has set the words for its completers.
fn complete(
    command: &mut clap::Command,
    words: Vec<OsString>,
    index: usize,
    dir: Option<&Path>,
) -> io::Result<Vec<engine::CompletionCandidate>> {
    let _only_once = WORDS.set(words.clone());
    engine::complete(command, words, index, dir)
}

/// Returns a word as the shell will pass it to the program.
fn unquoted(word: &OsString) -> OsString {
    let home = std::env::var_os("HOME");
    let line = Line::parse(word.as_bytes(), home.as_ref().map(|home| home.as_bytes()));
    line.words.into_iter().next().unwrap_or_default()
}
