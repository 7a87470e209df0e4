//! The list of what only a primary had that was replaced by force, and became a mirror.

use std::path::Path;
use std::process::ExitCode;

use pelago_server::{KeptChange, KeptChanges, kept_changes};
use serde_json::{Value, json};

use super::{Args, ConflictError};
use crate::failure::{Exit, Failure, Outcome};
use crate::moment::Moment;
use crate::{json, locate, output};

/// Lists what is kept in the folder of a server of mirrors.
pub(super) fn run(args: &Args, dir: &Path) -> Outcome<ExitCode> {
    if args.path.is_some() {
        return Err(Failure::new(Exit::Usage, ConflictError::OfMirrors)
            .hint("name the folder alone, and copy what you need from where it says"));
    }
    let dir = locate::absolute(dir)?;
    let kept = kept_changes(&dir).map_err(|error| Failure::new(Exit::from(error.kind()), error))?;
    match args.json {
        true => output::print_json(&object_of(&kept)),
        false => output::print(&text_of(&kept)),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn object_of(kept: &[KeptChanges]) -> Value {
    let change = |change: &KeptChange| {
        json!({
            "what": change.what.word(),
            "path": change.path,
            "there": change.there,
            "both": change.is_of_both,
            "bytes": change.bytes,
            "written": change.changed,
            "mode": change.attributes.map(|(mode, ..)| mode),
            "uid": change.attributes.map(|(_, uid, _)| uid),
            "gid": change.attributes.map(|(_, _, gid)| gid),
        })
    };
    let of_volume = |kept: &KeptChanges| {
        json!({
            "volume": kept.volume.to_string(),
            "reign": kept.reign,
            "files": kept.files.to_string_lossy(),
            "changes": kept.changes.iter().map(change).collect::<Vec<_>>(),
        })
    };
    json!({
        "version": json::VERSION,
        "kept": kept.iter().map(of_volume).collect::<Vec<_>>(),
    })
}

fn text_of(kept: &[KeptChanges]) -> String {
    if kept.is_empty() {
        return "nothing is kept\n".to_owned();
    }
    let mut text = String::new();
    for KeptChanges { volume, reign, files, changes } in kept {
        text.push_str(&format!("volume    {volume}, as its primary of reign {reign} had it\n"));
        match changes.is_empty() {
            true => text.push_str("kept      nothing: it had no changes of its own\n"),
            false => {
                text.extend(changes.iter().map(line_of));
                text.push_str(&format!("files     {}\n", files.display()));
            }
        }
    }
    text
}

fn line_of(change: &KeptChange) -> String {
    let bytes = change.bytes.map_or_else(|| "-".to_owned(), output::bytes);
    let written = match change.changed {
        None => "-".to_owned(),
        Some(seconds) => match Moment::of(seconds) {
            Some(moment) => moment.to_string(),
            None => format!("{seconds} s"),
        },
    };
    let what = change.what.word();
    let path = output::name(&change.path);
    let there = match &change.there {
        Some(there) => format!(" ({})", output::name(there)),
        None => String::new(),
    };
    let both = if change.is_of_both { ", changed there too" } else { "" };
    format!("{bytes:>8}  {written:<20}  {what:<10}  {path}{there}{both}\n")
}

#[cfg(test)]
mod tests {
    use pelago_server::OwnChange;
    use pelago_store::volume::VolumeId;

    use super::*;

    #[test]
    fn a_line_has_the_change_and_both_paths() {
        let change = KeptChange {
            what: OwnChange::Changed,
            path: "a/b\u{7}".to_owned(),
            there: Some("c".to_owned()),
            is_of_both: true,
            bytes: Some(5000),
            changed: Some(1_798_761_600),
            attributes: Some((0o640, 1, 2)),
        };
        let removed = KeptChange {
            what: OwnChange::Removed,
            path: "d".to_owned(),
            there: None,
            is_of_both: false,
            bytes: None,
            changed: None,
            attributes: None,
        };
        let kept = KeptChanges {
            volume: VolumeId([0xab; 16]),
            reign: 1,
            files: "/m/kept/f".into(),
            changes: vec![change, removed],
        };
        let text = text_of(std::slice::from_ref(&kept));
        let lines: Vec<&str> = text.lines().collect();
        let head = format!("volume    {}, as its primary of reign 1 had it", "ab".repeat(16));
        assert_eq!(
            lines,
            [
                head.as_str(),
                " 4.9 KiB  2027-01-01 00:00 UTC  changed     a/b\\u{7} (c), changed there too",
                "       -  -                     removed     d",
                "files     /m/kept/f",
            ]
        );
        let object = object_of(&[kept]);
        assert_eq!(object["kept"][0]["changes"][0]["mode"], 0o640);
        assert_eq!(object["kept"][0]["changes"][1]["what"], "removed");
        assert_eq!(text_of(&[]), "nothing is kept\n");
    }
}
