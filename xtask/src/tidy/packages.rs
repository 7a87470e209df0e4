//! Dependencies: licences, bans, the number of packages, and the reason beside each name.

use serde_json::Value;

use super::Findings;
use super::tree::{Source, Tree};

/// Licences that put no further duty on an Apache-2.0 binary.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    // Boost: no duty for binaries.
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unicode-DFS-2016",
    "Unlicense",
    "Zlib",
];

/// Providers of TLS and cryptography besides ring.
const FORBIDDEN: &[&str] = &["openssl", "openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys"];

/// Most packages in Cargo.lock. A commit that raises it says why.
const CEILING: usize = 302;

/// Folders of the members of the workspace.
const MEMBERS: [&str; 3] = ["crates/", "lab/", "xtask/"];

/// Reports packages and manifests that break a rule; `all` is the whole `cargo metadata`.
pub(super) fn check(all: &Value, tree: &Tree, found: &mut Findings) {
    for package in all["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        match package["license"].as_str() {
            Some(licence) if is_allowed(licence) => {}
            Some(licence) => found.of(name, format_args!("its licence {licence} is not allowed")),
            None => found.of(name, "names no licence"),
        }
    }
    if let Some(lock) = tree.file("Cargo.lock") {
        check_lock(lock, found);
    }
    for manifest in tree.files.iter().filter(|file| file.path.ends_with("Cargo.toml")) {
        if manifest.path == "Cargo.toml" {
            check_reasons(manifest, found);
        } else if MEMBERS.iter().any(|folder| manifest.path.starts_with(folder)) {
            check_member(manifest, found);
        }
    }
}

fn check_lock(lock: &Source, found: &mut Findings) {
    let count = lock.text.lines().filter(|line| *line == "[[package]]").count();
    if count > CEILING {
        found.of(&lock.path, format_args!("{count} packages, the ceiling is {CEILING}"));
    }
    for (index, line) in lock.text.lines().enumerate() {
        let name = line.strip_prefix("name = \"").and_then(|rest| rest.strip_suffix('"'));
        if let Some(name) = name.filter(|name| FORBIDDEN.contains(name)) {
            found.at(&lock.path, index + 1, format_args!("{name} is forbidden"));
        }
    }
}

/// Reports lines of `[workspace.dependencies]` without a reason, except those of our own crates.
fn check_reasons(manifest: &Source, found: &mut Findings) {
    let mut inside = false;
    for (index, line) in manifest.text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
        } else if inside && line.contains('=') && !line.starts_with('#') && !line.contains("path =")
        {
            let reason = line.rsplit_once(" # ").map_or("", |(_, reason)| reason.trim());
            if reason.is_empty() {
                found.at(&manifest.path, index + 1, "a dependency without its reason");
            }
        }
    }
}

/// Reports a member that does not take versions and lints from the workspace.
fn check_member(manifest: &Source, found: &mut Findings) {
    if !manifest.text.contains("[lints]\nworkspace = true\n") {
        found.of(&manifest.path, "does not take its lints from the workspace");
    }
    let mut inside = false;
    for (index, line) in manifest.text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]");
        } else if inside && line.contains('=') && !line.starts_with('#') {
            let inherits = line.contains("workspace = true");
            if !inherits {
                found.at(&manifest.path, index + 1, "a version outside the root Cargo.toml");
            }
        }
    }
}

/// Returns whether an SPDX expression can be satisfied with allowed licences. Ignores brackets and
/// splits at `AND` first, which is at least as strict.
fn is_allowed(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], "").replace('/', " OR ");
    let is_listed = |name: &str| ALLOWED.contains(&name.trim());
    plain.split(" AND ").all(|part| part.split(" OR ").any(is_listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_read_as_expressions() {
        for allowed in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in ["", "GPL-3.0", "MIT AND GPL-2.0", "(MIT OR X) AND MPL-2.0", "MIT MIT"] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn a_dependency_needs_its_reason() {
        let text = "[workspace.dependencies]\nours = { path = \"crates/ours\" }\n\
                    good = \"1\" # why\nbad = \"1\"\n[profile.release]\ndebug = 1\n";
        let mut found = Findings::default();
        check_reasons(&source("Cargo.toml", text), &mut found);
        assert_eq!(found.0, ["Cargo.toml:4: a dependency without its reason"]);
    }

    #[test]
    fn a_member_inherits() {
        let text = "[lints]\nworkspace = true\n[dependencies]\na.workspace = true\nb = \"1\"\n";
        let mut found = Findings::default();
        check_member(&source("crates/a/Cargo.toml", text), &mut found);
        assert_eq!(found.0.len(), 1);
        check_member(&source("crates/a/Cargo.toml", "[package]\n"), &mut found);
        assert_eq!(found.0.len(), 2);
    }

    #[test]
    fn forbidden_packages_and_the_ceiling() {
        let mut text = "[[package]]\nname = \"openssl-sys\"\n".to_owned();
        let mut found = Findings::default();
        check_lock(&source("Cargo.lock", &text), &mut found);
        assert_eq!(found.0, ["Cargo.lock:2: openssl-sys is forbidden"]);
        text.push_str(&"[[package]]\n".repeat(CEILING));
        check_lock(&source("Cargo.lock", &text), &mut found);
        assert_eq!(found.0.len(), 3);
    }
}
