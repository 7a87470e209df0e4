//! A git repository of more than 20,000 objects: commits, a clone, fsck and repacking.

use crate::mounted::Mounted;

const FOLDERS: usize = 100;
const FILES: usize = 190;
/// Commits after the first; each changes one file of each folder.
const ROUNDS: usize = 8;
const OBJECTS: usize = 20_000;

/// Ignores the user's configuration, and runs no `gc` in the background.
const ALONE: &str = "export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 \
    GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org \
    GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org \
    GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=gc.auto GIT_CONFIG_VALUE_0=0\n";

/// Writes all files in round 0, later one in each folder. No two files are equal, so each is an
/// object.
const WRITE: &str = r#"
    for folder in $(seq 0 $((folders - 1))); do mkdir -p folder$folder; done
    awk 'BEGIN {
        for (folder = 0; folder < ENVIRON["folders"]; folder++)
            for (file = ENVIRON["first"] + 0; file < ENVIRON["end"] + 0; file++) {
                path = "folder" folder "/file" file
                for (line = 0; line <= (folder + file) % 900; line++)
                    print folder, file, ENVIRON["round"] > path
                close(path)
            }
    }'
"#;

const COMMIT: &str = "git add . && git commit -qm round";
const CLONE: &str = "git clone -q --no-local repository clone
    diff -r --exclude=.git repository clone";
const CHECK: &str = "for one in repository clone; do
        git -C $one fsck --full --strict --no-progress
        test -z \"$(git -C $one status --porcelain)\"
    done";
const PACK: &str = "git -C repository gc -q --prune=now
    git -C clone repack -adqf
    git -C clone checkout -q HEAD~5
    git -C clone checkout -q -
    git -C clone pull -q";

/// Commits, clones, checks and packs.
pub(super) fn run(volume: &Mounted) -> Result<(), String> {
    git(volume, "git-init", "git init -q repository")?;
    for round in 0..=ROUNDS {
        let files = if round == 0 { (0, FILES) } else { (round, round + 1) };
        let write = format!(
            "export folders={FOLDERS} round={round} first={} end={}\n{WRITE}",
            files.0, files.1
        );
        git(volume, "git-commit", &format!("cd repository\n{write}\n{COMMIT}"))?;
    }
    let counted = git(volume, "git-count", "git -C repository count-objects -v")?;
    let count: usize = counted
        .lines()
        .filter_map(|line| line.strip_prefix("count: ").or_else(|| line.strip_prefix("in-pack: ")))
        .filter_map(|number| number.parse::<usize>().ok())
        .sum();
    if count < OBJECTS {
        return Err(format!("only {count} objects were made"));
    }
    git(volume, "git-clone", CLONE)?;
    git(volume, "git-fsck", CHECK)?;
    git(volume, "git-gc", PACK)?;
    git(volume, "git-fsck-packed", CHECK)?;
    Ok(())
}

fn git(volume: &Mounted, step: &str, script: &str) -> Result<String, String> {
    volume.shell(step, &format!("{ALONE}{script}")).map(|ending| ending.stdout)
}
