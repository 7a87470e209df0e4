//! `docs/cli.md` against what a status has: its table "Fields of a status" names each field of each
//! state, and no other.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    DownReport, FarReport, MirrorsReport, RelayReport, StandbyReport, StatusReport, UpReport,
};

const DOCUMENT: &str = include_str!("../../../../docs/cli.md");
/// The head of the table. `of` lists the states that have a field, or says `all`.
const HEAD: &str = "| field | of | means |";

/// A status with a value in every field, and how the table calls its state.
fn samples() -> [(&'static str, StatusReport); 9] {
    let down = DownReport {
        dir: "/v".into(),
        is_far: false,
        pid: Some(7),
        is_dying: false,
        stopped_cleanly: true,
        is_not_primary: true,
        dead_mount: Some("/v/files".into()),
    };
    [
        ("up", StatusReport::Up(Box::new(UpReport::sample()))),
        ("mounted", StatusReport::Far(FarReport::sample())),
        ("mirrors", StatusReport::Mirrors(MirrorsReport::sample())),
        ("relay", StatusReport::Relay(RelayReport::sample())),
        ("stands by", StatusReport::Standby(StandbyReport::sample())),
        ("down", StatusReport::Down(down)),
        ("down (mirrors)", StatusReport::MirrorsDown("/m".into())),
        ("down (relay)", StatusReport::RelayDown("/r".into())),
        ("down (store)", StatusReport::StoreServerDown { dir: "/a".into(), store: "/s".into() }),
    ]
}

/// Adds the paths of an object's fields, as jq writes them without the first dot.
fn add_fields(value: &Value, path: &str, fields: &mut BTreeSet<String>) {
    let elements = value.as_array().map(Vec::as_slice).unwrap_or_default();
    match (value.as_object(), elements.first()) {
        (Some(object), _) => {
            for (key, inner) in object {
                let dot = if path.is_empty() { "" } else { "." };
                add_fields(inner, &format!("{path}{dot}{key}"), fields);
            }
        }
        (None, Some(element)) if element.is_object() => {
            add_fields(element, &format!("{path}[]"), fields);
        }
        (None, _) => drop(fields.insert(path.to_owned())),
    }
}

/// Returns the rows of the table: each field, and the states that have it.
fn documented() -> Vec<(&'static str, Vec<&'static str>)> {
    let (_, table) = DOCUMENT.split_once(HEAD).unwrap();
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &'static str| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        let field = cells.next().unwrap().trim_matches('`');
        (field, cells.next().unwrap().split(", ").collect())
    };
    lines.map(row).collect()
}

#[test]
fn each_field_is_documented() {
    for (state, report) in samples() {
        let mut fields = BTreeSet::new();
        add_fields(&report.to_json(), "", &mut fields);
        let has = |of: &[&str]| of.contains(&state) || of == ["all"];
        let rows = documented().into_iter().filter(|(_, of)| has(of));
        let rows: BTreeSet<String> = rows.map(|(field, _)| field.to_owned()).collect();
        assert_eq!(rows, fields, "{state}");
    }
}

#[test]
fn each_row_is_of_a_state() {
    let states: Vec<&str> = samples().iter().map(|(state, _)| *state).collect();
    for (field, of) in documented() {
        let is_known = |name: &&str| *name == "all" || states.contains(name);
        assert!(of.iter().all(is_known), "{field}: {of:?}");
    }
}
