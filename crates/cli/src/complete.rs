//! Completion of command lines for bash, fish and zsh.
//!
//! `COMPLETE=bash pelago` prints the script that registers the completion in a shell. Then each
//! press of Tab runs `pelago` with that variable again. The engine of [`clap_complete`] completes
//! verbs and options; this module adds tags, which it gets from the mount, and bash's rules for the
//! division and quoting of words.
//!
//! A mount may hang, and a process that waits for it may not end. So a child does all work, and its
//! parent abandons it after [`DEADLINE`].

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread::Builder;
use std::time::Duration;
use std::{env, io};

use clap_complete::CompleteEnv;
use clap_complete::engine::CompletionCandidate;
use clap_complete::env::Shells;
use pelago_find::{Unfinished, Wanted};

use self::arguments::Arguments;
use self::ask::{keys, keys_of, values};
use self::shells::{Bash, FISH, ZSH};

mod arguments;
mod ask;
mod shell_words;
mod shells;

/// The variable that names the shell.
const SHELL: &str = "COMPLETE";
/// The variable of a child, which does the work.
const WORKER: &str = "_PELAGO_COMPLETE";
/// The longest time for which a shell waits.
const DEADLINE: Duration = Duration::from_millis(300);
/// The limit for the output of the child.
const ANSWER_BYTES: u64 = 1 << 20;

const SHELLS: Shells<'static> = Shells(&[&Bash, &FISH, &ZSH]);

/// The words of the command line, for completers: the engine passes a completer only its own word.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Returns whether a shell requests completions, or a user the script that registers them.
pub(crate) fn is_meant() -> bool {
    let shell = env::var_os(SHELL).unwrap_or_default();
    let name = Path::new(&shell).file_stem().map(OsStr::to_string_lossy);
    name.is_some_and(|name| SHELLS.completer(&name).is_some())
}

/// Answers a shell. Errors are not printed, because the user is typing a line.
pub(crate) fn run(command: fn() -> clap::Command) -> ExitCode {
    let asks = env::args_os().nth(2).is_some();
    let done = if asks && env::var_os(WORKER).is_none() {
        wait_for_worker()
    } else {
        let dir = env::current_dir().ok();
        let engine = CompleteEnv::with_factory(command).shells(SHELLS);
        engine.try_complete(env::args_os(), dir.as_deref()).map(|_| ()).map_err(io::Error::other)
    };
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the child, and prints its output if it ends in time.
fn wait_for_worker() -> io::Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command.args(env::args_os().skip(1)).env(WORKER, "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let Some(out) = child.stdout.take() else { return Ok(()) };
    let (send, receive) = mpsc::channel();
    Builder::new().name("completions".to_owned()).spawn(move || {
        let mut text = Vec::new();
        let read = out.take(ANSWER_BYTES).read_to_end(&mut text);
        // After the deadline the receiver is gone.
        let _sent = send.send(read.map(|_| text));
    })?;
    match receive.recv_timeout(DEADLINE) {
        Ok(text) => io::stdout().write_all(&text?),
        Err(_late) => child.kill(),
    }
}

/// Completes the query of `find`.
pub(crate) fn query(current: &OsStr) -> Vec<CompletionCandidate> {
    let place = words().path_of_find();
    let query = Unfinished::parse(current.as_bytes());
    let found = match query.wanted() {
        Wanted::Keys { prefix, .. } => {
            let keys = keys(&place, prefix);
            query.with_keys(keys.iter().map(String::as_str))
        }
        Wanted::Values { key, prefix } => {
            let values = values(&place, key, prefix);
            query.with_values(values.iter().map(Vec::as_slice))
        }
        Wanted::Kinds(_) => query.with_kinds(),
        Wanted::Nothing => Vec::new(),
    };
    candidates(found)
}

/// Completes `KEY=VALUE` of `tag`.
pub(crate) fn tag(current: &OsStr) -> Vec<CompletionCandidate> {
    let place = ask::top_of_mount(&words().path_of_tag());
    let text = current.as_bytes();
    candidates(match text.iter().position(|byte| *byte == b'=') {
        Some(at) => {
            let key = String::from_utf8_lossy(&text[..at]);
            let values = values(&place, &key, &text[at + 1..]);
            values.into_iter().map(|value| [&text[..=at], &value].concat()).collect()
        }
        None => {
            let keys = keys(&place, &current.to_string_lossy());
            keys.into_iter().map(|key| format!("{key}=").into_bytes()).collect()
        }
    })
}

/// Completes a key of `tag --remove` with the keys that the file has.
pub(crate) fn key_of_file(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut keys = keys_of(&words().path_of_tag());
    keys.retain(|key| key.as_bytes().starts_with(current.as_bytes()));
    candidates(keys.into_iter().map(String::into_bytes).collect())
}

fn words() -> Arguments<'static> {
    Arguments(WORDS.get().map(Vec::as_slice).unwrap_or_default())
}

/// Returns the candidates that a shell can take: those that are a line of text.
fn candidates(found: Vec<Vec<u8>>) -> Vec<CompletionCandidate> {
    let is_line = |text: &Vec<u8>| {
        str::from_utf8(text).is_ok_and(|text| !text.contains(|char: char| char.is_control()))
    };
    found
        .into_iter()
        .filter(is_line)
        .map(OsString::from_vec)
        .map(CompletionCandidate::new)
        .collect()
}
