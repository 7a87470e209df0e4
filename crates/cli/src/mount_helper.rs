//! `mount.pelago`: the helper that mount(8) calls for `mount -t pelago`, and so for a line of
//! `/etc/fstab`.
//!
//! The helper is this binary under another name, by a link in `/sbin`. mount(8) passes it a source,
//! a mount point and a list of options. It runs `pelago mount` in the background with equivalent
//! arguments, or `pelago attach` if the source is a file with a credential, `NAME.cred`. An option
//! without an equivalent is refused, as file systems of the kernel do.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use crate::detach;
use crate::failure::Exit;

/// The name of the link to this binary.
const NAME: &str = "mount.pelago";
/// The argument with which `pelago mount` continues in the background.
const DETACH: &str = "--detach";
/// The argument with which `pelago mount` leaves access times as they are.
const NO_ATIME: &str = "--noatime";
/// The end of the name of a file with a credential.
const CREDENTIAL: &[u8] = b".cred";
/// The exit code of mount(8) for a wrong invocation or missing permissions.
const USAGE: u8 = 1;
/// The exit code of mount(8) for a mount that failed.
const FAILED: u8 = 32;

/// Options that are for mount(8) or for systemd, or that Pelago fulfils anyway. Options that begin
/// with `x-` or `X-` are also for other programs.
const IGNORED: &[&str] = &[
    "defaults", "async", "auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail",
    "_netdev", "exec", "nosuid", "nodev", "silent", "loud", "diratime",
];

/// The call of `pelago` that is equivalent to a call of the helper.
#[derive(Debug, PartialEq, Eq)]
struct MountCall {
    /// The arguments of `pelago`, with the verb first.
    args: Vec<OsString>,
    /// The file of the private key, from the option `key=FILE`.
    key: Option<String>,
    /// The mount itself is left out (`-f`).
    is_fake: bool,
}

/// The reason why a call of the helper is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum MountHelperError {
    #[error("usage: {NAME} SOURCE POINT [-fnsv] [-o OPTIONS]")]
    Usage,
    #[error("the flag {flag} is not supported")]
    Flag { flag: String },
    #[error("the option {option} is not supported")]
    Option { option: String },
    #[error("the option {option} needs a value: {option}=VALUE")]
    NoValue { option: String },
    #[error("the options are not UTF-8")]
    NotText,
}

/// The parsed options. Of options that exclude each other, the last one counts.
#[derive(Debug, Default)]
struct MountOptions {
    /// The options of `pelago mount` that have no value.
    set: BTreeSet<&'static str>,
    memory: Option<String>,
    soft: Option<String>,
    key: Option<String>,
}

/// Returns whether the program was called by the helper's name.
pub(crate) fn is_meant(program: Option<&OsStr>) -> bool {
    program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == NAME)
}

/// Mounts for mount(8). `args` are the arguments after the program's name.
pub(crate) fn run(args: impl Iterator<Item = OsString>) -> ExitCode {
    let call = match translate(args) {
        Ok(call) if call.is_fake => return ExitCode::SUCCESS,
        Ok(call) => call,
        Err(error) => {
            eprintln!("{NAME}: {error}");
            return ExitCode::from(USAGE);
        }
    };
    match start(&call) {
        Ok(code) => ExitCode::from(code_of(code)),
        Err(error) => {
            eprintln!("{NAME}: pelago could not be started: {error}");
            ExitCode::from(FAILED)
        }
    }
}

/// Runs `pelago` to its end, and returns its exit code.
fn start(call: &MountCall) -> std::io::Result<Option<i32>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg0(detach::PROGRAM).args(&call.args);
    if let Some(key) = &call.key {
        command.env(pelago_net::key::file::VARIABLE, key);
    }
    Ok(command.status()?.code())
}

/// Translates an exit code of `pelago` into one of mount(8).
fn code_of(code: Option<i32>) -> u8 {
    const USED: i32 = Exit::Usage as i32;
    const DENIED: i32 = Exit::Denied as i32;
    match code {
        Some(0) => 0,
        Some(USED | DENIED) => USAGE,
        _ => FAILED,
    }
}

/// Translates the arguments of mount(8), which may come in any order.
fn translate(args: impl Iterator<Item = OsString>) -> Result<MountCall, MountHelperError> {
    let mut operands = Vec::new();
    let mut lists = Vec::new();
    let mut is_fake = false;
    let mut is_sloppy = false;
    let mut args = args;
    while let Some(arg) = args.next() {
        let flags = match arg.to_str() {
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => flags.to_owned(),
            _ => {
                operands.push(arg);
                continue;
            }
        };
        match flags.as_str() {
            "-o" => lists.push(text(args.next())?),
            // mount(8) has chosen this program by the type.
            "-t" => drop(text(args.next())?),
            flags => {
                for flag in flags.chars().skip(1) {
                    match flag {
                        'f' => is_fake = true,
                        's' => is_sloppy = true,
                        // Do not write `/etc/mtab`, and be verbose: neither has an effect.
                        'n' | 'v' => {}
                        _ => return Err(MountHelperError::Flag { flag: flags.to_owned() }),
                    }
                }
            }
        }
    }
    let Ok([source, point]) = <[OsString; 2]>::try_from(operands) else {
        return Err(MountHelperError::Usage);
    };
    let mut options = MountOptions::default();
    for option in lists.iter().flat_map(|list| split(list)) {
        match options.take(&option) {
            Err(MountHelperError::Option { .. }) if is_sloppy => {}
            taken => taken?,
        }
    }
    let is_guest = source.as_bytes().ends_with(CREDENTIAL);
    let verb = if is_guest { "attach" } else { "mount" };
    let mut args: Vec<OsString> = vec![verb.into(), DETACH.into()];
    // The access times of a guest's reads are never kept.
    options.set.retain(|option| !is_guest || *option != NO_ATIME);
    args.extend(options.set.iter().map(OsString::from));
    args.extend(options.memory.map(|size| format!("--memory={size}").into()));
    args.extend(options.soft.map(|seconds| format!("--soft={seconds}").into()));
    // After `--` the source and the point are not options, even if they begin with `-`.
    args.extend(["--".into(), source, point]);
    Ok(MountCall { args, key: options.key, is_fake })
}

impl MountOptions {
    fn take(&mut self, option: &str) -> Result<(), MountHelperError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let unknown = || MountHelperError::Option { option: option.to_owned() };
        if name.is_empty() || name.starts_with("x-") || name.starts_with("X-") || name == "comment"
        {
            return Ok(());
        }
        let given = match name {
            "key" => Some(&mut self.key),
            "memory" => Some(&mut self.memory),
            "soft" => Some(&mut self.soft),
            _ => None,
        };
        if let Some(given) = given {
            let value = value.filter(|value| !value.is_empty());
            let no_value = || MountHelperError::NoValue { option: name.to_owned() };
            *given = Some(value.ok_or_else(no_value)?.to_owned());
            return Ok(());
        }
        if value.is_some() {
            return Err(unknown());
        }
        match name {
            "ro" => drop(self.set.insert("--read-only")),
            "rw" => drop(self.set.remove("--read-only")),
            "noatime" => drop(self.set.insert(NO_ATIME)),
            "relatime" | "atime" => drop(self.set.remove(NO_ATIME)),
            name if IGNORED.contains(&name) => {}
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

/// Divides a list of options at its commas, except commas in double quotes, as libmount does.
fn split(list: &str) -> Vec<String> {
    let mut options = Vec::new();
    let mut option = String::new();
    let mut is_quoted = false;
    for letter in list.chars() {
        match letter {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => options.push(std::mem::take(&mut option)),
            letter => option.push(letter),
        }
    }
    options.push(option);
    options
}

fn text(arg: Option<OsString>) -> Result<String, MountHelperError> {
    arg.ok_or(MountHelperError::Usage)?.into_string().map_err(|_| MountHelperError::NotText)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::verbs::{Cli, Verb};

    fn call(args: &str) -> Result<MountCall, MountHelperError> {
        translate(args.split(' ').map(OsString::from))
    }

    /// Returns the arguments of `pelago mount` that the options mean.
    fn options(list: &str) -> Vec<String> {
        let call = call(&format!("S P -o {list}")).unwrap();
        let args = call.args.into_iter().map(|arg| arg.into_string().unwrap());
        let args: Vec<String> = args.collect();
        let begin = &args[..2];
        let end = &args[args.len() - 3..];
        assert_eq!((begin.join(" "), end.join(" ")), ("mount --detach".into(), "-- S P".into()));
        args[2..args.len() - 3].to_vec()
    }

    #[test]
    fn the_helper_is_known_by_its_name() {
        for (name, is_helper) in [
            ("mount.pelago", true),
            ("/sbin/mount.pelago", true),
            ("pelago", false),
            ("/mount.pelago/pelago", false),
        ] {
            assert_eq!(is_meant(Some(OsStr::new(name))), is_helper, "{name}");
        }
        assert!(!is_meant(None));
    }

    /// The verb accepts the arguments that options are translated to.
    #[test]
    fn the_verb_takes_the_arguments() {
        let call = call("S P -o ro,noatime,memory=64MiB,soft=30").unwrap();
        let args = call.args.iter().filter(|arg| *arg != DETACH);
        let program = OsString::from("pelago");
        let parsed = Cli::try_parse_from([&program].into_iter().chain(args)).unwrap();
        assert!(matches!(parsed.verb, Verb::Mount(_)));
    }

    /// The call of mount(8) for a line of fstab.
    #[test]
    fn a_line_of_fstab_is_a_mount_in_the_background() {
        let source = "pelago1q@host:7440";
        let call = call(&format!("{source} /mnt -o rw,_netdev,noatime,key=/etc/k")).unwrap();
        let args = ["mount", "--detach", "--noatime", "--", source, "/mnt"];
        let args = args.map(OsString::from).to_vec();
        assert_eq!(call, MountCall { args, key: Some("/etc/k".to_owned()), is_fake: false });
    }

    /// The options are those of a mount.
    #[test]
    fn a_file_with_a_credential_is_attached() {
        let line = "/etc/docs.cred /mnt -o ro,noatime,_netdev,soft=30,key=/etc/k";
        let call = call(line).unwrap();
        let args = ["attach", "--detach", "--read-only", "--soft=30", "--"];
        let args = args.into_iter().chain(["/etc/docs.cred", "/mnt"]).map(OsString::from);
        let args: Vec<OsString> = args.collect();
        let key = Some("/etc/k".to_owned());
        assert_eq!(call, MountCall { args: args.clone(), key, is_fake: false });
        let program = OsString::from("pelago");
        let parsed = Cli::try_parse_from([program].into_iter().chain(args)).unwrap();
        assert!(matches!(parsed.verb, Verb::Attach(_)));
    }

    #[test]
    fn options_become_arguments() {
        let cases: [(&str, &[&str]); 10] = [
            ("defaults", &[]),
            ("rw,relatime,nosuid,nodev,exec,noauto,nofail", &[]),
            ("ro", &["--read-only"]),
            ("ro,rw", &[]),
            ("noatime,ro", &["--noatime", "--read-only"]),
            ("noatime,relatime", &[]),
            ("memory=64MiB,ro", &["--read-only", "--memory=64MiB"]),
            ("soft=30,soft=60", &["--soft=60"]),
            ("x-systemd.automount,x-systemd.idle-timeout=60,X-mount.mkdir,comment=a", &[]),
            (",,ro,", &["--read-only"]),
        ];
        for (list, args) in cases {
            assert_eq!(options(list), args, "{list}");
        }
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        for option in ["noexec", "suid", "strictatime", "remount", "bind", "ro=1", "keys=1"] {
            let error = MountHelperError::Option { option: option.to_owned() };
            assert_eq!(call(&format!("S P -o ro,{option}")), Err(error));
            assert!(call(&format!("S P -s -o ro,{option}")).is_ok(), "{option}");
        }
        for option in ["key", "key=", "memory", "soft"] {
            let name = option.trim_end_matches('=').to_owned();
            let error = MountHelperError::NoValue { option: name };
            assert_eq!(call(&format!("S P -s -o {option}")), Err(error));
        }
    }

    #[test]
    fn flags_of_mount_may_stand_anywhere() {
        let whole = call("S P -o ro,noatime").unwrap();
        for args in [
            "-n -v S P -o ro,noatime",
            "-o ro,noatime S P",
            "S -nv P -o ro -o noatime",
            "S P -t pelago -o ro,noatime",
        ] {
            assert_eq!(call(args), Ok(call("S P -o ro,noatime").unwrap()), "{args}");
        }
        assert_eq!(call("-sf S P -o ro,noatime"), Ok(MountCall { is_fake: true, ..whole }));
        for args in ["S", "S P Q", "S P -o", "S P -t"] {
            assert_eq!(call(args), Err(MountHelperError::Usage), "{args}");
        }
        for flag in ["-N", "-x", "--bind"] {
            let error = MountHelperError::Flag { flag: flag.to_owned() };
            assert_eq!(call(&format!("{flag} S P")), Err(error));
        }
    }

    #[test]
    fn commas_in_quotes_belong_to_the_value() {
        assert_eq!(call("S P -o key=\"/a,b\",ro").unwrap().key.as_deref(), Some("/a,b"));
    }

    #[test]
    fn exit_codes_are_those_of_mount() {
        let cases = [
            (Some(0), 0),
            (Some(Exit::Usage as i32), USAGE),
            (Some(Exit::Denied as i32), USAGE),
            (Some(Exit::Unreachable as i32), FAILED),
            (None, FAILED),
        ];
        for (code, mounts) in cases {
            assert_eq!(code_of(code), mounts);
        }
    }
}
